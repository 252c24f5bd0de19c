//! What can be offered to a receiver.

use std::ops::Range;

use verbs_safe::{Buffer, FrozenBuffer, RegionError, RemoteSpan, SharedRegion};

mod sealed {
    pub trait Sealed {}
    impl Sealed for verbs_safe::Buffer {}
    impl Sealed for verbs_safe::FrozenBuffer {}
}

/// Registered memory that stays as it is while a [`Sender`](super::Sender) has it:
/// a [`Buffer`], or a [`FrozenBuffer`] that several senders have at a time.
pub trait Offer: sealed::Sealed {
    /// Bytes of it.
    fn bytes(&self) -> usize;

    /// What a peer needs to read a part of it.
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not for peers.
    fn span(&self, range: Range<usize>) -> Result<RemoteSpan, RegionError>;

    /// The signal behind it; `None` if it has none, or is not one receiver's alone.
    fn tail(&self) -> Option<&SharedRegion>;
}

impl Offer for Buffer {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn span(&self, range: Range<usize>) -> Result<RemoteSpan, RegionError> {
        self.remote(range.start, range.len())
    }

    fn tail(&self) -> Option<&SharedRegion> {
        self.signal()
    }
}

impl Offer for FrozenBuffer {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn span(&self, range: Range<usize>) -> Result<RemoteSpan, RegionError> {
        self.remote(range.start, range.len())
    }

    fn tail(&self) -> Option<&SharedRegion> {
        None
    }
}
