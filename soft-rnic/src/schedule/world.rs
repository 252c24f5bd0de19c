//! Devices of worlds: real ones, each listed for as long as its world needs it.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use host::random::entropy;

use crate::counters::Counters;
use crate::fabric::wire::Roce;
use crate::objects::device::DEVICES;
use crate::objects::state::{Device, ExecutionMode, PeerProcesses};
use crate::peers::process::names::SocketNames;
use crate::timing::card::Card;
use crate::timing::network::NetworkFaults;
use crate::timing::times::DistanceState;
use crate::udp::{UdpPort, WorldNetwork};

/// Kind of a world's device, by the time at which it does what is posted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorldKind {
    /// Inside the post, as `soft0`.
    Near,
    /// A round trip later, as [`distant`](crate::distant).
    Distant(
        /// The round trip.
        Duration,
    ),
    /// At the times of a `connectx5`, as [`card`](crate::card()).
    Card,
    /// As `soft0`, with others as if each were in a process of its own.
    Process(
        /// Devices of the same one find each other.
        WorldMachine,
    ),
}

/// A machine of a world: devices on it reach each other by the way between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorldMachine(u64);

impl WorldMachine {
    /// A machine without devices.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> WorldMachine {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only has to be unique.
        WorldMachine(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A device of a world, listed while this lives.
///
/// ```
/// use soft_rnic::{WorldDevice, WorldKind};
///
/// let device = WorldDevice::new(WorldKind::Near);
/// assert!(soft_rnic::counters_of(device.name()).is_some());
/// assert!(device.left().is_empty());
/// ```
#[derive(Debug)]
pub struct WorldDevice {
    device: Arc<Device>,
}

impl WorldDevice {
    /// A device of its own.
    #[must_use]
    pub fn new(kind: WorldKind) -> WorldDevice {
        let peers = match kind {
            WorldKind::Process(WorldMachine(number)) => {
                Some(PeerProcesses::named(SocketNames::of_world(number)))
            }
            _ => None,
        };
        let kind = match kind {
            WorldKind::Near | WorldKind::Process(_) => ExecutionMode::Synchronous,
            WorldKind::Distant(time) => {
                ExecutionMode::Distant(DistanceState::new(time.as_nanos() as u64, None))
            }
            WorldKind::Card => {
                ExecutionMode::Distant(DistanceState::new(0, Card::named("connectx5", 1.0)))
            }
        };
        let (name, ordinal) = next_name();
        WorldDevice::listed(Device::with_peers(&name, ordinal, kind, peers))
    }

    fn listed(device: Arc<Device>) -> WorldDevice {
        DEVICES.lock().push(Arc::clone(&device));
        WorldDevice { device }
    }

    /// The name by which the device is listed.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Ends the process that the device stands for, as other devices of its machine see it: what
    /// they have under way to it fails, and so does what this one has.
    pub fn kill(&self) {
        self.device.kill();
    }

    /// Statistics of the device.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.device.counters()
    }

    /// Objects that exist on it, by kind: none when all of its users have ended.
    #[must_use]
    pub fn left(&self) -> Vec<(&'static str, usize)> {
        self.device.left()
    }
}

/// The name of the next device, and its number.
fn next_name() -> (String, u64) {
    /// Far from the numbers of other devices.
    static ORDINAL: AtomicU64 = AtomicU64::new(3 << 40);
    // Relaxed: only has to be unique.
    let ordinal = ORDINAL.fetch_add(1, Ordering::Relaxed);
    (format!("world-{}", ordinal - (3 << 40)), ordinal)
}

impl WorldNetwork {
    /// A device that speaks RoCE v2 over this network, from an address that no other one has.
    ///
    /// # Errors
    /// The system's: no descriptor is left; `AddrInUse`.
    pub fn device(&self, ip: IpAddr) -> std::io::Result<WorldDevice> {
        let congestion = self.nature().congestion;
        let roce = Roce {
            ip,
            loopback: true,
            faults: NetworkFaults { congestion, ..NetworkFaults::default() },
            seed: entropy(),
            pcap: None,
            sports: 1,
            ecn: congestion > 0.0,
            gso: true,
        };
        let port = UdpPort::on_network(self, SocketAddr::new(ip, Roce::UDP_PORT))?;
        let (name, ordinal) = next_name();
        Ok(WorldDevice::listed(roce.open_in_world((&name, ordinal), port)))
    }
}

impl Drop for WorldDevice {
    fn drop(&mut self) {
        DEVICES.lock().retain(|device| !Arc::ptr_eq(device, &self.device));
    }
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::*;
    use crate::objects::device::visible;

    #[test]
    fn threads_outside_of_a_world_do_not_hold_its_devices() {
        let program = || {
            let device = WorldDevice::new(WorldKind::Near);
            let name = device.name().to_owned();
            let sees = move || visible().iter().any(|device| device.name() == name);
            assert!(sees());
            assert!(!std::thread::spawn(sees).join().unwrap());
        };
        host::world::run(1, Default::default(), Default::default(), program).1.unwrap();
    }
}
