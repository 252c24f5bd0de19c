//! Small messages that share a work request.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use rdma_conn::send_recv::{Config, Message, Preset, Receiver, RecvError, Sender};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, WaitStrategy, pair};
use support::{Random, assert_content, bounded, content, device, seed, small};

fn connected(config: &Config) -> (Sender, Receiver) {
    let device = device();
    let (left, right) = pair::<SendRecv>(&device, &device, config).unwrap();
    (left.sender, right.receiver)
}

/// Messages of these sizes, received, held for a while, and freed in random order.
fn carry(config: &Config, sizes: &[usize], seed: u64) {
    let (mut sender, mut receiver) = connected(config);
    let window = config.recv_depth as usize;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, &size) in (0..).zip(sizes) {
                sender.send(&content(9, number, size)).unwrap();
            }
            sender.close().unwrap();
        });
        let (mut random, mut held) = (Random::new(seed), Vec::<Message>::new());
        for (number, &size) in (0..).zip(sizes) {
            let message = receiver.recv().unwrap();
            assert_content(&message, 9, number, size);
            held.push(message);
            // Each may be the last part of a buffer of its own: less than all buffers.
            while held.len() >= window.min(1 + random.below(8) as usize) {
                let one = held.swap_remove(random.below(held.len() as u64) as usize);
                if random.chance(2) { receiver.free(one) } else { drop(one) }
            }
        }
        assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
    });
}

#[test]
fn random_sizes_keep_order_and_content() {
    let seed = seed(5);
    let mut random = Random::new(seed);
    for preset in Preset::ALL {
        for pack_bytes in [8, 64, 1000, 4096] {
            for wait in [WaitStrategy::Spin, WaitStrategy::Adaptive] {
                let config = Config {
                    pack_bytes,
                    common: Common { wait, ..Config::preset(preset).common },
                    ..Config::preset(preset)
                };
                // Up to the longest that fits, and many empty ones.
                let longest = u64::from(pack_bytes) - 4;
                let sizes: Vec<usize> = (0..400)
                    .map(|_| match random.below(4) {
                        0 => 0,
                        1 => longest as usize,
                        _ => random.below(longest + 1) as usize,
                    })
                    .collect();
                eprintln!("seed {seed}, {}, packs of {pack_bytes}", preset.name());
                bounded(move || carry(&config, &sizes, seed));
            }
        }
    }
}

#[test]
fn packs_that_are_exactly_full_keep_order_and_content() {
    // Two records of 4 + 28 bytes fill 64; eight of 4 + 4 do; sixteen empty ones do.
    for size in [28, 4, 0, 60] {
        let config = Config { pack_bytes: 64, ..small(4) };
        bounded(move || carry(&config, &[size; 500], 6));
    }
}

#[test]
fn packed_messages_share_work_requests() {
    bounded(|| {
        let config = Config { pack_bytes: 64, ..small(8) };
        let (mut sender, mut receiver) = connected(&config);
        let tickets: Vec<_> =
            (0..16).map(|number| sender.send(&content(0, number, 4)).unwrap()).collect();
        // Eight in the first, eight in the second, which is waited for.
        assert_eq!(tickets[0], tickets[7]);
        assert!(tickets[7] < tickets[8]);
        sender.wait_acked(tickets[15]).unwrap();
        assert!(sender.is_acked(tickets[0]).unwrap());
        let stats = sender.stats();
        assert_eq!((stats.messages, stats.bytes), (16, 64));
        assert!(stats.work_requests <= 3, "{stats:?}");
        for number in 0..16 {
            assert_content(&receiver.recv().unwrap(), 0, number, 4);
        }
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
    });
}

#[test]
fn a_pack_is_freed_with_its_last_part() {
    bounded(|| {
        let config = Config { pack_bytes: 64, ..small(1) };
        let (mut sender, mut receiver) = connected(&config);
        for number in 0..8 {
            sender.send(&content(0, number, 4)).unwrap();
        }
        sender.flush().unwrap();
        let mut parts: Vec<Message> = (0..8).map(|_| receiver.recv().unwrap()).collect();
        while let Some(part) = parts.pop() {
            // As long as one is held, the only buffer is not free.
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
            assert!(sender.try_send(b"next").is_err());
            assert_content(&part, 0, parts.len() as u64, 4);
        }
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        sender.send_acked(b"next").unwrap();
        assert_eq!(*receiver.recv().unwrap(), *b"next");
    });
}
