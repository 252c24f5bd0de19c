//! The bytes of connection set-up: versioned, bounded, parsed without trust.
//!
//! The two ends exchange frames over any byte stream. The initiator speaks first:
//!
//! ```text
//!   initiator                 acceptor
//!      | ------- Hello ---------> |
//!      | <------ Accept --------- |   or Refuse, and the end
//!      | ------- Ready ---------> |   messages may flow both ways
//! ```
//!
//! The acceptor connects its queue pairs and posts its receives before it accepts, so
//! the initiator may send as soon as it has connected its own; Ready tells the acceptor
//! that it may.
//!
//! A frame is a header and a body; all integers are little-endian:
//!
//! | bytes | header |
//! |---|---|
//! | 8 | magic, `RDMACONN` |
//! | 2 | version, 1 |
//! | 1 | kind: 1 Hello, 2 Accept, 3 Refuse, 4 Ready |
//! | 1 | 0 |
//! | 4 | length of the body, at most [`MAX_BODY`] |
//!
//! | bytes | body of Hello and Accept |
//! |---|---|
//! | 1 | protocol |
//! | 1 | flags: bit 0, initiator to acceptor exists; bit 1, acceptor to initiator |
//! | 1 | path MTU: 1 for 256 bytes … 5 for 4096, as in the verbs |
//! | 1 | options: bit 0, messages of this end are packed; bit 1, no credits |
//! | 2 | LID of the port |
//! | 2 | length of the application data, at most [`MAX_APPLICATION`] |
//! | 16 | GID of the port |
//! | 16 | endpoint of initiator to acceptor, if it exists |
//! | 16 | endpoint of acceptor to initiator, if it exists |
//! | … | application data |
//!
//! | bytes | endpoint |
//! |---|---|
//! | 4 | queue pair number, 24 bits |
//! | 4 | first packet sequence number, 24 bits |
//! | 4 | receives posted for data: the peer's window, in messages |
//! | 4 | longest message, in bytes |
//!
//! | bytes | body of Refuse |
//! |---|---|
//! | 2 | reason |
//! | 1 | length of the text, at most [`MAX_TEXT`] |
//! | 1 | 0 |
//! | … | text, UTF-8 |
//!
//! The body of Ready is empty. The reader checks magic and version as soon as their bytes
//! are there, and the length before any of the body. So it refuses a client of another
//! protocol at once, and no client can make it wait for, or store, more than
//! [`MAX_FRAME`] bytes.

use core::fmt;

use crate::wire::{Wire, codes, fields};

mod decode;
mod encode;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

pub use decode::{DecodeError, Decoded, decode};
pub use encode::EncodeError;

/// The first bytes of every frame.
pub const MAGIC: [u8; 8] = *b"RDMACONN";
/// The version of this format.
pub const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = Header::LEN;
/// The longest body that any version may use, in bytes.
pub const MAX_BODY: usize = 2048;
/// The longest frame, in bytes.
pub const MAX_FRAME: usize = HEADER_LEN + MAX_BODY;
/// The longest application data, in bytes.
pub const MAX_APPLICATION: usize = 512;
/// The longest text of a refusal, in bytes.
pub const MAX_TEXT: usize = 255;

/// Magic, version, kind, zero, length of the body.
type Header = ([u8; 8], u16, u8, u8, u32);
/// Protocol, flags, MTU, options; LID, length of the application data, GID.
type ParameterFields = (u8, u8, u8, u8, u16, u16, [u8; 16]);
/// Reason, length of the text, zero.
type RefusalFields = (u16, u8, u8);

const PARAMETERS_LEN: usize = ParameterFields::LEN;
const ENDPOINT_LEN: usize = Endpoint::LEN;
const REFUSAL_LEN: usize = RefusalFields::LEN;
/// Queue pair numbers and packet sequence numbers have 24 bits.
const BITS_24: u32 = (1 << 24) - 1;

const HELLO: u8 = 1;
const ACCEPT: u8 = 2;
const REFUSE: u8 = 3;
const READY: u8 = 4;

/// Protocol of the new connection. Unknown ones are decoded, so that they can be refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolId(pub u8);

impl ProtocolId {
    /// Send/Receive. The other numbers are reserved for the other connections.
    pub const SEND_RECV: Self = Self(1);
    /// Buffered Read ([`ring::offer`](crate::ring::offer)).
    pub const BUFFERED_READ: Self = Self(2);
    /// Buffered Write ([`ring::offer`](crate::ring::offer)).
    pub const BUFFERED_WRITE: Self = Self(3);
    /// Direct Read ([`direct_read`](crate::direct_read)).
    pub const DIRECT_READ: Self = Self(4);
    /// Direct Write ([`direct_write`](crate::direct_write)).
    pub const DIRECT_WRITE: Self = Self(6);
    /// Shared Write ([`shared_write`](crate::shared_write)).
    pub const SHARED_WRITE: Self = Self(7);
    /// Multicast: a group of members.
    pub const MULTICAST: Self = Self(5);
    /// No connection: raw queue pairs ([`raw`](crate::raw)).
    pub const RAW: Self = Self(255);
    /// The first of the numbers, up to 254, of protocols that are defined elsewhere: their users
    /// see to it that no two mean the same number.
    pub const PRIVATE: Self = Self(128);
}

/// The path MTU, numbered as in the verbs (`IBV_MTU_256` …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

codes! { Mtu { B256, B512, B1024, B2048, B4096 } }

impl Mtu {
    /// Its size, in bytes.
    ///
    /// ```
    /// # use conn_core::handshake::Mtu;
    /// assert_eq!(Mtu::from_code(5).unwrap().bytes(), 4096);
    /// ```
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }
}

/// Options of an end for the use of the connection, one bit each. Unknown bits are decoded, so that
/// they can be refused by name.
///
/// ```
/// # use conn_core::handshake::Options;
/// let options = Options::PACKED.with(Options(0x40));
/// assert!(options.contains(Options::PACKED) && !options.contains(Options::NO_CREDITS));
/// assert_eq!(options.unknown(), Some(0x40));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options(pub u8);

impl Options {
    /// Nothing out of the ordinary.
    pub const NONE: Self = Self(0);
    /// The messages that this end sends are packed ([`pack`](crate::pack)).
    pub const PACKED: Self = Self(1);
    /// No credits: the uncontrolled mode, which both ends have to want.
    pub const NO_CREDITS: Self = Self(2);
    /// The messages that this end receives go into buffers that it shares among
    /// connections: its window is one buffer of the connection's own and the largest
    /// [`loan`](crate::loan).
    pub const LOANS: Self = Self(4);

    /// These and those.
    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Reports whether all of `options` are among these.
    pub const fn contains(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }

    /// The bits that this version does not know, if there are any.
    pub const fn unknown(self) -> Option<u8> {
        match self.0 & !(Self::PACKED.0 | Self::NO_CREDITS.0 | Self::LOANS.0) {
            0 => None,
            bits => Some(bits),
        }
    }
}

/// One end of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Queue pair number, 24 bits.
    pub qp_num: u32,
    /// First packet sequence number, 24 bits.
    pub psn: u32,
    /// Receives posted for data before set-up ends: the peer's window, in messages.
    pub recv_depth: u32,
    /// The longest message that these receives take, in bytes.
    pub max_message: u32,
}

fields! { Endpoint { qp_num: u32, psn: u32, recv_depth: u32, max_message: u32 } }

impl Endpoint {
    /// A number of more than 24 bits, if one of those that have 24 has more.
    fn more_than_24_bits(&self) -> Option<u32> {
        [self.qp_num, self.psn].into_iter().find(|value| *value > BITS_24)
    }
}

/// Parameters that an end offers, in Hello and Accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The connection.
    pub protocol: ProtocolId,
    /// Options of this end.
    pub options: Options,
    /// This end of the direction initiator → acceptor, if that exists.
    pub initiator_to_acceptor: Option<Endpoint>,
    /// This end of the direction acceptor → initiator, if that exists. At least one
    /// of the two does.
    pub acceptor_to_initiator: Option<Endpoint>,
    /// LID of the port; 0 where the link layer has none.
    pub lid: u16,
    /// GID of the port, in network order.
    pub gid: [u8; 16],
    /// Path MTU of the port.
    pub mtu: Mtu,
    /// Data of the application, up to [`MAX_APPLICATION`] bytes.
    pub application: &'a [u8],
}

impl Parameters<'_> {
    /// The directions that exist, as the flags of the frame.
    const fn flags(&self) -> u8 {
        self.initiator_to_acceptor.is_some() as u8
            | (self.acceptor_to_initiator.is_some() as u8) << 1
    }

    /// Reports whether `other` has the same directions. An Accept with other ones does not fit its
    /// Hello.
    ///
    /// ```
    /// # use conn_core::handshake::*;
    /// # let end = Endpoint { qp_num: 1, psn: 2, recv_depth: 3, max_message: 4 };
    /// # let duplex = Parameters { protocol: ProtocolId::SEND_RECV, options: Options::NONE,
    /// #     lid: 0, gid: [0; 16],
    /// #     initiator_to_acceptor: Some(end), acceptor_to_initiator: Some(end),
    /// #     mtu: Mtu::B1024, application: b"" };
    /// let one_way = Parameters { acceptor_to_initiator: None, ..duplex };
    /// assert!(!duplex.same_directions(&one_way));
    /// ```
    pub const fn same_directions(&self, other: &Parameters<'_>) -> bool {
        self.flags() == other.flags()
    }
}

/// Reason why a connection was refused. Unknown reasons are decoded, so that their text can be
/// shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

impl Reason {
    /// The version is not spoken here.
    pub const VERSION: Self = Self(1);
    /// The protocol is not spoken here.
    pub const PROTOCOL: Self = Self(2);
    /// The parameters do not fit.
    pub const PARAMETERS: Self = Self(3);
    /// No connection can be taken now.
    pub const BUSY: Self = Self(4);
    /// Something failed here that is not the peer's concern.
    pub const INTERNAL: Self = Self(5);
    /// The devices of the two ends do not reach each other.
    pub const UNREACHABLE: Self = Self(6);
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::VERSION => "version",
            Self::PROTOCOL => "protocol",
            Self::PARAMETERS => "parameters",
            Self::BUSY => "busy",
            Self::INTERNAL => "internal error",
            Self::UNREACHABLE => "unreachable",
            Self(other) => return write!(f, "reason {other}"),
        })
    }
}

/// The body of Refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The reason, for the program.
    pub reason: Reason,
    /// The reason, for its user: up to [`MAX_TEXT`] bytes.
    pub text: &'a str,
}

/// A frame of the handshake.
///
/// ```
/// use conn_core::handshake::*;
///
/// let refuse = Frame::Refuse(Refusal { reason: Reason::BUSY, text: "8 of 8 in use" });
/// let mut buf = [0; MAX_FRAME];
/// let len = refuse.encode(&mut buf)?;
///
/// let Decoded { frame, consumed } = decode(&buf[..len])?;
/// assert_eq!((frame, consumed), (refuse, len));
/// assert_eq!(decode(&buf[..len - 1]), Err(DecodeError::Incomplete { need: len }));
/// assert_eq!(decode(b"GET / HTTP/1.1"), Err(DecodeError::NotAPeer));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The initiator asks for a connection.
    Hello(Parameters<'a>),
    /// The acceptor agrees.
    Accept(Parameters<'a>),
    /// Either end does not, and closes.
    Refuse(Refusal<'a>),
    /// The sender of this can receive.
    Ready,
}

impl Frame<'_> {
    const fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Accept(_) => ACCEPT,
            Self::Refuse(_) => REFUSE,
            Self::Ready => READY,
        }
    }
}
