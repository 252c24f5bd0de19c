//! Ends of connections: either half is closed or dropped, in any order and at once, with messages
//! on their way or without. A close is seen as a close; messages that the other end has not taken
//! are an error with their number.
//!
//! Shows: closing.

mod support;

use rdma_conn::Common;
use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
use std::sync::Barrier;

use rdma_conn::device::Device;
use rdma_conn::direct_read::AckMode;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::CloseReason;
use rdma_conn::{
    BufferedRead, BufferedWrite, Protocol, RecvHalf, SendHalf, SendRecv, WaitStrategy,
};
use rdma_conn::{buffered_read, buffered_write, direct_read, send_recv};
use support::{NEVER, PATIENCE, bounded, device};

/// Result of the end of a half.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HalfEnd {
    Closed,
    Missing(u64),
    Other(String),
}

impl HalfEnd {
    fn from_reason(ended: &CloseReason) -> HalfEnd {
        match ended {
            CloseReason::Closed => HalfEnd::Closed,
            CloseReason::PeerClosed { unacked } => HalfEnd::Missing(*unacked),
            other => HalfEnd::Other(other.to_string()),
        }
    }
}

/// A half that sends.
trait ClosableSender: Send + 'static {
    fn send(&mut self, device: &Device) -> Result<(), HalfEnd>;
    fn close(self) -> HalfEnd;
}

/// A half that receives.
trait ClosableReceiver: Send + 'static {
    /// Waits for one message and frees it.
    fn take(&mut self, device: &Device) -> Result<(), HalfEnd>;
    fn close(self);
}

macro_rules! copying_connection {
    ($module:ident, $errors:ident) => {
        impl ClosableSender for $module::Sender {
            fn send(&mut self, _: &Device) -> Result<(), HalfEnd> {
                SendHalf::send(self, b"a message").map(drop).map_err(|e| match e {
                    $errors::SendError::Ended(ended) => HalfEnd::from_reason(&ended),
                    other => HalfEnd::Other(other.to_string()),
                })
            }

            fn close(self) -> HalfEnd {
                match SendHalf::close(self) {
                    Ok(()) => HalfEnd::Closed,
                    Err($errors::SendError::Ended(ended)) => HalfEnd::from_reason(&ended),
                    Err(other) => HalfEnd::Other(other.to_string()),
                }
            }
        }

        impl ClosableReceiver for $module::Receiver {
            fn take(&mut self, _: &Device) -> Result<(), HalfEnd> {
                self.recv().map(drop).map_err(|e| match e {
                    $errors::RecvError::Closed => HalfEnd::Closed,
                    other => HalfEnd::Other(other.to_string()),
                })
            }

            fn close(self) {
                RecvHalf::close(self);
            }
        }
    };
}

copying_connection!(send_recv, send_recv);
copying_connection!(buffered_read, send_recv);
copying_connection!(buffered_write, send_recv);

impl ClosableSender for direct_read::Sender {
    fn send(&mut self, device: &Device) -> Result<(), HalfEnd> {
        let readable = direct_read::BufferConfig { peers_read: true, signal: true };
        let buffer = device.pd().register_buffer(64, readable).unwrap();
        self.offer(buffer, b"").map(drop).map_err(|e| match e.error {
            direct_read::OfferError::Send(direct_read::SendError::Ended(ended)) => {
                HalfEnd::from_reason(&ended)
            }
            other => HalfEnd::Other(other.to_string()),
        })
    }

    fn close(self) -> HalfEnd {
        match self.close_and_take() {
            Ok(_) => HalfEnd::Closed,
            Err(direct_read::SendError::Ended(ended)) => HalfEnd::from_reason(&ended),
            Err(other) => HalfEnd::Other(other.to_string()),
        }
    }
}

impl ClosableReceiver for direct_read::Receiver {
    fn take(&mut self, device: &Device) -> Result<(), HalfEnd> {
        let end = |e| match e {
            direct_read::RecvError::Closed => HalfEnd::Closed,
            other => HalfEnd::Other(other.to_string()),
        };
        let request = self.next_request().map_err(end)?;
        let place = device.pd().register_buffer(64, direct_read::BufferConfig::default());
        let reading =
            request.read_into(place.unwrap()).map_err(|e| HalfEnd::Other(e.to_string()))?;
        self.wait(reading).map(drop).map_err(|e| HalfEnd::Other(e.to_string()))
    }

    fn close(self) {
        drop(self);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Sender,
    Receiver,
    Neither,
}

/// One history of one direction.
#[derive(Debug, Clone, Copy)]
struct ClosingHistory {
    sent: u64,
    taken: u64,
    first: First,
    sender_closes: bool,
    receiver_closes: bool,
}

fn cases() -> impl Iterator<Item = ClosingHistory> {
    let counts = [(0, 0), (1, 0), (1, 1), (3, 0), (3, 1), (3, 3)];
    let orders = [First::Sender, First::Receiver, First::Neither];
    let ways = [(true, true), (true, false), (false, true), (false, false)];
    counts.into_iter().flat_map(move |(sent, taken)| {
        orders.into_iter().flat_map(move |first| {
            ways.into_iter().map(move |(sender_closes, receiver_closes)| ClosingHistory {
                sent,
                taken,
                first,
                sender_closes,
                receiver_closes,
            })
        })
    })
}

impl ClosingHistory {
    /// Ends the sender, and returns the result if it was closed.
    fn end_sender(&self, sender: impl ClosableSender) -> Option<HalfEnd> {
        if self.sender_closes {
            return Some(sender.close());
        }
        drop(sender);
        None
    }

    fn end_receiver(&self, receiver: impl ClosableReceiver) {
        if self.receiver_closes { receiver.close() } else { drop(receiver) }
    }

    /// The sender ends while its receiver still polls: that one has all, and then the end.
    fn sender_first(
        &self,
        device: &Device,
        sender: impl ClosableSender,
        mut receiver: impl ClosableReceiver,
    ) {
        let case = *self;
        let ending = std::thread::spawn(move || case.end_sender(sender));
        for _ in self.taken..self.sent {
            assert_eq!(receiver.take(device), Ok(()), "{self:?}");
        }
        assert_eq!(receiver.take(device), Err(HalfEnd::Closed), "{self:?}");
        assert_eq!(receiver.take(device), Err(HalfEnd::Closed), "{self:?}");
        self.end_receiver(receiver);
        let ended = ending.join().unwrap();
        assert!(matches!(ended, None | Some(HalfEnd::Closed)), "{self:?}: {ended:?}");
    }

    /// The receiver ends first: that is a close, unless it has left messages.
    fn receiver_first(
        &self,
        device: &Device,
        mut sender: impl ClosableSender,
        receiver: impl ClosableReceiver,
    ) {
        self.end_receiver(receiver);
        let missing = self.sent - self.taken;
        let expected = if missing == 0 { HalfEnd::Closed } else { HalfEnd::Missing(missing) };
        if self.sender_closes {
            assert_eq!(self.end_sender(sender), Some(expected), "{self:?}");
            return;
        }
        // A message is accepted once more at most, if it is gathered or not looked after.
        let told = (0..1000).find_map(|_| sender.send(device).err());
        assert!(matches!(told, Some(HalfEnd::Closed | HalfEnd::Missing(_))), "{self:?}: {told:?}");
        self.end_sender(sender);
    }

    /// Both ends close at once: neither hangs, and an end that misses no message sees a close.
    fn together(&self, sender: impl ClosableSender, receiver: impl ClosableReceiver) {
        let barrier = &Barrier::new(2);
        let ended = std::thread::scope(|scope| {
            let ending = scope.spawn(move || {
                barrier.wait();
                self.end_sender(sender)
            });
            barrier.wait();
            self.end_receiver(receiver);
            ending.join().unwrap()
        });
        let missing = self.sent - self.taken;
        match ended {
            None | Some(HalfEnd::Closed) => {}
            Some(HalfEnd::Missing(count)) => assert!((1..=missing).contains(&count), "{self:?}"),
            other => panic!("{self:?}: {other:?}"),
        }
    }
}

fn every_case<S: ClosableSender, R: ClosableReceiver>(
    name: &str,
    connect: impl Fn(&Device) -> (S, R),
) {
    every_case_of(name, u64::MAX, connect);
}

/// The cases with up to `most` messages.
fn every_case_of<S: ClosableSender, R: ClosableReceiver>(
    name: &str,
    most: u64,
    connect: impl Fn(&Device) -> (S, R),
) {
    let device = device();
    for case in cases().filter(|case| case.sent <= most) {
        let (mut sender, mut receiver) = connect(&device);
        for _ in 0..case.sent {
            assert_eq!(sender.send(&device), Ok(()), "{name} {case:?}");
        }
        for _ in 0..case.taken {
            assert_eq!(receiver.take(&device), Ok(()), "{name} {case:?}");
        }
        match case.first {
            First::Sender => case.sender_first(&device, sender, receiver),
            First::Receiver => case.receiver_first(&device, sender, receiver),
            First::Neither => case.together(sender, receiver),
        }
    }
}

fn ring(layout: Layout) -> RingShape {
    RingShape { ring_bytes: 4096, message_bytes: 1024, layout }
}

fn send_recv_config() -> send_recv::Config {
    // One to a doorbell: what is accepted is on its way.
    let unbatched =
        send_recv::Config { batch: 1, unacked: 64, ..support::config::<send_recv::Config>() };
    send_recv::Config {
        message_bytes: 64,
        recv_depth: 64,
        common: Common { keepalive: NEVER, ..unbatched.common },
        ..unbatched
    }
}

fn buffered_write_configs() -> impl Iterator<Item = buffered_write::Config> {
    let tails = [buffered_write::Tail::Written, buffered_write::Tail::Immediate { window: 16 }];
    tails.into_iter().map(|tail| buffered_write::Config {
        ring: ring(Layout::Plain),
        tail,
        common: Common { keepalive: NEVER, ..support::common() },
        ..support::config::<buffered_write::Config>()
    })
}

/// A receiver tells the sender what has landed, and so acknowledges it, before a sleep and after
/// some looks that find nothing. This receiver does neither, so that what it has not taken is
/// missing, however long its READs take.
fn buffered_read_config() -> buffered_read::Config {
    buffered_read::Config {
        ring: ring(Layout::Plain),
        max_held: 64,
        head_update_polls: u32::MAX,
        common: Common {
            keepalive: NEVER,
            wait: WaitStrategy::Spin,
            // A sender that is dropped waits for the receiver's thread.
            linger: PATIENCE,
            ..support::common()
        },
        ..support::config::<buffered_read::Config>()
    }
}

#[test]
fn send_recv_ends_in_every_order() {
    let one = send_recv_config();
    let packed = send_recv::Config { pack_bytes: 64, ..one };
    let gathering = send_recv::Config { batch: 8, ..one };
    for config in [one, packed, gathering] {
        bounded(move || {
            every_case("send_recv", |device| {
                let mut receiver = rdma_conn::receiver::<SendRecv>(device, &config, 1).unwrap();
                let sender =
                    rdma_conn::join::<SendRecv>(&mut receiver, device, device, &config).unwrap();
                (Flushing(sender), receiver)
            });
        });
    }
}

/// As above, with the receive buffers of a pool. Credits that are borrowed have to be asked
/// for, and the receiver answers when it is called: there is one to begin with.
#[test]
fn send_recv_over_a_shared_pool_ends_in_every_order() {
    let one = send_recv_config();
    let uncontrolled = send_recv::Config { credits: false, ..one };
    let all = [(one, 1), (send_recv::Config { batch: 8, ..one }, 1), (uncontrolled, 3)];
    // The kernel's rxe does not say what its queue pairs keep: each end takes a second there.
    let is_silent = device().name().starts_with("rxe");
    let (configs, ways) =
        if is_silent { (&all[..1], 1) } else { (&all[..], send_recv::Reposting::ALL.len()) };
    for &(config, most) in configs {
        for &reposting in &send_recv::Reposting::ALL[..ways] {
            bounded(move || {
                every_case_of("send_recv over a shared pool", most, |device| {
                    let sizes = send_recv::SharedConfig::new(&config, 1);
                    let sizes = send_recv::SharedConfig { reposting, ..sizes };
                    let pool = send_recv::SharedPool::new(device, sizes).unwrap();
                    let mut receiver =
                        rdma_conn::receiver_shared::<SendRecv>(device, &config, 1, &pool).unwrap();
                    let sender = rdma_conn::join_shared::<SendRecv>(
                        &mut receiver,
                        &pool,
                        device,
                        device,
                        &config,
                    );
                    (Flushing(sender.unwrap()), receiver)
                });
            });
        }
    }
}

/// A sender that gathers, and flushes each message.
struct Flushing(send_recv::Sender);

impl ClosableSender for Flushing {
    fn send(&mut self, device: &Device) -> Result<(), HalfEnd> {
        ClosableSender::send(&mut self.0, device)?;
        self.0.flush().map_err(|e| match e {
            send_recv::SendError::Ended(ended) => HalfEnd::from_reason(&ended),
            other => HalfEnd::Other(other.to_string()),
        })
    }

    fn close(self) -> HalfEnd {
        ClosableSender::close(self.0)
    }
}

#[test]
fn buffered_write_ends_in_every_order() {
    for config in buffered_write_configs() {
        bounded(move || {
            every_case("buffered_write", |device| {
                let mut receiver =
                    rdma_conn::receiver::<BufferedWrite>(device, &config, 1).unwrap();
                let sender =
                    rdma_conn::join::<BufferedWrite>(&mut receiver, device, device, &config)
                        .unwrap();
                (sender, receiver)
            });
        });
    }
}

#[test]
fn buffered_read_ends_in_every_order() {
    let config = buffered_read_config();
    bounded(move || {
        every_case("buffered_read", |device| {
            let mut receiver = rdma_conn::receiver::<BufferedRead>(device, &config, 1).unwrap();
            let sender =
                rdma_conn::join::<BufferedRead>(&mut receiver, device, device, &config).unwrap();
            (sender, receiver)
        });
    });
}

#[test]
fn direct_read_ends_in_every_order() {
    for ack in AckMode::ALL {
        bounded(move || {
            let base = direct_read::Config {
                common: Common { keepalive: NEVER, ..support::common() },
                ..support::config::<direct_read::Config>()
            };
            let config = direct_read::Config { ack, window: 4, ..base };
            every_case("direct_read", |device| {
                direct_read::pair::<direct_read::Buffer>(device, device, &config).unwrap()
            });
        });
    }
}

/// A half of one of two ends.
enum AnyHalf<S, R> {
    Sender(S),
    Receiver(R),
}

/// All four halves of a connection, each by a thread of its own, in every order, closed or
/// dropped. All messages were taken, so that every end is a close.
fn all_halves<S: ClosableSender, R: ClosableReceiver>(connect: impl Fn(&Device) -> [(S, R); 2]) {
    let device = device();
    let orders = (0..256).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6]);
    let is_order = |order: &[usize; 4]| (0..4).all(|half| order.contains(&half));
    for (nth, order) in orders.filter(is_order).enumerate() {
        // Each way of ending of all halves, spread over the orders.
        for closes in [nth % 16, 15 - nth % 16] {
            let [(mut a, mut from_b), (mut b, mut from_a)] = connect(&device);
            for _ in 0..2 {
                assert_eq!((a.send(&device), b.send(&device)), (Ok(()), Ok(())));
                assert_eq!((from_a.take(&device), from_b.take(&device)), (Ok(()), Ok(())));
            }
            let halves = [AnyHalf::Sender(a), AnyHalf::Receiver(from_b), AnyHalf::Sender(b)];
            let mut halves: Vec<_> = halves.into_iter().map(Some).collect();
            halves.push(Some(AnyHalf::Receiver(from_a)));
            let ending: Vec<_> = order
                .iter()
                .map(|&half| {
                    let (end, closes) = (halves[half].take().unwrap(), closes >> half & 1 == 1);
                    std::thread::spawn(move || match end {
                        AnyHalf::Sender(sender) if closes => Some(sender.close()),
                        AnyHalf::Sender(sender) => {
                            drop(sender);
                            None
                        }
                        AnyHalf::Receiver(receiver) => {
                            if closes {
                                receiver.close()
                            } else {
                                drop(receiver)
                            }
                            None
                        }
                    })
                })
                .collect();
            for (half, ending) in order.into_iter().zip(ending) {
                let ended = ending.join().unwrap();
                assert!(ended.as_ref().is_none_or(|e| *e == HalfEnd::Closed), "{half}: {ended:?}");
            }
        }
    }
}

#[test]
fn the_halves_of_a_connection_end_in_every_order() {
    let config = send_recv_config();
    bounded(move || {
        all_halves(|device| {
            let (a, b) = rdma_conn::pair::<SendRecv>(device, device, &config).unwrap();
            [(a.sender, a.receiver), (b.sender, b.receiver)]
        });
    });
    for config in buffered_write_configs() {
        bounded(move || {
            all_halves(|device| {
                let (a, b) = rdma_conn::pair::<BufferedWrite>(device, device, &config).unwrap();
                [(a.sender, a.receiver), (b.sender, b.receiver)]
            });
        });
    }
    let config = buffered_read_config();
    bounded(move || {
        all_halves(|device| {
            let (a, b) = rdma_conn::pair::<BufferedRead>(device, device, &config).unwrap();
            [(a.sender, a.receiver), (b.sender, b.receiver)]
        });
    });
}

/// The client of a service is done, closes its connection and goes; its server sees that.
#[test]
fn a_client_that_closes_and_goes_has_closed() {
    bounded(|| {
        let (device, config) = (device(), support::config::<send_recv::Config>());
        let (mut client, mut server) =
            rdma_conn::pair::<SendRecv>(&device, &device, &config).unwrap();
        client.sender.send_acked(b"request").unwrap();
        assert_eq!(&*server.receiver.recv().unwrap(), b"request");
        SendHalf::send(&mut server.sender, b"reply").unwrap();
        server.sender.flush().unwrap();
        assert_eq!(&*client.receiver.recv().unwrap(), b"reply");
        SendHalf::close(client.sender).unwrap();
        drop(client.receiver);
        assert_eq!(server.receiver.recv().unwrap_err(), send_recv::RecvError::Closed);
        SendHalf::close(server.sender).unwrap();
    });
}

/// Messages that the receiver leaves are missing unless the sender knows that they have arrived.
fn leaves_acked<P: Protocol<Config: Send>>(config: P::Config) {
    bounded(move || {
        let device = device();
        let mut receiver = rdma_conn::receiver::<P>(&device, &config, 1).unwrap();
        let mut sender = rdma_conn::join::<P>(&mut receiver, &device, &device, &config).unwrap();
        let sent = [b"taken", b"left ", b"too  "].map(|message| sender.send(message).unwrap());
        drop(receiver.recv().unwrap());
        sender.wait_acked(sent[2]).unwrap();
        receiver.close();
        assert_eq!(sender.close(), Ok(()));
    });
}

#[test]
fn messages_that_are_acknowledged_are_not_missing() {
    leaves_acked::<SendRecv>(send_recv_config());
    buffered_write_configs().for_each(leaves_acked::<BufferedWrite>);
    // It tells with the first message that it hands out that all three have landed.
    let tells = buffered_read::Config { head_update_polls: 0, ..buffered_read_config() };
    leaves_acked::<BufferedRead>(tells);
}
