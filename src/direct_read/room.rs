//! Memory that a message is read to.

use verbs_safe::{Buffer, FileRegion, LoanId, SendQueue};

/// Data sink of a message's READs: memory of the user. The user sees a buffer once it is back, and
/// a file's mapping never.
#[derive(Debug)]
pub(crate) enum ReadSink {
    Buffer(Buffer),
    File(FileRegion),
    /// A buffer of the receiver's own, for a message.
    Message(Buffer),
}

impl ReadSink {
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            ReadSink::Buffer(buffer) | ReadSink::Message(buffer) => buffer.len(),
            ReadSink::File(region) => region.len(),
        };
        bytes as u64
    }

    /// Reports whether a message of `len` bytes, read in parts of `most`, may land in it.
    pub(crate) fn takes(&self, len: u64, most: u32) -> bool {
        let last = || match len % u64::from(most.max(1)) {
            0 => len.min(most.into()),
            rest => rest,
        };
        !matches!(self, ReadSink::File(_)) || last() >= FileRegion::MIN_READ_BYTES.into()
    }

    /// Returns its kind, which is needed when the send queue gives back its memory.
    pub(crate) fn kind(&self) -> SinkKind {
        match self {
            ReadSink::Buffer(_) => SinkKind::Buffer,
            ReadSink::File(_) => SinkKind::File,
            ReadSink::Message(_) => SinkKind::Message,
        }
    }

    pub(crate) fn lend(self, queue: &mut SendQueue) -> Result<LoanId, ReadSink> {
        match self {
            ReadSink::Buffer(buffer) => queue.lend(buffer).map_err(|e| ReadSink::Buffer(e.buffer)),
            ReadSink::File(region) => queue.lend_file(region).map_err(|e| ReadSink::File(e.region)),
            ReadSink::Message(buffer) => {
                queue.lend(buffer).map_err(|e| ReadSink::Message(e.buffer))
            }
        }
    }

    pub(crate) fn reclaim(loan: LoanId, kind: SinkKind, queue: &mut SendQueue) -> Option<ReadSink> {
        match kind {
            SinkKind::Buffer => queue.reclaim(loan).map(ReadSink::Buffer),
            SinkKind::File => queue.reclaim_file(loan).map(ReadSink::File),
            SinkKind::Message => queue.reclaim(loan).map(ReadSink::Message),
        }
    }
}

/// The kinds of [`ReadSink`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SinkKind {
    Buffer,
    File,
    Message,
}
