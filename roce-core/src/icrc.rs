//! The invariant CRC: over what no router changes.
//!
//! It covers the IP and UDP headers with the fields that routers change set to ones, then the
//! packet, but for the reserved byte of the base transport header (which FECN and BECN are in):
//!
//! ```text
//!   | 8 bytes of ones | IP | UDP | BTH … padding |
//!                       |    |     '- reserved byte
//!                       |    '------- checksum
//!                       '------------ IPv4: TOS, TTL, checksum
//!                                     IPv6: traffic class, flow label, hop limit
//! ```
//!
//! It finds faults of memory and wires. It is no protection from an attacker: any sender can
//! compute it.
//!
//! # Sending over IPv4
//!
//! The CRC covers the identification, which the kernel chooses. On an unconnected socket with
//! `IP_PMTUDISC_DO` or `IP_PMTUDISC_PROBE`, Linux sends 0 with "don't fragment": give id 0. The
//! segments of a run that the kernel cuts (`UDP_SEGMENT`) have the ids 0, 1, 2 …: give segment k
//! id k, or let [`Flow::seal_run`] do so.
//!
//! # Receiving over IPv4
//!
//! A socket does not show the identification. But a CRC is linear: of all values of the word that
//! holds the identification and the flags, exactly one fits a packet's ICRC, and it is
//!
//! ```text
//!   word it was computed with XOR (received ICRC XOR computed ICRC) · x^-n mod P
//! ```
//!
//! where n is the number of bits from the word's end to the packet's, and 32 of the CRC itself.
//! [`Flow::check`] computes it. The 16 bits beside the identification can only be 0 or "don't
//! fragment": any other value says that the packet is wrong. **So a faulty packet passes with a
//! chance of 2^-15, or 2^-16 if [`Checked::V4::dont_fragment`] has to be set**, instead of 2^-32.
//! A caller that knows the identification (0, or the segments of a run) compares it, and has the
//! full check. IPv6 has no identification: the check is full.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crc32fast::Hasher;

use crate::lengths::{self, ICRC, MAX_PACKET, MIN_PACKET};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod polynomial;
#[cfg(test)]
mod tests;

/// Bytes of an IPv4 header without options, and a UDP header.
const V4: usize = 20 + UDP;
/// Bytes of an IPv6 header without extensions, and a UDP header.
const V6: usize = 40 + UDP;
const UDP: usize = 8;
/// The number of UDP among IP's protocols.
const PROTOCOL_UDP: u8 = 17;
/// The flags of an IPv4 header: don't fragment.
const DONT_FRAGMENT: u16 = 1 << 14;
/// The CRC-32 of eight bytes of ones, which stand where InfiniBand has a local route header.
const AFTER_ONES: u32 = 0x2144_df1c;
/// The byte of a base transport header that is not covered.
const RESERVED: usize = 4;

/// A length that no packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet has {MIN_PACKET} to {MAX_PACKET} bytes, a multiple of 4, not {len}")]
pub struct LenError {
    /// Bytes of the datagram.
    pub len: usize,
}

/// Reason for which a packet fails its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No packet has this length.
    #[error("{0}")]
    Len(LenError),
    /// The ICRC does not fit: the packet was changed on its way, or computed for other addresses
    /// (address translation).
    #[error("the ICRC does not fit the packet and its addresses")]
    Mismatch,
}

impl From<LenError> for CheckError {
    fn from(error: LenError) -> Self {
        Self::Len(error)
    }
}

/// Result of a check that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The ICRC fits with these fields of the IPv4 header.
    V4 {
        /// Identification.
        id: u16,
        /// Routers may not fragment the packet. Where the socket lets only such packets through,
        /// a caller drops others.
        dont_fragment: bool,
    },
    /// The ICRC fits.
    V6,
}

/// Source and destination of packets: the state of the CRC after the IP and UDP headers that all of
/// them share, with ones where the ICRC has ones. Flows that are equal have the same ICRCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(FlowCrc);

/// The CRC behind the headers with lengths of 0, and in IPv4 with id 0 and "don't fragment".
///
/// A CRC is linear: what the other lengths and the other identification change of it does not
/// depend on the rest of the headers, and is in tables. The reserved byte of a packet is undone in
/// the same way, so that the packet's bytes are read once, where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowCrc {
    V4(u32),
    V6(u32),
}

/// Changes that 16 bits at some place make to a CRC, by the value of each four of them, the lowest
/// first.
type Field = [[u32; 16]; 4];

/// IPv4: total length, identification, and UDP's length.
static V4_LEN: Field = field(2, V4);
static V4_ID: Field = field(4, V4);
static V4_UDP_LEN: Field = field(24, V4);
/// IPv6: the length of the payload, which is UDP's.
static V6_LEN: Field = {
    let (payload, udp) = (field(4, V6), field(44, V6));
    let mut both = payload;
    let mut at = 0;
    while at < 64 {
        both[at / 16][at % 16] ^= udp[at / 16][at % 16];
        at += 1;
    }
    both
};

/// Returns the changes of 16 bits, the higher eight first, `at` bytes from the start of headers of
/// `len` bytes.
const fn field(at: usize, len: usize) -> Field {
    let mut changes = [[0; 16]; 4];
    let mut n = 0;
    while n < 64 {
        let (nibble, value) = (n / 16, n as u32 % 16);
        let byte = value << (nibble % 2 * 4);
        changes[nibble][n % 16] = polynomial::pass_bytes(byte, len - at - 1 + nibble / 2);
        n += 1;
    }
    changes
}

#[inline]
fn change(of: &Field, value: u16) -> u32 {
    let value = usize::from(value);
    of[0][value & 15] ^ of[1][value >> 4 & 15] ^ of[2][value >> 8 & 15] ^ of[3][value >> 12]
}

/// Changes to a CRC, by a packet's reserved byte, that make the byte count as ones.
static AS_ONES: [u32; 256] = {
    let (mut changes, mut byte) = ([0; 256], 0);
    while byte < 256 {
        changes[byte] = polynomial::take_bytes(byte as u32 ^ 0xff, RESERVED);
        byte += 1;
    }
    changes
};

impl Flow {
    /// The flow between two sockets. IPv4-mapped IPv6 addresses are IPv4 addresses, as on the
    /// wire. `None` if the addresses are of two families.
    pub fn new(source: SocketAddr, dest: SocketAddr) -> Option<Self> {
        let udp = udp_header(source.port(), dest.port());
        match (source.ip().to_canonical(), dest.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                Some(Self(FlowCrc::V4(behind(&v4_headers(source, dest, udp)))))
            }
            (IpAddr::V6(source), IpAddr::V6(dest)) => {
                Some(Self(FlowCrc::V6(behind(&v6_headers(source, dest, udp)))))
            }
            _ => None,
        }
    }

    /// Writes the ICRC into the last four bytes of a packet, which is whole otherwise. In IPv4 it
    /// goes with this identification and "don't fragment". An error changes nothing.
    #[inline]
    pub fn seal(&self, id: u16, packet: &mut [u8]) -> Result<(), LenError> {
        let icrc = self.icrc(id, packet)?;
        if let Some(end) = packet.last_chunk_mut() {
            *end = icrc;
        }
        Ok(())
    }

    /// Seals packets that lie one behind the other, all but the last of `segment` bytes: the k-th
    /// with identification k, as the kernel cuts them (`UDP_SEGMENT`). An error changes nothing.
    pub fn seal_run(&self, segment: usize, run: &mut [u8]) -> Result<(), LenError> {
        let segment = check_len(segment)?;
        let (last, packets) = (run.len() % segment, run.len() / segment);
        if last != 0 {
            check_len(last)?;
        }
        if packets > usize::from(u16::MAX) {
            return Err(LenError { len: run.len() });
        }
        (0..).zip(run.chunks_mut(segment)).try_for_each(|(id, packet)| self.seal(id, packet))
    }

    /// Checks the ICRC of a received packet, from its base transport header to the ICRC.
    ///
    /// The identification that an IPv4 packet probably has (0, or the one after its
    /// predecessor's) makes the check cheaper if it is right, and has no influence otherwise.
    #[inline]
    pub fn check(&self, likely_id: u16, packet: &[u8]) -> Result<Checked, CheckError> {
        let difference = u32::from_le_bytes(self.icrc(likely_id, packet)?)
            ^ packet.last_chunk().map_or(0, |icrc| u32::from_le_bytes(*icrc));
        match self.0 {
            FlowCrc::V4(_) => {
                identify(difference, likely_id, packet.len()).ok_or(CheckError::Mismatch)
            }
            FlowCrc::V6(_) if difference == 0 => Ok(Checked::V6),
            FlowCrc::V6(_) => Err(CheckError::Mismatch),
        }
    }

    /// The ICRC of a packet whose last four bytes do not count.
    #[inline]
    fn icrc(&self, id: u16, packet: &[u8]) -> Result<[u8; ICRC], LenError> {
        let len = check_len(packet.len())?;
        let (packet, _icrc) = packet.split_last_chunk::<ICRC>().ok_or(LenError { len })?;
        let reserved = packet.get(RESERVED).ok_or(LenError { len })?;
        let mut icrc = Icrc::before(self, id, len as u16, *reserved);
        icrc.update(packet);
        Ok(icrc.finish())
    }
}

/// The CRC of headers, behind the ones.
fn behind(headers: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(AFTER_ONES);
    hasher.update(headers);
    hasher.finalize()
}

/// The length, if a packet can have it.
#[inline]
const fn check_len(len: usize) -> Result<usize, LenError> {
    if len < MIN_PACKET || len > MAX_PACKET || !len.is_multiple_of(4) {
        return Err(LenError { len });
    }
    Ok(len)
}

const fn udp_header(source: u16, dest: u16) -> [u8; UDP] {
    let ([source_0, source_1], [dest_0, dest_1]) = (source.to_be_bytes(), dest.to_be_bytes());
    [source_0, source_1, dest_0, dest_1, 0, 0, 0xff, 0xff]
}

fn v4_headers(source: Ipv4Addr, dest: Ipv4Addr, udp: [u8; UDP]) -> [u8; V4] {
    let mut bytes = [0xff; V4];
    // Version and length of the header; the type of service stays.
    bytes[0] = 0x45;
    // Total length, and identification.
    bytes[2..6].fill(0);
    bytes[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
    // Behind the time to live; the checksum stays.
    bytes[9] = PROTOCOL_UDP;
    bytes[12..16].copy_from_slice(&source.octets());
    bytes[16..20].copy_from_slice(&dest.octets());
    bytes[20..].copy_from_slice(&udp);
    bytes
}

fn v6_headers(source: Ipv6Addr, dest: Ipv6Addr, udp: [u8; UDP]) -> [u8; V6] {
    let mut bytes = [0xff; V6];
    // The version, before the first half of the traffic class.
    bytes[0] = 0x6f;
    // The length of the payload.
    bytes[4..6].fill(0);
    bytes[6] = PROTOCOL_UDP;
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..40].copy_from_slice(&dest.octets());
    bytes[40..].copy_from_slice(&udp);
    bytes
}

/// An ICRC that is computed piece by piece.
///
/// ```
/// use roce_core::{icrc::{Flow, Icrc}, lengths::MIN_PACKET};
///
/// let flow = Flow::new("10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?).ok_or("families")?;
/// let bth = [0x04, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 5];
/// let mut icrc = Icrc::new(&flow, 0, MIN_PACKET + 8, &bth)?;
/// icrc.update(b"in two ");
/// icrc.update(b"!");
/// let packet = [&bth[..], b"in two !", &icrc.finish()].concat();
/// assert!(flow.check(0, &packet).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with what precedes the packet, and its base transport header. `len` is the length
    /// of the whole packet, with the ICRC; `id` is the identification of IPv4, which goes with
    /// "don't fragment".
    #[inline]
    pub fn new(
        flow: &Flow,
        id: u16,
        len: usize,
        bth: &[u8; lengths::BTH],
    ) -> Result<Self, LenError> {
        let mut icrc = Self::before(flow, id, check_len(len)? as u16, bth[RESERVED]);
        icrc.update(bth);
        Ok(icrc)
    }

    /// Before the first byte of a packet that has this reserved byte.
    #[inline]
    fn before(flow: &Flow, id: u16, len: u16, reserved: u8) -> Self {
        let start = match flow.0 {
            FlowCrc::V4(start) => {
                start
                    ^ change(&V4_LEN, len + V4 as u16)
                    ^ change(&V4_ID, id)
                    ^ change(&V4_UDP_LEN, len + UDP as u16)
            }
            FlowCrc::V6(start) => start ^ change(&V6_LEN, len + UDP as u16),
        };
        Self(Hasher::new_with_initial(start ^ AS_ONES[usize::from(reserved)]))
    }

    /// Continues with more of the packet: further headers, payload, padding.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Continues with bytes of which the caller computes the CRC-32: `crc32` maps the CRC before
    /// them to the CRC after them.
    #[inline]
    pub fn update_by<E>(&mut self, crc32: impl FnOnce(u32) -> Result<u32, E>) -> Result<(), E> {
        let behind = crc32(self.0.clone().finalize())?;
        self.0 = Hasher::new_with_initial(behind);
        Ok(())
    }

    /// The four bytes at the end of the packet.
    #[inline]
    pub fn finish(self) -> [u8; ICRC] {
        self.0.finalize().to_le_bytes()
    }
}

/// Bytes from the end of the word with the identification to the packet.
const BEHIND_WORD: usize = V4 - 8;
const _: () = assert!((MAX_PACKET + BEHIND_WORD) / 4 < polynomial::MAX_WORDS);

/// Returns the identification and flags by which the ICRC of a packet of `len` bytes differs by
/// `difference` from that with `computed_id` and "don't fragment"; `None` if that takes flags that
/// no packet has.
#[inline]
fn identify(difference: u32, computed_id: u16, len: usize) -> Option<Checked> {
    // The ICRC in `len` stands for the 32 bits that a CRC shifts by itself.
    let word = polynomial::divide_by_words(difference, (len + BEHIND_WORD) / 4)?;
    let [id @ .., flags_0, flags_1] = word.to_le_bytes();
    let dont_fragment = match u16::from_be_bytes([flags_0, flags_1]) ^ DONT_FRAGMENT {
        DONT_FRAGMENT => true,
        0 => false,
        _ => return None,
    };
    Some(Checked::V4 { id: u16::from_be_bytes(id) ^ computed_id, dont_fragment })
}
