//! Where a message is read to.

use verbs_safe::{Buffer, FileRegion, LoanId, SendQueue};

/// Memory of the user for a message: seen when it is back, or never.
#[derive(Debug)]
pub(crate) enum Room {
    Buffer(Buffer),
    File(FileRegion),
}

impl Room {
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            Room::Buffer(buffer) => buffer.len(),
            Room::File(region) => region.len(),
        };
        bytes as u64
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Room::File(_))
    }

    /// Whether a message of `len` bytes, read in parts of `most`, may land in it.
    pub(crate) fn takes(&self, len: u64, most: u32) -> bool {
        let last = || match len % u64::from(most.max(1)) {
            0 => len.min(most.into()),
            rest => rest,
        };
        !self.is_file() || last() >= FileRegion::MIN_READ_BYTES.into()
    }

    pub(crate) fn lend(self, queue: &mut SendQueue) -> Result<LoanId, Room> {
        match self {
            Room::Buffer(buffer) => queue.lend(buffer).map_err(|e| Room::Buffer(e.buffer)),
            Room::File(region) => queue.lend_file(region).map_err(|e| Room::File(e.region)),
        }
    }

    pub(crate) fn reclaim(loan: LoanId, queue: &mut SendQueue) -> Option<Room> {
        let buffer = queue.reclaim(loan).map(Room::Buffer);
        buffer.or_else(|| queue.reclaim_file(loan).map(Room::File))
    }
}
