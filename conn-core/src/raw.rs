//! Offers that the ends of raw queue pairs make each other: memory, Q_Key, transport.
//!
//! Raw queue pairs use the [`handshake`](crate::handshake) of connections, as protocol
//! [`ProtocolId::RAW`](crate::handshake::ProtocolId::RAW) with the one direction initiator to
//! acceptor. Its endpoints are the two queue pairs. The application data begin with an offer; all
//! integers are little-endian:
//!
//! | bytes | offer |
//! |---|---|
//! | 1 | transport: 1 RC, 2 UC, 3 UD |
//! | 3 | 0 |
//! | 4 | Q_Key; 0 unless the transport is UD |
//! | 4 | key of the memory that the peer may reach |
//! | 8 | its address |
//! | 8 | its length in bytes; where it is 0 there is none, and key and address are 0 |
//! | … | the user's data |

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

use crate::handshake::MAX_APPLICATION;
use crate::wire::{Wire, codes, fields};

/// Transport, zeros, Q_Key, memory.
type Head = (u8, [u8; 3], u32, Memory);

/// Bytes of an offer without the user's data.
pub const OFFER_LEN: usize = Head::LEN;
/// The longest user's data, in bytes.
pub const MAX_USER: usize = MAX_APPLICATION - OFFER_LEN;

/// Transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 1,
    /// Unreliable connection.
    Uc = 2,
    /// Unreliable datagrams.
    Ud = 3,
}

codes! { Transport { Rc, Uc, Ud } }

impl Transport {
    /// `rc`, `uc` or `ud`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
        }
    }
}

/// Memory that the peer may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its address, in the address space of the end that offers it.
    pub addr: u64,
    /// Its length in bytes, at least 1.
    pub len: u64,
    /// Its remote key.
    pub rkey: u32,
}

fields! { Memory { rkey: u32, addr: u64, len: u64 } }

/// Offer of one end of a raw queue pair to the other.
///
/// ```
/// use conn_core::raw::{Memory, Offer, OFFER_LEN, Transport};
///
/// let memory = Some(Memory { addr: 0x7f00_0000_0000, len: 4096, rkey: 7 });
/// let offer = Offer { transport: Transport::Rc, qkey: 0, memory, user: b"hello" };
/// let mut buf = [0; 64];
/// let len = offer.encode(&mut buf)?;
/// assert_eq!(len, OFFER_LEN + 5);
/// assert_eq!(Offer::decode(&buf[..len])?, offer);
/// assert!(Offer::decode(b"junk").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// The transport; both ends have the same.
    pub transport: Transport,
    /// Q_Key that datagrams to this end have to carry; 0 unless the transport is UD.
    pub qkey: u32,
    /// Memory that the peer may reach.
    pub memory: Option<Memory>,
    /// Data of the user, up to [`MAX_USER`] bytes.
    pub user: &'a [u8],
}

/// Bytes that are no offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer than [`OFFER_LEN`] bytes.
    #[error("an offer of {len} bytes; it has {whole}", whole = OFFER_LEN)]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// An unknown transport.
    #[error("unknown transport {0}")]
    Transport(u8),
    /// A field that must be 0 is not: a reserved byte, the Q_Key of a transport that has none, or
    /// key and address of memory that does not exist.
    #[error("something in the offer that must be 0 is not")]
    NotZero,
    /// The memory would reach beyond the end of the address space.
    #[error("memory beyond the end of the address space")]
    Memory,
}

/// An offer that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The output has too little room.
    #[error("the offer needs {need} bytes")]
    BufferTooSmall {
        /// Bytes that the offer has.
        need: usize,
    },
    /// More than [`MAX_USER`] bytes of user's data.
    #[error("{len} bytes of user's data; at most {max} fit", max = MAX_USER)]
    UserTooLong {
        /// Bytes given.
        len: usize,
    },
    /// A Q_Key without UD, or memory of no bytes or beyond the address space.
    #[error("a Q_Key without UD, or memory that cannot be")]
    Meaningless,
}

impl Memory {
    const fn exists(&self) -> bool {
        self.len > 0 && self.addr.checked_add(self.len).is_some()
    }
}

impl<'a> Offer<'a> {
    /// Writes the offer to the beginning of `out` and returns its length.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is then as it was.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let (len, need) = (self.user.len(), OFFER_LEN + self.user.len());
        if len > MAX_USER {
            return Err(EncodeError::UserTooLong { len });
        }
        let keyless = self.transport != Transport::Ud && self.qkey != 0;
        if keyless || self.memory.is_some_and(|m| !m.exists()) {
            return Err(EncodeError::Meaningless);
        }
        let mut out = out.get_mut(..need).ok_or(EncodeError::BufferTooSmall { need })?;
        let memory = self.memory.unwrap_or(Memory { addr: 0, len: 0, rkey: 0 });
        let head: Head = (self.transport.code(), [0; 3], self.qkey, memory);
        head.put(&mut out);
        out.copy_from_slice(self.user);
        Ok(need)
    }

    /// Decodes the application data of a handshake, all of it.
    ///
    /// # Errors
    /// [`DecodeError`]: what is wrong with it.
    pub fn decode(bytes: &'a [u8]) -> Result<Offer<'a>, DecodeError> {
        let short = DecodeError::TooShort { len: bytes.len() };
        let ((code, zeros, qkey, memory), user) = Head::split(bytes).ok_or(short)?;
        let transport = Transport::from_code(code).ok_or(DecodeError::Transport(code))?;
        let keyless = transport != Transport::Ud && qkey != 0;
        let nothing = memory.len == 0 && (memory.rkey != 0 || memory.addr != 0);
        if zeros != [0; 3] || keyless || nothing {
            return Err(DecodeError::NotZero);
        }
        let memory = (memory.len > 0).then_some(memory);
        if memory.is_some_and(|m| !m.exists()) {
            return Err(DecodeError::Memory);
        }
        Ok(Offer { transport, qkey, memory, user })
    }
}
