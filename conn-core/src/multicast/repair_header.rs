//! The header of a repair, as it lies in the repair area.

use super::{Members, Rank};
use crate::checksum::checksum_of;

/// Header of a repair area, in front of the bytes: its words, in this order, and their
/// [checksum](crate::checksum).
///
/// An area is overwritten when all members that need the bytes have them. It is also overwritten
/// when there are fewer survivors, which the members under repair may not know yet. So a member
/// takes a repair only if it suspects exactly `suspected`: the writer has seen that all survivors
/// suspect these. And it takes the repair only when the writer's row counts `number` repairs: the
/// repair is complete then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairHeader {
    /// The member of the repaired stream.
    pub of: Rank,
    /// Position of the bytes in that stream.
    pub position: u64,
    /// Number of the bytes: whole records.
    pub len: u64,
    /// The turns of that stream up to their end.
    pub turns: u64,
    /// Number of this repair among those of its writer, from 1.
    pub number: u64,
    /// The suspects on which the survivors have agreed.
    pub suspected: Members,
}

impl RepairHeader {
    /// Words of the header.
    pub const WORDS: u8 = 7;
    /// Bytes of the header.
    pub const BYTES: usize = 8 * Self::WORDS as usize;

    /// The words as they lie in the area.
    pub const fn words(&self) -> [u64; Self::WORDS as usize] {
        let Self { of, position, len, turns, number, suspected } = *self;
        let words = [of.0 as u64, position, len, turns, number, suspected.bits()];
        let [of, position, len, turns, number, suspected] = words;
        [of, position, len, turns, number, suspected, checksum_of(&words)]
    }
}
