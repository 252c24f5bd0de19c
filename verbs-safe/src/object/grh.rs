//! Global route headers: the first bytes of every datagram's buffer.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes in front of every datagram (verbs.h, `struct ibv_grh`).
pub(crate) const GRH_BYTES: usize = 40;

/// Offset of the IPv4 header of RoCE v2, which lies at the end.
const V4_AT: usize = 20;

/// The route header that arrived with a datagram, as far as it could be understood.
///
/// It has one of two forms (IBTA, annexes 16 and 17): an IPv6 header, which InfiniBand's
/// own is, or 20 bytes without meaning and an IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grh {
    /// The sender's GID.
    pub source: [u8; 16],
    /// The GID that it was sent to.
    pub destination: [u8; 16],
    /// The traffic class.
    pub traffic_class: u8,
    /// The flow label (20 bits); 0 over IPv4.
    pub flow_label: u32,
    /// Hops that it may still have had.
    pub hop_limit: u8,
    /// True if it is an IPv4 header.
    pub is_v4: bool,
}

impl Grh {
    /// Reads a header; `None` if it is neither of the two.
    ///
    /// Where both could be, the checksum of the IPv4 header decides.
    ///
    /// ```
    /// let mut bytes = [0; 40];
    /// bytes[20] = 0x45; // version 4, 5 words
    /// bytes[32..36].copy_from_slice(&[10, 0, 0, 1]);
    /// let grh = verbs_safe::Grh::parse(&bytes).expect("an IPv4 header");
    /// assert_eq!(grh.source[12..], [10, 0, 0, 1]);
    /// ```
    #[must_use]
    pub fn parse(bytes: &[u8; GRH_BYTES]) -> Option<Grh> {
        let (v6, v4) = (bytes[0] >> 4 == 6, bytes[V4_AT] == 0x45);
        match (v6, v4) {
            (true, true) if checksum(&bytes[V4_AT..]) == 0xffff => Some(Grh::parse_ipv4(bytes)),
            (true, _) => Some(Grh::parse_ipv6(bytes)),
            (false, true) => Some(Grh::parse_ipv4(bytes)),
            (false, false) => None,
        }
    }

    fn parse_ipv6(bytes: &[u8; GRH_BYTES]) -> Grh {
        let [a, b, c, d, _, _, _, hop_limit, ..] = *bytes;
        let first = u32::from_be_bytes([a, b, c, d]);
        Grh {
            source: array(&bytes[8..24]),
            destination: array(&bytes[24..40]),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit,
            is_v4: false,
        }
    }

    fn parse_ipv4(bytes: &[u8; GRH_BYTES]) -> Grh {
        let header = &bytes[V4_AT..];
        Grh {
            source: mapped(array(&header[12..16])),
            destination: mapped(array(&header[16..20])),
            traffic_class: header[1],
            flow_label: 0,
            hop_limit: header[8],
            is_v4: true,
        }
    }

    /// Reports whether the datagram was sent to a multicast group.
    pub(crate) fn is_multicast(&self) -> bool {
        let destination = Ipv6Addr::from(self.destination);
        destination.is_multicast()
            || destination.to_ipv4_mapped().is_some_and(|v4| v4.is_multicast())
    }
}

/// The first bytes of `bytes`, which has as many.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes[i])
}

/// An IPv4 address as a GID.
fn mapped(address: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// The internet checksum's sum (RFC 1071): all ones over a header that is whole.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
