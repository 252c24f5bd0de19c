//! Devices on the network, and what connects their queue pairs.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use host::sync::OnceLock;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use host::sync::Mutex;
use roce_core::congestion::with_ect;
use roce_core::icrc::Flow;
use roce_core::requester::SendSlot;
use roce_core::responder::ResponseSlot;
use verbs_sys::ibv_ah_attr;

use crate::alloc::{self, OutOfMemory};
use crate::check::checker;
use crate::fabric::process::peer_processes::random;
use crate::lock::{Lock, Padded};
use crate::objects::device::DEVICES;
use crate::objects::state::{Device, ExecutionMode, PeerProcesses, Qp, ResponderState, Sq};
use crate::peers::wire::port_state::{PortState, mtu_code_of};
use crate::peers::wire::state::{
    ExitRequest, Memberships, PacketCounts, PacketFaults, PacketPath, RoceWire, Rx, gid_of, ip_of,
};
use crate::peers::wire::symptoms::Symptoms;
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::timing::network::NetworkFaults;
use crate::udp::{
    Capture, LocalAddress, MAX_SEND_PORTS, Marks, PacketOutbox, PortError, SendPorts, UdpPort,
    address_of, local_addresses,
};
use host::random::Random;

use super::members::join;
use super::network_changes;

/// The port of RoCE v2.
pub(crate) const UDP_PORT: u16 = 4_791;

/// For each address that was asked for: held while its device is opened.
static OPENING: Mutex<BTreeMap<IpAddr, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// A device that speaks RoCE v2 over UDP from an address of this machine.
///
/// Its text is the address, or the interface that has it (of several addresses the first that
/// leaves the machine, IPv4 before IPv6), and options behind commas: `loopback=wire`; `loss`,
/// `reordering`, `duplication` and `congestion`, each a probability from 0 to 1, and `seed`, a
/// number; `sports`, how many source ports; `pcap`, a file; `ecn` and `gso`, `on` or `off`.
///
/// ```
/// let roce: soft_rnic::Roce = "127.0.0.77,loss=0.01,seed=7".parse()?;
/// assert_eq!(roce.faults.loss, 0.01);
/// assert_eq!(roce.list()?, "roce:127.0.0.77");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Roce {
    /// The address: its port 4791 is bound.
    pub ip: IpAddr,
    /// Queue pairs of the device reach each other over the network as well.
    pub loopback: bool,
    /// Faults of the network, applied to received packets.
    pub faults: NetworkFaults,
    /// Seed that the faults are drawn from.
    pub seed: u64,
    /// File to which all packets are written that the device sends and receives ([`Capture`]).
    pub pcap: Option<PathBuf>,
    /// UDP ports that it sends from: its own, and, from 2 on, free ones. Each queue pair keeps to
    /// one.
    pub sports: u8,
    /// Its reliable connections send as ECN-capable (ECT(0)), unless the traffic class of their
    /// address vector has ECN bits: switches may mark their packets instead of dropping them.
    pub ecn: bool,
    /// Equal packets to one destination leave as one run, which the kernel or the card cuts
    /// (generic segmentation offload).
    pub gso: bool,
}

/// The reason that a device is not listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// It has no port.
    #[error("{0}")]
    Port(PortError),
    /// Its packets cannot be written to this file.
    #[error("pcap={path}: {why}", path = .0.display(), why = why_no_capture(.1))]
    Capture(PathBuf, ErrorKind),
}

fn why_no_capture(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::AlreadyExists => "the file is no capture: remove it, or name another one".into(),
        ErrorKind::WouldBlock => {
            "another device writes it: %p in a name is the number of the process".into()
        }
        _ => kind.to_string(),
    }
}

impl From<PortError> for ListError {
    fn from(error: PortError) -> ListError {
        ListError::Port(error)
    }
}

/// A text that is no [`Roce`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RoceError(String);

impl FromStr for Roce {
    type Err = RoceError;

    fn from_str(text: &str) -> Result<Roce, RoceError> {
        let mut parts = text.split(',').map(str::trim);
        let address = parts.next().unwrap_or_default();
        let ip = address.parse().or_else(|_| of_interface(address))?;
        let faults = NetworkFaults::default();
        let mut roce = Roce {
            ip,
            loopback: false,
            faults,
            seed: 0,
            pcap: None,
            sports: 1,
            ecn: false,
            gso: true,
        };
        for part in parts {
            roce.set(part)?;
        }
        Ok(roce)
    }
}

impl Roce {
    /// The UDP port that every device on the network receives at.
    pub const UDP_PORT: u16 = UDP_PORT;

    fn set(&mut self, part: &str) -> Result<(), RoceError> {
        let wrong = |what: &str| RoceError(format!("{part:?}: {what}"));
        let (name, value) = part.split_once('=').ok_or_else(|| wrong("an option is NAME=VALUE"))?;
        let which = match name {
            "loopback" if value == "wire" => {
                self.loopback = true;
                return Ok(());
            }
            "seed" => {
                self.seed = value.parse().map_err(|_| wrong("a seed is a number from 0"))?;
                return Ok(());
            }
            "sports" => {
                let number = value.parse().ok().filter(|n| (1..=MAX_SEND_PORTS).contains(n));
                self.sports = number.ok_or_else(|| wrong("source ports are from 1 to 64"))?;
                return Ok(());
            }
            "ecn" | "gso" => {
                let is_on = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(wrong("it is on or off")),
                };
                match name {
                    "ecn" => self.ecn = is_on,
                    _ => self.gso = is_on,
                }
                return Ok(());
            }
            "pcap" if !value.is_empty() => {
                self.pcap = Some(value.into());
                return Ok(());
            }
            "pcap" => return Err(wrong("name a file, for a capture of all packets")),
            "loss" => &mut self.faults.loss,
            "reordering" => &mut self.faults.reordering,
            "duplication" => &mut self.faults.duplication,
            "congestion" => &mut self.faults.congestion,
            _ => {
                return Err(wrong(
                    "there are loopback=wire, loss, reordering, duplication, congestion, seed, sports, ecn, gso and pcap",
                ));
            }
        };
        let probability = value.parse().ok().filter(|p| (0.0..=1.0).contains(p));
        *which = probability.ok_or_else(|| wrong("a probability is from 0 to 1"))?;
        Ok(())
    }

    /// The name of the device, which is listed from now on. An address has one device: the first
    /// one that was asked for.
    ///
    /// # Errors
    /// [`ListError`]: the kernel, or another user, has the address's port 4791, no interface has
    /// the address, or it has as many processes as it can; or the packets cannot be captured.
    pub fn list(&self) -> Result<String, ListError> {
        let name = format!("roce:{}", self.ip);
        let is_listed = || DEVICES.lock().iter().any(|device| device.name() == name);
        if is_listed() {
            return Ok(name);
        }
        // Another process may be waited for: only threads that want the same device wait with this
        // one.
        let opening = Arc::clone(OPENING.lock().entry(self.ip).or_default());
        let _opening = opening.lock();
        if !is_listed() {
            let device = self.open(&name)?;
            network_changes::begin(&device);
            DEVICES.lock().push(device);
        }
        Ok(name)
    }

    /// The largest path MTU of a device on this address: bytes of payload in a packet.
    #[must_use]
    pub fn path_mtu(address: &LocalAddress) -> usize {
        128 << mtu_code_of(address.ip, address.mtu)
    }

    pub(super) fn open(&self, name: &str) -> Result<Arc<Device>, ListError> {
        let addr = SocketAddr::new(self.ip, UDP_PORT);
        // Its handler may end the process, and has to run behind the capture's.
        checker::reserve_exit();
        let (capture, send_ports) = (self.capture()?, SendPorts::bind(self.ip, self.sports)?);
        let joined = join(addr)?;
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let ordinal = 3 << 40 | hasher.finish() >> 24;
        let wire = RoceWire::new(self, (joined.port, joined.place, send_ports), capture);
        let device = wired((name, ordinal), wire, joined.peers);
        let started = device.start_progress_thread();
        started.map_err(|errno| PortError::new(addr, "starting a thread for", errno))?;
        Ok(device)
    }

    /// A device on a network of a world.
    #[cfg(feature = "simulation")]
    pub(crate) fn open_in_world(&self, named: (&str, u64), port: UdpPort) -> Arc<Device> {
        wired(named, RoceWire::new(self, (port, None, SendPorts::default()), None), None)
    }

    fn capture(&self) -> Result<Option<Capture>, ListError> {
        let Some(path) = &self.pcap else { return Ok(None) };
        let made = Capture::create(path);
        made.map(Some).map_err(|error| ListError::Capture(path.clone(), error.kind()))
    }
}

fn wired(
    (name, ordinal): (&str, u64),
    wire: RoceWire,
    peers: Option<PeerProcesses>,
) -> Arc<Device> {
    let device = Device::with_peers(name, ordinal, ExecutionMode::Wired(Box::new(wire)), peers);
    // A process that had the place before has had other numbers, most likely.
    device.qps.begin_anywhere(random()[0]);
    device
}

impl RoceWire {
    fn new(
        roce: &Roce,
        (port, place, send_ports): (UdpPort, Option<u32>, SendPorts),
        capture: Option<Capture>,
    ) -> RoceWire {
        let port_state = PortState::new(mtu_code(&port));
        for from in send_ports.others().iter().chain([&port]) {
            // Where that fails, groups are where the routes say.
            let _ = from.send_groups_by_own_interface();
        }
        let faults = (roce.faults != NetworkFaults::default())
            .then(|| PacketFaults { network: roce.faults, random: Random::new(roce.seed) });
        let is_in_world = port.is_in_world();
        RoceWire {
            port,
            place,
            send_ports,
            gid: gid_of(roce.ip),
            port_state,
            process: std::process::id(),
            namespace: (!is_in_world).then(network_changes::network_namespace).flatten(),
            loops: roce.loopback,
            has_ecn: roce.ecn,
            rx: Padded(Lock::new(Rx { faults, ..Rx::default() })),
            tx: Padded(Lock::new(PacketOutbox::new(roce.gso))),
            is_stuck: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            missed: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            thread: OnceLock::new(),
            exit: ExitRequest::default(),
            workers: Arc::default(),
            own_workers: Arc::default(),
            answered_ns: AtomicU64::new(0),
            departed: Mutex::default(),
            counts: PacketCounts::default(),
            memberships: Memberships::default(),
            symptoms: Symptoms::default(),
            capture,
        }
    }

    /// The path from a queue pair of ours to one of a peer's.
    pub(super) fn path(
        &self,
        peer: IpAddr,
        marks: Marks,
        (from, to): (u32, u32),
    ) -> Option<PacketPath> {
        let (peer, source) = (SocketAddr::new(peer, UDP_PORT), self.send_ports.choose(from, to));
        Some(PacketPath { peer, marks, source, flow: Flow::new(self.source(source), peer)? })
    }

    /// The address of a source port.
    pub(super) fn source(&self, source: u8) -> SocketAddr {
        self.send_ports.local(source).unwrap_or(self.port.local())
    }
}

/// The first address of an interface.
fn of_interface(name: &str) -> Result<IpAddr, RoceError> {
    let all = local_addresses().unwrap_or_default();
    address_of(&all, name).map(|found| found.ip).ok_or_else(|| {
        RoceError(format!(
            "{name:?} is no IP address, and no interface that is up and has one: name one of this machine \
             (`rdma-conn devices` and `ip address` list them)"
        ))
    })
}

fn mtu_code(port: &UdpPort) -> u32 {
    mtu_code_of(port.local().ip(), port.mtu().unwrap_or(1_500))
}

/// Memory of a connection over the network: it is there before its queue pair changes, so that a
/// change that fails changes nothing.
#[derive(Default)]
pub(crate) struct WireMemory {
    pub(super) sends: Vec<SendSlot>,
    pub(super) responses: Vec<ResponseSlot>,
}

impl Qp {
    /// Memory for a transition, and for as many READs and atomics of the peer, if that changes.
    pub(crate) fn wire_memory(
        &self,
        transition: (QueuePairState, QueuePairState),
        responses: Option<u8>,
    ) -> Result<WireMemory, OutOfMemory> {
        if self.pd.context.device.wire().is_none() || !self.transport.is_reliable() {
            return Ok(WireMemory::default());
        }
        alloc::headroom()?;
        let begins = transition == (QueuePairState::Rtr, QueuePairState::Rts);
        let sends = if begins { self.cap.max_send_wr.max(1) as usize } else { 0 };
        Ok(WireMemory {
            sends: alloc::filled(sends, SendSlot::new)?,
            responses: alloc::filled(responses.unwrap_or(0).into(), ResponseSlot::new)?,
        })
    }

    /// The queue pair has become ready to receive; both locks are held.
    pub(crate) fn connect_wire(
        &self,
        sq: &Sq,
        responder: &mut ResponderState,
        memory: &mut WireMemory,
    ) {
        let device = &self.pd.context.device;
        let Some(wire) = device.wire() else { return };
        let path = match self.transport {
            QpTransport::Ud => None,
            _ => match self.wire_path(sq, wire) {
                Some(path) => Some(path),
                None => return,
            },
        };
        let slots = core::mem::take(&mut memory.responses);
        self.listen_wire(responder, sq.requester.mtu_shift, path, slots);
        device.start_wire_thread();
    }

    /// It has become ready to send; the lock is held.
    pub(crate) fn begin_to_send(&self, sq: &mut Sq, memory: WireMemory) {
        let device = &self.pd.context.device;
        let Some(wire) = device.wire().filter(|_| self.transport != QpTransport::Ud) else {
            return;
        };
        if let Some(path) = self.wire_path(sq, wire) {
            self.begin_wire(sq, wire, path, memory.sends);
        }
    }

    /// Reports whether an address vector leads anywhere, going by the family of its address.
    pub(crate) fn has_route(&self, to: &ibv_ah_attr) -> bool {
        // SAFETY: bytes, whichever member was written.
        let peer = ip_of(unsafe { &to.grh.dgid.raw });
        let device = &self.pd.context.device;
        device.wire().is_none_or(|wire| wire.path(peer, Marks::default(), (0, 0)).is_some())
    }

    /// The address of its peer's device, if the device is on a network.
    pub(crate) fn peer_address(&self, sq: &Sq) -> Option<IpAddr> {
        self.pd.context.device.wire()?;
        // SAFETY: bytes, whichever member was written.
        let gid = unsafe { &sq.attr.ah_attr.grh.dgid.raw };
        Some(ip_of(gid)).filter(|address| !address.is_unspecified())
    }

    /// Returns the path of its packets, if they go over the network.
    pub(super) fn wire_path(&self, sq: &Sq, wire: &RoceWire) -> Option<PacketPath> {
        if sq.requester.reaches_us && !wire.loops {
            return None;
        }
        let grh = &sq.attr.ah_attr.grh;
        // SAFETY: bytes, whichever member was written.
        let peer = ip_of(unsafe { &grh.dgid.raw });
        let hops = if grh.hop_limit == 0 { Marks::default().hops } else { grh.hop_limit };
        // An unreliable connection has no window that a notification could make smaller.
        let class = match wire.has_ecn && self.transport.is_reliable() {
            true => with_ect(grh.traffic_class),
            false => grh.traffic_class,
        };
        let marks = Marks { class, hops };
        wire.path(peer, marks, (self.num, sq.requester.dest_qpn))
    }
}
