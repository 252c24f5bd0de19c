//! Buffered Read with several threads that receive from one ring: each message goes to one
//! of them, in order for each, in whatever order threads free messages; and all of them
//! get the final error.
//!
//! Shows: load.

mod support;

use rdma_conn::Common;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use rdma_conn::buffered_read::{Config, Sender, SharedMessage, SharedReceiver, Transfers};
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::{CloseReason, RecvError, SendError};
use rdma_conn::{BufferedRead, RecvHalf, SendHalf, WaitStrategy, join, receiver};
use support::read::connected;
use support::{NEVER, Random, assert_content, bounded, content, device, seed};

const THREADS: u64 = 4;

/// A ring that is soon full, and READs that cut messages.
fn small(layout: Layout) -> Config {
    Config {
        ring: RingShape { ring_bytes: 4096, message_bytes: 1500, layout },
        max_read_bytes: 200,
        max_held: 64,
        common: Common { keepalive: NEVER, ..support::common() },
        ..support::config::<Config>()
    }
}

fn shared(config: &Config) -> (Sender, SharedReceiver) {
    let (sender, receiver) = connected(config);
    (sender, receiver.into_shared().unwrap())
}

fn size(number: u64) -> usize {
    8 + (number * 7919 % 400) as usize
}

/// A message that says which one it is.
fn numbered(number: u64) -> Vec<u8> {
    let mut bytes = content(0, number, size(number));
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number_of(message: &[u8]) -> u64 {
    let number = u64::from_le_bytes(message[..8].try_into().unwrap());
    assert!(message == numbered(number), "message {number} is another one's");
    number
}

/// Sends this number of messages, and says goodbye.
fn spawn_sender<'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut sender: Sender,
    count: u64,
) -> ScopedJoinHandle<'scope, ()> {
    scope.spawn(move || {
        for number in 0..count {
            sender.send(&numbered(number)).unwrap();
        }
        sender.close().unwrap();
    })
}

/// Checks that what several threads have received, each in order, is everything, once.
fn assert_all(received: Vec<Vec<u64>>, count: u64) {
    for of_one in &received {
        assert!(of_one.is_sorted_by(|a, b| a < b), "a thread's messages are out of order");
    }
    let mut all = received.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..count), "a message is missing, or arrived twice");
}

/// Receives until the end, and holds some, which are freed in any order.
fn receive_all(receiver: &SharedReceiver, random: &mut Random) -> Vec<u64> {
    let (mut numbers, mut held) = (Vec::new(), Vec::<(u64, SharedMessage)>::new());
    loop {
        match receiver.recv_timeout(Duration::from_millis(1)) {
            Ok(message) => {
                let number = number_of(&message);
                numbers.push(number);
                held.push((number, message));
            }
            // The sender may wait for what is held.
            Err(RecvError::TimedOut) => held.clear(),
            Err(RecvError::Closed) => return numbers,
            Err(e) => panic!("{e}"),
        }
        while held.len() > random.below(4) as usize {
            let (number, message) = held.swap_remove(random.below(held.len() as u64) as usize);
            assert_eq!(number_of(&message), number, "it has changed while it was held");
        }
    }
}

fn all_is_received(config: Config, has_transfers: bool, count: u64) {
    let (sender, receiver) = shared(&config);
    let transfers = has_transfers.then(|| receiver.spawn_transfers().unwrap());
    let seed = seed(0x5ead);
    std::thread::scope(|scope| {
        let sending = spawn_sender(scope, sender, count);
        let threads = [0, 1, 2, 3].map(|thread| {
            let receiver = receiver.clone();
            scope.spawn(move || receive_all(&receiver, &mut Random::new(seed + thread)))
        });
        assert_all(threads.map(|thread| thread.join().unwrap()).to_vec(), count);
        sending.join().unwrap();
    });
    assert_eq!(transfers.map_or(Ok(()), Transfers::join), Ok(()));
    assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Closed);
    let stats = receiver.stats();
    assert_eq!(stats.messages, count);
    assert_eq!(stats.bytes, (0..count).map(|number| size(number) as u64).sum());
}

#[test]
fn each_message_goes_to_one_thread_in_order() {
    for has_transfers in [false, true] {
        for layout in [Layout::Mirrored, Layout::Plain] {
            bounded(move || all_is_received(small(layout), has_transfers, 1000));
        }
        let base = small(Layout::Mirrored);
        let ways = [
            Config { common: Common { wait: WaitStrategy::Block, ..base.common }, ..base },
            Config {
                common: Common { wait: WaitStrategy::Spin, ..base.common },
                prefetch: false,
                reads: 1,
                ..base
            },
            Config { max_held: 1, ..base },
            Config { head_threshold: 4096, head_update_polls: u32::MAX, gather_bytes: 0, ..base },
            Config {
                ring: RingShape { ring_bytes: 1 << 20, ..base.ring },
                ..support::config::<Config>()
            },
        ];
        for config in ways {
            bounded(move || all_is_received(config, has_transfers, 300));
        }
    }
}

#[test]
fn messages_shown_to_threads_are_freed_despite_a_panic() {
    bounded(|| {
        let (sender, receiver) = shared(&small(Layout::Mirrored));
        let (count, seen) = (2000, Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            spawn_sender(scope, sender, count);
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    loop {
                        let each = |_, message: &[u8]| {
                            mine.push(number_of(message));
                            assert!(mine.len() % 100 != 0, "as a user may fail");
                        };
                        let receive = std::panic::AssertUnwindSafe(|| receiver.try_recv_each(each));
                        match std::panic::catch_unwind(receive) {
                            Ok(Err(RecvError::Closed)) => break,
                            Ok(Err(RecvError::Empty)) => std::thread::yield_now(),
                            Ok(Ok(1..)) | Err(_) => {}
                            Ok(other) => panic!("{other:?}"),
                        }
                    }
                    seen.lock().unwrap().push(mine);
                });
            }
        });
        assert_all(seen.into_inner().unwrap(), count);
    });
}

#[test]
fn a_message_can_be_freed_elsewhere_and_outlive_its_receiver() {
    bounded(|| {
        let (sender, receiver) = shared(&small(Layout::Plain));
        let (give, take) = channel::<SharedMessage>();
        let count = 500;
        let kept = std::thread::scope(|scope| {
            spawn_sender(scope, sender, count);
            let freeing = scope.spawn(move || {
                let mut held = VecDeque::new();
                loop {
                    match take.recv_timeout(Duration::from_millis(1)) {
                        Ok(message) => held.push_back((number_of(&message), message)),
                        Err(RecvTimeoutError::Disconnected) => return held,
                        // The sender may wait for what is held.
                        Err(RecvTimeoutError::Timeout) => held.clear(),
                    }
                    if held.len() > 3 {
                        held.swap_remove_back(1);
                    }
                }
            });
            for _ in 0..THREADS {
                let (give, receiver) = (give.clone(), receiver.clone());
                scope.spawn(move || {
                    loop {
                        match receiver.recv() {
                            Ok(message) => give.send(message).unwrap(),
                            Err(e) => return assert_eq!(e, RecvError::Closed),
                        }
                    }
                });
            }
            drop(give);
            freeing.join().unwrap()
        });
        assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
        drop(receiver);
        for (number, message) in kept {
            assert_eq!(number_of(&message), number);
        }
    });
}

/// A thread that holds the oldest message stops only the sender, when the ring is full;
/// a thread that panics while it holds a message frees it.
#[test]
fn threads_that_hold_and_threads_that_panic_stop_no_other() {
    bounded(|| {
        let (mut sender, receiver) = shared(&small(Layout::Mirrored));
        sender.send(b"the oldest").unwrap();
        let oldest = receiver.recv().unwrap();
        let worker = receiver.clone();
        sender.send(b"fatal").unwrap();
        let panicked = std::thread::spawn(move || {
            let message = worker.recv().unwrap();
            panic!("with {} bytes in its hands", message.len());
        });
        assert!(panicked.join().is_err());
        let mut count = 0;
        while sender.try_send(&[1; 500]).is_ok() {
            count += 1;
        }
        assert!(count >= 6, "the ring holds more");
        for _ in 0..count {
            assert_eq!(*receiver.recv().unwrap(), [1; 500]);
        }
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        assert!(sender.try_send(&[1; 1500]).is_err(), "it is freed behind the oldest");
        assert_eq!(&*oldest, b"the oldest");
        drop(oldest);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| sender.send(&[2; 1500]).unwrap());
            assert_eq!(*receiver.recv().unwrap(), [2; 1500]);
            sender.join().unwrap();
        });
    });
}

#[test]
fn threads_hold_no_more_messages_than_agreed() {
    bounded(|| {
        let (mut sender, receiver) = shared(&Config { max_held: 2, ..small(Layout::Mirrored) });
        for number in 0..4 {
            sender.send(&numbered(number)).unwrap();
        }
        let (first, second) = (receiver.recv().unwrap(), receiver.recv().unwrap());
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        let short = Duration::from_millis(2);
        assert_eq!(receiver.recv_timeout(short).unwrap_err(), RecvError::TimedOut);
        drop(first);
        let third = receiver.recv().unwrap();
        assert_eq!((number_of(&second), number_of(&third)), (1, 2));
        std::thread::scope(|scope| {
            scope.spawn(move || sender.close().unwrap());
            // What is held hides no message, also behind the end.
            drop((second, third));
            assert_eq!(number_of(&receiver.recv().unwrap()), 3);
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
        });
    });
}

/// The final error that each of several waiting threads gets.
fn told(receiver: &SharedReceiver, end: impl FnOnce()) -> Vec<RecvError> {
    let waiting = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads = [(); THREADS as usize].map(|()| {
            scope.spawn(|| {
                assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
                waiting.fetch_add(1, Ordering::Relaxed);
                receiver.recv().unwrap_err()
            })
        });
        while waiting.load(Ordering::Relaxed) < THREADS {
            std::thread::yield_now();
        }
        end();
        threads.map(|thread| thread.join().unwrap()).to_vec()
    })
}

#[test]
fn all_threads_hear_that_the_sender_has_closed_and_that_we_have() {
    for has_transfers in [false, true] {
        bounded(move || {
            let (sender, receiver) = shared(&small(Layout::Mirrored));
            let _transfers = has_transfers.then(|| receiver.spawn_transfers().unwrap());
            let all = told(&receiver, || sender.close().unwrap());
            assert_eq!(all, [const { RecvError::Closed }; THREADS as usize]);

            let (mut sender, receiver) = shared(&small(Layout::Mirrored));
            let transfers = has_transfers.then(|| receiver.spawn_transfers().unwrap());
            let all = told(&receiver, || receiver.clone().close());
            assert_eq!(all, [const { RecvError::Closed }; THREADS as usize]);
            assert_eq!(transfers.map_or(Ok(()), Transfers::join), Ok(()));
            loop {
                if let Err(e) = sender.send(&[1; 1000]) {
                    assert!(matches!(&e, SendError::Ended(e) if e.is_close()), "{e:?}");
                    break;
                }
            }
        });
    }
}

#[test]
fn a_sender_sees_that_all_threads_have_dropped_its_receiver() {
    for has_transfers in [false, true] {
        bounded(move || {
            let (mut sender, receiver) = shared(&small(Layout::Mirrored));
            let transfers = has_transfers.then(|| receiver.spawn_transfers().unwrap());
            sender.send(b"never received").unwrap();
            let clone = receiver.clone();
            drop(receiver);
            drop(clone);
            assert_eq!(transfers.map_or(Ok(()), Transfers::join), Ok(()));
            // The thread of the transfers may have told that the message had landed.
            let missing = SendError::Ended(CloseReason::PeerClosed { unacked: 1 });
            let closed = sender.close();
            assert!(closed == Err(missing) || has_transfers && closed.is_ok(), "{closed:?}");
        });
    }
}

#[test]
fn transfers_move_to_the_receivers_when_their_thread_ends() {
    bounded(|| {
        let (mut sender, receiver) = shared(&small(Layout::Mirrored));
        let transfers = receiver.spawn_transfers().unwrap();
        let refused = receiver.spawn_transfers().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
        sender.send(b"one").unwrap();
        assert_eq!(&*receiver.recv().unwrap(), b"one");
        drop(transfers);
        sender.send(b"two").unwrap();
        assert_eq!(&*receiver.recv().unwrap(), b"two");
        let transfers = receiver.spawn_transfers().unwrap();
        // Without any call that receives, one behind the other.
        for message in [b"three", b"fours"] {
            let ticket = sender.send(message).unwrap();
            sender.wait_acked(ticket).unwrap();
        }
        assert_eq!(&*receiver.recv().unwrap(), b"three");
        drop((sender, receiver));
        assert_eq!(transfers.join(), Ok(()));
    });
}

#[test]
fn only_a_fresh_receiver_of_one_sender_is_shared() {
    let (mut sender, mut fresh) = connected(&small(Layout::Mirrored));
    assert_eq!(fresh.try_recv().unwrap_err(), RecvError::Empty);
    sender.send(&content(0, 0, 100)).unwrap();
    assert_content(&fresh.into_shared().unwrap().recv().unwrap(), 0, 0, 100);

    let (mut sender, mut used) = connected(&small(Layout::Mirrored));
    sender.send(b"one").unwrap();
    assert_eq!(&*used.recv().unwrap(), b"one");
    let mut used = used.into_shared().unwrap_err();
    sender.send(b"two").unwrap();
    assert_eq!(&*used.recv().unwrap(), b"two");

    let (device, config) = (device(), small(Layout::Mirrored));
    let mut many =
        receiver::<BufferedRead>(&device, &config, 2).unwrap().into_shared().unwrap_err();
    let _senders =
        [(); 2].map(|()| join::<BufferedRead>(&mut many, &device, &device, &config).unwrap());
    assert_eq!(many.into_shared().unwrap_err().peers(), 2);
}
