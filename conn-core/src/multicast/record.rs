//! Records of a slot ring.
//!
//! A record is a header of 8 bytes and the payload, and ends at a multiple of 8; it may cross the
//! end of the ring. The header is a little-endian u64: the length in the lower half (or the number
//! of nulls), then the kind in 8 bits, then the record's position in units of 8 (24 bits), which
//! distinguishes it from a record of an earlier lap.

use super::{Config, Lie};
use crate::ring::record_bytes;

const MESSAGE: u8 = 1;
const NULLS: u8 = 2;
const FLUSH: u8 = 3;
const END: u8 = 4;
const UNUSED: u8 = 5;

/// Kind of a record, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A message of the given length. It takes a turn.
    Message(u32),
    /// This number of turns without a message.
    Nulls(u32),
    /// A flush: a turn without a message, that is pushed and acknowledged at once.
    Flush,
    /// The end of the stream: no record follows it. It takes no turn.
    End,
    /// Room that was reserved for a message of this length, and not used. It takes a turn: the ring
    /// holds a window of turns, and records without a turn could fill it.
    Unused(u32),
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError(pub Lie);

/// The header of a record at `position`.
#[inline]
pub const fn header(record: Record, position: u64) -> u64 {
    let (kind, value) = match record {
        Record::Message(len) => (MESSAGE, len),
        Record::Nulls(count) => (NULLS, count),
        Record::Flush => (FLUSH, 0),
        Record::End => (END, 0),
        Record::Unused(len) => (UNUSED, len),
    };
    mark(position) << 40 | (kind as u64) << 32 | value as u64
}

/// The length of the message with this header at `position`; `None` for any other record. Most
/// records are messages: one comparison finds it.
#[inline]
pub(super) const fn message_len(word: u64, position: u64, config: &Config) -> Option<u32> {
    let len = word as u32;
    let is_message = word >> 32 == mark(position) << 8 | MESSAGE as u64;
    if is_message && len <= config.max_message { Some(len) } else { None }
}

#[inline]
const fn mark(position: u64) -> u64 {
    (position / 8) & 0xff_ffff
}

impl Record {
    /// Turns that it takes.
    #[inline]
    pub const fn turns(self) -> u64 {
        match self {
            Self::Message(_) | Self::Flush | Self::Unused(_) => 1,
            Self::Nulls(count) => count as u64,
            Self::End => 0,
        }
    }

    /// Bytes that it takes in the ring.
    #[inline]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Message(len) | Self::Unused(len) => record_bytes(len),
            Self::Nulls(_) | Self::Flush | Self::End => record_bytes(0),
        }
    }

    /// The record with this header at `position`.
    ///
    /// # Errors
    /// [`RecordError`]: the header is of no record.
    #[inline]
    pub fn parse(word: u64, position: u64, config: &Config) -> Result<Self, RecordError> {
        let (value, kind) = (word as u32, (word >> 32) as u8);
        if word >> 40 != mark(position) {
            return Err(RecordError(Lie::NoRecord));
        }
        let too_long = value > config.max_message;
        match kind {
            MESSAGE | UNUSED if too_long => Err(RecordError(Lie::TooLong { claimed: value })),
            MESSAGE => Ok(Self::Message(value)),
            UNUSED => Ok(Self::Unused(value)),
            NULLS if (1..=config.window).contains(&value) => Ok(Self::Nulls(value)),
            FLUSH if value == 0 => Ok(Self::Flush),
            END if value == 0 => Ok(Self::End),
            _ => Err(RecordError(Lie::NoRecord)),
        }
    }
}
