//! Multicast groups on the network: groups of IP.
//!
//! A group has a socket as long as a queue pair of this process is attached to it. Datagrams to groups
//! all go over the network, those to members in this process and in others of the same address as well:
//! so each member gets one copy, whichever way its process shares the address.
//!
//! **Locks**: `changing` while a queue pair is attached or detached, then what receives, or the table of
//! groups; the latter also under what receives.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use roce_core::codec;
use roce_core::icrc::Flow;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::deferred_work::DeferredWork;
use crate::objects::address::{Gid, MULTICAST_QPN};
use crate::objects::state::{Device, Qp};
use crate::udp::{Datagram, Inbox, Port};
use crate::{errno, limits};

use super::device::UDP_PORT;
use super::packets::{add, is_of_partition};
use super::responder::Answering;
use super::state::{GroupSocket, GroupSockets, PacketFaults, Wire, gid_of, ip_of};

/// Groups whose sockets one look takes a batch of before others have their turn.
const READY: usize = 8;

impl GroupSockets {
    fn has(&self, gid: &Gid) -> bool {
        self.all.iter().any(|socket| socket.gid == *gid)
    }

    fn remove(&mut self, gid: &Gid) -> Option<Port> {
        let at = self.all.iter().position(|socket| socket.gid == *gid)?;
        let GroupSocket { port, dropped, .. } = self.all.swap_remove(at);
        self.dropped = self.dropped.wrapping_add(dropped);
        Some(port)
    }
}

/// The error of a verb.
fn code(errno: Errno) -> c_int {
    match errno {
        // The system's limit of memberships.
        Errno::NOBUFS => errno::ENOMEM,
        errno => errno.raw_os_error(),
    }
}

/// What names a socket among those that are ready: its descriptor, which it keeps as long as it is one of
/// them.
fn key(port: &Port) -> EventData {
    EventData::new_u64(port.as_fd().as_raw_fd().cast_unsigned().into())
}

impl Wire {
    /// Joins a group, unless this process has. `changing` is held.
    fn join(&self, gid: &Gid) -> Result<(), c_int> {
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
        let (to, local) = (SocketAddr::new(ip_of(gid), UDP_PORT), self.port.local().ip());
        let port = Port::join(to, local).map_err(code)?;
        let ready = self.ready_sockets().map_err(code)?;
        // A socket that is closed is among them no more.
        epoll::add(ready, &port, key(&port), EventFlags::IN).map_err(code)?;
        self.rx.lock().groups.all.push(GroupSocket { gid: *gid, port, dropped: 0, late: None });
        Ok(())
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

    /// Leaves a group that has no members in this process. `changing` is held. A queue pair that was detached
    /// before gets no packet any more when this returns, whether the group has members or not.
    fn leave_unused(&self, device: &Device, gid: &Gid) {
        let port = {
            let mut rx = self.rx.lock();
            if !device.members(gid).is_empty() {
                return;
            }
            rx.groups.remove(gid)
        };
        let (Some(port), Some(ready)) = (port, self.memberships.ready.get()) else { return };
        // A child of fork may have a copy of the socket, which would stay among those that are ready.
        let _ = epoll::delete(ready, &port);
        port.leave(self.port.local().ip());
    }
}

impl Qp {
    /// Attaches it to a group of the network. The errors are the kernel's, and those of joining.
    pub(crate) fn attach_on_wire(
        self: &Arc<Qp>,
        wire: &Wire,
        gid: Gid,
        lid: u16,
    ) -> Result<(), c_int> {
        self.can_attach_to(&gid)?;
        let _changing = wire.memberships.changing.lock();
        wire.join(&gid)?;
        let attached = self.attach_to_group(gid, lid);
        if attached.is_err() {
            wire.leave_unused(&self.pd.context.device, &gid);
        }
        attached.map(drop)
    }

    /// Ends an attachment to a group of the network.
    pub(crate) fn detach_on_wire(&self, wire: &Wire, gid: Gid, lid: u16) -> Result<(), c_int> {
        let _changing = wire.memberships.changing.lock();
        self.detach_from_group(gid, lid)?;
        wire.leave_unused(&self.pd.context.device, &gid);
        Ok(())
    }

    /// It is destroyed, and was a member of these groups.
    pub(crate) fn leave_on_wire(&self, groups: &[Gid]) {
        let device = &self.pd.context.device;
        let Some(wire) = device.wire().filter(|_| !groups.is_empty()) else { return };
        let _changing = wire.memberships.changing.lock();
        groups.iter().for_each(|gid| wire.leave_unused(device, gid));
    }

    /// Whether it is not to get a message that this device's queue pair `from` has sent.
    fn blocks(&self, from: u32) -> bool {
        self.blocks_own_multicast && self.num == from
    }
}

/// What takes packets: the inbox, and what the network does to them.
pub(super) type Intake<'r> = (&'r mut Inbox, &'r mut Option<PacketFaults>);

/// Takes what has come to groups; whether there may be more. Without groups there is nothing to look at.
pub(super) fn take_from_groups(
    device: &Device,
    wire: &Wire,
    groups: &mut GroupSockets,
    intake: Intake<'_>,
    (shared, deferred): (&mut Answering, &mut DeferredWork),
) -> bool {
    let Some(ready) = wire.memberships.ready.get().filter(|_| !groups.all.is_empty()) else {
        return false;
    };
    let (inbox, faults) = intake;
    let mut events = [MaybeUninit::<Event>::uninit(); READY];
    let at_once = Timespec::default();
    let Ok((events, _)) = epoll::wait(ready, &mut events, Some(&at_once)) else { return false };
    let mut has_more = events.len() == READY;
    for event in events {
        let data = event.data.u64();
        let Some(socket) = groups.all.iter_mut().find(|socket| key(&socket.port).u64() == data)
        else {
            continue;
        };
        // After an error, which an earlier packet has met, the next call is about the next one.
        let received = inbox.receive_apart(&socket.port, &mut socket.dropped);
        has_more |= received.is_ok() && inbox.is_full();
        let members = device.members(&socket.gid);
        let group = Group { members: &members, gid: socket.gid, port: &socket.port };
        let mut take = |datagram: &Datagram<'_>| {
            device.take_for_group(wire, &group, datagram, (&mut *shared, &mut *deferred));
        };
        let mut came = 0;
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
    }
    has_more
}

/// A group that packets have come to.
struct Group<'g> {
    members: &'g [Arc<Qp>],
    gid: Gid,
    port: &'g Port,
}

impl Device {
    /// Takes one packet to a group: each member that may have it gets a copy.
    fn take_for_group(
        &self,
        wire: &Wire,
        group: &Group<'_>,
        datagram: &Datagram<'_>,
        (shared, deferred): (&mut Answering, &mut DeferredWork),
    ) {
        let counts = &wire.counts;
        // Relaxed: statistics.
        let count = |which: &AtomicU64| {
            which.fetch_add(1, Ordering::Relaxed);
        };
        let Some(peek) = codec::peek(datagram.bytes) else { return count(&counts.malformed) };
        // Also one that names a queue pair, whichever its transport: it is not that one's address.
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
    }
}
