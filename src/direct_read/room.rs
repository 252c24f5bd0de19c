//! Memory that a message is read to.

use verbs_safe::{Buffer, FileRegion, LoanId, SendQueue};

/// Memory of the user for a message. The user sees a buffer once it is back, and a file's
/// mapping never.
#[derive(Debug)]
pub(crate) enum ReadDestination {
    Buffer(Buffer),
    File(FileRegion),
    /// A buffer of the receiver's own, for a message.
    Message(Buffer),
}

impl ReadDestination {
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            ReadDestination::Buffer(buffer) | ReadDestination::Message(buffer) => buffer.len(),
            ReadDestination::File(region) => region.len(),
        };
        bytes as u64
    }

    /// Reports whether a message of `len` bytes, read in parts of `most`, may land in it.
    pub(crate) fn takes(&self, len: u64, most: u32) -> bool {
        let last = || match len % u64::from(most.max(1)) {
            0 => len.min(most.into()),
            rest => rest,
        };
        !matches!(self, ReadDestination::File(_)) || last() >= FileRegion::MIN_READ_BYTES.into()
    }

    /// Returns its kind, which is needed when the send queue gives back its memory.
    pub(crate) fn kind(&self) -> DestinationKind {
        match self {
            ReadDestination::Buffer(_) => DestinationKind::Buffer,
            ReadDestination::File(_) => DestinationKind::File,
            ReadDestination::Message(_) => DestinationKind::Message,
        }
    }

    pub(crate) fn lend(self, queue: &mut SendQueue) -> Result<LoanId, ReadDestination> {
        match self {
            ReadDestination::Buffer(buffer) => {
                queue.lend(buffer).map_err(|e| ReadDestination::Buffer(e.buffer))
            }
            ReadDestination::File(region) => {
                queue.lend_file(region).map_err(|e| ReadDestination::File(e.region))
            }
            ReadDestination::Message(buffer) => {
                queue.lend(buffer).map_err(|e| ReadDestination::Message(e.buffer))
            }
        }
    }

    pub(crate) fn reclaim(
        loan: LoanId,
        kind: DestinationKind,
        queue: &mut SendQueue,
    ) -> Option<ReadDestination> {
        match kind {
            DestinationKind::Buffer => queue.reclaim(loan).map(ReadDestination::Buffer),
            DestinationKind::File => queue.reclaim_file(loan).map(ReadDestination::File),
            DestinationKind::Message => queue.reclaim(loan).map(ReadDestination::Message),
        }
    }
}

/// The kinds of [`ReadDestination`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DestinationKind {
    Buffer,
    File,
    Message,
}
