//! Conditions that hold for every ICRC: computed bit by bit, over the datagram as it is routed.

use core::net::{IpAddr, SocketAddr};
use std::vec::Vec;

use super::{CheckError, Checked, Flow, Icrc};
use crate::UDP_PORT;
use crate::lengths::{ICRC, MAX_PACKET, MIN_PACKET};

/// Source and destination of a packet.
pub type Sockets = (SocketAddr, SocketAddr);

/// The IPv4 or IPv6 datagram of a packet, with arbitrary values where routers may change it.
#[derive(Clone, Copy, Debug)]
pub struct Routed {
    /// Identification, of IPv4.
    pub id: u16,
    /// Flags and fragment offset, of IPv4: 0x4000 is "don't fragment".
    pub flags: u16,
    /// TOS, TTL, checksums, flow label, hop limit.
    pub varying: [u8; 4],
}

/// Puts the IP and UDP headers before a packet.
pub fn datagram(flow: Sockets, routed: Routed, packet: &[u8]) -> Vec<u8> {
    let (source, dest) = flow;
    let [a, b, c, d] = routed.varying;
    let udp_len = (packet.len() as u16 + 8).to_be_bytes();
    let mut bytes = match (source.ip(), dest.ip()) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            let total = (packet.len() as u16 + 28).to_be_bytes();
            let (id, flags) = (routed.id.to_be_bytes(), routed.flags.to_be_bytes());
            let start =
                [0x45, a, total[0], total[1], id[0], id[1], flags[0], flags[1], b, 17, c, d];
            [&start[..], &source.octets(), &dest.octets()].concat()
        }
        (IpAddr::V6(source), IpAddr::V6(dest)) => {
            let start = [0x60 | a >> 4, b, c, d, udp_len[0], udp_len[1], 17, a];
            [&start[..], &source.octets(), &dest.octets()].concat()
        }
        _ => panic!("addresses of two families"),
    };
    bytes.extend(source.port().to_be_bytes());
    bytes.extend(dest.port().to_be_bytes());
    bytes.extend([udp_len[0], udp_len[1], c, d]);
    bytes.extend(packet);
    bytes
}

/// The ICRC of a whole IP datagram, whose last four bytes do not count: masked in place, and bit
/// by bit.
pub fn slow_icrc(datagram: &[u8]) -> [u8; ICRC] {
    let mut bytes = datagram[..datagram.len() - ICRC].to_vec();
    let udp = match bytes[0] >> 4 {
        4 => {
            for at in [1, 8, 10, 11] {
                bytes[at] = 0xff;
            }
            20
        }
        _ => {
            bytes[0] |= 0x0f;
            for at in [1, 2, 3, 7] {
                bytes[at] = 0xff;
            }
            40
        }
    };
    for at in [udp + 6, udp + 7, udp + 8 + 4] {
        bytes[at] = 0xff;
    }
    let mut crc = u32::MAX;
    for byte in [0xff; 8].into_iter().chain(bytes) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    (!crc).to_le_bytes()
}

/// Seals a packet at the sender, and checks it at the receiver as it was routed. Panics when the
/// ICRC is not that of [`slow_icrc`], in one piece or in two, or when the receiver finds another
/// identification. `packet` is longer than a base transport header and an ICRC.
pub fn check_sealing(flow: Sockets, routed: Routed, packet: &[u8], cut: usize) {
    let mut packet = packet.to_vec();
    let known = Flow::new(flow.0, flow.1).expect("one family");
    let expected = slow_icrc(&datagram(flow, routed, &packet));
    let is_sent_so = flow.0.is_ipv6() || routed.flags == 0x4000;
    if is_sent_so {
        known.seal(routed.id, &mut packet).expect("a packet");
        assert_eq!(packet.last_chunk(), Some(&expected));
        let (bth, rest) = packet.split_first_chunk().expect("a packet");
        let mut icrc = Icrc::new(&known, routed.id, packet.len(), bth).expect("a packet");
        let (first, second) = rest[..rest.len() - ICRC].split_at(cut % (rest.len() - ICRC + 1));
        icrc.update(first);
        icrc.update(second);
        assert_eq!(icrc.finish(), expected);
    }
    let at = packet.len() - ICRC;
    packet[at..].copy_from_slice(&expected);
    let checked = match routed.flags {
        _ if flow.0.is_ipv6() => Ok(Checked::V6),
        0x4000 => Ok(Checked::V4 { id: routed.id, dont_fragment: true }),
        0 => Ok(Checked::V4 { id: routed.id, dont_fragment: false }),
        _ => Err(CheckError::Mismatch),
    };
    for likely_id in [0, routed.id, routed.id.wrapping_sub(1)] {
        assert_eq!(known.check(likely_id, &packet), checked);
    }
}

/// Seals and checks arbitrary bytes, if there are as many as a packet has, over both versions of
/// IP. What else the IP headers hold is taken from them, too.
pub fn check_bytes(bytes: &[u8]) {
    let flows: [Sockets; 2] = [
        (([10, 0, 0, 1], 49_152).into(), ([10, 0, 0, 2], UDP_PORT).into()),
        (([0xfd; 16], 49_152).into(), ([0xfc; 16], UDP_PORT).into()),
    ];
    for flow in flows {
        if check_len(flow, bytes) {
            let [id_0, id_1, flags, varying @ ..]: [u8; 7] =
                *bytes.first_chunk().expect("a packet is longer");
            let id = u16::from_be_bytes([id_0, id_1]);
            let routed = Routed { id, flags: u16::from(flags) << 8, varying };
            check_sealing(flow, routed, bytes, id.into());
        }
    }
}

/// Reports whether an ICRC exists for this number of bytes. Panics if the check decides otherwise.
fn check_len(flow: Sockets, bytes: &[u8]) -> bool {
    let is_packet =
        (MIN_PACKET..=MAX_PACKET).contains(&bytes.len()) && bytes.len().is_multiple_of(4);
    let checked = Flow::new(flow.0, flow.1).expect("one family").check(0, bytes);
    assert_eq!(matches!(checked, Err(CheckError::Len(_))), !is_packet);
    is_packet
}
