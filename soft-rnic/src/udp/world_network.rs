//! Networks of worlds: datagrams between ports in memory, in virtual time, with faults drawn from the world's seed.
//!
//! ```text
//!   send ──> a fault? ──> in flight, until its time ──> queue of each port at its destination ──> take
//!                                  |                        '- full: dropped, and counted
//!                                  '- a partition: lost
//! ```
//!
//! Datagrams from one address to another stay in order, but for those that a fault makes late. A thread delivers what
//! no port has asked for. A port's descriptor is readable while its queue has something.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use host::random::{Random, entropy};
use host::sync::{Condvar, Mutex, MutexGuard};
use host::time::monotonic_ns;
use host::world::note;
use roce_core::icrc::Flow;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Bytes that a queue counts for each datagram beside its own, about as the kernel.
const OVERHEAD: usize = 512;

/// A network's properties. Probabilities are of each packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NetworkNature {
    /// Time from one end to the other: at least this, and up to twice as long.
    pub delay: Duration,
    /// The packet is lost.
    pub loss: f64,
    /// It arrives twice.
    pub repeat: f64,
    /// Later packets overtake it.
    pub reorder: f64,
    /// One of its bits is flipped.
    pub corrupt: f64,
    /// It is marked as having met congestion, if it is ECN-capable.
    pub congestion: f64,
    /// Bytes of the longest IP packet.
    pub mtu: usize,
    /// Bytes that a port keeps until they are taken.
    pub queue_bytes: usize,
}

impl Default for NetworkNature {
    /// No faults, 5 µs.
    fn default() -> NetworkNature {
        NetworkNature {
            delay: Duration::from_micros(5),
            loss: 0.0,
            repeat: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            congestion: 0.0,
            mtu: 1_500,
            queue_bytes: 208 << 10,
        }
    }
}

/// A network of a world, on which devices have addresses: see [`device`](Self::device).
///
/// ```
/// use soft_rnic::{NetworkNature, WorldNetwork};
///
/// let network = WorldNetwork::new(NetworkNature { loss: 0.01, ..NetworkNature::default() })?;
/// let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|ip| network.device(ip.parse().unwrap()));
/// assert_ne!(here?.name(), there?.name());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WorldNetwork(Arc<NetworkThread>);

/// A network with its thread, which ends with the last handle and port.
#[derive(Debug)]
struct NetworkThread(Arc<NetworkShared>);

#[derive(Debug)]
struct NetworkShared {
    nature: NetworkNature,
    state: Mutex<NetworkState>,
    /// Something is in flight that was not before, or the network has ended.
    changed: Condvar,
}

#[derive(Debug)]
struct NetworkState {
    random: Random,
    /// By number.
    ends: BTreeMap<u64, NetworkPort>,
    /// Numbers of ends and datagrams.
    numbers: u64,
    /// By the time of arrival, then by number.
    in_flight: BTreeMap<(u64, u64), Parcel>,
    /// From one address to another: when the last datagram in order arrives.
    last: BTreeMap<(IpAddr, IpAddr), u64>,
    /// Addresses that do not reach each other, and until when.
    partitions: Vec<([IpAddr; 2], u64)>,
    is_over: bool,
}

/// A port, as the network knows it.
#[derive(Debug)]
struct NetworkPort {
    local: SocketAddr,
    /// The address of its device: another one if the port is of a group.
    host: IpAddr,
    /// Readable while the queue has something.
    input: OwnedFd,
    queue: VecDeque<Parcel>,
    used: usize,
    /// Packets that the queue had no room for.
    dropped: u32,
}

/// A datagram, or a run of equal ones of which the last may be shorter.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Class and hops.
    pub(super) marks: [u8; 2],
    /// Bytes of each datagram.
    pub(super) segment: usize,
    pub(super) bytes: Vec<u8>,
}

/// A fault that strikes a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketFault {
    Loss,
    Repeat,
    Reorder,
    Corrupt,
}

impl WorldNetwork {
    /// A network. Its faults are drawn from the world's seed.
    ///
    /// # Errors
    /// The system's: no thread is left.
    pub fn new(nature: NetworkNature) -> io::Result<WorldNetwork> {
        let state = NetworkState {
            random: Random::new(entropy()),
            ends: BTreeMap::new(),
            numbers: 0,
            in_flight: BTreeMap::new(),
            last: BTreeMap::new(),
            partitions: Vec::new(),
            is_over: false,
        };
        let shared =
            Arc::new(NetworkShared { nature, state: Mutex::new(state), changed: Condvar::new() });
        let running = Arc::clone(&shared);
        host::thread::spawn("network", move || running.run())?;
        Ok(WorldNetwork(Arc::new(NetworkThread(shared))))
    }

    /// Loses all packets between two addresses for this time.
    pub fn partition(&self, a: IpAddr, b: IpAddr, time: Duration) {
        let until = monotonic_ns().saturating_add(time.as_nanos() as u64);
        note(|| format!("the network: {a} and {b} do not reach each other until {until}"));
        self.0.0.state.lock().partitions.push(([a, b], until));
    }

    /// The network's properties.
    #[must_use]
    pub fn nature(&self) -> &NetworkNature {
        &self.0.0.nature
    }

    /// A port at an address.
    pub(super) fn bind(&self, local: SocketAddr) -> Result<(NetworkEndpoint, OwnedFd), Errno> {
        self.bind_for(local, local.ip())
    }

    fn bind_for(
        &self,
        local: SocketAddr,
        host: IpAddr,
    ) -> Result<(NetworkEndpoint, OwnedFd), Errno> {
        let input = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&input, 3)?;
        let mut state = self.0.0.state.lock();
        if !local.ip().is_multicast() && state.ends.values().any(|end| end.local == local) {
            return Err(Errno::ADDRINUSE);
        }
        let number = state.number();
        let end = NetworkPort { local, host, input, queue: VecDeque::new(), used: 0, dropped: 0 };
        state.ends.insert(number, end);
        Ok((NetworkEndpoint { network: self.clone(), number, host }, copy))
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

impl NetworkShared {
    /// The network's thread.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            let now = monotonic_ns();
            state.deliver(now, self.nature.queue_bytes);
            match state.in_flight.first_key_value().map(|((at, _), _)| *at) {
                None => self.changed.wait(&mut state),
                Some(at) => {
                    self.changed.wait_for(&mut state, Duration::from_nanos(at - now));
                }
            }
        }
    }

    /// The state at this time.
    fn at(&self, now: u64) -> MutexGuard<'_, NetworkState> {
        let mut state = self.state.lock();
        state.deliver(now, self.nature.queue_bytes);
        state
    }
}

impl NetworkState {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn fault(&mut self, nature: &NetworkNature) -> Option<PacketFault> {
        let all = [
            (nature.loss, PacketFault::Loss),
            (nature.repeat, PacketFault::Repeat),
            (nature.reorder, PacketFault::Reorder),
            (nature.corrupt, PacketFault::Corrupt),
        ];
        all.into_iter().find(|(rate, _)| self.random.strikes(*rate)).map(|(_, fault)| fault)
    }

    /// Puts a datagram, or a run, on its way.
    fn depart(&mut self, now: u64, nature: &NetworkNature, parcel: Parcel, is_late: bool) {
        let delay = nature.delay.as_nanos() as u64;
        let number = self.number();
        let soonest = now + delay + self.random.below(delay + 1);
        let last = self.last.entry((parcel.from.ip(), parcel.to.ip())).or_default();
        let mut at = soonest.max(*last);
        match is_late {
            false => *last = at,
            true => at += 1 + self.random.below(4 * delay + 20_000),
        }
        self.in_flight.insert((at, number), parcel);
    }

    /// Puts one packet on its way, as the fault has it.
    fn depart_with(
        &mut self,
        now: u64,
        nature: &NetworkNature,
        mut parcel: Parcel,
        fault: Option<PacketFault>,
    ) {
        if let Some(fault) = fault {
            note(|| {
                let (from, to) = (parcel.from.ip(), parcel.to.ip());
                format!(
                    "the network: {fault:?} of {} bytes from {from} to {to}",
                    parcel.bytes.len()
                )
            });
        }
        match fault {
            Some(PacketFault::Loss) => return,
            Some(PacketFault::Repeat) => self.depart(now, nature, parcel.clone(), true),
            Some(PacketFault::Corrupt) => {
                let bit = self.random.below(8 * parcel.bytes.len().max(1) as u64) as usize;
                if let Some(byte) = parcel.bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                // One that the ICRC does not see, UDP's checksum does.
                let flow = Flow::new(parcel.from, parcel.to);
                if flow.is_none_or(|flow| flow.check(0, &parcel.bytes).is_ok()) {
                    return;
                }
            }
            Some(PacketFault::Reorder) | None => {}
        }
        self.depart(now, nature, parcel, fault == Some(PacketFault::Reorder));
    }

    /// Delivers what arrives until now.
    fn deliver(&mut self, now: u64, queue_bytes: usize) {
        self.partitions.retain(|(_, until)| *until > now);
        while self.in_flight.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            let Some((_, parcel)) = self.in_flight.pop_first() else { return };
            let is_cut = |host: IpAddr| {
                let (from, cuts) = (parcel.from.ip(), &self.partitions);
                cuts.iter().any(|(ends, _)| *ends == [from, host] || *ends == [host, from])
            };
            for end in self.ends.values_mut().filter(|end| end.local == parcel.to) {
                match is_cut(end.host) {
                    true => note(|| format!("the network: no way to {}", end.host)),
                    false => end.take_in(&parcel, queue_bytes),
                }
            }
        }
    }
}

impl NetworkPort {
    fn take_in(&mut self, parcel: &Parcel, queue_bytes: usize) {
        let size = parcel.bytes.len() + OVERHEAD;
        // As the kernel: a packet is taken if the queue is not beyond the limit, also a run that is
        // longer.
        if self.used > queue_bytes {
            note(|| format!("the network: the queue of {} is full", self.host));
            let packets = parcel.bytes.len().div_ceil(parcel.segment.max(1));
            self.dropped = self.dropped.wrapping_add(packets as u32);
            return;
        }
        if self.queue.is_empty() {
            let _ = rustix::io::write(&self.input, &1_u64.to_ne_bytes());
        }
        self.used += size;
        self.queue.push_back(parcel.clone());
    }
}

/// A port of a network.
#[derive(Debug)]
pub(super) struct NetworkEndpoint {
    network: WorldNetwork,
    number: u64,
    host: IpAddr,
}

impl NetworkEndpoint {
    pub(super) fn nature(&self) -> &NetworkNature {
        self.network.nature()
    }

    /// A port of the same device for a group.
    pub(super) fn join(&self, group: SocketAddr) -> Result<(NetworkEndpoint, OwnedFd), Errno> {
        self.network.bind_for(group, self.host)
    }

    /// Sends a datagram, or a run: each packet may meet a fault, and a run that meets none arrives as one.
    pub(super) fn send(&self, parcel: Parcel) {
        let (shared, now) = (&self.network.0.0, monotonic_ns());
        let mut state = shared.at(now);
        let packets = parcel.bytes.chunks(parcel.segment.max(1));
        let faults: Vec<_> = packets.clone().map(|_| state.fault(&shared.nature)).collect();
        if faults.iter().all(Option::is_none) {
            state.depart(now, &shared.nature, parcel, false);
        } else {
            for (bytes, fault) in packets.zip(faults) {
                let one = Parcel { bytes: bytes.to_vec(), ..parcel };
                state.depart_with(now, &shared.nature, one, fault);
            }
        }
        state.deliver(now, shared.nature.queue_bytes);
        drop(state);
        shared.changed.notify_one();
    }

    /// The oldest datagram or run that has arrived, and how many packets the queue had no room for.
    pub(super) fn take(&self) -> (Option<Parcel>, u32) {
        let (shared, now) = (&self.network.0.0, monotonic_ns());
        let mut state = shared.at(now);
        let Some(end) = state.ends.get_mut(&self.number) else { return (None, 0) };
        let parcel = end.queue.pop_front();
        end.used -= parcel.as_ref().map_or(0, |parcel| parcel.bytes.len() + OVERHEAD);
        if parcel.is_some() && end.queue.is_empty() {
            let _ = rustix::io::read(&end.input, &mut [0; 8]);
        }
        (parcel, end.dropped)
    }
}

impl Drop for NetworkEndpoint {
    fn drop(&mut self) {
        self.network.0.0.state.lock().ends.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
