//! One receiver of many senders, and pools that many connections share: order for each
//! sender, numbers that are not used again, shares that are returned, and never a message
//! that finds no buffer.
//!
//! Shows: load.
//! Alone on rxe0: counters of the device are compared, and no other test has packets under way.

mod support;

use rdma_conn::Common;
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender as Give, channel};

use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    Config, ConnectError, Full, Message, Peer, Receiver, RecvError, Reposting, SendError, Sender,
    SharedConfig, SharedPool, Transport,
};
use rdma_conn::{
    RecvHalf, SendHalf, SendRecv, WaitStrategy, join, join_shared, receiver, receiver_shared,
};
use support::{
    Random, assert_content, bounded, content, counters, device, hold, repeated, rnr_since, seed,
    small,
};

const WINDOW: u32 = 8;

fn strict() -> Config {
    let config = small(WINDOW);
    Config {
        common: Common {
            transport: Transport { rnr_retry: 0, ..config.common.transport },
            ..config.common
        },
        batch: 2,
        ..config
    }
}

fn pool(device: &Device, members: u32, reposting: Reposting) -> SharedPool {
    let config = SharedConfig {
        buffers: members * (WINDOW + SharedConfig::KEPT - 1),
        buffer_bytes: 64,
        max_peers: members,
        reposting,
        repost_batch: 4,
    };
    SharedPool::new(device, config).unwrap()
}

fn add(to: &mut Receiver, pool: Option<&SharedPool>, device: &Device, config: &Config) -> Sender {
    match pool {
        Some(pool) => join_shared::<SendRecv>(to, pool, device, device, config).unwrap(),
        None => join::<SendRecv>(to, device, device, config).unwrap(),
    }
}

fn send_all(mut sender: Sender, stream: u64, messages: u64) {
    for number in 0..messages {
        sender.send(&content(stream, number, 8 + (number % 50) as usize)).unwrap();
    }
    sender.close().unwrap();
}

/// Messages that have arrived from each peer; a peer's stream has its number.
#[derive(Default)]
struct Order(BTreeMap<u32, u64>);

impl Order {
    fn check(&mut self, message: &Message) {
        let Peer(peer) = message.peer();
        let number = self.0.entry(peer).or_default();
        assert_content(message, peer.into(), *number, 8 + (*number % 50) as usize);
        *number += 1;
    }

    fn assert_all(&self, peers: u32, messages: u64) {
        assert_eq!(self.0, (0..peers).map(|peer| (peer, messages)).collect());
    }
}

/// Receives until all have closed.
fn drain(receiver: &mut Receiver, mut done: impl FnMut(&mut Receiver, Message)) -> Order {
    let mut order = Order::default();
    loop {
        match receiver.recv() {
            Ok(message) => {
                order.check(&message);
                done(receiver, message);
            }
            Err(RecvError::Closed) => return order,
            Err(e) => panic!("{e}"),
        }
    }
}

const WAYS: [Option<Reposting>; 4] =
    [None, Some(Reposting::Lock), Some(Reposting::Thread), Some(Reposting::Combining)];

#[test]
fn one_receiver_takes_from_many_senders_in_each_ones_order() {
    let device = device();
    let before = counters(&device);
    for reposting in WAYS {
        for senders in [1, 4, 16] {
            for wait in [WaitStrategy::Spin, WaitStrategy::Block] {
                let device = device.clone();
                bounded(move || {
                    let config = Config { common: Common { wait, ..strict().common }, ..strict() };
                    let pool = reposting.map(|how| pool(&device, senders, how));
                    let mut inbox =
                        receiver_shared::<SendRecv>(&device, &config, senders, pool.as_ref())
                            .unwrap();
                    let messages = repeated(1600) / u64::from(senders);
                    std::thread::scope(|scope| {
                        for stream in 0..u64::from(senders) {
                            let sender = add(&mut inbox, pool.as_ref(), &device, &config);
                            scope.spawn(move || send_all(sender, stream, messages));
                        }
                        let order = drain(&mut inbox, |inbox, message| match message.len() % 2 {
                            0 => drop(message),
                            _ => inbox.free(message),
                        });
                        order.assert_all(senders, messages);
                    });
                });
            }
        }
    }
    assert_eq!(rnr_since(&device, &before), 0);
}

#[test]
fn a_round_robin_over_receivers_takes_from_all() {
    bounded(|| {
        let (device, config) = (device(), strict());
        let mut inboxes = Vec::new();
        std::thread::scope(|scope| {
            for stream in 0..6 {
                let mut inbox = receiver::<SendRecv>(&device, &config, 1).unwrap();
                let sender = join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap();
                inboxes.push((stream, 0, inbox));
                scope.spawn(move || send_all(sender, stream, 300));
            }
            while !inboxes.is_empty() {
                inboxes.retain_mut(|(stream, number, inbox)| match inbox.try_recv() {
                    Ok(message) => {
                        assert_content(&message, *stream, *number, 8 + (*number % 50) as usize);
                        *number += 1;
                        true
                    }
                    Err(RecvError::Empty) => true,
                    Err(RecvError::Closed) => {
                        assert_eq!(*number, 300);
                        false
                    }
                    Err(e) => panic!("{e}"),
                });
            }
        });
    });
}

#[test]
fn many_receivers_on_threads_share_a_pool() {
    const RECEIVERS: u32 = 4;
    let device = device();
    let before = counters(&device);
    for reposting in Reposting::ALL {
        for wait in [WaitStrategy::Spin, WaitStrategy::Block] {
            let device = device.clone();
            bounded(move || {
                let config = Config { common: Common { wait, ..strict().common }, ..strict() };
                let pool = pool(&device, RECEIVERS, reposting);
                std::thread::scope(|scope| {
                    let messages = repeated(1000);
                    for _ in 0..RECEIVERS {
                        let mut inbox =
                            receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
                        let sender = add(&mut inbox, Some(&pool), &device, &config);
                        scope.spawn(move || send_all(sender, 0, messages));
                        scope.spawn(move || {
                            drain(&mut inbox, Receiver::free).assert_all(1, messages);
                        });
                    }
                });
            });
        }
    }
    assert_eq!(rnr_since(&device, &before), 0);
}

/// Frees messages late and in random order.
fn freeing(seed: u64) -> impl FnOnce(std::sync::mpsc::Receiver<Message>) {
    move |take| {
        let (mut random, mut held) = (Random::new(seed), Vec::new());
        for message in take {
            held.push(message);
            // Four threads keep one each: less than a sender's window.
            while held.len() > random.below(2) as usize {
                held.swap_remove(random.below(held.len() as u64) as usize);
            }
        }
    }
}

#[test]
fn frees_in_random_order_from_four_threads_while_sending() {
    const SENDERS: u32 = 4;
    let (device, seed) = (device(), seed(3));
    let before = counters(&device);
    for reposting in WAYS {
        for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
            eprintln!("seed {seed}, {reposting:?}, {wait:?}");
            let device = device.clone();
            bounded(move || {
                let config = Config { common: Common { wait, ..strict().common }, ..strict() };
                let pool = reposting.map(|how| pool(&device, SENDERS, how));
                let mut inbox =
                    receiver_shared::<SendRecv>(&device, &config, SENDERS, pool.as_ref()).unwrap();
                let messages = repeated(800);
                std::thread::scope(|scope| {
                    for stream in 0..u64::from(SENDERS) {
                        let sender = add(&mut inbox, pool.as_ref(), &device, &config);
                        scope.spawn(move || send_all(sender, stream, messages));
                    }
                    let to: Vec<Give<Message>> = (0..4)
                        .map(|thread| {
                            let (give, take) = channel();
                            let free = freeing(seed ^ thread << 32);
                            scope.spawn(move || free(take));
                            give
                        })
                        .collect();
                    let mut random = Random::new(seed);
                    let order = drain(&mut inbox, |_, message| {
                        to[random.below(4) as usize].send(message).unwrap();
                    });
                    order.assert_all(SENDERS, messages);
                });
            });
        }
    }
    assert_eq!(rnr_since(&device, &before), 0, "seed {seed}");
}

#[test]
fn senders_join_and_leave_while_others_run() {
    const GUESTS: u32 = 20;
    let device = device();
    let before = counters(&device);
    for reposting in WAYS {
        let device = device.clone();
        bounded(move || {
            let config = strict();
            // There is room for the steady one and two guests at a time.
            let pool = reposting.map(|how| pool(&device, 3, how));
            let mut inbox =
                receiver_shared::<SendRecv>(&device, &config, 3, pool.as_ref()).unwrap();
            let mut order = Order::default();
            std::thread::scope(|scope| {
                let (stop, stopped) = channel::<()>();
                let mut steady = add(&mut inbox, pool.as_ref(), &device, &config);
                scope.spawn(move || {
                    let mut number = 0;
                    while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                        let bytes = 8 + (number % 50) as usize;
                        steady.send(&content(0, number, bytes)).unwrap();
                        number += 1;
                    }
                    steady.close().unwrap();
                });
                let mut guests = 0;
                let mut stop = Some(stop);
                while stop.is_some() || inbox.peers() > 0 {
                    // At most one guest more than there is room for is refused.
                    while guests < GUESTS && inbox.peers() < 3 {
                        let joined = match &pool {
                            Some(pool) => {
                                join_shared::<SendRecv>(&mut inbox, pool, &device, &device, &config)
                            }
                            None => join::<SendRecv>(&mut inbox, &device, &device, &config),
                        };
                        match joined {
                            Ok(sender) => {
                                guests += 1;
                                let stream = u64::from(guests);
                                scope.spawn(move || send_all(sender, stream, 50));
                            }
                            Err(ConnectError::TooManyPeers(3)) => break,
                            Err(e) => panic!("{e}"),
                        }
                    }
                    if guests == GUESTS && inbox.peers() == 1 {
                        stop = None;
                    }
                    match inbox.try_recv() {
                        Ok(message) => order.check(&message),
                        Err(RecvError::Empty | RecvError::Closed) => std::thread::yield_now(),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
            for guest in 1..=GUESTS {
                assert_eq!(order.0[&guest], 50, "{reposting:?}");
            }
            assert_eq!(inbox.stats().messages, order.0.values().sum::<u64>());
        });
    }
    assert_eq!(rnr_since(&device, &before), 0);
}

/// Each connection keeps two buffers, and all others are lent: to one that wants them, but
/// for what the others keep.
#[test]
fn a_pool_lends_all_but_what_its_connections_keep() {
    bounded(|| {
        for reposting in Reposting::ALL {
            let (device, config) = (device(), strict());
            let before = counters(&device);
            let sizes = |buffers| SharedConfig {
                buffers,
                buffer_bytes: 64,
                max_peers: 4,
                reposting,
                repost_batch: 4,
            };
            let ConnectError::Config(few) = SharedPool::new(&device, sizes(11)).unwrap_err() else {
                panic!("11 buffers for 4 connections");
            };
            assert_eq!((few.field, few.value), ("buffers", 11));
            let pool = SharedPool::new(&device, sizes(3 * 4 + 20)).unwrap();
            let mut inbox = receiver_shared::<SendRecv>(&device, &config, 4, &pool).unwrap();
            let mut all: Vec<Sender> = (0..4)
                .map(|_| {
                    join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap()
                })
                .collect();
            let full =
                join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap_err();
            assert!(matches!(full, ConnectError::TooManyPeers(4)), "{full:?}");
            let held = hold(&mut all[0], &mut inbox, 21, 7);
            for (number, sender) in (1..).zip(&mut all[1..]) {
                sender.send_acked(b"my share").unwrap();
                let message = inbox.recv().unwrap();
                assert_eq!((&*message, message.peer()), (&b"my share"[..], Peer(number)));
            }
            assert_eq!(all[0].try_send(b"no").unwrap_err(), SendError::Full(Full::Credits));
            drop(held);
            all.remove(0).close().unwrap();
            drop(hold(&mut all[0], &mut inbox, 21, 8));
            assert_eq!(pool.registered_bytes(), 32 * 64);
            assert_eq!(rnr_since(&device, &before), 0);
        }
    });
}

#[test]
fn a_share_comes_back_when_its_last_message_is_freed() {
    bounded(|| {
        for reposting in Reposting::ALL {
            let (device, config) = (device(), strict());
            let pool = pool(&device, 1, reposting);
            let held = {
                let mut inbox = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
                let mut sender =
                    join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
                sender.send_acked(b"held").unwrap();
                let held = inbox.recv().unwrap();
                while sender.try_send(b"never looked at").is_err() {
                    assert_eq!(inbox.try_recv().unwrap_err(), RecvError::Empty);
                }
                sender.flush().unwrap();
                held
            };
            let mut inbox = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
            let refused =
                join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap_err();
            assert!(matches!(refused, ConnectError::TooManyPeers(1)), "{refused:?}");
            assert_eq!(*held, *b"held");
            drop(held);
            let sender = loop {
                match join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config) {
                    Ok(sender) => break sender,
                    // A reposting thread takes its time.
                    Err(ConnectError::TooManyPeers(1)) => std::thread::yield_now(),
                    Err(e) => panic!("{e}"),
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(move || send_all(sender, 0, 100));
                drain(&mut inbox, Receiver::free).assert_all(1, 100);
            });
        }
    });
}

#[test]
fn receivers_dropped_during_traffic_leave_the_pool_whole() {
    let (device, seed, rounds) = (device(), seed(4), repeated(30));
    for reposting in Reposting::ALL {
        let device = device.clone();
        bounded(move || {
            let config = strict();
            let pool = pool(&device, 2, reposting);
            let mut random = Random::new(seed);
            for round in 0..=rounds {
                let mut inbox = receiver_shared::<SendRecv>(&device, &config, 2, &pool).unwrap();
                std::thread::scope(|scope| {
                    for stream in 0..2 {
                        let mut sender = loop {
                            match join_shared::<SendRecv>(
                                &mut inbox, &pool, &device, &device, &config,
                            ) {
                                Ok(sender) => break sender,
                                Err(ConnectError::TooManyPeers(_)) => std::thread::yield_now(),
                                Err(e) => panic!("{e}"),
                            }
                        };
                        if round == rounds {
                            scope.spawn(move || send_all(sender, stream, 500));
                            continue;
                        }
                        scope.spawn(move || {
                            let error = loop {
                                if let Err(e) = sender.send(b"flood") {
                                    break e;
                                }
                            };
                            let SendError::Ended(ended) = error else { panic!("{error:?}") };
                            assert!(ended.is_close(), "{ended:?}");
                        });
                    }
                    if round == rounds {
                        // All buffers are there, or this would stall or find none.
                        let before = counters(&device);
                        drain(&mut inbox, Receiver::free).assert_all(2, 500);
                        assert_eq!(rnr_since(&device, &before), 0, "seed {seed}");
                        return;
                    }
                    let mut held = Vec::new();
                    for _ in 0..random.below(100) {
                        if let Ok(message) = inbox.try_recv()
                            && random.chance(2)
                        {
                            held.push(message);
                        }
                        held.truncate(3);
                    }
                    drop(inbox);
                });
            }
        });
    }
}

#[test]
fn a_window_larger_than_the_receivers_is_refused() {
    let (device, config) = (device(), strict());
    let mut inbox = receiver::<SendRecv>(&device, &config, 16).unwrap();
    let large = Config { recv_depth: 10 * WINDOW, ..config };
    let refused = join::<SendRecv>(&mut inbox, &device, &device, &large).unwrap_err();
    let ConnectError::Config(e) = refused else { panic!("{refused:?}") };
    assert_eq!((e.field, e.value), ("recv_depth", 80));
    let mut sender = join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap();
    sender.send_acked(b"fits").unwrap();
    let message = inbox.recv().unwrap();
    assert_eq!((&*message, message.peer()), (&b"fits"[..], Peer(0)));
}

#[test]
fn numbers_of_peers_that_cannot_be_are_refused() {
    let (device, config) = (device(), strict());
    for max_peers in [0, u32::MAX, u32::MAX / 9, 1 << 28] {
        let refused = receiver::<SendRecv>(&device, &config, max_peers).unwrap_err();
        assert!(
            matches!(refused, ConnectError::Config(_) | ConnectError::Device(_)),
            "{max_peers}: {refused:?}"
        );
    }
}

#[test]
fn a_message_of_another_receiver_is_freed_where_it_belongs() {
    bounded(|| {
        for reposting in WAYS {
            let (device, config) = (device(), strict());
            let pool = reposting.map(|how| pool(&device, 2, how));
            let mut inboxes = [(); 2]
                .map(|()| receiver_shared::<SendRecv>(&device, &config, 1, pool.as_ref()).unwrap());
            let [one, two] = &mut inboxes;
            let sender_one = add(one, pool.as_ref(), &device, &config);
            let sender_two = add(two, pool.as_ref(), &device, &config);
            std::thread::scope(|scope| {
                scope.spawn(move || send_all(sender_one, 0, 400));
                scope.spawn(move || send_all(sender_two, 0, 400));
                let (mut order_one, mut order_two) = (Order::default(), Order::default());
                let (mut open_one, mut open_two) = (true, true);
                while open_one || open_two {
                    // Each is freed by the wrong one.
                    match one.try_recv() {
                        Ok(message) => {
                            order_one.check(&message);
                            two.free(message);
                        }
                        Err(e) => open_one = e != RecvError::Closed,
                    }
                    match two.try_recv() {
                        Ok(message) => {
                            order_two.check(&message);
                            one.free(message);
                        }
                        Err(e) => open_two = e != RecvError::Closed,
                    }
                }
                order_one.assert_all(1, 400);
                order_two.assert_all(1, 400);
            });
        }
    });
}

/// A receiver that frees another's message need not receive for the buffer to return to the
/// pool.
#[test]
fn a_message_that_another_receiver_frees_is_home_at_once() {
    for reposting in WAYS {
        bounded(move || {
            let (device, config) = (device(), strict());
            let pool = reposting.map(|how| {
                let buffers = 2 * (WINDOW + SharedConfig::KEPT - 1);
                let sizes =
                    SharedConfig { repost_batch: buffers, ..pool(&device, 2, how).config() };
                SharedPool::new(&device, sizes).unwrap()
            });
            let mut one = receiver_shared::<SendRecv>(&device, &config, 1, pool.as_ref()).unwrap();
            let mut two = receiver_shared::<SendRecv>(&device, &config, 1, pool.as_ref()).unwrap();
            let sender = add(&mut one, pool.as_ref(), &device, &config);
            let _other = add(&mut two, pool.as_ref(), &device, &config);
            std::thread::scope(|scope| {
                scope.spawn(move || send_all(sender, 0, 10 * u64::from(WINDOW)));
                let order = drain(&mut one, |_, message| two.free(message));
                order.assert_all(1, 10 * u64::from(WINDOW));
            });
        });
    }
}
