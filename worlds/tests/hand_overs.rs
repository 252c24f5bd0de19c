//! Another thread may run between two steps of a hand-over, also where no lock and no poll is near: there is a point.
//!
//! Only on soft0: worlds make devices of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use host::thread;
use host::world::{self, Limits, Nature};
use rdma_conn::device::{self, Device};
use rdma_conn::multicast::{self, in_process};
use rdma_conn::verbs_safe::{Mapping, SharedRegion, SharedRegionConfig};
use rdma_conn::{BufferedRead, Protocol, RecvHalf, SendHalf, SendRecv, join, receiver};
use soft_rnic::{WorldDevice, WorldKind};

/// Enough for an order that one in eight seeds has.
const SEEDS: u64 = 100;

const TAIL_AT: usize = 0;
const WORD_AT: usize = 64;

/// The number of seeds in which a program returns true.
fn seeds_with(program: fn(&Device) -> bool) -> u64 {
    let returns_true = |seed: &u64| {
        let run = move || {
            let device = WorldDevice::new(WorldKind::Near);
            let opened = device::open(Some(device.name())).expect("a device");
            program(&opened)
        };
        world::run(*seed, Nature::default(), Limits::default(), run).1.expect("no failure")
    };
    (0..SEEDS).filter(returns_true).count() as u64
}

fn store(region: &SharedRegion) {
    region.store_u64(WORD_AT, 7).expect("inside");
}

fn publish(region: &SharedRegion) {
    region.publish_tail(TAIL_AT, 1).expect("inside");
}

/// The word, as a thread finds it that has found the tail; another thread takes these steps.
fn word_behind_tail(device: &Device, steps: [fn(&SharedRegion); 2]) -> u64 {
    let mapping = Mapping::new(4096).expect("memory");
    let region = device.pd().register_shared(mapping, SharedRegionConfig::default());
    let region = Arc::new(region.expect("a region"));
    let written = Arc::clone(&region);
    let write = move || steps.iter().for_each(|step| step(&written));
    let writer = thread::spawn("writes", write).expect("a thread");
    while region.observe_arrival(TAIL_AT).expect("inside") == 0 {
        thread::spin_loop();
    }
    let word = region.load_u64(WORD_AT).expect("inside");
    writer.join().expect("no panic");
    word
}

#[test]
fn a_tail_that_is_published_before_its_word_is_found() {
    let early = seeds_with(|device| word_behind_tail(device, [publish, store]) == 0);
    assert!((1..SEEDS).contains(&early), "{early}");
    let in_order = seeds_with(|device| word_behind_tail(device, [store, publish]) == 0);
    assert_eq!(in_order, 0);
}

/// True if this thread runs while another one is in the middle of a hand-over.
fn meets(hand_over: impl FnOnce() + Send + 'static) -> bool {
    const BEGUN: u32 = 1;
    const DONE: u32 = 2;
    let phase = Arc::new(AtomicU32::new(0));
    let other = Arc::clone(&phase);
    let run = move || {
        other.store(BEGUN, Ordering::Relaxed);
        hand_over();
        other.store(DONE, Ordering::Relaxed);
    };
    let other = thread::spawn("hands over", run).expect("a thread");
    let seen = loop {
        match phase.load(Ordering::Relaxed) {
            0 => thread::spin_loop(),
            seen => break seen,
        }
    };
    other.join().expect("no panic");
    seen == BEGUN
}

/// True if this thread runs while another one frees a message.
fn meets_a_free<P: Protocol>(device: &Device) -> bool {
    let config = P::Config::default();
    let mut inbox = receiver::<P>(device, &config, 1).expect("a receiver");
    let mut sender = join::<P>(&mut inbox, device, device, &config).expect("a sender");
    sender.send(b"hello").expect("a peer");
    sender.flush().expect("a peer");
    let message = inbox.recv().expect("a message");
    meets(move || drop(message))
}

/// True if this thread runs while another one sends a message to a group.
fn meets_a_send(device: &Device) -> bool {
    let config = multicast::Config { members: 2, window: 4, ..multicast::Config::default() };
    let members = in_process(device, &config).expect("a group");
    let sender = members[0].sender();
    meets(move || {
        sender.try_send(b"hello").expect("room in the window");
    })
}

#[test]
fn another_thread_runs_while_a_message_is_handed_over() {
    let met = [
        seeds_with(meets_a_free::<SendRecv>),
        seeds_with(meets_a_free::<BufferedRead>),
        seeds_with(meets_a_send),
    ];
    assert!(met.iter().all(|seeds| (1..SEEDS).contains(seeds)), "{met:?}");
}
