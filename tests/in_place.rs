//! Direct Write without a copy: buffers that are lent until their messages are dropped.
//!
//! Shows: one protocol.

mod support;

use std::time::Duration;

use rdma_conn::device::Device;
use rdma_conn::direct_write::{
    Config, Detection, Full, InPlace, Receiver, RecvError, SendError, Sender,
};
use rdma_conn::{
    Common, Connection, DirectWrite, Listener, RecvHalf, SendHalf, WaitStrategy, join, pair,
    receiver,
};
use support::slots::RawSender;
use support::{PATIENCE, assert_content, bounded, content, device};

const BOTH: [Detection; 2] = [Detection::Immediate, Detection::Polled];

fn small(detection: Detection) -> Config {
    let common = Common { keepalive: support::NEVER, ..support::common() };
    Config { buffers: 4, message_bytes: 100, detection, common, ..support::config::<Config>() }
}

fn ends(config: &Config) -> (Connection<DirectWrite>, Connection<DirectWrite>) {
    let device = device();
    pair::<DirectWrite>(&device, &device, config).unwrap()
}

/// All bytes of a message.
fn bytes(message: &InPlace) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.read(0, &mut bytes).unwrap();
    bytes
}

/// Receives the next message; the call also reports returned buffers.
fn take(receiver: &mut Receiver) -> InPlace {
    receiver.recv_in_place_timeout(PATIENCE).unwrap()
}

#[test]
fn a_dropped_message_frees_its_buffer_in_any_order() {
    for detection in BOTH {
        bounded(move || {
            let (mut a, mut b) = ends(&small(detection));
            for number in 0..4 {
                a.sender.send_acked(&content(0, number, 10)).unwrap();
            }
            let mut held: Vec<_> = (0..4).map(|number| (number, take(&mut b.receiver))).collect();
            assert_eq!(b.receiver.try_recv_in_place().unwrap_err(), RecvError::Empty);
            assert_eq!(a.sender.try_send(b"5").unwrap_err(), SendError::Full(Full::Credits));
            // A held message stays unchanged; the one that is dropped makes room for one.
            for (number, drops) in (4..40).zip([2, 0, 3, 1].into_iter().cycle()) {
                for (number, message) in &held {
                    assert_content(&bytes(message), 0, *number, 10);
                }
                drop(held.remove(drops));
                while let Err(full) = a.sender.try_send(&content(0, number, 10)) {
                    assert_eq!(full, SendError::Full(Full::Credits));
                    assert_eq!(b.receiver.try_recv_in_place().unwrap_err(), RecvError::Empty);
                }
                a.sender.wait_all().unwrap();
                held.push((number, take(&mut b.receiver)));
                assert_eq!(a.sender.try_send(b"more").unwrap_err(), SendError::Full(Full::Credits));
            }
        });
    }
}

/// The sender waits for a buffer that another thread gives back, while the receiver sleeps: no
/// event tells of it.
#[test]
fn what_another_thread_drops_is_told_while_the_receiver_sleeps() {
    for detection in BOTH {
        for wait in [WaitStrategy::Block, WaitStrategy::Adaptive] {
            bounded(move || {
                let config = small(detection);
                let common = Common { wait, ..config.common };
                let (mut a, mut b) = ends(&Config { common, ..config });
                let (give, got) = std::sync::mpsc::channel();
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        for number in 0..200 {
                            a.sender.send(&content(0, number, 100)).unwrap();
                        }
                        a.sender.close().unwrap();
                    });
                    scope.spawn(move || {
                        let mut number = 0;
                        for message in got {
                            assert_content(&bytes(&message), 0, number, 100);
                            number += 1;
                        }
                        assert_eq!(number, 200);
                    });
                    loop {
                        match b.receiver.recv_in_place() {
                            Ok(message) => give.send(message).unwrap(),
                            Err(end) => break assert_eq!(end, RecvError::Closed),
                        }
                    }
                    drop(give);
                });
            });
        }
    }
}

#[test]
fn copying_calls_take_messages_that_a_lending_call_found() {
    for detection in BOTH {
        bounded(move || {
            let (mut a, mut b) = ends(&small(detection));
            for round in 0..20 {
                for number in 0..4 {
                    let len = [0, 1, 40, 100][number as usize];
                    a.sender.send_acked(&content(round, number, len)).unwrap();
                }
                // The first call finds all four.
                let first = take(&mut b.receiver);
                assert!(first.is_empty() && first.peer() == rdma_conn::direct_write::Peer(0));
                for number in 1..4 {
                    let len = [0, 1, 40, 100][number as usize];
                    assert_content(&b.receiver.recv().unwrap(), round, number, len);
                }
                drop(first);
                // The sender learns of all four.
                assert_eq!(b.receiver.try_recv().unwrap_err(), RecvError::Empty);
            }
            let stats = b.receiver.stats();
            assert_eq!((stats.messages, stats.bytes), (80, 20 * 141));
        });
    }
}

#[test]
fn a_message_may_outlive_its_receiver_and_its_connection() {
    for detection in BOTH {
        bounded(move || {
            let (mut a, mut b) = ends(&small(detection));
            a.sender.send_acked(b"the last one").unwrap();
            let message = take(&mut b.receiver);
            drop((a, b));
            assert_eq!(bytes(&message), b"the last one");
            let mut part = [0; 4];
            message.read(4, &mut part).unwrap();
            assert_eq!(&part, b"last");
            for (at, len) in [(12, 1), (9, 4), (usize::MAX, 1), (0, 13)] {
                assert!(message.read(at, &mut vec![0; len]).is_err(), "{at}, {len}");
            }
            message.read(12, &mut []).unwrap();
        });
    }
}

/// A receiver with two peers.
fn two_peers(config: &Config) -> (Receiver, [Sender; 2]) {
    let device = device();
    let mut ours = receiver::<DirectWrite>(&device, config, 2).unwrap();
    let peers = [(); 2].map(|()| join::<DirectWrite>(&mut ours, &device, &device, config).unwrap());
    (ours, peers)
}

/// The receiver finds a message of the other peer in each call.
#[test]
fn a_busy_peer_does_not_keep_back_the_buffers_of_another_one() {
    for detection in BOTH {
        bounded(move || {
            let (mut ours, [mut quiet, mut busy]) = two_peers(&small(detection));
            for number in 0..4 {
                quiet.send_acked(&content(0, number, 10)).unwrap();
            }
            drop([(); 4].map(|()| take(&mut ours)));
            let mut calls = 0;
            while let Err(full) = quiet.try_send(b"a fifth one") {
                assert_eq!(full, SendError::Full(Full::Credits));
                busy.send_acked(&content(1, calls, 10)).unwrap();
                assert_content(&bytes(&take(&mut ours)), 1, calls, 10);
                calls += 1;
                assert!(calls < 100, "the buffers are free, and the sender is not told");
            }
        });
    }
}

#[test]
fn a_peer_may_end_while_its_messages_are_lent() {
    for detection in BOTH {
        bounded(move || {
            let (mut ours, [mut ends, mut goes_on]) = two_peers(&small(detection));
            ends.send(&content(0, 0, 10)).unwrap();
            let lent = take(&mut ours);
            ends.close().unwrap();
            for number in 0..20 {
                goes_on.send(&content(1, number, 10)).unwrap();
                assert_content(&bytes(&take(&mut ours)), 1, number, 10);
            }
            assert_content(&bytes(&lent), 0, 0, 10);
            drop(lent);
            goes_on.send(&content(1, 20, 10)).unwrap();
            goes_on.close().unwrap();
            assert_content(&bytes(&take(&mut ours)), 1, 20, 10);
            assert_eq!(ours.recv_in_place_timeout(PATIENCE).unwrap_err(), RecvError::Closed);
        });
    }
}

/// A receiver with a hand-made peer.
fn with_raw_sender(device: &Device, config: &Config) -> (Receiver, RawSender) {
    let mut ours = receiver::<DirectWrite>(device, config, 1).unwrap();
    let listener = Listener::<DirectWrite>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let raw = std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawSender::to(address, device, 64).expect("accepted"));
        listener.next().unwrap().accept_into(&mut ours, device, config).unwrap();
        raw.join().unwrap()
    });
    (ours, raw)
}

/// No byte is copied but by the device: what the peer writes to the buffer later is seen, too. And
/// nothing of it is another message.
#[test]
fn a_lent_message_shows_later_writes_and_a_copy_does_not() {
    bounded(|| {
        let (device, config) = (device(), small(Detection::Polled));
        let (mut ours, mut liar) = with_raw_sender(&device, &config);
        liar.message(0, 1, b"what is read first");
        let lent = take(&mut ours);
        assert_eq!(bytes(&lent), b"what is read first");
        liar.put(0, b"what is read later", [1, 18]);
        let until = std::time::Instant::now() + PATIENCE;
        while bytes(&lent) != b"what is read later" {
            assert!(std::time::Instant::now() < until, "it was copied");
            let _ = liar.raw.drain();
        }
        assert_eq!(ours.try_recv_in_place().unwrap_err(), RecvError::Empty);
        liar.message(1, 2, b"the next");
        assert_eq!(bytes(&take(&mut ours)), b"the next");
        // A copy does not change: the buffer may.
        liar.message(2, 3, b"copied");
        let copied = ours.recv_timeout(Duration::from_secs(60)).unwrap();
        liar.put(2, b"edited", [3, 6]);
        let _ = liar.raw.drain();
        assert_eq!(&*copied, b"copied");
    });
}
