//! Multicast groups on the network: groups of IP.
//!
//! A group has a socket as long as a queue pair of this process is attached to it. Datagrams to
//! groups all go over the network, those to members in this process and in others of the same
//! address as well: so each member gets one copy, whichever way its process shares the address.
//!
//! **Locks**: `changing` while a queue pair is attached or detached, then what receives, or the
//! table of groups; the latter also under what receives.
//!
//! A child of fork shares the sockets, and what they have joined, with its parent: it changes
//! neither.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use roce_core::codec;
use roce_core::icrc::Flow;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, Qp};
use crate::peers::wire::state::{GroupSocket, GroupSockets, PacketFaults, RoceWire, gid_of, ip_of};
use crate::queues::address::{GidBytes, MULTICAST_QPN};
use crate::udp::{AddressState, FEW, PacketInbox, ReceivedDatagram, UdpPort};
use crate::{errno, limits};

use super::device::UDP_PORT;
use super::packets::{add, is_of_partition};
use super::responder::Answering;

/// Batches that one look takes, each of the group that has waited longest.
pub(super) const READY: usize = 8;
/// Copies for members that one look makes before it leaves the rest in the sockets. The batch that
/// reaches this number is still taken as a whole: a run of packets, or some if there are few
/// members.
pub(super) const COPIES: usize = 4_096;
/// Members of a group up to which one batch is [`FEW`] runs: the kernel merges up to 64 packets in
/// each.
const FEW_MEMBERS: usize = COPIES / (64 * FEW);

impl GroupSockets {
    fn has(&self, gid: &GidBytes) -> bool {
        self.all.iter().any(|socket| socket.gid == *gid)
    }

    /// A socket that packets wait in, if there is one. The kernel is asked for one at a time,
    /// because it then puts that one behind all others that are ready: each gets its turn, however
    /// few a look takes.
    fn next_ready(&mut self, wire: &RoceWire) -> Option<&mut GroupSocket> {
        let ready = wire.memberships.ready.get().filter(|_| !self.all.is_empty())?;
        let data = host::fd::epoll_at_once(ready).ok()??.data.u64();
        self.all.iter_mut().find(|socket| key(&socket.port).u64() == data)
    }

    fn remove(&mut self, gid: &GidBytes) -> Option<UdpPort> {
        let at = self.all.iter().position(|socket| socket.gid == *gid)?;
        let GroupSocket { port, dropped, .. } = self.all.swap_remove(at);
        self.dropped = self.dropped.wrapping_add(dropped);
        Some(port)
    }

    /// Puts a new socket in the place of a group's; the one before.
    fn replace(&mut self, gid: &GidBytes, port: UdpPort) -> Option<UdpPort> {
        let socket = self.all.iter_mut().find(|socket| socket.gid == *gid)?;
        self.dropped = self.dropped.wrapping_add(core::mem::take(&mut socket.dropped));
        Some(core::mem::replace(&mut socket.port, port))
    }
}

/// The error of a verb.
fn of_verb(error: Errno) -> Errno {
    // The system's limit of memberships.
    if error == Errno::NOBUFS { errno::ENOMEM } else { error }
}

/// Returns the key of a socket among those that are ready: its descriptor, which stays the same
/// while it is one of them.
fn key(port: &UdpPort) -> EventData {
    EventData::new_u64(port.as_fd().as_raw_fd().cast_unsigned().into())
}

impl RoceWire {
    /// Joins a group, unless this process has. `changing` is held.
    fn join(&self, gid: &GidBytes) -> Result<(), Errno> {
        let (has, joined) = {
            let groups = &self.rx.lock().groups;
            (groups.has(gid), groups.all.len())
        };
        if has {
            return Ok(());
        }
        if joined >= limits::MAX_WIRE_GROUPS {
            return Err(errno::ENOMEM);
        }
        let port = self.socket_for(gid).map_err(of_verb)?;
        self.rx.lock().groups.all.push(GroupSocket { gid: *gid, port, dropped: 0, late: None });
        Ok(())
    }

    /// A socket that has joined a group, and is among those that may be ready.
    fn socket_for(&self, gid: &GidBytes) -> Result<UdpPort, Errno> {
        let port = self.port.join_beside(SocketAddr::new(ip_of(gid), UDP_PORT))?;
        // A socket that is closed is among them no more.
        epoll::add(self.ready_sockets()?, &port, key(&port), EventFlags::IN)?;
        Ok(port)
    }

    /// A look has found this of the device's address. If another interface has it than before, as
    /// one that was made anew under the same name, groups are joined again on that one, and sent to
    /// by it.
    pub(super) fn follow_interface(&self, found: AddressState) {
        let index = match found {
            AddressState::Absent => None,
            AddressState::Present { index: None, .. } => return,
            AddressState::Present { index, .. } => index,
        };
        let mut known = self.memberships.changing.lock();
        if *known == index {
            return;
        }
        // What fails is tried again after the next change.
        let is_done = index.is_some() && self.send_groups_by_own_interface() && self.join_again();
        *known = index.filter(|_| is_done);
    }

    /// Has all source ports send to groups by the interface of the device's address; returns true
    /// if they do.
    fn send_groups_by_own_interface(&self) -> bool {
        let mut all = self.send_ports.others().iter().chain([&self.port]);
        all.all(|port| port.send_groups_by_own_interface().is_ok())
    }

    /// Joins all groups again; returns true if that is done. `changing` is held. Each gets a new
    /// socket: one of a group of a link is bound to the interface that is not there any more.
    fn join_again(&self) -> bool {
        let groups: Vec<GidBytes> =
            self.rx.lock().groups.all.iter().map(|socket| socket.gid).collect();
        let again = |gid: &GidBytes| {
            let Ok(port) = self.socket_for(gid) else { return false };
            let before = self.rx.lock().groups.replace(gid, port);
            before.into_iter().for_each(|port| self.give_up(&port));
            true
        };
        // Each is tried, even if others fail.
        groups.iter().filter(|gid| !again(gid)).count() == 0
    }

    /// Has a socket that is used no more leave its group. `changing` is held.
    fn give_up(&self, port: &UdpPort) {
        // A child of fork may have a copy of the socket, which would stay among those that are
        // ready.
        let _ = self.memberships.ready.get().map(|ready| epoll::delete(ready, port));
        port.leave(self.port.local().ip());
    }

    fn ready_sockets(&self) -> Result<&OwnedFd, Errno> {
        if let Some(ready) = self.memberships.ready.get() {
            return Ok(ready);
        }
        let made = epoll::create(CreateFlags::CLOEXEC)?;
        let ready = self.memberships.ready.get_or_init(|| made);
        // The device's thread may wait, and not for this one.
        self.wake();
        Ok(ready)
    }

    /// Leaves a group that has no members in this process. `changing` is held. A queue pair that
    /// was detached before gets no packet any more when this returns, whether the group has members
    /// or not.
    fn leave_unused(&self, device: &Device, gid: &GidBytes) {
        let port = {
            let mut rx = self.rx.lock();
            if !device.members(gid).is_empty() {
                return;
            }
            rx.groups.remove(gid)
        };
        if let Some(port) = port {
            self.give_up(&port);
        }
    }
}

impl Qp {
    /// Attaches it to a group of the network. The errors are the kernel's, and those of joining.
    pub(crate) fn attach_on_wire(
        self: &Arc<Qp>,
        wire: &RoceWire,
        gid: GidBytes,
        lid: u16,
    ) -> Result<(), Errno> {
        self.can_attach_to(&gid)?;
        if wire.is_inherited() {
            return Err(errno::EPERM);
        }
        let _changing = wire.memberships.changing.lock();
        wire.join(&gid)?;
        let attached = self.attach_to_group(gid, lid);
        if attached.is_err() {
            wire.leave_unused(&self.pd.context.device, &gid);
        }
        attached.map(drop)
    }

    /// Ends an attachment to a group of the network. In a child of fork that is an attachment of
    /// the child's copy: the membership is its parent's.
    pub(crate) fn detach_on_wire(
        &self,
        wire: &RoceWire,
        gid: GidBytes,
        lid: u16,
    ) -> Result<(), Errno> {
        if wire.is_inherited() {
            return self.detach_from_group(gid, lid);
        }
        let _changing = wire.memberships.changing.lock();
        self.detach_from_group(gid, lid)?;
        wire.leave_unused(&self.pd.context.device, &gid);
        Ok(())
    }

    /// It is destroyed, and was a member of these groups.
    pub(crate) fn leave_on_wire(&self, groups: &[GidBytes]) {
        let device = &self.pd.context.device;
        let Some(wire) = device.wire().filter(|_| !groups.is_empty()) else { return };
        if wire.is_inherited() {
            return;
        }
        let _changing = wire.memberships.changing.lock();
        groups.iter().for_each(|gid| wire.leave_unused(device, gid));
    }

    /// Reports whether it is not to get a message that this device's queue pair `from` has sent.
    fn blocks(&self, from: u32) -> bool {
        self.blocks_own_multicast && self.num == from
    }
}

/// The inbox that takes packets, and the faults that the network adds to them.
pub(super) type Intake<'r> = (&'r mut PacketInbox, &'r mut Option<PacketFaults>);

/// Takes packets received for groups, up to a number of [copies](COPIES); returns true if there may
/// be more. `before` is called if there is anything: copies take time.
pub(super) fn take_from_groups(
    device: &Device,
    wire: &RoceWire,
    groups: &mut GroupSockets,
    (inbox, faults): Intake<'_>,
    (shared, deferred): (&mut Answering, &mut DeferredWork),
    before: impl FnOnce(&mut Answering, &mut DeferredWork),
) -> bool {
    let (mut copies, mut before) = (0, Some(before));
    for _ in 0..READY {
        let Some(socket) = groups.next_ready(wire) else { return false };
        if let Some(before) = before.take() {
            before(shared, deferred);
        }
        copies += take_batch(device, wire, socket, (inbox, faults), (shared, deferred));
        if copies >= COPIES {
            break;
        }
    }
    true
}

/// Takes a batch of packets to one group; returns the number of copies, or of packets that had
/// none.
fn take_batch(
    device: &Device,
    wire: &RoceWire,
    socket: &mut GroupSocket,
    (inbox, faults): Intake<'_>,
    (shared, deferred): (&mut Answering, &mut DeferredWork),
) -> usize {
    let members = device.members(&socket.gid);
    let is_short = members.len() > FEW_MEMBERS;
    // After an error, which an earlier packet has met, the next call is about the next one.
    let _ = inbox.receive_apart(&socket.port, is_short, &mut socket.dropped);
    let group = Group { members: &members, gid: socket.gid, port: &socket.port };
    let (mut came, mut copies) = (0, 0);
    let mut take = |datagram: &ReceivedDatagram<'_>| {
        let made = device.take_for_group(wire, &group, datagram, (&mut *shared, &mut *deferred));
        copies += made.max(1);
    };
    for datagram in inbox.datagrams() {
        came += 1;
        if wire.capture.is_some() {
            wire.capture_received(&datagram, socket.port.local());
        }
        match faults {
            None => take(&datagram),
            Some(faults) => faults.strike(&mut socket.late, &datagram, &mut take),
        }
    }
    add(&wire.counts.received, came);
    copies
}

/// A group that packets have arrived for.
struct Group<'g> {
    members: &'g [Arc<Qp>],
    gid: GidBytes,
    port: &'g UdpPort,
}

impl Device {
    /// Takes one packet to a group: each member that may have it gets a copy. Returns how many were
    /// tried.
    fn take_for_group(
        &self,
        wire: &RoceWire,
        group: &Group<'_>,
        datagram: &ReceivedDatagram<'_>,
        (shared, deferred): (&mut Answering, &mut DeferredWork),
    ) -> usize {
        let counts = &wire.counts;
        // Relaxed: statistics.
        let count = |which: &AtomicU64| {
            which.fetch_add(1, Ordering::Relaxed);
            0
        };
        let Some(peek) = codec::peek(datagram.bytes) else { return count(&counts.malformed) };
        // Also one that names a queue pair, of any transport: a group is not its address.
        if peek.dest_qpn != MULTICAST_QPN || !is_of_partition(peek.pkey) {
            return count(&counts.strangers);
        }
        let flow = Flow::new(datagram.from, group.port.local());
        if flow.is_none_or(|flow| flow.check(datagram.nth, datagram.bytes).is_err()) {
            return count(&counts.bad_icrc);
        }
        let packet = codec::parse(datagram.bytes).ok();
        let datagrams = packet.and_then(|packet| Some((packet.headers.deth?.src_qpn, packet)));
        let Some((from, packet)) = datagrams else { return count(&counts.malformed) };
        let is_own = gid_of(datagram.from.ip()) == wire.gid;
        for member in group.members {
            if !(is_own && member.blocks(from)) {
                // The locks of members are taken one after the other.
                let mut held = None;
                let _nothing =
                    member.serve(&mut held, &packet, datagram, group.gid, shared, deferred);
            }
        }
        group.members.len()
    }
}
