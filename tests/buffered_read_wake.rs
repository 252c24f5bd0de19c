//! Buffered Read: a receiver that sleeps is woken, and a peer that asks for wake-ups or sends
//! them without reason costs little.
//!
//! Shows: waits.

mod support;

use rdma_conn::Common;
use std::sync::mpsc::{TryRecvError, channel, sync_channel};
use std::time::Duration;

use rdma_conn::buffered_read::{Config, SharedSender};
use rdma_conn::conn_core::buffered_read::wake::VAIN_WAKE_UPS;
use rdma_conn::conn_core::ring::{Geometry, Producer};
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::RecvError;
use rdma_conn::{BufferedRead, RecvHalf, SendHalf, WaitStrategy, join, receiver};
use support::read::connected;
use support::read_liar::{CAPACITY, ReadLiar};
use support::{NEVER, bounded, device};

/// Settings of a receiver that sleeps at once, and wakes for an event only.
fn sleepy() -> Config {
    Config {
        common: Common { wait: WaitStrategy::Block, keepalive: NEVER, ..support::common() },
        max_sleep: NEVER,
        ..support::config::<Config>()
    }
}

const ROUNDS: u64 = 200;

#[test]
fn a_sleeping_receiver_is_woken_by_each_message() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&sleepy());
        let receiving = std::thread::spawn(move || {
            let mut count = 0;
            while let Ok(message) = receiver.recv() {
                assert_eq!(*message, u64::to_le_bytes(count));
                count += 1;
            }
            count
        });
        for number in 0..ROUNDS {
            // It waits until the receiver has read the message.
            sender.send_acked(&number.to_le_bytes()).unwrap();
        }
        // The goodbye wakes it, too.
        sender.close().unwrap();
        assert_eq!(receiving.join().unwrap(), ROUNDS);
    });
}

#[test]
fn a_sleeping_receiver_is_woken_by_several_threads() {
    bounded(|| {
        let (sender, mut receiver) = connected(&sleepy());
        let sender: SharedSender = sender.into_shared(4).unwrap();
        let receiving =
            std::thread::spawn(move || std::iter::from_fn(|| receiver.recv().ok()).count() as u64);
        std::thread::scope(|scope| {
            for number in 0..2_u8 {
                let sender = &sender;
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let ticket = sender.send(&[number]).unwrap();
                        sender.wait_acked(ticket).unwrap();
                    }
                });
            }
        });
        sender.close().unwrap();
        assert_eq!(receiving.join().unwrap(), 2 * ROUNDS);
    });
}

/// The configuration that a peer is accepted with does not decide how the receiver sleeps.
#[test]
fn a_spinning_peer_wakes_a_sleeping_receiver() {
    bounded(|| {
        let device = device();
        let spins =
            Config { common: Common { wait: WaitStrategy::Spin, ..sleepy().common }, ..sleepy() };
        let mut all = receiver::<BufferedRead>(&device, &sleepy(), 2).unwrap();
        let mut first = join::<BufferedRead>(&mut all, &device, &device, &spins).unwrap();
        let _other = join::<BufferedRead>(&mut all, &device, &device, &sleepy()).unwrap();
        let receiving = std::thread::spawn(move || {
            (0..ROUNDS).for_each(|number| assert_eq!(*all.recv().unwrap(), number.to_le_bytes()));
            all
        });
        for number in 0..ROUNDS - 1 {
            first.send_acked(&number.to_le_bytes()).unwrap();
        }
        // The last one is acknowledged by no call that receives.
        first.send(&(ROUNDS - 1).to_le_bytes()).unwrap();
        drop(receiving.join().unwrap());
    });
}

/// One that only sends posts one wake-up for a sleep, and no more while the receiver is awake.
#[test]
fn an_unacknowledged_message_wakes_a_sleeping_receiver() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&sleepy());
        let receiving = std::thread::spawn(move || {
            let mut count = 0;
            while receiver.recv().is_ok() {
                count += 1;
            }
            count
        });
        // A receiver sleeps when it has caught up, for which slow devices need ever longer pauses.
        let mut sent = 0_u64;
        while sender.stats().work_requests < 3 {
            sender.send(&[7; 16]).unwrap();
            sent += 1;
            (0..sent.min(100_000)).for_each(|_| std::thread::yield_now());
        }
        sender.close().unwrap();
        assert_eq!(receiving.join().unwrap(), sent);
    });
}

#[test]
fn a_receiver_of_many_is_woken_by_whichever_sends() {
    bounded(|| {
        let device = device();
        let mut all = receiver::<BufferedRead>(&device, &sleepy(), 3).unwrap();
        let senders =
            [(); 3].map(|()| join::<BufferedRead>(&mut all, &device, &device, &sleepy()).unwrap());
        let receiving =
            std::thread::spawn(move || std::iter::from_fn(|| all.recv().ok()).count() as u64);
        std::thread::scope(|scope| {
            for mut sender in senders {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        sender.send_acked(b"wake up").unwrap();
                    }
                    sender.close().unwrap();
                });
            }
        });
        assert_eq!(receiving.join().unwrap(), 3 * ROUNDS);
    });
}

/// Freed by another thread, a message makes room for a sender that waits for it: the receiver
/// sees that although no completion tells of it.
#[test]
fn a_receiver_that_sleeps_sees_what_other_threads_free() {
    bounded(|| {
        let ring = RingShape { ring_bytes: 4096, message_bytes: 1000, layout: Layout::Plain };
        let config = Config { ring, max_held: 2, ..sleepy() };
        let (mut sender, mut receiver) = connected(&config);
        let (give, given) = sync_channel(1);
        let receiving = std::thread::spawn(move || {
            while let Ok(message) = receiver.recv() {
                give.send(message).unwrap();
            }
        });
        let freeing = std::thread::spawn(move || given.iter().map(drop).count() as u64);
        for _ in 0..ROUNDS {
            sender.send(&[1; 900]).unwrap();
        }
        sender.close().unwrap();
        receiving.join().unwrap();
        assert_eq!(freeing.join().unwrap(), ROUNDS);
    });
}

#[test]
fn each_wake_up_request_causes_at_most_one_wake_up() {
    bounded(|| {
        let (mut liar, mut sender) = ReadLiar::as_receiver(&device());
        let mut wake_ups = |is_whole, asks: bool| {
            let before = sender.stats().work_requests;
            for request in 1..=5_u64 {
                if asks || request == 1 {
                    liar.ask_for_wake_up(request << 32 | before, is_whole);
                }
                for _ in 0..3 {
                    sender.try_send(b"x").unwrap();
                }
            }
            sender.stats().work_requests - before
        };
        // It is not the one that was answered, and stands: one wake-up.
        assert_eq!(wake_ups(true, false), 1);
        let answered = wake_ups(true, true);
        assert!((1..=5).contains(&answered), "{answered} wake-ups for 5 requests");
        // Half-written, or garbage: none.
        assert_eq!(wake_ups(false, true), 0);
    });
}

#[test]
fn wake_ups_without_a_message_do_not_keep_a_receiver_awake() {
    bounded(|| {
        let device = device();
        let config = Config { max_sleep: Duration::from_millis(1), ..sleepy() };
        let mut all = receiver::<BufferedRead>(&device, &config, 1).unwrap();
        let mut liar = ReadLiar::as_sender(&device, &mut all);
        let (end, ended) = channel::<()>();
        let lying = std::thread::spawn(move || {
            let (mut answered, mut count) = (0, 0);
            while ended.try_recv() != Err(TryRecvError::Disconnected) {
                let asked_for = liar.asked_for();
                if asked_for != answered {
                    liar.wake();
                    (answered, count) = (asked_for, count + 1);
                }
                std::thread::yield_now();
            }
            (liar, count)
        });
        for _ in 0..50 {
            let nothing = all.recv_timeout(Duration::from_millis(2));
            assert!(matches!(nothing, Err(RecvError::TimedOut)));
        }
        drop(end);
        let (liar, count) = lying.join().unwrap();
        assert!(count <= VAIN_WAKE_UPS, "{count} wake-ups were asked for in vain");
        // A message is received nevertheless.
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        liar.put(&mut ring, 16);
        liar.publish(ring.tail());
        assert_eq!(all.recv().unwrap().len(), 16);
    });
}
