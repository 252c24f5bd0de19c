//! Promises of a connection when nothing goes wrong: order, content, tickets, timeouts, every way
//! of waiting.

mod support;

use rdma_conn::Common;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rdma_conn::send_recv::{Config, Full, Inline, Preset, Receiver, RecvError, SendError, Sender};
use rdma_conn::{Connection, RecvHalf, SendHalf, SendRecv, WaitStrategy, pair};
use support::{PATIENCE, assert_content, bounded, content, device, small};

const LONGEST: usize = 9000;

fn sizes(inline: usize) -> Vec<usize> {
    vec![0, 1, 11, 12, 16, inline.max(1) - 1, inline, inline + 1, 4096, LONGEST]
}

fn send_all(sender: &mut Sender, stream: u64, sizes: &[usize], rounds: u64) {
    for number in 0..rounds * sizes.len() as u64 {
        let size = sizes[number as usize % sizes.len()];
        sender.send(&content(stream, number, size)).unwrap();
    }
}

fn receive_all(receiver: &mut Receiver, stream: u64, sizes: &[usize], rounds: u64) {
    for number in 0..rounds * sizes.len() as u64 {
        let message = receiver.recv().unwrap();
        assert_content(&message, stream, number, sizes[number as usize % sizes.len()]);
        if number % 3 == 0 {
            receiver.free(message);
        }
    }
    assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
}

/// Two duplex ends, four threads.
fn both_ways(config: Config, rounds: u64) {
    let device = device();
    let (left, right) = pair::<SendRecv>(&device, &device, &config).unwrap();
    let sizes = sizes(left.sender.inline_bytes() as usize);
    std::thread::scope(|scope| {
        for (stream, end) in (0..).zip([left, right]) {
            let Connection { mut sender, mut receiver } = end;
            let sizes = &sizes;
            scope.spawn(move || {
                send_all(&mut sender, stream, sizes, rounds);
                sender.close().unwrap();
            });
            scope.spawn(move || receive_all(&mut receiver, 1 - stream, sizes, rounds));
        }
    });
}

#[test]
fn every_preset_carries_every_size_both_ways() {
    for preset in Preset::ALL {
        for inline in [Inline::Auto, Inline::Never, Inline::UpTo(64)] {
            let config = Config { message_bytes: LONGEST as u32, inline, ..Config::preset(preset) };
            bounded(move || both_ways(config, 20));
        }
    }
}

#[test]
fn every_way_of_waiting_carries_messages_both_ways() {
    let spin_a_little = WaitStrategy::SpinThenBlock(Duration::from_micros(5));
    for wait in [WaitStrategy::Spin, WaitStrategy::Block, spin_a_little, WaitStrategy::Adaptive] {
        let config = Config {
            message_bytes: LONGEST as u32,
            common: Common { wait, ..small(4).common },
            ..small(4)
        };
        bounded(move || both_ways(config, 20));
    }
}

fn connected(config: &Config) -> (Sender, Receiver) {
    let device = device();
    let (left, right) = pair::<SendRecv>(&device, &device, config).unwrap();
    (left.sender, right.receiver)
}

#[test]
fn waiting_for_acknowledged_tickets_returns_at_once() {
    bounded(|| {
        // One completion in 64 messages: the last ones are not signalled.
        let config =
            Config { unacked: 128, signal_every: 64, batch: 8, ..support::config::<Config>() };
        let (mut sender, mut receiver) = connected(&config);
        let tickets: Vec<_> = (0..70u8).map(|n| sender.send(&[n]).unwrap()).collect();
        assert!(tickets.is_sorted());
        sender.wait_acked(tickets[69]).unwrap();
        for ticket in &tickets {
            assert!(sender.is_acked(*ticket).unwrap());
            sender.wait_acked_timeout(*ticket, Duration::ZERO).unwrap();
        }
        for n in 0..70u8 {
            assert_eq!(*receiver.recv().unwrap(), [n]);
        }
    });
}

#[test]
fn an_unsignalled_message_in_the_middle_can_be_waited_for() {
    bounded(|| {
        let config =
            Config { unacked: 128, signal_every: 128, batch: 1, ..support::config::<Config>() };
        let (mut sender, mut receiver) = connected(&config);
        let first = sender.send(b"first").unwrap();
        let second = sender.send(b"second").unwrap();
        sender.wait_acked(first).unwrap();
        sender.wait_acked(second).unwrap();
        assert_eq!(*receiver.try_recv().unwrap(), *b"first");
        assert_eq!(*receiver.try_recv().unwrap(), *b"second");
    });
}

#[test]
fn a_message_that_is_waited_for_lies_in_the_receivers_memory() {
    bounded(|| {
        for preset in Preset::ALL {
            let (mut sender, mut receiver) = connected(&Config::preset(preset));
            for n in 0..200u8 {
                sender.send_acked(&[n]).unwrap();
                assert_eq!(*receiver.try_recv().unwrap(), [n]);
            }
        }
    });
}

#[test]
fn a_staged_message_is_sent_by_flush() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&Config::preset(Preset::Batched));
        sender.try_send(b"half a batch").unwrap();
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        sender.flush().unwrap();
        assert_eq!(*receiver.recv().unwrap(), *b"half a batch");
    });
}

/// No other call asks for its completion, or waits for it.
#[test]
fn a_message_that_is_asked_for_is_known_to_be_sent_before_long() {
    for pack_bytes in [0, 64] {
        for flushes in [true, false] {
            bounded(move || {
                let (mut sender, mut receiver) = connected(&Config { pack_bytes, ..small(64) });
                let ticket = sender.try_send(b"one of many").unwrap();
                if flushes {
                    sender.flush().unwrap();
                }
                while !sender.is_acked(ticket).unwrap() {
                    std::thread::yield_now();
                }
                assert_eq!(*receiver.try_recv().unwrap(), *b"one of many");
            });
        }
    }
}

/// Sends until there is no room, and returns what was used up and how many went.
fn fill(sender: &mut Sender) -> (Full, u64) {
    for number in 0.. {
        match sender.try_send(&content(0, number, 32)) {
            Ok(_) => {}
            Err(SendError::Full(full)) => return (full, number),
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!("nothing has room for 2^64 messages")
}

#[test]
fn credits_used_up_come_back_with_the_messages_freed() {
    bounded(|| {
        let config = Config { unacked: 64, batch: 4, recv_depth: 8, ..small(8) };
        let (mut sender, mut receiver) = connected(&config);
        assert_eq!(fill(&mut sender), (Full::Credits, 8));
        assert_eq!(sender.try_send(b"more").unwrap_err(), SendError::Full(Full::Credits));
        assert_eq!(sender.stats().messages, 8);
        let held: Vec<_> = (0..8).map(|_| receiver.recv().unwrap()).collect();
        for (number, message) in (0..).zip(&held) {
            assert_content(message, 0, number, 32);
        }
        // Nothing is free: no credit is returned, however often the receiver looks.
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        assert_eq!(sender.try_send(b"more").unwrap_err(), SendError::Full(Full::Credits));
        drop(held);
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        sender.send_acked(b"more").unwrap();
        assert_eq!(*receiver.recv().unwrap(), *b"more");
    });
}

#[test]
fn a_full_window_empties_by_itself() {
    bounded(|| {
        // Credits for more than the window, so that the window is what fills. Where
        // the device acknowledges at once, it fills only with what is not posted.
        let config = Config { unacked: 8, batch: 8, signal_every: 8, recv_depth: 64, ..small(8) };
        let (mut sender, mut receiver) = connected(&config);
        let mut sent = 0;
        for number in 0..64 {
            match sender.try_send(&content(0, number, 32)) {
                Ok(_) => sent += 1,
                Err(SendError::Full(full)) => {
                    assert_eq!(full, Full::Window);
                    sender.wait_for_room(1).unwrap();
                    sender.try_send(&content(0, number, 32)).unwrap();
                    sent += 1;
                }
                Err(e) => panic!("{e}"),
            }
        }
        sender.wait_all().unwrap();
        assert_eq!(sent, 64);
        for number in 0..64 {
            assert_content(&receiver.recv().unwrap(), 0, number, 32);
        }
    });
}

#[test]
fn a_timeout_loses_nothing() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&small(4));
        let soon = Duration::from_millis(1);
        assert_eq!(receiver.recv_timeout(soon).unwrap_err(), RecvError::TimedOut);
        assert_eq!(receiver.recv_timeout(Duration::ZERO).unwrap_err(), RecvError::TimedOut);
        let (_, filled) = fill(&mut sender);
        let refused = sender.send_timeout(b"never accepted", soon);
        assert_eq!(refused.unwrap_err(), SendError::TimedOut { unflushed: 0 });
        for number in 0..filled {
            assert_content(&receiver.recv_timeout(PATIENCE).unwrap(), 0, number, 32);
        }
        assert_eq!(receiver.recv_timeout(soon).unwrap_err(), RecvError::TimedOut);
        sender.send_acked(b"next").unwrap();
        assert_eq!(*receiver.recv().unwrap(), *b"next");
        assert_eq!(sender.stats().messages, filled + 1);
    });
}

#[test]
fn a_message_that_is_too_long_is_refused_and_nothing_is_sent() {
    bounded(|| {
        for pack_bytes in [0, 64] {
            let (mut sender, mut receiver) = connected(&Config { pack_bytes, ..small(4) });
            let limit = sender.max_message_bytes();
            assert_eq!(limit, if pack_bytes == 0 { 64 } else { 60 });
            let too_long = SendError::TooLong { bytes: limit + 1, limit };
            let mut called = false;
            let refused = sender.try_send_with(limit + 1, |_| called = true);
            assert_eq!(refused.unwrap_err(), too_long);
            assert!(!called);
            assert_eq!(sender.send(&[1; 65][..limit + 1]).unwrap_err(), too_long);
            sender.send_acked(&content(0, 0, limit)).unwrap();
            assert_content(&receiver.recv().unwrap(), 0, 0, limit);
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
            assert_eq!(sender.stats().messages, 1);
        }
    });
}

#[test]
fn the_smaller_buffers_of_the_two_ends_are_the_limit() {
    let device = device();
    let (tall, short) = (Config { message_bytes: 256, ..small(4) }, small(4));
    let mut inbox = rdma_conn::receiver::<SendRecv>(&device, &short, 1).unwrap();
    let listener = rdma_conn::Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let device = &device;
        let connecting =
            scope.spawn(move || rdma_conn::connect_sender::<SendRecv>(address, device, &tall));
        listener.next().unwrap().accept_into(&mut inbox, device, &short).unwrap();
        assert_eq!(connecting.join().unwrap().unwrap().max_message_bytes(), 64);
    });
}

#[test]
fn a_panic_while_a_message_is_filled_sends_nothing() {
    bounded(|| {
        for pack_bytes in [0, 64] {
            let (mut sender, mut receiver) = connected(&Config { pack_bytes, ..small(4) });
            sender.send_acked(b"an earlier secret").unwrap();
            drop(receiver.recv().unwrap());
            let filling =
                std::panic::AssertUnwindSafe(|| sender.try_send_with(16, |_| panic!("on purpose")));
            std::panic::catch_unwind(filling).unwrap_err();
            sender.send_acked(b"after").unwrap();
            assert_eq!(*receiver.recv().unwrap(), *b"after", "pack {pack_bytes}");
        }
    });
}

/// The receiver sleeps, all its buffers are with another thread, which frees them one
/// by one while the sender is out of credits: each free may be the one that has to
/// wake the receiver, and then its credit the sender.
#[test]
fn a_free_by_another_thread_wakes_a_sleeping_receiver() {
    const ROUNDS: u64 = 1500;
    for (window, wait) in
        [(1, WaitStrategy::Block), (4, WaitStrategy::Block), (3, WaitStrategy::Adaptive)]
    {
        bounded(move || {
            let (mut sender, mut receiver) = connected(&Config {
                common: Common { wait, ..small(window).common },
                ..small(window)
            });
            let messages = ROUNDS * u64::from(window);
            let (give, take) = sync_channel(window as usize);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..messages {
                        sender.send(&content(7, number, 24)).unwrap();
                    }
                    sender.close().unwrap();
                });
                scope.spawn(move || {
                    for number in 0..messages {
                        let message = receiver.recv().unwrap();
                        assert_content(&message, 7, number, 24);
                        give.send(message).unwrap();
                    }
                    assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
                });
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        // All of them, and then one after the other.
                        let held: Vec<_> = (0..window).map(|_| take.recv().unwrap()).collect();
                        held.into_iter().for_each(drop);
                    }
                });
            });
        });
    }
}

#[test]
fn a_message_wakes_a_sleeping_receiver() {
    bounded(|| {
        let config =
            Config { common: Common { wait: WaitStrategy::Block, ..small(4).common }, ..small(4) };
        let (mut there, mut here) = connected(&config);
        let (mut back, mut again) = connected(&config);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while let Ok(message) = here.recv() {
                    back.send(&message).unwrap();
                }
                back.close().unwrap();
            });
            for number in 0..2000 {
                there.send(&content(1, number, 8)).unwrap();
                assert_content(&again.recv().unwrap(), 1, number, 8);
            }
            there.close().unwrap();
            assert_eq!(again.recv().unwrap_err(), RecvError::Closed);
        });
    });
}
