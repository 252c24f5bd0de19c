//! Buffered Write: every message arrives, whatever its size, in whatever way its tail is
//! advertised; and both ends close.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use rdma_conn::buffered_write::{Config, Full, Peer, RecvError, SendError, Tail};
use rdma_conn::conn_core::ring::record_bytes;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::Transport;
use rdma_conn::verbs_safe::SharedView;
use rdma_conn::{BufferedWrite, Connection, RecvHalf, Room, SendHalf, join, pair, receiver};
use support::write::{all, inquisitive, small};
use support::{NEVER, Random, assert_content, bounded, content, device, seed};

fn connected(config: &Config) -> (Connection<BufferedWrite>, Connection<BufferedWrite>) {
    pair::<BufferedWrite>(&device(), &device(), config).unwrap()
}

const EXPECTED: &str = "a panic that is asked for";
const WRITTEN: Tail = Tail::Written;
const IMMEDIATE: Tail = Tail::Immediate { window: 16 };

/// Every length from nothing to the most, so that every record begins at every place.
#[test]
fn messages_of_all_sizes_arrive_in_order() {
    for config in all() {
        bounded(move || {
            let (mut a, b) = connected(&config);
            let mut receiver = b.receiver;
            let lengths = move || (0..=config.ring.message_bytes as usize).step_by(7);
            let receiving = std::thread::spawn(move || {
                for (number, bytes) in lengths().enumerate() {
                    let message = receiver.recv().unwrap();
                    assert_content(&message, 1, number as u64, bytes);
                }
                assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
                receiver.stats()
            });
            for (number, bytes) in lengths().enumerate() {
                a.sender.send(&content(1, number as u64, bytes)).unwrap();
            }
            let sent = a.sender.stats();
            a.sender.close().unwrap();
            let received = receiving.join().unwrap();
            assert_eq!((received.messages, received.bytes), (sent.messages, sent.bytes));
        });
    }
}

/// Long messages that go straight to the peer's ring, among others that gather in the own one
/// first: told at once, or some together.
#[test]
fn long_messages_and_short_ones_arrive_in_order() {
    const SIZES: [usize; 8] = [70_000, 3, 2_048, 40_000, 2_047, 100_000, 0, 33_000];
    for (layout, tail) in
        [(Layout::Mirrored, WRITTEN), (Layout::Plain, WRITTEN), (Layout::Mirrored, IMMEDIATE)]
    {
        for batch_bytes in [0, 50_000, 150_000] {
            let ring = RingShape { ring_bytes: 256 << 10, message_bytes: 100_000, layout };
            let config = Config { ring, tail, batch_bytes, ..support::config::<Config>() };
            bounded(move || {
                let (mut a, b) = connected(&config);
                let mut receiver = b.receiver;
                let sizes =
                    || (0..300).map(|number| (number, SIZES[(number * number) as usize % 8]));
                let receiving = std::thread::spawn(move || {
                    for (number, bytes) in sizes() {
                        assert_content(&receiver.recv().unwrap(), 1, number, bytes);
                    }
                    assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
                });
                for (number, bytes) in sizes() {
                    let mut message = content(1, number, bytes);
                    let ticket = a.sender.send(&message).unwrap();
                    message.fill(0);
                    if number % 50 == 0 {
                        a.sender.wait_acked(ticket).unwrap();
                    }
                }
                a.sender.close().unwrap();
                receiving.join().unwrap();
            });
        }
    }
}

/// Messages are looked at where they lie, one by one or in between others that are copied;
/// each is shown once, in order, and its place is given back, also after a panic.
#[test]
fn messages_are_received_in_place_and_by_copy() {
    for config in all() {
        bounded(move || {
            let (mut a, b) = connected(&config);
            let mut receiver = b.receiver;
            const MESSAGES: u64 = 600;
            let length = |number: u64| (number as usize * 37) % 700;
            let sending = std::thread::spawn(move || {
                for number in 0..MESSAGES {
                    a.sender.send(&content(9, number, length(number))).unwrap();
                }
                a.sender.close().unwrap();
            });
            let mut random = Random::new(seed(3));
            for number in 0..MESSAGES {
                let check = |peer: Peer, view: SharedView<'_>| {
                    let mut bytes = vec![0; view.len()];
                    view.copy_out(0, &mut bytes).unwrap();
                    assert!(view.copy_out(1, &mut bytes).is_err());
                    assert_eq!((peer, bytes.len()), (Peer(0), length(number)));
                    let words: Vec<u8> = view.words().flatten().collect();
                    assert_eq!(words[..bytes.len()], bytes);
                    assert_content(&bytes, 9, number, bytes.len());
                };
                match random.below(4) {
                    0 => assert_content(&receiver.recv().unwrap(), 9, number, length(number)),
                    1 => {
                        let panicked = catch_unwind(AssertUnwindSafe(|| -> Result<(), _> {
                            receiver.recv_in_place(|peer, view| {
                                check(peer, view);
                                resume_unwind(Box::new(EXPECTED))
                            })
                        }));
                        let what = panicked.unwrap_err().downcast::<&str>();
                        assert_eq!(*what.unwrap(), EXPECTED);
                    }
                    _ => receiver.recv_in_place(check).unwrap(),
                }
            }
            assert!(matches!(receiver.recv_in_place(|_, _| ()), Err(RecvError::Closed)));
            assert_eq!(receiver.stats().messages, MESSAGES);
            sending.join().unwrap();
        });
    }
}

/// Messages that arrived together with another one are there after a panic, though nothing more
/// arrives.
#[test]
fn a_panic_in_place_leaves_what_came_with_the_message() {
    for tail in [WRITTEN, IMMEDIATE] {
        let config = Config { batch_bytes: 4096, ..small(Layout::Mirrored, tail) };
        let (mut a, mut b) = connected(&config);
        for number in 0..3 {
            a.sender.send(&content(1, number, 16)).unwrap();
        }
        a.sender.flush().unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| -> Result<(), _> {
            b.receiver.recv_in_place(|_, _| resume_unwind(Box::new(EXPECTED)))
        }));
        panicked.unwrap_err();
        for number in 1..3 {
            let next = b.receiver.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_content(&next, 1, number, 16);
        }
    }
}

/// Messages that are gathered go in one push; a batch has the length that the caller gives it.
#[test]
fn what_has_gathered_is_written_in_one_go() {
    let per_push = [(IMMEDIATE, 1), (WRITTEN, 2)];
    for (tail, requests) in per_push {
        let config = Config { batch_bytes: 4096, ..small(Layout::Mirrored, tail) };
        let (mut a, mut b) = connected(&config);
        for number in 0..20 {
            a.sender.send(&content(2, number, 16)).unwrap();
        }
        assert!(matches!(b.receiver.try_recv(), Err(RecvError::Empty)), "nothing was pushed yet");
        a.sender.flush().unwrap();
        let stats = a.sender.stats();
        assert_eq!((stats.pushes, stats.work_requests), (1, requests));
        assert_eq!(stats.pushed_bytes, 20 * record_bytes(16));
        for number in 0..20 {
            assert_content(&b.receiver.recv().unwrap(), 2, number, 16);
        }
    }
}

#[test]
fn a_message_that_no_ring_takes_is_refused_with_the_limit() {
    for layout in [Layout::Mirrored, Layout::Plain] {
        let (mut a, mut b) = connected(&small(layout, IMMEDIATE));
        let limit = a.sender.max_message_bytes();
        assert_eq!(limit, if layout == Layout::Mirrored { 4088 } else { 2040 });
        let refused = a.sender.send(&vec![0; limit + 1]).unwrap_err();
        assert_eq!(refused, SendError::TooLong { bytes: limit + 1, limit });
        let refused = a.sender.reserve(usize::MAX).map(drop).unwrap_err();
        assert_eq!(refused, SendError::TooLong { bytes: usize::MAX, limit });
        a.sender.send_acked(&content(3, 0, limit)).unwrap();
        assert_content(&b.receiver.recv().unwrap(), 3, 0, limit);
    }
}

/// A full ring, or one whose tail cannot be told, is backpressure, and what is freed is heard of.
#[test]
fn a_full_ring_takes_more_when_messages_were_received() {
    for tail in [WRITTEN, IMMEDIATE, Tail::Immediate { window: 1 }] {
        let (mut a, mut b) = connected(&small(Layout::Mirrored, tail));
        let mut sent = 0;
        let full = loop {
            match a.sender.try_send(&content(4, sent, 100)) {
                Ok(_) => sent += 1,
                Err(e) => break e,
            }
        };
        let (why, most) = match tail {
            Tail::Immediate { window } => (Full::Credits, window.into()),
            _ => (Full::Ring, 4096 / record_bytes(100)),
        };
        assert_eq!((full, sent), (SendError::Full(why), most));
        let short = Duration::from_millis(1);
        let timed_out = a.sender.send_timeout(&content(4, sent, 100), short);
        assert_eq!(timed_out, Err(SendError::TimedOut { unflushed: 0 }));
        let mut received = 0;
        while received < 500 {
            while let Ok(message) = b.receiver.try_recv() {
                assert_content(&message, 4, received, 100);
                received += 1;
            }
            while a.sender.try_send(&content(4, sent, 100)).is_ok() {
                sent += 1;
            }
        }
    }
}

/// Messages are private copies: they stay what they are, on any thread, in any order,
/// however often the ring has gone round, and when the connection is gone.
#[test]
fn messages_that_are_held_stay_what_they_are() {
    for config in [small(Layout::Mirrored, WRITTEN), small(Layout::Plain, IMMEDIATE)] {
        let (mut a, mut b) = connected(&config);
        let (mut random, mut held) = (Random::new(seed(5)), Vec::new());
        for number in 0..2000 {
            let bytes = random.below(300) as usize;
            a.sender.send(&content(5, number, bytes)).unwrap();
            let message = b.receiver.recv().unwrap();
            if random.chance(2) {
                held.push((number, bytes, message));
            }
        }
        drop((a, b));
        let half = held.split_off(held.len() / 2);
        let elsewhere = std::thread::spawn(move || {
            for (number, bytes, message) in half.into_iter().rev() {
                assert_content(&message, 5, number, bytes);
            }
        });
        for (number, bytes, message) in held {
            assert_content(&message, 5, number, bytes);
        }
        elsewhere.join().unwrap();
    }
}

#[test]
fn a_message_is_written_in_place_and_sent_when_it_is_committed() {
    let (mut a, mut b) = connected(&small(Layout::Mirrored, IMMEDIATE));
    a.sender.reserve(100).unwrap().write(0, b"never sent").unwrap();
    let mut message = a.sender.reserve(10).unwrap();
    assert_eq!(message.capacity(), 10);
    assert!(matches!(message.write(5, b"123456"), Err(SendError::TooLong { bytes: 11, .. })));
    assert!(matches!(message.write(usize::MAX, b"1"), Err(SendError::TooLong { .. })));
    message.write(3, b"def").unwrap();
    message.write(0, b"abc").unwrap();
    let ticket = message.commit(6).unwrap();
    a.sender.wait_acked(ticket).unwrap();
    assert_eq!(&*b.receiver.recv().unwrap(), b"abcdef");
    let too_much = a.sender.reserve(4).unwrap().commit(5);
    assert_eq!(too_much, Err(SendError::TooLong { bytes: 5, limit: 4 }));
    assert!(matches!(b.receiver.try_recv(), Err(RecvError::Empty)));
}

#[test]
fn tickets_are_their_senders_own() {
    let (mut a, mut b) = connected(&small(Layout::Mirrored, IMMEDIATE));
    let (mut c, _d) = connected(&small(Layout::Mirrored, WRITTEN));
    let ticket = a.sender.send(b"x").unwrap();
    assert_eq!(c.sender.is_acked(ticket), Err(SendError::UnknownTicket));
    assert_eq!(c.sender.wait_acked(ticket), Err(SendError::UnknownTicket));
    a.sender.wait_acked_timeout(ticket, Duration::from_secs(60)).unwrap();
    assert!(a.sender.is_acked(ticket).unwrap());
    assert_eq!(&*b.receiver.recv().unwrap(), b"x");
}

/// Both ways at once, each half on a thread of its own.
#[test]
fn both_directions_run_at_once() {
    for config in all() {
        bounded(move || {
            let (a, b) = connected(&config);
            std::thread::scope(|scope| {
                for (end, out, back) in [(a, 6, 7), (b, 7, 6)] {
                    let Connection { mut sender, mut receiver } = end;
                    scope.spawn(move || {
                        for number in 0..300 {
                            let bytes = (number as usize * 37) % 1000;
                            sender.send(&content(out, number, bytes)).unwrap();
                        }
                        sender.close().unwrap();
                    });
                    scope.spawn(move || {
                        for number in 0..300 {
                            let bytes = (number as usize * 37) % 1000;
                            assert_content(&receiver.recv().unwrap(), back, number, bytes);
                        }
                        assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
                    });
                }
            });
        });
    }
}

/// Goodbyes: of a sender, after all it has sent; of a receiver, which ends its sender.
#[test]
fn goodbyes_arrive() {
    for tail in [WRITTEN, IMMEDIATE, Tail::Immediate { window: 1 }] {
        bounded(move || {
            let (mut a, mut b) = connected(&small(Layout::Mirrored, tail));
            a.sender.send(b"last").unwrap();
            drop(a.sender);
            assert_eq!(&*b.receiver.recv().unwrap(), b"last");
            assert!(matches!(b.receiver.try_recv(), Err(RecvError::Closed)));
            assert!(matches!(b.receiver.recv(), Err(RecvError::Closed)));

            drop(a.receiver);
            let stopped = loop {
                match b.sender.send_acked(&[0; 1000]) {
                    Ok(()) => {}
                    Err(e) => break e,
                }
            };
            assert!(matches!(&stopped, SendError::Ended(e) if e.is_close()), "{stopped:?}");
            let closed = b.sender.close();
            assert!(closed.is_ok() || closed == Err(stopped), "{closed:?}");
        });
    }
}

/// An end that is dropped after its peer's sender said goodbye sends no goodbye and does not
/// wait: the transport would take minutes here to give up.
#[test]
fn no_end_waits_for_a_peer_that_has_said_goodbye() {
    for tail in [WRITTEN, IMMEDIATE] {
        bounded(move || {
            // About retries: minutes.
            let patient = Transport { timeout: 25, ..support::living() };
            let config = Config {
                common: Common {
                    linger: NEVER,
                    transport: patient,
                    ..small(Layout::Mirrored, tail).common
                },
                ..small(Layout::Mirrored, tail)
            };
            let (mut a, b) = connected(&config);
            a.sender.send(b"unread").unwrap();
            a.sender.close().unwrap();
            drop(b.receiver);
            drop(b.sender);
            drop(a.receiver);
        });
    }
}

/// One receiver, many senders: all that is sent arrives once, in the order of each, and one
/// that has gone makes place for another.
#[test]
fn many_senders_share_a_receiver() {
    const SENDERS: u64 = 24;
    for tail in [WRITTEN, Tail::Immediate { window: 8 }] {
        bounded(move || {
            let (device, config) = (device(), small(Layout::Mirrored, tail));
            let mut all = receiver::<BufferedWrite>(&device, &config, SENDERS as u32).unwrap();
            assert!(matches!(all.recv(), Err(RecvError::Closed)), "no peer can join meanwhile");
            let mut senders: Vec<_> = (0..SENDERS)
                .map(|_| join::<BufferedWrite>(&mut all, &device, &device, &config).unwrap())
                .collect();
            let full = join::<BufferedWrite>(&mut all, &device, &device, &config).unwrap_err();
            assert!(full.to_string().contains("peers"), "{full}");
            std::thread::scope(|scope| {
                for (stream, mut sender) in senders.drain(..).enumerate() {
                    scope.spawn(move || {
                        for number in 0..200 {
                            let message = content(stream as u64, number, 64);
                            sender.send(&message).unwrap();
                        }
                        sender.close().unwrap();
                    });
                }
                let mut next = [0; SENDERS as usize];
                loop {
                    let got = all.try_recv_each(|Peer(peer), message| {
                        let number = &mut next[peer as usize];
                        assert_content(message, peer.into(), *number, 64);
                        *number += 1;
                    });
                    match got {
                        Ok(_) => {}
                        Err(RecvError::Empty) => std::thread::yield_now(),
                        Err(RecvError::Closed) => break,
                        Err(e) => panic!("{e}"),
                    }
                }
                assert_eq!(next, [200; SENDERS as usize]);
            });
            let mut late = join::<BufferedWrite>(&mut all, &device, &device, &config).unwrap();
            late.send_acked(b"after the others").unwrap();
            let message = all.recv().unwrap();
            assert_eq!(
                (message.peer(), &*message),
                (Peer(SENDERS as u32), &b"after the others"[..])
            );
            assert_eq!(all.peers(), 1);
        });
    }
}

/// One of many silent senders sends after all were found silent for long.
#[test]
fn a_message_of_a_sender_that_was_silent_for_long_is_received() {
    for tail in [WRITTEN, Tail::Immediate { window: 8 }] {
        let (device, config) = (device(), small(Layout::Mirrored, tail));
        let mut all = receiver::<BufferedWrite>(&device, &config, 20).unwrap();
        let mut senders: Vec<_> = (0..20)
            .map(|_| join::<BufferedWrite>(&mut all, &device, &device, &config).unwrap())
            .collect();
        for round in 0..3 {
            for _ in 0..3000 {
                assert!(matches!(all.try_recv(), Err(RecvError::Empty)));
            }
            for quiet in [0, 7, 19] {
                senders[quiet].send_acked(&content(quiet as u64, round, 20)).unwrap();
                let message = all.recv_timeout(support::PATIENCE).unwrap();
                assert_eq!(message.peer(), Peer(quiet as u32));
                assert_content(&message, quiet as u64, round, 20);
            }
        }
    }
}

/// A receiver that sleeps is woken by an immediate, without a keepalive's help.
#[test]
fn a_sleeping_receiver_is_woken() {
    use rdma_conn::WaitStrategy::Block;
    for tail in [IMMEDIATE, WRITTEN] {
        bounded(move || {
            let config = Config {
                common: Common { wait: Block, ..small(Layout::Mirrored, tail).common },
                ..small(Layout::Mirrored, tail)
            };
            assert_eq!(config.common.keepalive, NEVER);
            let (mut a, b) = connected(&config);
            let Connection { mut receiver, mut sender } = b;
            let echo = std::thread::spawn(move || {
                for _ in 0..200 {
                    let message = receiver.recv().unwrap();
                    sender.send_acked(&message).unwrap();
                }
                // The last message may not be known to be acknowledged yet.
                receiver
            });
            for number in 0..200 {
                a.sender.send_acked(&content(8, number, 40)).unwrap();
                assert_content(&a.receiver.recv().unwrap(), 8, number, 40);
            }
            drop(echo.join().unwrap());
        });
    }
}

#[test]
fn ends_that_do_not_fit_are_refused_with_the_reason() {
    let ring = RingShape { ring_bytes: 1 << 20, message_bytes: 64, layout: Layout::Mirrored };
    let config = Config { ring, max_peer_ring_bytes: 1 << 19, ..support::config::<Config>() };
    let refused = pair::<BufferedWrite>(&device(), &device(), &config).unwrap_err().to_string();
    assert!(refused.contains("1048576") && refused.contains("524288"), "{refused}");
    let config = Config { send_queue: 1, ..support::config::<Config>() };
    let refused = pair::<BufferedWrite>(&device(), &device(), &config).unwrap_err().to_string();
    assert!(refused.contains("send_queue is 1"), "{refused}");
}

/// The transport detects a dead peer, for a sender that waits for room, and for a receiver
/// that waits for a message.
#[test]
fn both_halves_wait_through_keepalives() {
    const PROBES: u64 = 3;
    for config in all() {
        bounded(move || {
            let config = inquisitive(config);
            let (mut a, mut b) = connected(&config);
            let silent = Duration::from_millis(70);
            let enough = b.receiver.stats().work_requests + PROBES;
            while b.receiver.stats().work_requests < enough {
                assert!(matches!(b.receiver.recv_timeout(silent), Err(RecvError::TimedOut)));
            }
            while a.sender.try_send(&[0; 500]).is_ok() {}
            let enough = a.sender.stats().work_requests + PROBES;
            while a.sender.stats().work_requests < enough {
                let timed_out = a.sender.send_timeout(&[0; 500], silent);
                assert_eq!(timed_out, Err(SendError::TimedOut { unflushed: 0 }));
            }
            assert_eq!(b.receiver.recv().unwrap().len(), 500);
        });
    }
}

/// One sender has filled its ring before another one, which was silent, sends a message: that
/// one is received before the backlog is handed out.
#[test]
fn a_backlog_keeps_no_other_sender_waiting() {
    for tail in [WRITTEN, IMMEDIATE] {
        bounded(move || {
            const BACKLOG: u64 = 400;
            let ring = RingShape { ring_bytes: 1 << 16, ..RingShape::default() };
            let ring = RingShape { message_bytes: 4096, ..ring };
            let config = Config {
                ring,
                tail,
                batch_bytes: 1 << 16,
                common: Common { keepalive: NEVER, ..support::common() },
                ..support::config::<Config>()
            };
            let device = device();
            let mut all = receiver::<BufferedWrite>(&device, &config, 2).unwrap();
            let mut busy = join::<BufferedWrite>(&mut all, &device, &device, &config).unwrap();
            let mut other = join::<BufferedWrite>(&mut all, &device, &device, &config).unwrap();
            for number in 0..BACKLOG {
                busy.try_send(&number.to_le_bytes()).unwrap();
            }
            busy.flush().unwrap();
            let mut received = Vec::new();
            while received.last() != Some(&1) {
                let peer = all.recv_in_place(|peer, _| peer.0).unwrap();
                if received.is_empty() {
                    other.send_acked(b"one").unwrap(); // the backlog is known by now
                }
                received.push(peer);
            }
            assert!((received.len() as u64) < BACKLOG / 2, "{}", received.len());
        });
    }
}

/// A sender that always has one message, inline beside its tail, does not delay senders whose
/// tails are advertised by immediates.
#[test]
fn a_sender_whose_tails_are_written_keeps_no_other_one_waiting() {
    bounded(|| {
        // The ring is large, so that heads are reported only now and then.
        let config = |tail| Config {
            tail,
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let (device, written, told) = (device(), config(WRITTEN), config(IMMEDIATE));
        let mut all = receiver::<BufferedWrite>(&device, &told, 2).unwrap();
        let mut busy = join::<BufferedWrite>(&mut all, &device, &device, &written).unwrap();
        let mut other = join::<BufferedWrite>(&mut all, &device, &device, &told).unwrap();
        other.send_acked(b"one").unwrap();
        let mut received = 0;
        loop {
            busy.send_acked(b"again").unwrap();
            let message = all.recv().unwrap();
            received += 1;
            if message.peer() == Peer(1) {
                assert_eq!(&*message, b"one");
                return;
            }
            assert!(received < 1000, "{received}");
        }
    });
}
