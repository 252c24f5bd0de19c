//! The ring: variable-size records in a power of two of bytes, written at one end and
//! freed at the other (Buffered Read, Buffered Write).
//!
//! Positions are counts of bytes since the beginning; they are u64, never wrap, and are multiples
//! of 8. The offset of a position in memory is `position & (capacity - 1)`.
//!
//! ```text
//!   sender      head <= tail <= head + capacity
//!   receiver    head <= read_pointer <= landed <= tail <= head + capacity
//!
//!         freed  |   lent      |   to be read   | on its way |   free
//!   -------------+-------------+----------------+------------+-----------
//!               head      read_pointer        landed        tail
//! ```
//!
//! [`Producer`] reserves room for a record and commits it. [`Consumer`] takes the tail, hands out
//! records, and decides when to advertise its head. [`free`] finds the head when records are freed
//! in any order and by any thread. [`shared`] is for several threads at an end. [`fetch`] is for a
//! receiver that reads the ring over the network (Buffered Read). [`AdvertisedCursor`] is the wire
//! format of a head or a tail, and [`offer`] that of the exchange at set-up. The ends of
//! connections are in [`buffered_read`](crate::buffered_read) and
//! [`buffered_write`](crate::buffered_write).
//!
//! # Records
//!
//! A record is a header of 8 bytes and the payload, and ends at a multiple of 8. The header is a
//! little-endian u64: the payload's length in the lower half; in the upper one, the record's
//! position in units of 8 (its lower 32 bits), which distinguishes it from a record of an earlier
//! lap. In a skip record, which is no message, the topmost bit is inverted.
//!
//! In *mirrored* memory, which is mapped twice in a row, every record is contiguous. In *plain*
//! memory a record that would cross the end is preceded by a skip record, which fills the rest of
//! the lap. Where several threads send ([`shared`]), reserved room that is not used becomes a skip
//! record, too.
//!
//! # Liveness
//!
//! An empty ring takes the largest record at any head: the record has at most `capacity` bytes in
//! mirrored memory, and half of that in plain memory, where a skip record of almost its length may
//! precede it. A sender that might wait for room gets the head after every free
//! ([`Consumer::head_due`]).

mod advertised_cursor;
pub mod consumer;
pub mod fetch;
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub mod free;
#[cfg(test)]
mod liveness;
pub mod offer;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
pub mod producer;
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub mod shared;
#[cfg(test)]
mod tests;

pub use advertised_cursor::AdvertisedCursor;
pub use consumer::{Consumer, ConsumerConfig, Record, RecordError, TailError, Taken};
pub use producer::{CommitError, Committed, Grant, HeadError, Producer, ReserveError};

/// Bytes before each payload.
pub const HEADER_BYTES: u32 = 8;
/// Records begin and end at multiples of this.
pub const ALIGN: u64 = 8;
/// Bytes that a ring has at least, and at most.
pub const CAPACITIES: core::ops::RangeInclusive<u64> = 16..=1 << 32;

/// Inverted in the header of a skip record.
const SKIP: u64 = 1 << 63;

/// Bytes that a record with `payload` bytes takes in the ring.
///
/// ```
/// use conn_core::ring::record_bytes;
/// assert_eq!([0, 1, 8, 16].map(record_bytes), [8, 16, 16, 24]);
/// ```
#[inline]
pub const fn record_bytes(payload: u32) -> u64 {
    // The payload rounded up to ALIGN, plus ALIGN for the header. (This form takes the fewest
    // instructions.)
    ((payload as u64 + (ALIGN - 1)) | (ALIGN - 1)) + 1
}

/// A ring that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The capacity is no power of two, or not in [`CAPACITIES`].
    #[error(
        "a ring of {bytes} bytes: it has a power of two, {least} to {most}",
        least = CAPACITIES.start(),
        most = CAPACITIES.end()
    )]
    Capacity {
        /// Capacity that was asked for, in bytes.
        bytes: u64,
    },
    /// The longest record would not always fit into the empty ring.
    #[error("messages that do not fit the ring: {most} bytes is the most")]
    MessageTooLong {
        /// The longest payload that does, in bytes.
        most: u32,
    },
}

/// The shape of a ring, on which both ends agree.
///
/// ```
/// use conn_core::ring::{Geometry, GeometryError};
///
/// let ring = Geometry::mirrored(1 << 16, 1 << 12)?;
/// assert_eq!(ring.offset(3 * (1 << 16) + 24), 24);
/// let too_long = Geometry::plain(1 << 16, 1 << 16);
/// assert_eq!(too_long, Err(GeometryError::MessageTooLong { most: (1 << 15) - 8 }));
/// # Ok::<(), GeometryError>(())
/// ```
// Invariant: mask + 1 is a power of two in CAPACITIES, the capacity; the memory has once
// (plain) or twice (mirrored) as many bytes; a record of max_payload bytes takes no more
// than half of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Mask of the bits of a position that are its offset.
    mask: u64,
    /// Bytes of the memory: no record ends beyond.
    memory: u64,
    max_payload: u32,
}

impl Geometry {
    /// A ring of `capacity` bytes in mirrored memory, for payloads of at most
    /// `max_payload` bytes.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub const fn mirrored(capacity: u64, max_payload: u32) -> Result<Self, GeometryError> {
        Self::new(capacity, max_payload, true)
    }

    /// A ring of `capacity` bytes in plain memory, for payloads of at most `max_payload`
    /// bytes.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub const fn plain(capacity: u64, max_payload: u32) -> Result<Self, GeometryError> {
        Self::new(capacity, max_payload, false)
    }

    const fn new(
        capacity: u64,
        max_payload: u32,
        is_mirrored: bool,
    ) -> Result<Self, GeometryError> {
        let (least, most) = (*CAPACITIES.start(), *CAPACITIES.end());
        if !capacity.is_power_of_two() || capacity < least || capacity > most {
            return Err(GeometryError::Capacity { bytes: capacity });
        }
        let memory = if is_mirrored { 2 * capacity } else { capacity };
        let room = memory / 2;
        if record_bytes(max_payload) > room {
            // A capacity of 2^32 takes any length but the header's.
            let most = room - HEADER_BYTES as u64;
            return Err(GeometryError::MessageTooLong { most: most as u32 });
        }
        Ok(Self { mask: capacity - 1, memory, max_payload })
    }

    /// Bytes of the ring.
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// The longest payload, in bytes.
    #[inline]
    pub const fn max_payload(&self) -> u32 {
        self.max_payload
    }

    /// Reports whether records may cross the end.
    #[inline]
    pub const fn is_mirrored(&self) -> bool {
        self.memory > self.capacity()
    }

    /// Offset of a position, in bytes from the beginning of the ring's memory.
    #[inline]
    pub const fn offset(&self, position: u64) -> u64 {
        position & self.mask
    }

    /// Free bytes with which any record fits, wherever the tail is.
    #[inline]
    pub const fn most_needed(&self) -> u64 {
        let record = record_bytes(self.max_payload);
        if self.is_mirrored() { record } else { 2 * record - ALIGN }
    }

    /// End of the contiguous bytes at `position`.
    #[inline]
    const fn contiguous_until(&self, position: u64) -> u64 {
        position - self.offset(position) + self.memory
    }

    /// Bytes to skip before a record of `bytes` at `position`: 0, or the rest of the lap.
    #[inline]
    const fn skipped_before(&self, position: u64, bytes: u64) -> u64 {
        let is_contiguous = position + bytes <= self.contiguous_until(position);
        if is_contiguous { 0 } else { self.capacity() - self.offset(position) }
    }
}

/// Location of a payload. In mirrored memory it may reach into the second view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the beginning of the ring's memory.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl Span {
    /// As a range of the ring's memory.
    #[inline]
    pub fn range(self) -> core::ops::Range<usize> {
        self.offset as usize..self.offset as usize + self.len as usize
    }
}

/// A header, and the offset to write it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes from the beginning of the ring's memory; a multiple of 8.
    pub offset: u64,
    /// Value to be written there, as a little-endian u64.
    pub word: u64,
}

/// The header of a message.
#[inline]
const fn header_word(position: u64, len: u32) -> u64 {
    // Positions are multiples of 8, so that the lower half is free.
    position << (32 - ALIGN.trailing_zeros()) | len as u64
}

/// The header of a skip record.
#[inline]
const fn skip_word(position: u64, bytes: u64) -> u64 {
    // Subtracted before the cast: a whole ring of 2^32 bytes may be skipped.
    header_word(position, (bytes - HEADER_BYTES as u64) as u32) ^ SKIP
}

/// Returns the claim of a header about the record at `position`: the length of a message, or a
/// length and [`SKIP`]; any other value is from the header of something else.
#[inline]
pub(crate) const fn claim_of(header: u64, position: u64) -> u64 {
    header ^ header_word(position, 0)
}
