//! Buffered Read: every message arrives, of any size, in order, whatever is freed when and
//! by whom; the sender posts nothing; and how a connection ends.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

use rdma_conn::buffered_read::{Config, Message, Receiver, Sender};
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::{CloseReason, ConnectError, Full, RecvError, SendError};
use rdma_conn::{
    BufferedRead, Connection, Listener, RecvHalf, Room, SendHalf, WaitStrategy, connect, join,
    pair, receiver,
};
use soft_rnic::{Faults, Simulation};
use support::read::{connected, connected_on};
use support::{NEVER, Random, assert_content, bounded, content, device, seed};

fn shape(ring_bytes: u64, message_bytes: u32, layout: Layout) -> RingShape {
    RingShape { ring_bytes, message_bytes, layout }
}

/// A ring that is soon full, READs that are soon too short, and no keepalive that could
/// hide anything.
fn small(layout: Layout) -> Config {
    Config {
        ring: shape(4096, 1500, layout),
        max_read_bytes: 1000,
        max_held: 64,
        common: Common { keepalive: NEVER, ..support::common() },
        ..support::config::<Config>()
    }
}

fn sizes(most: u32) -> Vec<usize> {
    vec![0, 1, 7, 8, 9, 16, 100, 1000, most as usize, 3, most as usize - 1]
}

fn both_ways(config: Config, rounds: u64) {
    let device = device();
    let (left, right) = pair::<BufferedRead>(&device, &device, &config).unwrap();
    let sizes = sizes(config.ring.message_bytes);
    let count = rounds * sizes.len() as u64;
    std::thread::scope(|scope| {
        for (stream, end) in (0..).zip([left, right]) {
            let Connection { mut sender, mut receiver } = end;
            let sizes = &sizes;
            let size = move |number: u64| sizes[number as usize % sizes.len()];
            scope.spawn(move || {
                for number in 0..count {
                    sender.send(&content(stream, number, size(number))).unwrap();
                }
                assert_eq!(sender.stats().messages, count);
                sender.close().unwrap();
            });
            scope.spawn(move || {
                for number in 0..count {
                    let message = receiver.recv().unwrap();
                    assert_content(&message, 1 - stream, number, size(number));
                    if number % 3 == 0 {
                        receiver.free(message);
                    }
                }
                assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
                assert_eq!(receiver.stats().messages, count);
            });
        }
    });
}

#[test]
fn every_size_arrives_both_ways_in_either_memory() {
    for layout in [Layout::Mirrored, Layout::Plain] {
        bounded(move || both_ways(small(layout), 60));
    }
    bounded(|| both_ways(support::config::<Config>(), 60));
}

#[test]
fn every_way_of_reading_and_waiting_brings_every_message() {
    let base = small(Layout::Mirrored);
    let ways = [
        Config { prefetch: false, reads: 1, max_read_bytes: u32::MAX, ..base },
        Config { prefetch: false, max_read_bytes: 8, ..base },
        Config { reads: 16, max_read_bytes: 64, ..base },
        Config { head_threshold: 1, head_update_polls: 0, ..base },
        Config { head_threshold: 4096, head_update_polls: u32::MAX, ..base },
        Config { max_held: 1, ..base },
        Config { common: Common { wait: WaitStrategy::Block, ..base.common }, ..base },
        Config { common: Common { wait: WaitStrategy::Spin, ..base.common }, ..base },
    ];
    for config in ways {
        bounded(move || both_ways(config, 10));
    }
}

#[test]
fn the_longest_message_of_a_ring_goes_through_at_every_place() {
    bounded(|| {
        for layout in [Layout::Mirrored, Layout::Plain] {
            let most = if layout == Layout::Mirrored { 4088 } else { 2040 };
            let config = Config { ring: shape(4096, most, layout), ..small(layout) };
            let (mut sender, mut receiver) = connected(&config);
            assert_eq!(sender.layout(), layout);
            for number in 0..600_u64 {
                let small = number as usize % 50;
                for (stream, bytes) in [(0, small), (1, most as usize)] {
                    let sent = content(stream, number, bytes);
                    while matches!(sender.try_send(&sent), Err(SendError::Full(Full::Ring))) {
                        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
                    }
                    assert_content(&receiver.recv().unwrap(), stream, number, bytes);
                }
            }
        }
    });
}

#[test]
fn a_message_is_freed_when_its_callback_panics() {
    bounded(|| {
        // Each fills the ring.
        let config =
            Config { ring: shape(4096, 4088, Layout::Mirrored), ..small(Layout::Mirrored) };
        let (mut sender, mut receiver) = connected(&config);
        sender.send(&[1; 4088]).unwrap();
        let mut panics = || receiver.try_recv_each(|_, _| resume_unwind(Box::new(())));
        while catch_unwind(AssertUnwindSafe(&mut panics)).is_ok() {}
        while matches!(sender.try_send(&[2; 4088]), Err(SendError::Full(Full::Ring))) {
            assert_eq!(receiver.try_recv_each(|_, _| ()), Err(RecvError::Empty));
        }
        assert_eq!(*receiver.recv().unwrap(), [2; 4088]);
    });
}

#[test]
fn a_message_too_long_for_the_ring_is_refused_with_the_limit() {
    let (mut sender, mut receiver) = connected(&small(Layout::Mirrored));
    let too_long = SendError::TooLong { bytes: 1501, limit: 1500 };
    assert_eq!(sender.max_message_bytes(), 1500);
    assert_eq!(sender.try_send(&[1; 1501]).unwrap_err(), too_long);
    assert_eq!(sender.send(&[1; 1501]).unwrap_err(), too_long);
    assert_eq!(sender.reserve(1501).unwrap_err(), too_long);
    let room = sender.reserve(10).unwrap();
    assert_eq!(room.commit(11).unwrap_err(), SendError::TooLong { bytes: 11, limit: 10 });
    sender.send(b"fits").unwrap();
    assert_eq!(&*receiver.recv().unwrap(), b"fits");
}

#[test]
fn what_was_reserved_and_not_sent_is_no_message() {
    let (mut sender, mut receiver) = connected(&small(Layout::Mirrored));
    let mut room = sender.reserve(100).unwrap();
    room.fill(1);
    drop(room);
    let mut room = sender.reserve(100).unwrap();
    room[..3].copy_from_slice(b"yes");
    assert_eq!(&room[..3], b"yes");
    room.commit(3).unwrap();
    assert_eq!(&*receiver.recv().unwrap(), b"yes");
    assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
}

#[test]
fn messages_are_freed_in_any_order_by_any_thread() {
    for layout in [Layout::Mirrored, Layout::Plain] {
        bounded(move || frees_anywhere(layout));
    }
}

fn frees_anywhere(layout: Layout) {
    let seed = seed(5);
    let (mut sender, mut receiver) = connected(&small(layout));
    let count = 5000_u64;
    let size = |number: u64| (number * 7919 % 300) as usize;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..count {
                sender.send(&content(0, number, size(number))).unwrap();
            }
            sender.close().unwrap();
        });
        let (give, take) = sync_channel::<(u64, Message)>(8);
        scope.spawn(move || {
            let (mut random, mut held) = (Random::new(seed), Vec::<(u64, Message)>::new());
            loop {
                match take.try_recv() {
                    Ok(given) => held.push(given),
                    Err(TryRecvError::Disconnected) => break,
                    // Held messages keep others from arriving: one of them is dropped.
                    Err(TryRecvError::Empty) if !held.is_empty() => {
                        let at = random.below(held.len() as u64) as usize;
                        let (number, message) = held.swap_remove(at);
                        assert_content(&message, 0, number, size(number));
                    }
                    Err(TryRecvError::Empty) => std::thread::yield_now(),
                }
            }
        });
        for number in 0..count {
            let message = receiver.recv().unwrap();
            if number % 2 == 0 {
                give.send((number, message)).unwrap();
            } else {
                assert_content(&message, 0, number, size(number));
                receiver.free(message);
            }
        }
        drop(give);
        // The sender's close waits for a call that receives.
        assert_eq!(receiver.recv().map(drop), Err(RecvError::Closed));
    });
}

#[test]
fn a_held_message_outlives_its_receiver_unchanged() {
    bounded(|| {
        let config = small(Layout::Mirrored);
        let (mut sender, mut receiver) = connected(&config);
        sender.send(&[7; 1000]).unwrap();
        let held = receiver.recv().unwrap();
        // Less than the ring: the rest of it goes round only when the first is free.
        for number in 0..3_u64 {
            sender.send(&content(0, number, 900)).unwrap();
            assert_content(&receiver.recv().unwrap(), 0, number, 900);
        }
        assert_eq!(sender.try_send(&[0; 1000]).unwrap_err(), SendError::Full(Full::Ring));
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        assert_eq!(sender.try_send(&[0; 1000]).unwrap_err(), SendError::Full(Full::Ring));
        assert_eq!(*held, [7; 1000]);
        drop(receiver);
        drop(sender);
        assert_eq!(*held, [7; 1000]);
    });
}

#[test]
fn a_receiver_holds_no_more_messages_than_agreed() {
    bounded(|| {
        let config = Config { max_held: 4, ..small(Layout::Mirrored) };
        let (mut sender, mut receiver) = connected(&config);
        for number in 0..6_u8 {
            sender.send(&[number]).unwrap();
        }
        let mut held: Vec<Message> = (0..4).map(|_| receiver.recv().unwrap()).collect();
        drop(held.pop());
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        assert_eq!(receiver.recv_timeout(Duration::ZERO).unwrap_err(), RecvError::TimedOut);
        held.clear();
        assert_eq!(*receiver.recv().unwrap(), [4]);
        assert_eq!(*receiver.recv().unwrap(), [5]);
    });
}

#[test]
fn forgotten_messages_are_harmless() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&small(Layout::Mirrored));
        sender.send(b"forgotten").unwrap();
        std::mem::forget(receiver.recv().unwrap());
        while sender.try_send(&[1; 100]).is_ok() {
            assert_eq!(*receiver.recv().unwrap(), [1; 100]);
        }
        std::thread::scope(|scope| {
            scope.spawn(move || sender.close().unwrap());
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
        });
    });
}

#[test]
fn the_sender_posts_nothing() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&small(Layout::Mirrored));
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                for number in 0..2000_u64 {
                    sender.send(&content(0, number, number as usize % 100)).unwrap();
                }
                sender.wait_all().unwrap();
            });
            let mut number = 0;
            while number < 2000 {
                let came = receiver.try_recv_each(|_, message| {
                    assert_content(message, 0, number, number as usize % 100);
                    number += 1;
                });
                assert!(matches!(came, Ok(1..) | Err(RecvError::Empty)));
            }
            // Until the sender knows that all has landed: it may ask for the head later.
            while !sending.is_finished() {
                assert!(matches!(receiver.try_recv(), Err(RecvError::Empty)));
            }
        });
        assert_eq!(sender.stats().work_requests, 0);
        let stats = receiver.stats();
        assert!(stats.reads < stats.messages && stats.heads_written < stats.messages, "{stats:?}");
        assert_eq!(stats.work_requests, stats.reads + stats.tail_reads + stats.heads_written);
    });
}

#[test]
fn a_message_that_is_waited_for_lies_in_the_receivers_memory() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&small(Layout::Mirrored));
        let (mut other, _other_end) = connected(&small(Layout::Mirrored));
        let foreign = other.send(b"other").unwrap();
        assert_eq!(sender.wait_acked(foreign).unwrap_err(), SendError::UnknownTicket);
        let first = sender.send(b"first").unwrap();
        let second = sender.send(b"second").unwrap();
        assert!(first < second && !sender.is_acked(first).unwrap());
        assert_eq!(
            sender.wait_acked_timeout(first, Duration::ZERO).unwrap_err(),
            SendError::TimedOut { unflushed: 0 }
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.wait_acked(second));
            let held = receiver.recv().unwrap();
            assert_eq!(&*held, b"first");
            while !waiting.is_finished() {
                assert!(matches!(
                    receiver.try_recv().as_deref(),
                    Ok(b"second") | Err(RecvError::Empty)
                ));
            }
            waiting.join().unwrap().unwrap();
        });
        assert!(sender.is_acked(first).unwrap() && sender.is_acked(second).unwrap());
    });
}

#[test]
fn a_receiver_sees_the_close_of_a_sender_without_messages() {
    bounded(|| {
        let (sender, mut receiver) = connected(&small(Layout::Mirrored));
        std::thread::scope(|scope| {
            scope.spawn(move || sender.close().unwrap());
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
            assert_eq!(receiver.peers(), 0);
        });
    });
}

#[test]
fn every_call_reports_a_receiver_that_stops() {
    bounded(|| {
        let (mut sender, receiver) = connected(&small(Layout::Mirrored));
        let ticket = sender.send(b"this is not read").unwrap();
        receiver.close();
        let stopped = SendError::Ended(CloseReason::PeerClosed { unacked: 1 });
        assert_eq!(sender.wait_acked(ticket).unwrap_err(), stopped);
        assert_eq!(sender.try_send(b"more").unwrap_err(), stopped);
        assert_eq!(sender.flush().unwrap_err(), stopped);
        assert_eq!(sender.close().unwrap_err(), stopped);
    });
}

#[test]
fn a_sender_that_waits_for_room_hears_that_the_receiver_stops() {
    bounded(|| {
        let (mut sender, receiver) = connected(&small(Layout::Mirrored));
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                loop {
                    if let Err(e) = sender.send(&[0; 1000]) {
                        return e;
                    }
                }
            });
            drop(receiver);
            let error = sending.join().unwrap();
            assert!(matches!(&error, SendError::Ended(e) if e.is_close()), "{error:?}");
        });
    });
}

/// A device that takes its time has as many heads on their way as it can when the receiver goes:
/// what the receiver has to say waits for room, and arrives.
#[test]
fn a_stop_arrives_behind_all_the_heads_on_their_way() {
    for seed in 0..40 {
        let simulation = Simulation::new(seed, Faults { delay: 0.9, ..Faults::default() });
        let device = rdma_conn::device::open(Some(simulation.name())).unwrap();
        // Each message that is freed is worth a head.
        let config =
            Config { head_threshold: 8, gather_bytes: 0, max_held: 1, ..small(Layout::Mirrored) };
        let (mut sender, mut receiver) = connected_on(&device, &config);
        for number in 0..40 {
            sender.try_send(&content(0, number, 16)).unwrap();
        }
        for number in 0..40 {
            let message = loop {
                match receiver.try_recv() {
                    Ok(message) => break message,
                    Err(e) => assert_eq!(e, RecvError::Empty),
                }
            };
            // No more can be lent: it tells the sender that the last one is free.
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
            assert_content(&message, 0, number, 16);
        }
        drop(receiver);
        assert_eq!(sender.flush().unwrap_err(), SendError::Ended(CloseReason::Closed), "{seed}");
    }
}

#[test]
fn many_senders_take_turns_and_come_and_go() {
    bounded(|| {
        let (device, config) = (device(), small(Layout::Mirrored));
        let mut all = receiver::<BufferedRead>(&device, &config, 8).unwrap();
        assert_eq!(all.recv().unwrap_err(), RecvError::Closed);
        let senders: Vec<Sender> = (0..8)
            .map(|_| join::<BufferedRead>(&mut all, &device, &device, &config).unwrap())
            .collect();
        let refused = join::<BufferedRead>(&mut all, &device, &device, &config).unwrap_err();
        assert!(matches!(refused, ConnectError::TooManyPeers(8)), "{refused}");
        let count = 400_u64;
        std::thread::scope(|scope| {
            for (stream, mut sender) in (0..).zip(senders) {
                scope.spawn(move || {
                    for number in 0..count {
                        let bytes = (number as usize * 37) % 700;
                        sender.send(&content(stream, number, bytes)).unwrap();
                    }
                    sender.close().unwrap();
                });
            }
            let mut next = [0_u64; 8];
            for _ in 0..8 * count {
                let message = all.recv().unwrap();
                let from = message.peer().0 as usize;
                let number = next[from];
                next[from] += 1;
                let bytes = (number as usize * 37) % 700;
                assert_content(&message, from as u64, number, bytes);
            }
            assert_eq!(all.recv().unwrap_err(), RecvError::Closed);
        });
        assert_eq!((all.peers(), all.stats().messages), (0, 8 * count));
        // The places are free again.
        let mut one = join::<BufferedRead>(&mut all, &device, &device, &config).unwrap();
        one.send(b"again").unwrap();
        let message = all.recv().unwrap();
        assert_eq!((&*message, message.peer().0), (&b"again"[..], 8));
    });
}

#[test]
fn idle_peers_are_polled_rarely_and_still_received_from() {
    bounded(|| {
        let (device, config) = (device(), small(Layout::Mirrored));
        let mut all = receiver::<BufferedRead>(&device, &config, 16).unwrap();
        let mut senders: Vec<Sender> = (0..16)
            .map(|_| join::<BufferedRead>(&mut all, &device, &device, &config).unwrap())
            .collect();
        // The calls that it takes to receive one message.
        let mut through = |all: &mut Receiver, sender: usize| {
            senders[sender].send(&[sender as u8; 500]).unwrap();
            for calls in 1_u64.. {
                match all.try_recv() {
                    Ok(message) => {
                        assert_eq!(message.peer().0 as usize, sender);
                        return calls;
                    }
                    Err(e) => assert_eq!(e, RecvError::Empty),
                }
            }
            unreachable!()
        };
        for _ in 0..200 {
            through(&mut all, 3);
        }
        let before = all.stats().tail_reads;
        let calls: u64 = (0..1000).map(|_| through(&mut all, 3)).sum();
        let looks = all.stats().tail_reads - before;
        // A call looks at the peer that sends once in each of its rounds, which are three at
        // most, and at an idle one once in 64 rounds. (How many calls a message takes depends
        // on how far away its sender is.) All of them in each round would be 16 a round.
        let rounds = 3 * calls;
        let most = rounds + 15 * (rounds / u64::from(config.idle_rounds) + 1);
        assert!(looks <= most, "{looks} looks in {calls} calls: {most} are the most");
        for sender in (0..16).rev() {
            through(&mut all, sender);
        }
        drop(all); // before its senders, which would wait for it to hear their goodbyes
    });
}

#[test]
fn a_ring_too_large_for_the_receiver_is_refused_with_the_limit() {
    let device = device();
    let config = Config { peer_ring_bytes: 4096, ..support::config::<Config>() };
    let refused = pair::<BufferedRead>(&device, &device, &config).unwrap_err().to_string();
    assert!(refused.contains("4096 are the most"), "{refused}");
}

#[test]
fn two_ends_meet_over_tcp() {
    bounded(|| {
        let (device, config) = (device(), small(Layout::Plain));
        let listener = Listener::<BufferedRead>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut near = connect::<BufferedRead>(address, &device, &config).unwrap();
                near.sender.send(b"ping").unwrap();
                assert_eq!(&*near.receiver.recv().unwrap(), b"pong");
                near.sender.close().unwrap();
            });
            let incoming = listener.next().unwrap();
            assert!(!incoming.is_one_way() && incoming.from().is_some());
            let mut far = incoming.accept(&device, &config).unwrap();
            assert_eq!(&*far.receiver.recv().unwrap(), b"ping");
            far.sender.send(b"pong").unwrap();
            assert_eq!(far.receiver.recv().unwrap_err(), RecvError::Closed);
            far.sender.wait_all().unwrap();
        });
    });
}

#[test]
fn many_threads_send_into_one_ring() {
    for layout in [Layout::Mirrored, Layout::Plain] {
        bounded(move || {
            let (sender, mut receiver) = connected(&small(layout));
            let sender = sender.into_shared(4).unwrap();
            assert_eq!(sender.max_message_bytes(), 1500);
            let too_long = SendError::TooLong { bytes: 1501, limit: 1500 };
            assert_eq!(sender.try_send(&[0; 1501]).unwrap_err(), too_long);
            let (threads, count) = (4_u64, 500_u64);
            let size = |number: u64| 16 + (number * 7919 % 400) as usize;
            std::thread::scope(|scope| {
                let sending: Vec<_> = (0..threads)
                    .map(|stream| {
                        let sender = &sender;
                        scope.spawn(move || {
                            let mut last = None;
                            for number in 0..count {
                                let mut bytes = content(stream, number, size(number));
                                bytes[0] = stream as u8;
                                last = Some(sender.send(&bytes).unwrap());
                            }
                            sender.wait_acked(last.unwrap()).unwrap();
                        })
                    })
                    .collect();
                let mut next = [0_u64; 4];
                while next.iter().sum::<u64>() < threads * count {
                    let message = receiver.recv().unwrap();
                    let stream = u64::from(message[0]);
                    let number = next[stream as usize];
                    next[stream as usize] += 1;
                    let mut bytes = content(stream, number, size(number));
                    bytes[0] = stream as u8;
                    assert_eq!(*message, *bytes, "message {number} of thread {stream}");
                }
                // Until all know that their last one has landed.
                while sending.iter().any(|thread| !thread.is_finished()) {
                    assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
                }
            });
            std::thread::scope(|scope| {
                scope.spawn(move || sender.close().unwrap());
                assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
            });
        });
    }
}

#[test]
fn a_dropped_shared_sender_says_goodbye_after_its_last_message() {
    bounded(|| {
        let (sender, mut receiver) = connected(&small(Layout::Mirrored));
        let sender = sender.into_shared(1).unwrap();
        for number in 0..5_u8 {
            sender.send(&[number]).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(move || drop(sender));
            for number in 0..5_u8 {
                assert_eq!(*receiver.recv().unwrap(), [number]);
            }
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
        });
    });
}

#[test]
fn threads_that_wait_for_room_hear_that_the_receiver_stops() {
    bounded(|| {
        let (sender, receiver) = connected(&small(Layout::Mirrored));
        let sender = sender.into_shared(8).unwrap();
        std::thread::scope(|scope| {
            let sending: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            if let Err(e) = sender.send(&[0; 700]) {
                                return e;
                            }
                        }
                    })
                })
                .collect();
            drop(receiver);
            for thread in sending {
                let error = thread.join().unwrap();
                assert!(matches!(&error, SendError::Ended(e) if e.is_close()), "{error:?}");
            }
        });
        let error = sender.try_send(b"more").unwrap_err();
        assert!(matches!(&error, SendError::Ended(e) if e.is_close()), "{error:?}");
    });
}

#[test]
fn a_sender_that_has_sent_is_not_shared_any_more() {
    let (mut sender, mut receiver) = connected(&small(Layout::Mirrored));
    sender = sender.into_shared(3).unwrap_err();
    sender.send(b"one").unwrap();
    sender = sender.into_shared(4).unwrap_err();
    sender.send(b"two").unwrap();
    assert_eq!(&*receiver.recv().unwrap(), b"one");
    assert_eq!(&*receiver.recv().unwrap(), b"two");
}

#[test]
fn an_abort_by_one_thread_closes_the_receiver_for_the_others() {
    bounded(|| {
        let (mut sender, receiver) = connected(&small(Layout::Mirrored));
        sender.send(b"arrived").unwrap();
        let receiver = receiver.into_shared().unwrap();
        let other = receiver.clone();
        let first = receiver.recv().unwrap();
        receiver.abort();
        assert_eq!((&*first, other.recv().unwrap_err()), (&b"arrived"[..], RecvError::Closed));
        drop(other);
        let ended = sender.send_acked(b"late").unwrap_err();
        assert!(matches!(ended, SendError::Ended(_)), "{ended:?}");
    });
}
