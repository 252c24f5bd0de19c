//! Seeded schedules with faults: a connection on a simulated device, in one thread, so
//! that a seed gives the same run again.
//!
//! `RDMA_CONN_SCHEDULES` says how many schedules to run (a soak runs 10,000), and
//! `RDMA_CONN_SEED` runs one again.
//!
//! Only on soft0: it makes simulated devices.

mod support;

use rdma_conn::Common;
use std::time::Duration;

use rdma_conn::device::{self, Device};
use rdma_conn::send_recv::{
    Config, Message, Preset, Receiver, RecvError, Reposting, SendError, Sender, SharedConfig,
    SharedPool, Ticket, Transport,
};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, WaitStrategy, join, join_shared, receiver_shared};
use soft_rnic::{Faults, Simulation};
use support::{NEVER, Random, bounded, content};

/// Schedules of each test, without `RDMA_CONN_SCHEDULES`.
const SCHEDULES: u64 = 100;

/// Attempts without any progress after which a wait is taken to hang. Each runs the
/// simulation for several steps, and idle time is skipped.
const HANGS: u32 = 20_000;

/// Waits for each schedule, so that one that hangs is named, too.
fn run(schedule: fn(u64)) {
    if let Ok(seed) = std::env::var("RDMA_CONN_SEED") {
        return schedule(seed.parse().expect("RDMA_CONN_SEED is a number"));
    }
    let wanted = std::env::var("RDMA_CONN_SCHEDULES");
    let schedules =
        wanted.map_or(SCHEDULES, |n| n.parse().expect("RDMA_CONN_SCHEDULES is a number"));
    for seed in 0..schedules {
        // Caught only to say how to run it again.
        let ran = std::panic::catch_unwind(|| bounded(move || schedule(seed)));
        if let Err(panic) = ran {
            eprintln!("schedule {seed} failed: run it again with RDMA_CONN_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    println!("{schedules} schedules");
}

/// A configuration drawn from the seed.
fn config(random: &mut Random) -> Config {
    let unacked = 1 + random.below(12) as u32;
    let preset = Preset::ALL[random.below(3) as usize];
    let recv_depth = 1 + random.below(8) as u32;
    Config {
        message_bytes: 64,
        unacked,
        batch: 1 + random.below(unacked.into()) as u32,
        signal_every: random.below(u64::from(unacked) + 1) as u32,
        recv_depth,
        repost_batch: random.below(u64::from(recv_depth) + 1) as u32,
        credit_threshold: random.below(u64::from(recv_depth) + 1) as u32,
        poll_batch: 1 + random.below(8) as u32,
        pack_bytes: if random.chance(3) { 40 } else { 0 },
        common: Common {
            // The clock of the wall must not be part of the schedule.
            wait: WaitStrategy::Spin,
            keepalive: NEVER,
            linger: NEVER,
            // About retries: simulated faults use them up, in virtual time.
            transport: Transport { timeout: 1, retry_count: 3, rnr_retry: 6, ..support::living() },
        },
        ..Config::preset(preset)
    }
}

/// One direction of a connection, and what it has to obey.
struct Flow {
    sender: Option<Sender>,
    peer: u32,
    sent: u64,
    received: u64,
    tickets: Vec<Ticket>,
    /// The sender or the receiver has heard of an error.
    failed: bool,
    /// The sender has said goodbye.
    closed: bool,
}

struct World {
    random: Random,
    receiver: Receiver,
    flows: Vec<Flow>,
    held: Vec<Message>,
    most_held: usize,
    faulty: bool,
    all_closed: bool,
}

fn size(stream: u32, number: u64) -> usize {
    ((number * 7 + u64::from(stream)) % 33) as usize
}

impl World {
    fn new(seed: u64, faulty: bool, device: &Device) -> World {
        let mut random = Random::new(seed);
        let config = config(&mut random);
        let senders = 1 + random.below(3) as u32;
        let pool = random.chance(2).then(|| {
            let sizes = SharedConfig {
                buffers: senders * (config.recv_depth + SharedConfig::KEPT - 1),
                buffer_bytes: 64,
                max_peers: senders,
                // A reposting thread would have a schedule of its own.
                reposting: [Reposting::Lock, Reposting::Combining][random.below(2) as usize],
                repost_batch: 1 + random.below(8) as u32,
            };
            SharedPool::new(device, sizes).unwrap()
        });
        let mut inbox =
            receiver_shared::<SendRecv>(device, &config, senders, pool.as_ref()).unwrap();
        let flows = (0..senders)
            .map(|peer| {
                let joined = match &pool {
                    Some(pool) => {
                        join_shared::<SendRecv>(&mut inbox, pool, device, device, &config)
                    }
                    None => join::<SendRecv>(&mut inbox, device, device, &config),
                };
                Flow {
                    sender: Some(joined.unwrap()),
                    peer,
                    sent: 0,
                    received: 0,
                    tickets: Vec::new(),
                    failed: false,
                    closed: false,
                }
            })
            .collect();
        World {
            random,
            receiver: inbox,
            flows,
            held: Vec::new(),
            // All but one buffer of any one sender: more would stall it, rightly.
            most_held: config.recv_depth as usize - 1,
            faulty,
            all_closed: false,
        }
    }

    /// Does one thing, drawn from the seed.
    fn act(&mut self) {
        match self.random.below(10) {
            0..4 => self.send(),
            4..8 => self.receive(),
            8 => self.ask(),
            _ => self.free(),
        }
    }

    fn send(&mut self) {
        let at = self.random.below(self.flows.len() as u64) as usize;
        let flushes = self.random.chance(4);
        let (flow, faulty) = (&mut self.flows[at], self.faulty);
        let Some(sender) = &mut flow.sender else { return };
        let message = content(flow.peer.into(), flow.sent, size(flow.peer, flow.sent));
        match sender.try_send(&message) {
            Ok(ticket) => {
                flow.sent += 1;
                flow.tickets.push(ticket);
            }
            Err(SendError::Full(_)) => {}
            Err(e) => flow.fail(faulty, &e),
        }
        if flushes && let Some(sender) = &mut flow.sender {
            sender.flush().unwrap_or_else(|e| flow.fail(faulty, &e));
        }
    }

    fn ask(&mut self) {
        let at = self.random.below(self.flows.len() as u64) as usize;
        let draw = self.random.next();
        let (flow, faulty) = (&mut self.flows[at], self.faulty);
        let (Some(sender), false) = (&mut flow.sender, flow.tickets.is_empty()) else { return };
        let one = draw as usize % flow.tickets.len();
        match sender.is_acked(flow.tickets[one]) {
            // And so is every earlier one.
            Ok(true) => {
                assert_eq!(sender.is_acked(flow.tickets[0]), Ok(true));
                flow.tickets.drain(..=one);
            }
            Ok(false) => {}
            Err(e) => flow.fail(faulty, &e),
        }
    }

    fn receive(&mut self) {
        match self.receiver.try_recv() {
            Ok(message) => {
                let flow = &mut self.flows[message.peer().0 as usize];
                let bytes = size(flow.peer, flow.received);
                support::assert_content(&message, flow.peer.into(), flow.received, bytes);
                flow.received += 1;
                assert!(flow.received <= flow.sent);
                self.held.push(message);
                while self.held.len() > self.most_held {
                    self.free();
                }
            }
            Err(RecvError::Empty) => {}
            Err(RecvError::Closed) => self.all_closed = true,
            Err(RecvError::Ended(_)) if self.flows.len() == 1 && self.flows[0].failed => {
                self.all_closed = true;
            }
            Err(RecvError::Peer { peer, reason: ended }) => {
                assert!(self.faulty, "{ended}");
                self.flows[peer.0 as usize].failed = true;
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn free(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let one = self.random.below(self.held.len() as u64) as usize;
        let message = self.held.swap_remove(one);
        if self.random.chance(2) { self.receiver.free(message) } else { drop(message) }
    }

    /// Every accepted message arrives, or a wait for it returns the reason why not.
    fn settle(&mut self) {
        let mut idle = 0;
        while self.flows.iter().any(|flow| !flow.tickets.is_empty()) {
            let before: u64 = self.progress();
            for at in 0..self.flows.len() {
                let (flow, faulty) = (&mut self.flows[at], self.faulty);
                let (Some(sender), Some(last)) = (&mut flow.sender, flow.tickets.last()) else {
                    flow.tickets.clear();
                    continue;
                };
                match sender.wait_acked_timeout(*last, Duration::ZERO) {
                    Ok(()) => flow.tickets.clear(),
                    Err(SendError::TimedOut { .. }) => {}
                    Err(e) => flow.fail(faulty, &e),
                }
            }
            (0..8).for_each(|_| self.receive());
            idle = if self.progress() == before { idle + 1 } else { 0 };
            assert!(idle < HANGS, "a ticket that is never answered");
        }
    }

    fn progress(&self) -> u64 {
        self.flows.iter().map(|flow| flow.received + flow.tickets.len() as u64).sum()
    }

    /// Each sender says goodbye; then all that was sent is handed out, and `Closed` said.
    fn end(mut self) {
        self.held.clear();
        for at in 0..self.flows.len() {
            let (flow, faulty) = (&mut self.flows[at], self.faulty);
            let Some(sender) = flow.sender.take() else { continue };
            match sender.close() {
                Ok(()) => flow.closed = true,
                Err(e) => flow.fail(faulty, &e),
            }
        }
        let mut idle = 0;
        while !self.all_closed && idle < HANGS {
            let before = self.progress();
            self.receive();
            self.held.clear();
            idle = if self.progress() == before { idle + 1 } else { 0 };
        }
        for flow in &self.flows {
            if flow.closed {
                assert_eq!(flow.received, flow.sent, "sender {} has closed", flow.peer);
            }
        }
        let proper = self.flows.iter().all(|flow| flow.closed);
        assert!(!proper || self.all_closed, "all have closed, and the receiver does not say so");
    }
}

impl Flow {
    #[track_caller]
    fn fail(&mut self, faulty: bool, error: &SendError) {
        assert!(faulty, "{error}");
        assert!(matches!(error, SendError::Ended(_)), "{error}");
        if let Some(sender) = &mut self.sender {
            // It stays so, and nothing waits any more.
            assert_eq!(sender.try_send(b"").unwrap_err(), *error);
            assert_eq!(sender.wait_for_room(1).unwrap_err(), *error);
            assert!(self.tickets.last().is_none_or(|last| match sender.wait_acked(*last) {
                Ok(()) => true,
                Err(e) => e == *error,
            }));
        }
        self.failed = true;
        self.sender = None;
        self.tickets.clear();
    }
}

fn schedule(seed: u64, faults: Faults) {
    let faulty = faults != Faults::default();
    let simulation = Simulation::new(seed, faults);
    let device = device::open(Some(simulation.name())).unwrap();
    let mut world = World::new(seed, faulty, &device);
    let actions = 50 + world.random.below(300);
    for _ in 0..actions {
        world.act();
    }
    world.settle();
    world.end();
    if !faulty {
        assert_eq!(simulation.stats().rnr_naks, 0, "a message found no buffer");
    }
}

#[test]
fn without_faults_every_message_arrives_and_finds_a_buffer() {
    run(|seed| schedule(seed, Faults::default()));
}

#[test]
fn with_faults_that_pass_everything_still_arrives() {
    // Few enough that three retries are not used up.
    run(|seed| {
        let faults = Faults { delay: 0.1, ..Faults::default() };
        let simulation = Simulation::new(seed, faults);
        let device = device::open(Some(simulation.name())).unwrap();
        let mut world = World::new(seed, false, &device);
        (0..200).for_each(|_| world.act());
        world.settle();
        world.end();
    });
}

#[test]
fn with_faults_what_arrives_is_in_order_and_every_wait_ends() {
    run(|seed| {
        let mut random = Random::new(!seed);
        let mut rare = |most: u64| random.below(most) as f64 / 1000.0;
        let faults = Faults {
            delay: rare(200),
            rnr: rare(100),
            lost_response: rare(100),
            qp_death: rare(10),
            ..Faults::default()
        };
        schedule(seed, faults);
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let faults = Faults {
            delay: 0.05,
            rnr: 0.02,
            lost_response: 0.02,
            qp_death: 0.002,
            ..Faults::default()
        };
        let simulation = Simulation::new(seed, faults);
        let device = device::open(Some(simulation.name())).unwrap();
        let mut world = World::new(seed, true, &device);
        let mut trace = Vec::new();
        for _ in 0..300 {
            world.act();
            trace.extend(world.flows.iter().map(|f| (f.sent, f.received, f.failed)));
            trace.push((simulation.now_ns(), simulation.stats().faults, false));
        }
        trace
    };
    for seed in 0..10 {
        assert!(trace(seed) == trace(seed), "seed {seed}");
    }
}
