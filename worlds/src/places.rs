//! Devices of a case's place, with its faults; nothing of a program is left on them at the end.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::sync::OnceLock;
use host::thread::JoinHandle;
use host::world::{CurrentTask, NodeId};
use host::{thread, time, world};
use rdma_conn::device::{self, Device};
use soft_rnic::{NetworkNature, Simulation, WorldDevice, WorldKind, WorldMachine, WorldNetwork};

use crate::case::{BufferKind, CaseProtocol, DeviceKind, FOREVER_US, WorldCase};
use crate::checks::us;
use crate::silence::Silence;

/// Time at which a process is killed, once it is: what it has done before, it did alive.
#[derive(Clone, Default)]
pub(crate) struct Death(Arc<OnceLock<Instant>>);

impl Death {
    pub(crate) fn time(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

/// Device of an end, and the node of the world that is its process.
pub(crate) struct Site {
    pub(crate) device: Device,
    node: NodeId,
    /// That of its process.
    pub(crate) death: Death,
    /// That of its process, too.
    pub(crate) silence: Silence,
}

impl Site {
    /// In the process of the program.
    fn here(name: &str) -> Site {
        let node = world::here(CurrentTask::node).expect("it plays in a world");
        Site::on_node(name, node, (Death::default(), Silence::default()))
    }

    fn on_node(name: &str, node: NodeId, (death, silence): (Death, Silence)) -> Site {
        Site { device: device::open(Some(name)).expect("the world's device"), node, death, silence }
    }

    /// Calls what its process does: threads that this starts are of it.
    pub(crate) fn run<T>(&self, what: impl FnOnce() -> T) -> T {
        world::on_node(self.node, what)
    }
}

/// The site of a sender: it may be that of the receiver.
pub(crate) fn site_of<'s>(case: &WorldCase, sites: &'s [Site], sender: usize) -> &'s Site {
    sites.get(case.process_of(sender)).or(sites.last()).expect("a site")
}

/// Plays at sites of the case's place: at that of the receiver, and at those of senders, if they have others.
pub(crate) fn on_devices(case: &WorldCase, play: impl FnOnce(&[Site])) {
    let over = Arc::new(AtomicBool::new(false));
    match case.place {
        DeviceKind::Faulty => {
            let rate = |thousandths: u16| f64::from(thousandths) / 1000.0;
            let faults = soft_rnic::Faults {
                delay: rate(case.faults.delay),
                rnr: rate(case.faults.rnr),
                lost_response: rate(case.faults.lost_response),
                late_read: rate(case.faults.late_read),
                qp_death: rate(case.faults.qp_death),
                access_error: rate(case.faults.access),
                ..soft_rnic::Faults::default()
            };
            let simulation = Arc::new(Simulation::new(case.seed, faults));
            let (driven, is_over) = (Arc::clone(&simulation), Arc::clone(&over));
            let driver = thread::spawn("device", move || driven.drive(&is_over)).expect("a thread");
            play(&[Site::here(simulation.name())]);
            over.store(true, Ordering::Relaxed);
            driver.join().expect("no panic");
            expect_credits(case, simulation.stats().rnr_naks);
            expect_none(&simulation.left());
        }
        DeviceKind::Wired => wired(case, play),
        DeviceKind::Process => between_processes(case, play),
        place => {
            let kind = match place {
                DeviceKind::Near => WorldKind::Near,
                DeviceKind::Card => WorldKind::Card,
                _ => WorldKind::Distant(Duration::from_nanos(500 << (case.seed % 8))),
            };
            let device = WorldDevice::new(kind);
            play(&[Site::here(device.name())]);
            expect_credits(case, device.counters().rnr_naks);
            expect_none(&device.left());
        }
    }
}

/// Credits keep a sender from a receiver that is not ready.
fn expect_credits(case: &WorldCase, rnr_naks: u64) {
    let may_be = case.faults.rnr > 0 || case.settings.buffers == BufferKind::Uncontrolled;
    assert!(may_be || rnr_naks == 0, "{rnr_naks} receivers were not ready");
}

/// The node of a process.
fn add_node() -> NodeId {
    world::here(CurrentTask::add_node).expect("it plays in a world")
}

/// Stops one of the processes for a while.
fn stopper(case: &WorldCase, nodes: &[NodeId]) -> Option<JoinHandle<()>> {
    let stop = case.stop?;
    let node = nodes[stop.process];
    let run = move || {
        time::sleep(us(stop.at_us));
        world::note(|| format!("process {} stops for {} us", stop.process, stop.for_us));
        world::here(|here| here.stop(node, us(stop.for_us)));
    };
    Some(thread::spawn("stopper", run).expect("a thread"))
}

/// The ends are in processes of their own, of which one may be killed, and one stopped.
fn between_processes(case: &WorldCase, play: impl FnOnce(&[Site])) {
    let machine = WorldMachine::new();
    let devices: Arc<[WorldDevice]> = (0..=case.sender_processes)
        .map(|_| WorldDevice::new(WorldKind::Process(machine)))
        .collect();
    let ends: Vec<(Death, Silence)> = devices.iter().map(|_| Default::default()).collect();
    let killer = case.kill.map(|kill| {
        let (devices, (death, silence)) = (Arc::clone(&devices), ends[kill.process].clone());
        let kill = move || {
            time::sleep(us(kill.at_us));
            world::note(|| format!("process {} is killed", kill.process));
            death.0.get_or_init(time::now);
            devices[kill.process].kill();
            silence.begin();
        };
        thread::spawn("killer", kill).expect("a thread")
    });
    let nodes: Vec<NodeId> = devices.iter().map(|_| add_node()).collect();
    let stopper = stopper(case, &nodes);
    let site = |((device, node), ends): ((&WorldDevice, &NodeId), (Death, Silence))| {
        Site::on_node(device.name(), *node, ends)
    };
    let sites: Vec<Site> = devices.iter().zip(&nodes).zip(ends).map(site).collect();
    sites[0].run(|| play(&sites));
    drop(sites);
    for thread in killer.into_iter().chain(stopper) {
        thread.join().expect("no panic");
    }
    for device in devices.iter() {
        expect_credits(case, device.counters().rnr_naks);
        expect_none(&device.left());
    }
}

fn expect_none(left: &[(&str, usize)]) {
    assert!(left.is_empty(), "not given back: {left:?}");
}

/// The receiver has one address of a network, the senders another one, as two machines, of which one
/// may be stopped; each member of a group has its own. A partition separates the first one from
/// another one, or, in a group, from all others.
fn wired(case: &WorldCase, play: impl FnOnce(&[Site])) {
    let of = case.network;
    let rate = |thousandths: u16| f64::from(thousandths) / 1000.0;
    let network = WorldNetwork::new(NetworkNature {
        delay: us(of.delay_us),
        loss: rate(of.loss),
        repeat: rate(of.repeat),
        reorder: rate(of.reorder),
        corrupt: rate(of.corrupt),
        congestion: rate(of.congestion),
        mtu: of.mtu,
        queue_bytes: of.queue_kib << 10,
    })
    .expect("a network");
    let ends = match case.connection {
        CaseProtocol::Multicast => 1 + case.senders.len() as u8,
        _ => 2,
    };
    let ips: Vec<IpAddr> = (1..=ends).map(|host| IpAddr::from([10, 0, 0, host])).collect();
    let devices: Vec<WorldDevice> =
        ips.iter().map(|ip| network.device(*ip).expect("a device")).collect();
    let nodes: Vec<NodeId> = ips.iter().map(|_| add_node()).collect();
    let stopper = stopper(case, &nodes);
    let separated = if case.seed.is_multiple_of(2) { 1 } else { ips.len() - 1 };
    // The threads of a device are of its node.
    let site = |(device, node): (&WorldDevice, &NodeId)| {
        world::on_node(*node, || Site::on_node(device.name(), *node, Default::default()))
    };
    let sites: Vec<Site> = devices.iter().zip(&nodes).map(site).collect();
    let silences: Vec<Silence> = sites.iter().map(|site| site.silence.clone()).collect();
    let partition = move || {
        time::sleep(us(of.partition_at_us));
        for ip in ips.iter().skip(1).take(separated) {
            network.partition(ips[0], *ip, us(of.partition_us));
        }
        if of.partition_us == FOREVER_US {
            silences.iter().for_each(Silence::begin);
        }
    };
    let partition = thread::spawn("partition", partition).expect("a thread");
    sites[0].run(|| play(&sites));
    drop(sites);
    if let Some(thread) = stopper {
        thread.join().expect("no panic");
    }
    for device in &devices {
        expect_credits(case, device.counters().rnr_naks);
        expect_none(&device.left());
    }
    partition.join().expect("no panic");
}
