//! Devices of a case's place, with its faults; nothing of a program is left on them at the end.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::thread::JoinHandle;
use host::world::{CurrentTask, NodeId};
use host::{thread, time, world};
use rdma_conn::device::{self, Device};
use soft_rnic::{NetworkNature, Simulation, WorldDevice, WorldKind, WorldMachine, WorldNetwork};

use crate::case::{BufferKind, DeviceKind, FOREVER_US, WorldCase};
use crate::checks::us;
use crate::silence::Silence;

/// Device of an end, and the node of the world that is its process.
pub(crate) struct Site {
    pub(crate) device: Device,
    node: NodeId,
    /// That of its process.
    pub(crate) silence: Silence,
}

impl Site {
    /// In the process of the program.
    fn here(name: &str) -> Site {
        let node = world::here(CurrentTask::node).expect("it plays in a world");
        Site::on_node(name, node, Silence::default())
    }

    fn on_node(name: &str, node: NodeId, silence: Silence) -> Site {
        Site { device: device::open(Some(name)).expect("the world's device"), node, silence }
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
    let silences: Vec<Silence> = devices.iter().map(|_| Silence::default()).collect();
    let killer = case.kill.map(|kill| {
        let (devices, silence) = (Arc::clone(&devices), silences[kill.process].clone());
        let kill = move || {
            time::sleep(us(kill.at_us));
            world::note(|| format!("process {} is killed", kill.process));
            devices[kill.process].kill();
            silence.begin();
        };
        thread::spawn("killer", kill).expect("a thread")
    });
    let nodes: Vec<NodeId> = devices.iter().map(|_| add_node()).collect();
    let stopper = stopper(case, &nodes);
    let site = |((device, node), silence): ((&WorldDevice, &NodeId), Silence)| {
        Site::on_node(device.name(), *node, silence)
    };
    let sites: Vec<Site> = devices.iter().zip(&nodes).zip(silences).map(site).collect();
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

/// The receiver has one address of a network, the senders another one: as two machines, of which one
/// may be stopped.
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
    let ips = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let devices = ips.map(|ip| network.device(ip).expect("a device"));
    let nodes = ips.map(|_| add_node());
    let stopper = stopper(case, &nodes);
    // The threads of a device are of its node.
    let sites = [0, 1].map(|at: usize| {
        let open = || Site::on_node(devices[at].name(), nodes[at], Silence::default());
        world::on_node(nodes[at], open)
    });
    let silences = sites.each_ref().map(|site| site.silence.clone());
    let partition = move || {
        time::sleep(us(of.partition_at_us));
        network.partition(ips[0], ips[1], us(of.partition_us));
        if of.partition_us == FOREVER_US {
            silences.iter().for_each(Silence::begin);
        }
    };
    let partition = thread::spawn("partition", partition).expect("a thread");
    sites[0].run(|| play(&sites));
    drop(sites);
    for thread in stopper {
        thread.join().expect("no panic");
    }
    for device in &devices {
        expect_credits(case, device.counters().rnr_naks);
        expect_none(&device.left());
    }
    partition.join().expect("no panic");
}
