//! Flow control: a message never finds a receiver that is not ready, and no sender
//! waits for ever for a buffer that is free.
//!
//! Alone on rxe0: counters of the device are compared, and no other test has packets under way.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use std::sync::mpsc::channel;
use std::time::Duration;

use rdma_conn::send_recv::{
    Config, Full, Message, Receiver, RecvError, Reposting, SendError, Sender, SharedConfig,
    SharedPool, Transport,
};
use rdma_conn::{
    RecvHalf, SendHalf, SendRecv, WaitStrategy, join, join_shared, pair, receiver_shared,
};
use support::{
    Random, assert_content, bounded, content, counters, device, hold, repeated, rnr_since, seed,
    small,
};

/// No second chance for a message that finds no buffer.
fn strict(window: u32) -> Config {
    let config = small(window);
    Config {
        common: Common {
            transport: Transport { rnr_retry: 0, ..config.common.transport },
            ..config.common
        },
        ..config
    }
}

fn connected(config: &Config) -> (Sender, Receiver) {
    let device = device();
    let (left, right) = pair::<SendRecv>(&device, &device, config).unwrap();
    (left.sender, right.receiver)
}

fn send_all(mut sender: Sender, messages: u64) {
    for number in 0..messages {
        sender.send(&content(0, number, 16)).unwrap();
    }
    sender.close().unwrap();
}

/// Receives them all; `freed` does with each what it likes.
fn receive_all(
    receiver: &mut Receiver,
    messages: u64,
    mut freed: impl FnMut(&mut Receiver, Message),
) {
    for number in 0..messages {
        let message = receiver.recv().unwrap();
        assert_content(&message, 0, number, 16);
        freed(receiver, message);
    }
    assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
}

#[test]
fn a_receiver_that_stalls_is_never_found_unready() {
    const MESSAGES: u64 = 12_000;
    let (device, seed) = (device(), seed(1));
    let before = counters(&device);
    for (window, batch) in [(2, 1), (2, 2), (3, 1), (8, 4)] {
        let config = Config { unacked: 16, batch, ..strict(window) };
        bounded(move || {
            let mut random = Random::new(seed);
            let (sender, mut receiver) = connected(&config);
            std::thread::scope(|scope| {
                scope.spawn(move || send_all(sender, MESSAGES));
                receive_all(&mut receiver, MESSAGES, |receiver, message| {
                    // Load: a stall of up to 100 ms, now and then a short one.
                    match random.below(4000) {
                        0 => std::thread::sleep(Duration::from_millis(random.below(101))),
                        1..100 => std::thread::yield_now(),
                        _ => {}
                    }
                    if random.chance(2) { receiver.free(message) } else { drop(message) }
                });
            });
        });
    }
    assert_eq!(rnr_since(&device, &before), 0, "seed {seed}");
}

#[test]
fn a_flood_of_small_messages_is_never_found_unready() {
    let device = device();
    let before = counters(&device);
    for wait in [WaitStrategy::Spin, WaitStrategy::Adaptive] {
        let config = Config {
            common: Common { wait, ..support::common() },
            message_bytes: 64,
            recv_depth: 2,
            ..support::config::<Config>()
        };
        let config = Config {
            common: Common { transport: strict(2).common.transport, ..config.common },
            ..config
        };
        bounded(move || {
            let (sender, mut receiver) = connected(&config);
            std::thread::scope(|scope| {
                scope.spawn(move || send_all(sender, 20_000));
                receive_all(&mut receiver, 20_000, Receiver::free);
            });
        });
    }
    assert_eq!(rnr_since(&device, &before), 0);
}

#[test]
fn keeping_all_but_one_message_does_not_stall_the_flow() {
    let device = device();
    let before = counters(&device);
    for window in [1, 2, 3, 8, 64] {
        for (repost_batch, credit_threshold) in [(0, 0), (window, window), (1, 1)] {
            let config = Config { repost_batch, credit_threshold, ..strict(window) };
            bounded(move || {
                let (sender, mut receiver) = connected(&config);
                let (mut kept, messages) = (Vec::new(), repeated(2000));
                std::thread::scope(|scope| {
                    scope.spawn(move || send_all(sender, messages));
                    receive_all(&mut receiver, messages, |receiver, message| {
                        if kept.len() + 1 < window as usize {
                            kept.push(message);
                        } else {
                            receiver.free(message);
                        }
                    });
                });
                for (number, message) in (0..).zip(&kept) {
                    assert_content(message, 0, number, 16);
                }
            });
        }
    }
    assert_eq!(rnr_since(&device, &before), 0);
}

/// The receiver never idles, because one sender always has a message there; all
/// buffers that the other one can have are kept but one, too few for a batch.
#[test]
fn a_sender_out_of_credits_is_not_forgotten_by_a_busy_receiver() {
    const WINDOW: u32 = 8;
    for reposting in [None, Some(Reposting::Lock), Some(Reposting::Combining)] {
        bounded(move || {
            let (device, config) = (device(), strict(WINDOW));
            let sizes = |reposting| SharedConfig {
                buffers: WINDOW + SharedConfig::KEPT - 1,
                buffer_bytes: 64,
                max_peers: 1,
                reposting,
                repost_batch: 4,
            };
            let pool = reposting.map(|how| SharedPool::new(&device, sizes(how)).unwrap());
            let mut inbox =
                receiver_shared::<SendRecv>(&device, &config, 2, pool.as_ref()).unwrap();
            let mut busy = join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap();
            let mut slow = match &pool {
                Some(pool) => {
                    join_shared::<SendRecv>(&mut inbox, pool, &device, &device, &config).unwrap()
                }
                None => join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap(),
            };
            let mut kept = hold(&mut slow, &mut inbox, WINDOW.into(), 0);
            assert_eq!(slow.try_send(b"no").unwrap_err(), SendError::Full(Full::Credits));
            inbox.free(kept.remove(3));
            let mut rounds = 0;
            while let Err(SendError::Full(Full::Credits)) = slow.try_send(b"at last") {
                rounds += 1;
                assert!(rounds < 1000, "{reposting:?}: starved");
                busy.send_acked(b"busy").unwrap();
                assert_eq!(*inbox.try_recv().unwrap(), *b"busy");
            }
        });
    }
}

#[test]
fn frees_in_any_order_from_other_threads_keep_it_ready() {
    const THREADS: usize = 4;
    const MESSAGES: u64 = 6000;
    let (device, seed) = (device(), seed(2));
    let before = counters(&device);
    for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
        bounded(move || {
            let (sender, mut receiver) =
                connected(&Config { common: Common { wait, ..strict(16).common }, ..strict(16) });
            let mut random = Random::new(seed);
            std::thread::scope(|scope| {
                scope.spawn(move || send_all(sender, MESSAGES));
                let to: Vec<_> = (0..THREADS as u64)
                    .map(|thread| {
                        let (give, take) = channel::<Message>();
                        let mut random = Random::new(seed ^ thread << 32);
                        scope.spawn(move || {
                            let mut held = Vec::new();
                            // At most 3 of the 16 buffers are held until the next message arrives.
                            for message in take {
                                held.push(message);
                                while held.len() > random.below(4) as usize {
                                    held.swap_remove(random.below(held.len() as u64) as usize);
                                }
                            }
                        });
                        give
                    })
                    .collect();
                receive_all(&mut receiver, MESSAGES, |_, message| {
                    to[random.below(THREADS as u64) as usize].send(message).unwrap();
                });
            });
        });
    }
    assert_eq!(rnr_since(&device, &before), 0, "seed {seed}");
}

#[test]
fn credits_cost_few_work_requests() {
    bounded(|| {
        let (sender, mut receiver) = connected(&strict(64));
        std::thread::scope(|scope| {
            scope.spawn(move || send_all(sender, 6400));
            receive_all(&mut receiver, 6400, Receiver::free);
        });
        let stats = receiver.stats();
        assert_eq!((stats.messages, stats.bytes), (6400, 6400 * 16));
        // One for half a window, in addition to those sent at once so that a stalled sender can
        // continue.
        assert!((1..6400).contains(&stats.credits_sent), "{stats:?}");
        assert!(stats.work_requests >= stats.credits_sent, "{stats:?}");
    });
}

#[test]
fn an_idle_receiver_posts_its_gathered_buffers() {
    let (mut sender, mut receiver) = connected(&strict(64));
    let before = receiver.stats().buffers_posted;
    for round in 1..=3 {
        sender.send_acked(&content(0, 0, 16)).unwrap();
        let message = receiver.recv().unwrap();
        receiver.free(message);
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        assert_eq!(receiver.stats().buffers_posted, before + round);
    }
}
