//! The header in front of the payload of a datagram.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::engine::responder::delivery::Message;
use crate::limits;
use crate::objects::address::Address;

/// Bytes in front of the payload of every received datagram.
pub(super) const GRH_LEN: u32 = 40;

type Grh = [u8; GRH_LEN as usize];

/// Bytes of a datagram's packet behind the header of its network: UDP, base and datagram transport
/// headers, the payload, and the checksum at the end.
fn behind_ip(message: &Message<'_>) -> u16 {
    const AROUND: u32 = 8 + 12 + 8 + 4;
    let immediate = if message.wqe.imm.is_some() { 4 } else { 0 };
    (AROUND + immediate + (message.len as u32).next_multiple_of(4)) as u16
}

/// The protocol behind the header of the network.
const UDP: u8 = 17;

/// The 40 bytes in front of the payload: the header of the network's packet.
pub(super) fn grh(message: &Message<'_>, to: &Address) -> Grh {
    // The kernel's default, where the address handle leaves it open.
    let hop_limit = if to.hop_limit == 0 { 64 } else { to.hop_limit };
    match Ipv6Addr::from(to.gid).to_ipv4_mapped() {
        Some(destination) => ipv4(message, to, hop_limit, destination),
        None => ipv6(message, to, hop_limit),
    }
}

/// On RoCE v2 between IPv4 addresses, the header of the IPv4 packet is in the last 20 bytes, and
/// the first 20 mean nothing (rxe, too, leaves them zero).
fn ipv4(message: &Message<'_>, to: &Address, hop_limit: u8, destination: Ipv4Addr) -> Grh {
    const IPV4: usize = 20;
    let total = IPV4 as u16 + behind_ip(message);
    let mut header = [0; GRH_LEN as usize];
    let ip = &mut header[IPV4..];
    // Version 4, five words, no options.
    ip[0] = 0x45;
    ip[1] = to.traffic_class;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // Do not fragment.
    ip[6] = 0x40;
    ip[8] = hop_limit;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&limits::GID[12..]);
    ip[16..].copy_from_slice(&destination.octets());
    let checksum = internet_checksum(ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// To a multicast group that is an IPv6 address, the packet is one of IPv6.
fn ipv6(message: &Message<'_>, to: &Address, hop_limit: u8) -> Grh {
    let mut ip = [0; GRH_LEN as usize];
    // Version 6, and no flow label.
    ip[..4].copy_from_slice(&(6 << 28 | u32::from(to.traffic_class) << 20).to_be_bytes());
    ip[4..6].copy_from_slice(&behind_ip(message).to_be_bytes());
    ip[6] = UDP;
    ip[7] = hop_limit;
    ip[8..24].copy_from_slice(&limits::GID);
    ip[24..].copy_from_slice(&to.gid);
    ip
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
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&bytes), !0xddf2);
    }
}
