//! Receiving many messages in one call.
//!
//! Shows: one protocol.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdma_conn::send_recv::{
    Config, Peer, Receiver, RecvError, Reposting, SendError, Sender, SharedConfig, SharedPool,
};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, join, join_shared, receiver_shared};
use support::{bounded, device, small};

const PEERS: u32 = 3;

/// Senders to one receiver: each with buffers of its own, or of a pool.
fn ends(config: &Config, reposting: Option<Reposting>) -> (Vec<Sender>, Receiver) {
    let device = device();
    let sizes = |reposting| SharedConfig {
        buffers: PEERS * (config.recv_depth + SharedConfig::KEPT - 1),
        buffer_bytes: config.message_bytes,
        max_peers: PEERS,
        reposting,
        repost_batch: 2,
    };
    let pool = reposting.map(|way| SharedPool::new(&device, sizes(way)).unwrap());
    let mut inbox = receiver_shared::<SendRecv>(&device, config, PEERS, pool.as_ref()).unwrap();
    let join = |_| match &pool {
        Some(pool) => join_shared::<SendRecv>(&mut inbox, pool, &device, &device, config).unwrap(),
        None => join::<SendRecv>(&mut inbox, &device, &device, config).unwrap(),
    };
    let senders = (0..PEERS).map(join).collect();
    (senders, inbox)
}

/// Sends when there is room: buffers are reposted while the receiver is asked for messages.
/// Returns how many arrived meanwhile.
fn send(
    sender: &mut Sender,
    inbox: &mut Receiver,
    message: &[u8],
    mut each: impl FnMut(Peer, &[u8]),
) -> usize {
    let mut received = 0;
    while let Err(e) = sender.try_send(message) {
        assert!(matches!(e, SendError::Full(_)), "{e}");
        match inbox.try_recv_each(&mut each) {
            Ok(count) => received += count,
            Err(e) => assert_eq!(e, RecvError::Empty),
        }
        std::thread::yield_now();
    }
    received
}

/// Receives until `wanted` messages have arrived.
fn receive(inbox: &mut Receiver, wanted: usize, mut each: impl FnMut(Peer, &[u8])) {
    let mut received = 0;
    while received < wanted {
        match inbox.try_recv_each(&mut each) {
            Ok(count) => received += count,
            Err(RecvError::Empty) => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(received, wanted);
}

/// Far more messages than there are buffers, so that each has to be reposted.
#[test]
fn every_message_is_shown_once_with_its_sender_and_freed() {
    let ways = [None, Some(Reposting::Lock), Some(Reposting::Thread), Some(Reposting::Combining)];
    for (way, pack_bytes) in ways.into_iter().flat_map(|way| [(way, 0), (way, 24)]) {
        bounded(move || {
            let config = Config { pack_bytes, ..small(4) };
            let (mut senders, mut inbox) = ends(&config, way);
            let mut next = [0; PEERS as usize];
            for round in 0..200_u8 {
                for (sender, number) in senders.iter_mut().zip(0..) {
                    let message = [number, round];
                    let mut each = |peer: Peer, received: &[u8]| {
                        assert_eq!((peer, received), (Peer(number.into()), &message[..]));
                        next[peer.0 as usize] += 1;
                    };
                    let sent = (0..3).map(|_| send(sender, &mut inbox, &message, &mut each));
                    let received: usize = sent.sum();
                    sender.flush().unwrap();
                    receive(&mut inbox, 3 - received, each);
                }
            }
            assert_eq!(next, [600; PEERS as usize]);
            let stats = inbox.stats();
            assert_eq!((stats.messages, stats.bytes), (1800, 3600));
        });
    }
}

#[test]
fn a_panic_loses_no_message_and_no_buffer() {
    for way in [None, Some(Reposting::Combining)] {
        bounded(move || {
            let (mut senders, mut inbox) = ends(&small(4), way);
            for round in 0..50_u8 {
                let mut seen = Vec::new();
                for i in 0..4 {
                    // Where credits take their time, this round's first are received before
                    // its last are sent.
                    let early = |_: Peer, message: &[u8]| seen.push(message[1]);
                    send(&mut senders[0], &mut inbox, &[round, i], early);
                }
                senders[0].flush().unwrap();
                while seen.len() < 4 {
                    let shown = catch_unwind(AssertUnwindSafe(|| {
                        inbox.try_recv_each(|_, message| {
                            seen.push(message[1]);
                            assert_ne!(message[1], 1, "on purpose");
                        })
                    }));
                    assert!(shown.is_err() || matches!(shown, Ok(Ok(_) | Err(RecvError::Empty))));
                }
                assert_eq!(seen, [0, 1, 2, 3]);
            }
        });
    }
}

/// Messages that were taken but not received count as not received, and are dropped with the
/// receiver.
#[test]
fn both_ways_of_receiving_go_together() {
    bounded(|| {
        let (mut senders, mut inbox) = ends(&small(8), None);
        for i in 0..6 {
            senders[1].send(&[i]).unwrap();
        }
        senders[1].flush().unwrap();
        let first = inbox.recv().unwrap();
        assert_eq!((first[0], inbox.stats().messages, inbox.stats().bytes), (0, 1, 1));
        let mut rest = Vec::new();
        receive(&mut inbox, 5, |_, message| rest.push(message[0]));
        assert_eq!((rest, inbox.stats().messages), (vec![1, 2, 3, 4, 5], 6));
        for i in 0..2 {
            senders[1].send(&[i]).unwrap();
        }
        senders[1].flush().unwrap();
        let second = inbox.recv().unwrap();
        drop(inbox);
        assert_eq!((first[0], second[0]), (0, 0), "messages outlive their receiver");
    });
}
