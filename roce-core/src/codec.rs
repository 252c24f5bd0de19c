//! Packets as bytes: what a UDP datagram carries.
//!
//! ```text
//!   | BTH 12 | extended headers 0 to 28 | payload | padding 0 to 3 | ICRC 4 |
//!   |<--------- Headers --------------->|
//! ```
//!
//! [`parse`] does not look at the [ICRC](crate::icrc): check that first.

use crate::headers::{Bth, Headers, TVER};
use crate::lengths::{self, BITS_24, ICRC, MAX_HEADERS, MAX_PACKET, MAX_PAYLOAD, PATH_MTUS};
use crate::opcode::{Opcode, PayloadRule};
use crate::psn::Psn;

mod error;
mod extended;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;
mod write;

pub use error::ParseError;
use extended::HeaderReader;
pub use write::{WriteError, write};

/// A packet as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Headers before the payload.
    pub headers: Headers,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

impl ParseError {
    /// Reports whether a responder of RC answers a request like this with
    /// [`NakCode::InvalidRequest`](crate::headers::NakCode::InvalidRequest), if [`peek`] shows the
    /// number that it expects. All other packets are dropped.
    pub const fn is_invalid_request(self) -> bool {
        match self {
            Self::UnknownOpcode(_)
            | Self::HeadersTruncated { .. }
            | Self::Padding { .. }
            | Self::PayloadLen { .. } => true,
            Self::Truncated { .. }
            | Self::TooLong { .. }
            | Self::NotWords { .. }
            | Self::Version(_)
            | Self::UnknownSyndrome(_) => false,
        }
    }
}

/// Fields of the base transport header of a packet that may be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The opcode's value, known or not.
    pub opcode: u8,
    /// Partition key.
    pub pkey: u16,
    /// The queue pair that the packet is for.
    pub dest_qpn: u32,
    /// The packet's number.
    pub psn: Psn,
}

/// Reads the base transport header only: to steer packets to queue pairs, and to answer those
/// that [`parse`] refuses. `None` if there is none.
#[inline]
pub fn peek(packet: &[u8]) -> Option<Peek> {
    let [first, second, third] = words_of(packet.first_chunk()?);
    Some(Peek {
        opcode: (first >> 24) as u8,
        pkey: first as u16,
        dest_qpn: second & BITS_24,
        psn: Psn::new(third),
    })
}

/// Parses a datagram, from the base transport header to the ICRC.
///
/// ```
/// use roce_core::{codec::parse, headers::Syndrome, opcode::Opcode};
///
/// let mut packet = [0; 20];
/// packet[..12].copy_from_slice(&[0x11, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 5]);
/// packet[12..16].copy_from_slice(&[0x1f, 0, 0, 6]); // and the ICRC
/// let ack = parse(&packet)?;
/// assert_eq!(ack.headers.bth.opcode, Opcode::RcAck);
/// assert_eq!(ack.headers.bth.dest_qpn, 17);
/// assert_eq!(ack.headers.aeth.map(|aeth| aeth.syndrome), Some(Syndrome::ACK));
/// assert_eq!(ack.payload, []);
/// # Ok::<(), roce_core::codec::ParseError>(())
/// ```
#[inline]
pub fn parse(packet: &[u8]) -> Result<Packet<'_>, ParseError> {
    let len = packet.len();
    match len {
        _ if len > MAX_PACKET => return Err(ParseError::TooLong { len }),
        _ if !len.is_multiple_of(4) => return Err(ParseError::NotWords { len }),
        _ => {}
    }
    let truncated = ParseError::Truncated { len };
    let (bth, rest) = packet.split_first_chunk().ok_or(truncated)?;
    let (body, _icrc) = rest.split_last_chunk::<ICRC>().ok_or(truncated)?;
    let bth = bth_of(bth)?;
    let truncated = ParseError::HeadersTruncated { opcode: bth.opcode, len };
    if lengths::BTH + body.len() < bth.opcode.header_len() {
        return Err(truncated);
    }
    let mut reader = HeaderReader { bytes: body, truncated };
    let headers = reader.headers(bth)?;
    Ok(Packet { headers, payload: payload_of(&bth, reader.bytes)? })
}

fn bth_of(bytes: &[u8; lengths::BTH]) -> Result<Bth, ParseError> {
    let [first, second, third] = words_of(bytes);
    let (opcode, tver) = ((first >> 24) as u8, (first >> 16 & 15) as u8);
    if tver != TVER {
        return Err(ParseError::Version(tver));
    }
    Ok(Bth {
        opcode: Opcode::from_u8(opcode).ok_or(ParseError::UnknownOpcode(opcode))?,
        solicited: first & 1 << 23 != 0,
        mig_req: first & 1 << 22 != 0,
        pad: (first >> 20 & 3) as u8,
        tver,
        pkey: first as u16,
        fecn: second & 1 << 31 != 0,
        becn: second & 1 << 30 != 0,
        dest_qpn: second & BITS_24,
        ack_req: third & 1 << 31 != 0,
        psn: Psn::new(third),
    })
}

/// The words of a base transport header.
#[inline]
fn words_of(bth: &[u8; lengths::BTH]) -> [u32; 3] {
    let word = |at: usize| u32::from_be_bytes([bth[at], bth[at + 1], bth[at + 2], bth[at + 3]]);
    [word(0), word(4), word(8)]
}

/// Takes the padding away, and judges the length of what is left.
fn payload_of<'a>(bth: &Bth, padded: &'a [u8]) -> Result<&'a [u8], ParseError> {
    let (pad, len) = (bth.pad, padded.len());
    let len = len.checked_sub(pad.into()).ok_or(ParseError::Padding { pad, len })?;
    if !permits(bth.opcode.payload_rule(), len) {
        return Err(ParseError::PayloadLen { opcode: bth.opcode, len });
    }
    Ok(&padded[..len])
}

/// Reports whether a rule permits a length at some path MTU: only the queue pair knows its own.
fn permits(rule: PayloadRule, len: usize) -> bool {
    match rule {
        PayloadRule::Empty => len == 0,
        PayloadRule::UpToMtu => len <= MAX_PAYLOAD,
        PayloadRule::Rest => (1..=MAX_PAYLOAD).contains(&len),
        PayloadRule::Mtu => PATH_MTUS.contains(&len),
        PayloadRule::AtomicWrite => len == lengths::ATOMIC_WRITE,
    }
}
