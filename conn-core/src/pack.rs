//! Application-level packing: several small messages in one.
//!
//! A packed message is a sequence of records, each a little-endian u32 length and a payload of this
//! length. Records start at multiples of 4 from the start of the buffer; the bytes in between are
//! zero when sent and ignored when received. Nothing follows the last record's payload.
//!
//! ```text
//!   0        4            4+n    align4
//!   | length | payload … | 0…  | length | payload …|
//! ```
//!
//! The receiver hands the payloads out in place. A record that exceeds the message is an error.

use core::{fmt, ops::Range};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// Bytes before each payload.
pub const RECORD_HEADER: u32 = 4;
const ALIGN: u32 = 4;

/// The buffer has no room for the message: send it, `reset`, and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFull {
    /// The largest payload that still fits, in bytes; `None` when not even an empty
    /// one does.
    pub largest: Option<u32>,
}

impl fmt::Display for PackFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.largest {
            Some(bytes) => write!(f, "only {bytes} more bytes fit into the packed message"),
            None => f.write_str("the packed message is full"),
        }
    }
}

impl core::error::Error for PackFull {}

/// Fills one buffer with records.
///
/// ```
/// use conn_core::pack::*;
///
/// let (mut buf, mut packer) = ([0; 64], Packer::new(64));
/// packer.push(&mut buf, b"hello")?;
/// packer.push(&mut buf, b"")?;
/// packer.reserve(&mut buf, 5)?.copy_from_slice(b"world");
/// assert_eq!((packer.len(), packer.count()), (25, 3));
///
/// let mut unpacker = Unpacker::new(packer.len());
/// let first = unpacker.next(&buf)?.unwrap();
/// assert_eq!(buf[first.range()], *b"hello");
/// assert_eq!(unpacker.next(&buf)?.unwrap().len, 0);
/// assert_eq!(buf[unpacker.next(&buf)?.unwrap().range()], *b"world");
/// assert_eq!(unpacker.next(&buf)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: len <= capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packer {
    capacity: u32,
    len: u32,
    count: u32,
}

#[inline]
fn align(position: u32) -> u64 {
    u64::from(position).next_multiple_of(u64::from(ALIGN))
}

impl Packer {
    /// A packer of buffers of `capacity` bytes.
    #[inline]
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, len: 0, count: 0 }
    }

    /// The largest payload that fits now, in bytes.
    #[inline]
    pub fn largest(&self) -> Option<u32> {
        self.largest_within(u64::from(self.capacity))
    }

    #[inline]
    fn largest_within(&self, end: u64) -> Option<u32> {
        let payload = align(self.len) + u64::from(RECORD_HEADER);
        end.checked_sub(payload).map(|room| room as u32)
    }

    /// Reports whether a payload of `len` bytes fits.
    #[inline]
    pub fn fits(&self, len: usize) -> bool {
        self.largest().is_some_and(|largest| len <= largest as usize)
    }

    /// Appends a record with `payload`. `buf` is the same buffer every time until
    /// `reset`; if it is shorter than the capacity, its length is the limit.
    ///
    /// # Errors
    /// [`PackFull`] when the record does not fit.
    #[inline]
    pub fn push(&mut self, buf: &mut [u8], payload: &[u8]) -> Result<(), PackFull> {
        self.reserve(buf, payload.len())?.copy_from_slice(payload);
        Ok(())
    }

    /// Appends a record of `len` bytes and lends its payload, to be filled in place.
    ///
    /// # Errors
    /// [`PackFull`] when the record does not fit.
    #[inline]
    pub fn reserve<'a>(&mut self, buf: &'a mut [u8], len: usize) -> Result<&'a mut [u8], PackFull> {
        let largest = self.largest_within(u64::from(self.capacity).min(buf.len() as u64));
        let Some(len) = largest.filter(|&most| len <= most as usize).map(|_| len as u32) else {
            return Err(PackFull { largest });
        };
        let header = align(self.len) as usize;
        buf[self.len as usize..header].fill(0); // nothing of an earlier use goes out
        let (head, payload) = buf[header..].split_at_mut(RECORD_HEADER as usize);
        head.copy_from_slice(&len.to_le_bytes());
        self.len = header as u32 + RECORD_HEADER + len;
        self.count += 1;
        Ok(&mut payload[..len as usize])
    }

    /// Offset of the next record's payload, in bytes of the buffer.
    #[inline]
    pub fn next_payload(&self) -> u32 {
        align(self.len) as u32 + RECORD_HEADER
    }

    /// Reports whether no record has been pushed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes to send.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Records in the buffer.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Starts an empty buffer.
    #[inline]
    pub fn reset(&mut self) {
        *self = Self::new(self.capacity);
    }
}

/// Location of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the start of the packed message.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
}

impl Span {
    /// As a range of the packed message.
    #[inline]
    pub fn range(self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.len as usize
    }
}

/// A packed message that is none: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The message ends within a record's length.
    #[error("the packed message ends within the record at byte {offset}")]
    Truncated {
        /// Offset of the record, in bytes.
        offset: u32,
    },
    /// A record claims more bytes than the message has.
    #[error("a packed record claims {claimed} bytes where {left} are left")]
    TooLong {
        /// Bytes that the record claims.
        claimed: u32,
        /// Bytes that are left.
        left: u32,
    },
    /// A packed message of no records: it would cost its receiver time and bring nothing.
    #[error("the packed message is empty")]
    Empty,
    /// The buffer is shorter than the message was said to be.
    #[error("the buffer is shorter than the packed message")]
    BufferTooShort,
}

/// Walks through the records of one packed message.
// Invariant: end <= len; records up to `end` have been handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacker {
    len: u32,
    /// The end of the last record's payload; 0 at first.
    end: u32,
}

impl Unpacker {
    /// For a message of `len` bytes, as it was received.
    #[inline]
    pub const fn new(len: u32) -> Self {
        Self { len, end: 0 }
    }

    /// The next record; `None` at the end. `buf` begins with the message, the same
    /// every time.
    ///
    /// # Errors
    /// [`UnpackError`] when no valid record follows. All later calls return it again.
    #[inline]
    pub fn next(&mut self, buf: &[u8]) -> Result<Option<Span>, UnpackError> {
        if self.end == self.len {
            return if self.len == 0 { Err(UnpackError::Empty) } else { Ok(None) };
        }
        let message = buf.get(..self.len as usize).ok_or(UnpackError::BufferTooShort)?;
        let span = record_at(message, align(self.end))?;
        self.end = span.offset + span.len;
        Ok(Some(span))
    }
}

#[inline]
fn record_at(message: &[u8], start: u64) -> Result<Span, UnpackError> {
    let rest = message.get(start as usize..).unwrap_or_default();
    let Some((header, payload)) = rest.split_first_chunk() else {
        return Err(UnpackError::Truncated { offset: start as u32 });
    };
    let (claimed, left) = (u32::from_le_bytes(*header), payload.len() as u32);
    if claimed > left {
        return Err(UnpackError::TooLong { claimed, left });
    }
    Ok(Span { offset: start as u32 + RECORD_HEADER, len: claimed })
}
