//! Random interleavings of all calls, in one thread, against a queue.

mod support;

use rdma_conn::Common;
use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use rdma_conn::send_recv::{
    Config, Full, Inline, Message, Receiver, RecvError, SendError, Sender, Ticket,
};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, WaitStrategy, pair};
use support::{NEVER, assert_content, content, device};

/// A call.
#[derive(Debug, Clone)]
enum Op {
    Send(usize),
    SendInPlace(usize),
    Receive,
    /// Frees one of the messages that are held, on this thread or by dropping it.
    Free(prop::sample::Index, bool),
    Flush,
    IsSent(prop::sample::Index),
    Wait(prop::sample::Index),
    WaitAll,
}

fn op() -> impl Strategy<Value = Op> {
    use prop::sample::Index;
    prop_oneof![
        6 => (0usize..80).prop_map(Op::Send),
        2 => (0usize..80).prop_map(Op::SendInPlace),
        6 => Just(Op::Receive),
        5 => (any::<Index>(), any::<bool>()).prop_map(|(i, here)| Op::Free(i, here)),
        1 => Just(Op::Flush),
        2 => any::<Index>().prop_map(Op::IsSent),
        1 => any::<Index>().prop_map(Op::Wait),
        1 => Just(Op::WaitAll),
    ]
}

/// Any configuration that is valid.
fn config() -> impl Strategy<Value = Config> {
    let sizes = (1u32..=70, 1u32..=20, 1u32..=20, 1u32..=40);
    let policies = (0u32..=20, 0u32..=20, 0u32..=20, 0u32..=70, 0u32..=20);
    let wait = prop_oneof![
        Just(WaitStrategy::Spin),
        Just(WaitStrategy::Block),
        Just(WaitStrategy::Adaptive),
        Just(WaitStrategy::SpinThenBlock(Duration::from_micros(1))),
    ];
    let inline =
        prop_oneof![Just(Inline::Auto), Just(Inline::Never), (0u32..100).prop_map(Inline::UpTo)];
    (sizes, policies, wait, inline).prop_map(|(sizes, policies, wait, inline)| {
        let (message_bytes, unacked, recv_depth, poll_batch) = sizes;
        let (batch, signal, repost, pack, credit) = policies;
        Config {
            message_bytes,
            unacked,
            batch: batch.clamp(1, unacked),
            signal_every: signal.min(unacked),
            recv_depth,
            poll_batch,
            repost_batch: repost.min(recv_depth),
            credit_threshold: credit.min(recv_depth),
            // Off, or from 8 bytes to a whole message.
            pack_bytes: if pack < 8 || message_bytes < 8 { 0 } else { pack.min(message_bytes) },
            inline,
            common: Common { wait, keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        }
    })
}

/// A connection, and the queue that it has to be.
struct Model {
    sender: Sender,
    receiver: Receiver,
    /// Sizes of the messages that were accepted and not received yet.
    queue: VecDeque<usize>,
    sent: u64,
    received: u64,
    bytes: u64,
    tickets: Vec<Ticket>,
    /// Tickets up to this one are known to be acknowledged.
    acknowledged: Option<Ticket>,
    held: Vec<Message>,
    window: usize,
}

impl Model {
    fn new(config: &Config) -> Model {
        let device = device();
        let (left, right) = pair::<SendRecv>(&device, &device, config).unwrap();
        Model {
            sender: left.sender,
            receiver: right.receiver,
            queue: VecDeque::new(),
            sent: 0,
            received: 0,
            bytes: 0,
            tickets: Vec::new(),
            acknowledged: None,
            held: Vec::new(),
            window: config.recv_depth as usize,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Send(size) => {
                let message = content(0, self.sent, size);
                let sent = self.sender.try_send(&message);
                self.sent(sent, size);
            }
            Op::SendInPlace(size) => {
                let message = content(0, self.sent, size);
                let mut filled = 0;
                let sent = self.sender.try_send_with(size, |slot| {
                    slot.copy_from_slice(&message);
                    filled += 1;
                });
                assert_eq!(filled, u32::from(sent.is_ok()));
                self.sent(sent, size);
            }
            Op::Receive => self.receive(),
            Op::Free(index, here) => {
                if !self.held.is_empty() {
                    let message = self.held.swap_remove(index.index(self.held.len()));
                    if here { self.receiver.free(message) } else { drop(message) }
                }
            }
            Op::Flush => self.sender.flush().unwrap(),
            Op::IsSent(index) => {
                if let Some(ticket) = self.ticket(index)
                    && self.sender.is_acked(ticket).unwrap()
                {
                    self.acknowledged = self.acknowledged.max(Some(ticket));
                }
            }
            Op::Wait(index) => {
                if let Some(ticket) = self.ticket(index) {
                    self.sender.wait_acked(ticket).unwrap();
                    self.acknowledged = self.acknowledged.max(Some(ticket));
                }
            }
            Op::WaitAll => {
                self.sender.wait_all().unwrap();
                self.acknowledged = self.tickets.last().copied();
            }
        }
        self.check();
    }

    fn ticket(&self, index: prop::sample::Index) -> Option<Ticket> {
        (!self.tickets.is_empty()).then(|| self.tickets[index.index(self.tickets.len())])
    }

    fn sent(&mut self, sent: Result<Ticket, SendError>, size: usize) {
        let limit = self.sender.max_message_bytes();
        match sent {
            Ok(ticket) => {
                assert!(size <= limit);
                assert!(self.tickets.last().is_none_or(|last| *last <= ticket));
                self.tickets.push(ticket);
                self.queue.push_back(size);
                self.sent += 1;
                self.bytes += size as u64;
            }
            Err(SendError::TooLong { bytes, limit: said }) => {
                assert_eq!((bytes, said), (size, limit));
                assert!(size > limit);
            }
            // Never before anything was sent.
            Err(SendError::Full(Full::Window | Full::Credits)) => assert!(self.sent > 0),
            Err(e) => panic!("{e}"),
        }
    }

    fn receive(&mut self) {
        match self.receiver.try_recv() {
            Ok(message) => {
                let size = self.queue.pop_front().expect("a message that was not sent");
                assert_content(&message, 0, self.received, size);
                self.received += 1;
                self.held.push(message);
            }
            Err(RecvError::Empty) => {
                // What is acknowledged lies in the receiver's memory.
                let next = self.tickets.get(self.received as usize).copied();
                assert!(next.is_none() || next > self.acknowledged, "acknowledged, and not there");
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn check(&mut self) {
        if let Some(ticket) = self.acknowledged {
            assert!(self.sender.is_acked(ticket).unwrap(), "acknowledged once, and not any more");
        }
        let (sent, received) = (self.sender.stats(), self.receiver.stats());
        assert_eq!((sent.messages, sent.bytes), (self.sent, self.bytes));
        assert_eq!(received.messages, self.received);
    }

    /// With everything freed, a message always gets through: nothing is stuck.
    fn end(mut self) {
        self.held.clear();
        self.sender.wait_all().unwrap();
        self.acknowledged = self.tickets.last().copied();
        while !self.queue.is_empty() {
            self.receive();
            self.held.clear();
        }
        for _ in 0..2 * self.window {
            assert_eq!(self.receiver.try_recv().unwrap_err(), RecvError::Empty);
            self.sender.send_acked(b"").unwrap();
            assert_eq!(*self.receiver.recv().unwrap(), *b"");
        }
        self.sender.close().unwrap();
        assert_eq!(self.receiver.recv().unwrap_err(), RecvError::Closed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_connection_is_a_queue(config in config(), ops in prop::collection::vec(op(), 0..120)) {
        config.validate().unwrap();
        let mut model = Model::new(&config);
        ops.into_iter().for_each(|op| model.apply(op));
        model.end();
    }
}
