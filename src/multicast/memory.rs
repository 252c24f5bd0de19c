//! The memory of a member.
//!
//! For each peer there are two regions that it writes: its row with its repair area, and its slot
//! ring. No other peer gets their keys. The own ring is out of reach of peers. Each sender has
//! private memory, where the copies of its records are checked.

use conn_core::multicast::{Config, CopyIn, ROW_WORDS, RepairCopy, RepairHeader, Span};
use verbs_safe::SharedRegion;

use crate::allocate::zeroed;
use crate::error::ConnectError;

/// Offsets in the region that a peer writes besides the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowsLayout {
    /// The repair area; the row is at 0.
    pub(super) repair: usize,
    pub(super) bytes: u64,
}

impl RowsLayout {
    pub(super) fn for_config(config: &Config) -> RowsLayout {
        let repair = (ROW_WORDS * 8).next_multiple_of(64);
        RowsLayout { repair, bytes: (repair + repair_area(config)) as u64 }
    }
}

/// Bytes of a repair: its header, and its contents.
pub(super) fn repair_area(config: &Config) -> usize {
    RepairHeader::BYTES + config.repair_bytes() as usize
}

/// Bytes of `ring` from `offset` on, the end of which is followed by its beginning.
pub(super) fn around(offset: u64, len: usize, capacity: u64) -> [(usize, usize); 2] {
    let first = len.min((capacity - offset) as usize);
    [(offset as usize, first), (0, len - first)]
}

/// The private copy of one sender's ring. The bytes at its beginning are repeated behind its end,
/// so that every message is contiguous.
#[derive(Debug)]
pub(super) struct Private {
    bytes: Box<[u8]>,
    capacity: usize,
}

impl Private {
    pub(super) fn new(config: &Config) -> Result<Private, ConnectError> {
        let capacity = config.capacity as usize;
        let bytes = capacity + 8 + config.max_message as usize;
        Ok(Private { bytes: zeroed("memory for a copy of a slot ring", bytes)?, capacity })
    }

    /// Copies bytes at `at` of a region to `span`.
    #[inline]
    fn take(&mut self, from: &SharedRegion, at: usize, span: Span) {
        let to = &mut self.bytes[span.range()];
        from.copy_out(at, to).expect("spans lie within the ring");
        let beyond = self.bytes.len() - self.capacity;
        let range = span.range();
        if range.start < beyond {
            let end = range.end.min(beyond);
            self.bytes.copy_within(range.start..end, self.capacity + range.start);
        }
    }

    /// Copies new bytes of a ring.
    #[inline]
    pub(super) fn copy(&mut self, copy: CopyIn, from: &SharedRegion) {
        self.take(from, copy.span.offset as usize, copy.span);
    }

    /// Copies the bytes of a repair area.
    pub(super) fn repair(&mut self, copy: RepairCopy, from: &SharedRegion, area: usize) {
        self.take(from, area + RepairHeader::BYTES + copy.at as usize, copy.span);
    }

    /// The word at a multiple of 8.
    #[inline]
    pub(super) fn word(&self, offset: u64) -> u64 {
        let word = self.bytes[offset as usize..].first_chunk().expect("a header is inside");
        u64::from_le_bytes(*word)
    }

    /// A message.
    #[inline]
    pub(super) fn message(&self, span: Span) -> &[u8] {
        &self.bytes[span.range()]
    }

    /// Bytes of the ring, from `position` on.
    pub(super) fn ring(&self, position: u64, len: usize) -> [&[u8]; 2] {
        let capacity = self.capacity as u64;
        around(position & (capacity - 1), len, capacity).map(|(at, len)| &self.bytes[at..at + len])
    }
}
