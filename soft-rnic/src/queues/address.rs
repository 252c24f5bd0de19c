//! Addresses: of datagrams, and what requests over XRC name.

use std::net::{Ipv4Addr, Ipv6Addr};

use verbs_sys::*;

use crate::limits;

/// The address of a port, or of a multicast group.
pub(crate) type GidBytes = [u8; 16];

/// The number of the queue pair that a message to a multicast group names.
pub(crate) const MULTICAST_QPN: u32 = 0x00ff_ffff;

/// Reports whether a GID is a multicast group's: an IPv6 address for multicast, or an IPv4 one that
/// is mapped.
pub(crate) fn is_multicast(gid: &GidBytes) -> bool {
    let address = Ipv6Addr::from(*gid);
    address.is_multicast() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_multicast())
}

/// Set in the Q_Key of a request, it asks for the sending queue pair's own one.
const OWN_QKEY: u32 = 1 << 31;

/// Destination of a datagram: the parts that the address handle has, and those that the request
/// adds. It is copied at the post; the handle may go then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DatagramAddress {
    /// GID of the port, or of a multicast group.
    pub(crate) gid: GidBytes,
    /// Number of the queue pair there; over XRC, of the shared receive queue.
    pub(crate) qpn: u32,
    /// As the request has it.
    pub(crate) qkey: u32,
    /// The domain of the address handle.
    pub(crate) pd: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

impl DatagramAddress {
    /// The address of a queue pair of a device with this GID, or of a group, for a datagram that
    /// carries its key.
    pub(crate) fn here(
        gid: GidBytes,
        qpn: u32,
        traffic_class: u8,
        hop_limit: u8,
    ) -> DatagramAddress {
        DatagramAddress { gid, qpn, traffic_class, hop_limit, ..DatagramAddress::default() }
    }

    /// The shared receive queue that a request over XRC names.
    pub(crate) fn of_srq(srqn: u32) -> DatagramAddress {
        DatagramAddress { qpn: srqn, ..DatagramAddress::default() }
    }

    /// Reports whether both lead to the same queue pair.
    #[inline]
    pub(crate) fn is_same_peer(&self, other: &DatagramAddress) -> bool {
        self.qpn == other.qpn && self.gid == other.gid
    }

    /// Reports whether it is a multicast group's: all queue pairs that are attached to it get a
    /// copy.
    #[inline]
    pub(crate) fn is_group(&self) -> bool {
        self.qpn == MULTICAST_QPN && is_multicast(&self.gid)
    }

    /// The key that the datagram carries, sent by a queue pair that has `own`.
    pub(crate) fn qkey(&self, own: u32) -> u32 {
        if self.qkey & OWN_QKEY != 0 { own } else { self.qkey }
    }
}

/// The condition of [`is_route`].
pub(crate) const ROUTE: &str = "the device's only port needs is_global 1, sgid_index 0, port_num 1 and the GID of a port or group";

/// True of an address vector that can be used on the port: RoCE needs the global route, to the
/// address of a port or group.
pub(crate) fn is_route(ah: &ibv_ah_attr) -> bool {
    // SAFETY: bytes, whichever member was written.
    let gid = unsafe { ah.grh.dgid.raw };
    let is_here = ah.grh.sgid_index == 0 && ah.port_num == limits::PORT;
    ah.is_global != 0 && is_here && (may_be_port(&gid) || is_multicast(&gid))
}

/// [`is_route`], to one port: a connection has one peer.
pub(crate) fn is_route_to_port(ah: &ibv_ah_attr) -> bool {
    // SAFETY: bytes, whichever member was written.
    is_route(ah) && may_be_port(unsafe { &ah.grh.dgid.raw })
}

/// True of a GID that one port can have. (The broadcast address of a subnet looks like any other
/// one: packets to it are refused by the kernel, because the sockets do not have `SO_BROADCAST`.)
fn may_be_port(gid: &GidBytes) -> bool {
    let address = Ipv6Addr::from(*gid);
    let is_none = |v4: Ipv4Addr| v4.is_unspecified() || v4.is_broadcast();
    !is_multicast(gid)
        && !address.is_unspecified()
        && !address.to_ipv4_mapped().is_some_and(is_none)
}

#[cfg(test)]
mod tests;
