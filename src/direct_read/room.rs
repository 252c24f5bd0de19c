//! Memory that a message is read to.

use verbs_safe::{Buffer, FileRegion, LoanId, SendQueue};

/// Memory of the user for a message. The user sees a buffer once it is back, and a file's
/// mapping never.
#[derive(Debug)]
pub(crate) enum Room {
    Buffer(Buffer),
    File(FileRegion),
    /// A buffer of the receiver's own, for a message.
    Message(Buffer),
}

impl Room {
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            Room::Buffer(buffer) | Room::Message(buffer) => buffer.len(),
            Room::File(region) => region.len(),
        };
        bytes as u64
    }

    /// Reports whether a message of `len` bytes, read in parts of `most`, may land in it.
    pub(crate) fn takes(&self, len: u64, most: u32) -> bool {
        let last = || match len % u64::from(most.max(1)) {
            0 => len.min(most.into()),
            rest => rest,
        };
        !matches!(self, Room::File(_)) || last() >= FileRegion::MIN_READ_BYTES.into()
    }

    /// Returns its kind, which is needed when the send queue gives back its memory.
    pub(crate) fn kind(&self) -> RoomKind {
        match self {
            Room::Buffer(_) => RoomKind::Buffer,
            Room::File(_) => RoomKind::File,
            Room::Message(_) => RoomKind::Message,
        }
    }

    pub(crate) fn lend(self, queue: &mut SendQueue) -> Result<LoanId, Room> {
        match self {
            Room::Buffer(buffer) => queue.lend(buffer).map_err(|e| Room::Buffer(e.buffer)),
            Room::File(region) => queue.lend_file(region).map_err(|e| Room::File(e.region)),
            Room::Message(buffer) => queue.lend(buffer).map_err(|e| Room::Message(e.buffer)),
        }
    }

    pub(crate) fn reclaim(loan: LoanId, kind: RoomKind, queue: &mut SendQueue) -> Option<Room> {
        match kind {
            RoomKind::Buffer => queue.reclaim(loan).map(Room::Buffer),
            RoomKind::File => queue.reclaim_file(loan).map(Room::File),
            RoomKind::Message => queue.reclaim(loan).map(Room::Message),
        }
    }
}

/// The kinds of [`Room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomKind {
    Buffer,
    File,
    Message,
}
