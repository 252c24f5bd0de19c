//! The header in front of the payload of a datagram.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::engine::responder::delivery::InboundRequest;
use crate::queues::address::{DatagramAddress, GidBytes};

/// Bytes in front of the payload of every received datagram.
pub(crate) const GRH_LEN: u32 = 40;

pub(crate) type GrhBytes = [u8; GRH_LEN as usize];

/// Addresses, traffic class and hop limit in the header of a datagram's packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramRoute {
    pub(crate) source: GidBytes,
    pub(crate) destination: GidBytes,
    pub(crate) class: u8,
    pub(crate) hops: u8,
}

/// The protocol behind the header of the network.
const UDP: u8 = 17;

/// The 40 bytes in front of the payload of a message: the header of the network's packet.
pub(super) fn grh(
    message: &InboundRequest<'_>,
    to: &DatagramAddress,
    source: GidBytes,
) -> GrhBytes {
    // The kernel's default, where the address handle leaves it open.
    let hops = if to.hop_limit == 0 { 64 } else { to.hop_limit };
    let route = DatagramRoute { source, destination: to.gid, class: to.traffic_class, hops };
    route.header(message.len, message.wqe.imm.is_some())
}

impl DatagramRoute {
    /// The 40 bytes in front of a payload of `len` bytes.
    pub(crate) fn header(&self, len: u64, has_imm: bool) -> GrhBytes {
        // UDP, base and datagram transport headers, the payload, and the checksum at the end.
        const AROUND: u32 = 8 + 12 + 8 + 4;
        let immediate = if has_imm { 4 } else { 0 };
        let behind = (AROUND + immediate + (len as u32).next_multiple_of(4)) as u16;
        let of = |gid: &GidBytes| Ipv6Addr::from(*gid).to_ipv4_mapped();
        match (of(&self.source), of(&self.destination)) {
            (Some(source), Some(destination)) => self.ipv4(behind, source, destination),
            _ => self.ipv6(behind),
        }
    }

    /// On RoCE v2 between IPv4 addresses, the header of the IPv4 packet is in the last 20 bytes,
    /// and the first 20 mean nothing (rxe, too, leaves them zero).
    fn ipv4(&self, behind: u16, source: Ipv4Addr, destination: Ipv4Addr) -> GrhBytes {
        const IPV4: usize = 20;
        let mut header = [0; GRH_LEN as usize];
        let ip = &mut header[IPV4..];
        // Version 4, five words, no options.
        ip[0] = 0x45;
        ip[1] = self.class;
        ip[2..4].copy_from_slice(&(IPV4 as u16 + behind).to_be_bytes());
        // Do not fragment.
        ip[6] = 0x40;
        ip[8] = self.hops;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&source.octets());
        ip[16..].copy_from_slice(&destination.octets());
        let checksum = internet_checksum(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    /// To a multicast group that is an IPv6 address, the packet is one of IPv6.
    fn ipv6(&self, behind: u16) -> GrhBytes {
        let mut ip = [0; GRH_LEN as usize];
        // Version 6, and no flow label.
        ip[..4].copy_from_slice(&(6 << 28 | u32::from(self.class) << 20).to_be_bytes());
        ip[4..6].copy_from_slice(&behind.to_be_bytes());
        ip[6] = UDP;
        ip[7] = self.hops;
        ip[8..24].copy_from_slice(&self.source);
        ip[24..].copy_from_slice(&self.destination);
        ip
    }
}

/// The checksum of RFC 1071 over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
