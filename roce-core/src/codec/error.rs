//! Reasons why bytes are refused.

use crate::headers::TVER;
use crate::lengths::{MAX_PACKET, MIN_PACKET};
use crate::opcode::Opcode;

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
