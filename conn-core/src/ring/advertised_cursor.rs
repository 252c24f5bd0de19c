//! Positions, as one end tells them to the other.

use super::ALIGN;

/// A tail, or a head, as one end advertises it to the other: its position, and whether it is final.
///
/// It has two formats. As a word, the lowest bit, which positions do not use, marks the last one.
/// As an immediate, it has the low 31 bits of the position in units of 8 bytes, and the top bit
/// marks the last one. That is enough: a ring has at most 2^29 of these units, and both ends know
/// the position to within a ring.
///
/// ```
/// use conn_core::ring::AdvertisedCursor;
///
/// let tail = AdvertisedCursor { position: (5 << 34) + 24, is_last: true };
/// assert_eq!((tail.to_word(), tail.to_imm()), ((5 << 34) + 25, 0x8000_0003));
/// assert_eq!(AdvertisedCursor::from_word(tail.to_word()), tail);
/// // A receiver that knows a tail not long before it:
/// assert_eq!(AdvertisedCursor::from_imm(tail.to_imm(), (5 << 34) - 16), tail);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisedCursor {
    /// The position; from an honest end, a multiple of 8.
    pub position: u64,
    /// True if nothing follows: FIN of a sender, STOP of a receiver.
    pub is_last: bool,
}

const LAST: u64 = 1;
const LAST_IMM: u32 = 1 << 31;

impl AdvertisedCursor {
    /// As a word of a control block.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.position | if self.is_last { LAST } else { 0 }
    }

    /// From any word of a control block.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { position: word & !LAST, is_last: word & LAST != 0 }
    }

    /// As an immediate.
    #[inline]
    pub const fn to_imm(self) -> u32 {
        let units = (self.position / ALIGN) as u32 & !LAST_IMM;
        units | if self.is_last { LAST_IMM } else { 0 }
    }

    /// From any immediate: the first such position from `known` on.
    #[inline]
    pub const fn from_imm(imm: u32, known: u64) -> Self {
        let ahead = imm.wrapping_sub((known / ALIGN) as u32) & !LAST_IMM;
        let position = known.wrapping_add(ahead as u64 * ALIGN);
        Self { position, is_last: imm & LAST_IMM != 0 }
    }
}
