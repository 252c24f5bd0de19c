//! Packets as bytes: what a UDP datagram carries.
//!
//! ```text
//!   | BTH 12 | extended headers 0 to 28 | payload | padding 0 to 3 | ICRC 4 |
//!   |<--------- Headers --------------->|
//! ```
//!
//! [`parse`] does not look at the [ICRC](crate::icrc): check that first.

use crate::headers::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Headers, Ieth, ImmDt, Reth, Syndrome, TVER,
};
use crate::lengths::{self, ICRC, MAX_HEADERS, MAX_PACKET, MAX_PAYLOAD, MIN_PACKET, PATH_MTUS};
use crate::opcode::{Opcode, PayloadRule};
use crate::psn::Psn;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;
mod write;

pub use write::{WriteError, write};

/// A packet as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Headers before the payload.
    pub headers: Headers,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

/// Reason why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// There is no room for a base transport header and an ICRC.
    #[error("a packet of {len} bytes is shorter than {MIN_PACKET}")]
    Truncated {
        /// Bytes of the datagram.
        len: usize,
    },
    /// More bytes than any packet has.
    #[error("a packet of {len} bytes is longer than {MAX_PACKET}")]
    TooLong {
        /// Bytes of the datagram.
        len: usize,
    },
    /// The length is no multiple of four.
    #[error("the length of a packet, {len}, is no multiple of 4")]
    NotWords {
        /// Bytes of the datagram.
        len: usize,
    },
    /// The transport header version is unknown.
    #[error("transport header version {0} is not {TVER}")]
    Version(u8),
    /// The opcode is reserved, or of a transport that is not spoken here.
    #[error("opcode {0:#04x} is unknown")]
    UnknownOpcode(u8),
    /// The headers that the opcode asks for do not fit.
    #[error(
        "a packet of {len} bytes has no room for the {} bytes of headers of {opcode}",
        .opcode.header_len()
    )]
    HeadersTruncated {
        /// The opcode.
        opcode: Opcode,
        /// Bytes of the datagram.
        len: usize,
    },
    /// There is more padding than there are bytes behind the headers.
    #[error("{pad} bytes of padding are more than the {len} bytes there are")]
    Padding {
        /// The padding.
        pad: u8,
        /// Bytes of payload and padding.
        len: usize,
    },
    /// The opcode does not permit a payload of this length.
    #[error("{opcode} does not permit a payload of {len} bytes")]
    PayloadLen {
        /// The opcode.
        opcode: Opcode,
        /// Bytes without padding.
        len: usize,
    },
    /// The syndrome of an acknowledgement is reserved.
    #[error("AETH syndrome {0:#04x} is reserved")]
    UnknownSyndrome(u8),
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
    let bth = packet.first_chunk()?;
    Some(Peek {
        opcode: bth[0],
        pkey: u16::from_be_bytes([bth[2], bth[3]]),
        dest_qpn: qpn_of(bth),
        psn: psn_of(bth),
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
    let headers_truncated = ParseError::HeadersTruncated { opcode: bth.opcode, len };
    if lengths::BTH + body.len() < bth.opcode.header_len() {
        return Err(headers_truncated);
    }
    let mut reader = HeaderReader(body);
    let headers =
        reader.headers(bth).ok_or(headers_truncated)?.map_err(ParseError::UnknownSyndrome)?;
    Ok(Packet { headers, payload: payload_of(&bth, reader.0)? })
}

fn bth_of(bytes: &[u8; lengths::BTH]) -> Result<Bth, ParseError> {
    let flags = bytes[1];
    let tver = flags & 0x0f;
    if tver != TVER {
        return Err(ParseError::Version(tver));
    }
    Ok(Bth {
        opcode: Opcode::from_u8(bytes[0]).ok_or(ParseError::UnknownOpcode(bytes[0]))?,
        solicited: flags & 1 << 7 != 0,
        mig_req: flags & 1 << 6 != 0,
        pad: flags >> 4 & 3,
        tver,
        pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
        fecn: bytes[4] & 1 << 7 != 0,
        becn: bytes[4] & 1 << 6 != 0,
        dest_qpn: qpn_of(bytes),
        ack_req: bytes[8] & 1 << 7 != 0,
        psn: psn_of(bytes),
    })
}

fn qpn_of(bth: &[u8; lengths::BTH]) -> u32 {
    u32::from_be_bytes([0, bth[5], bth[6], bth[7]])
}

fn psn_of(bth: &[u8; lengths::BTH]) -> Psn {
    Psn::new(u32::from_be_bytes([0, bth[9], bth[10], bth[11]]))
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

/// Bytes that have not been read yet.
struct HeaderReader<'a>(&'a [u8]);

/// Each header, or `None` if there are not enough bytes.
impl HeaderReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// All headers of an opcode, or the syndrome that is none.
    fn headers(&mut self, bth: Bth) -> Option<Result<Headers, u8>> {
        let opcode = bth.opcode;
        let mut headers = Headers::new(bth);
        if opcode.has_deth() {
            headers.deth = Some(self.deth()?);
        }
        if opcode.has_reth() {
            headers.reth = Some(self.reth()?);
        }
        if opcode.has_atomic_eth() {
            headers.atomic = Some(self.atomic_eth()?);
        }
        if opcode.has_aeth() {
            match self.aeth()? {
                Ok(aeth) => headers.aeth = Some(aeth),
                Err(value) => return Some(Err(value)),
            }
        }
        if opcode.has_atomic_ack_eth() {
            headers.atomic_ack = Some(AtomicAckEth { original: self.u64()? });
        }
        if opcode.has_imm() {
            headers.imm = Some(ImmDt(self.u32()?));
        }
        if opcode.has_ieth() {
            headers.ieth = Some(Ieth { rkey: self.u32()? });
        }
        if opcode == Opcode::Cnp {
            self.take::<{ lengths::CNP_RESERVED }>()?;
        }
        Some(Ok(headers))
    }

    fn deth(&mut self) -> Option<Deth> {
        Some(Deth { qkey: self.u32()?, src_qpn: self.u32()? & 0xff_ffff })
    }

    fn reth(&mut self) -> Option<Reth> {
        Some(Reth { va: self.u64()?, rkey: self.u32()?, len: self.u32()? })
    }

    fn atomic_eth(&mut self) -> Option<AtomicEth> {
        Some(AtomicEth {
            va: self.u64()?,
            rkey: self.u32()?,
            swap_add: self.u64()?,
            compare: self.u64()?,
        })
    }

    fn aeth(&mut self) -> Option<Result<Aeth, u8>> {
        let [value, msn @ ..]: [u8; lengths::AETH] = self.take()?;
        let msn = u32::from_be_bytes([0, msn[0], msn[1], msn[2]]);
        let aeth = Syndrome::from_u8(value).map(|syndrome| Aeth { syndrome, msn });
        Some(aeth.ok_or(value))
    }
}
