//! The header in front of the payload of a datagram.

use crate::engine::responder::delivery::Message;
use crate::limits;
use crate::objects::address::Address;

/// Bytes in front of the payload of every received datagram.
pub(super) const GRH_LEN: u32 = 40;

type Grh = [u8; GRH_LEN as usize];

/// The 40 bytes in front of the payload. On RoCE v2 between IPv4 addresses, the
/// header of the IPv4 packet is in the last 20, and the first 20 mean nothing
/// (rxe, too, leaves them zero).
pub(super) fn grh(message: &Message<'_>, to: &Address) -> Grh {
    const IPV4: usize = 20;
    /// UDP, base and datagram transport headers, and the checksum at the end.
    const AROUND: u32 = IPV4 as u32 + 8 + 12 + 8 + 4;
    let immediate = if message.wqe.imm.is_some() { 4 } else { 0 };
    let total = (AROUND + immediate + (message.len as u32).next_multiple_of(4)) as u16;
    let mut header = [0; GRH_LEN as usize];
    let ip = &mut header[IPV4..];
    // Version 4, five words, no options.
    ip[0] = 0x45;
    ip[1] = to.traffic_class;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // Do not fragment.
    ip[6] = 0x40;
    // The kernel's default, where the address handle leaves it open.
    ip[8] = if to.hop_limit == 0 { 64 } else { to.hop_limit };
    const UDP: u8 = 17;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&limits::GID[12..]);
    ip[16..].copy_from_slice(&to.gid[12..]);
    let checksum = internet_checksum(ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
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
