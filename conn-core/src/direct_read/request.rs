//! The bytes of a read request: bounded, parsed without trust.
//!
//! All integers are little-endian:
//!
//! | bytes | |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | flags: bit 0, there is a signal |
//! | 2 | length of the application data |
//! | 4 | low half of the message's number |
//! | 8 | length of the message in bytes |
//! | 8 | its address; 0 if it has no bytes |
//! | 4 | the key of its memory; 0 if it has no bytes |
//! | 4 | the key of the signal; 0 if there is none |
//! | 8 | the address of the signal; 0 if there is none |
//! | … | application data |

use crate::ring::offer::Place;
use crate::wire::Wire;

/// Version, flags, length of the application data; number, length and place of the message; key
/// and address of the signal.
type Header = (u8, u8, u16, u32, u64, Place, u32, u64);

/// Bytes of a request without the application data.
pub const HEADER_LEN: usize = Header::LEN;

const VERSION: u8 = 1;
const SIGNAL: u8 = 1;

/// Description of a message that a sender offers to be read.
///
/// ```
/// use conn_core::direct_read::{HEADER_LEN, Place, ReadRequest};
///
/// let memory = Place { addr: 0x7f00_0000_0000, rkey: 7 };
/// let request = ReadRequest { number: 1, len: 65_536, memory, signal: None, app: b"shard 3" };
/// let mut buf = [0; 64];
/// let len = request.encode(&mut buf)?;
/// assert_eq!(len, HEADER_LEN + 7);
/// assert_eq!(ReadRequest::decode(&buf[..len])?, request);
/// assert!(ReadRequest::decode(&buf[..len - 1]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest<'a> {
    /// The low half of the message's number.
    pub number: u32,
    /// Bytes of the message.
    pub len: u64,
    /// Place of the message; address and key are 0 if it has no bytes.
    pub memory: Place,
    /// Place for the outcome, one byte, if the sender wants it written.
    pub signal: Option<Place>,
    /// Data of the application.
    pub app: &'a [u8],
}

/// Bytes that are no read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer than [`HEADER_LEN`] bytes.
    #[error("a read request of {len} bytes; it has at least {min}", min = HEADER_LEN)]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// A version that is not spoken here.
    #[error("version {0} of read requests")]
    Version(u8),
    /// Flags without a meaning.
    #[error("unknown flags {0:#x} in a read request")]
    Flags(u8),
    /// The application data have another length than is said.
    #[error("{found} bytes of application data; the request says {said}")]
    AppLength {
        /// Length in the header.
        said: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A field that must be 0 is not: the place of no bytes, or that of no signal.
    #[error("a place of nothing that is not 0")]
    NotZero,
    /// The message, or its signal, would reach beyond the end of the address space.
    #[error("memory beyond the end of the address space")]
    Wraps,
}

/// A request that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The output has too little room.
    #[error("the read request needs {need} bytes")]
    BufferTooSmall {
        /// Bytes that the request has.
        need: usize,
    },
    /// More application data than a length of 16 bits can say.
    #[error("{len} bytes of application data")]
    AppTooLong {
        /// Bytes given.
        len: usize,
    },
    /// Memory that cannot be: it wraps, or it is the place of no bytes.
    #[error("memory that cannot be")]
    Meaningless,
}

impl<'a> ReadRequest<'a> {
    /// The place of a message without bytes.
    pub const NOWHERE: Place = Place { addr: 0, rkey: 0 };

    /// Writes the request to the beginning of `out` and returns its length.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is then as it was.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let (len, need) = (self.app.len(), HEADER_LEN + self.app.len());
        let app_len = u16::try_from(len).map_err(|_| EncodeError::AppTooLong { len })?;
        if self.complaint().is_some() {
            return Err(EncodeError::Meaningless);
        }
        let mut out = out.get_mut(..need).ok_or(EncodeError::BufferTooSmall { need })?;
        let flags = if self.signal.is_some() { SIGNAL } else { 0 };
        let Place { addr, rkey } = self.signal.unwrap_or(Self::NOWHERE);
        let header: Header =
            (VERSION, flags, app_len, self.number, self.len, self.memory, rkey, addr);
        header.put(&mut out);
        out.copy_from_slice(self.app);
        Ok(need)
    }

    /// Decodes a received message, all of it.
    ///
    /// # Errors
    /// [`DecodeError`]: what is wrong with it.
    pub fn decode(bytes: &'a [u8]) -> Result<ReadRequest<'a>, DecodeError> {
        let short = DecodeError::TooShort { len: bytes.len() };
        let (header, app) = Header::split(bytes).ok_or(short)?;
        let (version, flags, app_len, number, len, memory, rkey, addr) = header;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if flags & !SIGNAL != 0 {
            return Err(DecodeError::Flags(flags));
        }
        let said = usize::from(app_len);
        if said != app.len() {
            return Err(DecodeError::AppLength { said, found: app.len() });
        }
        let (signal, signalled) = (Place { addr, rkey }, flags & SIGNAL != 0);
        if !signalled && signal != Self::NOWHERE {
            return Err(DecodeError::NotZero);
        }
        let signal = signalled.then_some(signal);
        let request = ReadRequest { number, len, memory, signal, app };
        request.complaint().map_or(Ok(request), Err)
    }

    /// Returns the reason why the request is impossible, if it is.
    fn complaint(&self) -> Option<DecodeError> {
        if self.len == 0 && self.memory != Self::NOWHERE {
            return Some(DecodeError::NotZero);
        }
        let wraps = |place: Place, len| place.addr.checked_add(len).is_none();
        let signal = self.signal.is_some_and(|signal| wraps(signal, 1));
        (signal || wraps(self.memory, self.len)).then_some(DecodeError::Wraps)
    }
}
