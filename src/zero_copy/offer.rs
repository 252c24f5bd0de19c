//! Memory that can be offered to a receiver.

use std::fmt;
use std::ops::Range;

use conn_core::direct_read::Outcome;
use verbs_safe::{Buffer, FrozenBuffer, RegionError, RemoteSpan, SharedRegion};

mod sealed {
    pub trait Sealed {}
    impl Sealed for verbs_safe::Buffer {}
    impl Sealed for verbs_safe::FrozenBuffer {}
}

/// Registered memory that stays unchanged while a [`ZeroCopySend`](super::ZeroCopySend) has it:
/// a [`Buffer`], or a [`FrozenBuffer`] that several senders have at a time.
pub trait Offer: fmt::Debug + Send + sealed::Sealed + 'static {
    /// Bytes of it.
    fn bytes(&self) -> usize;

    /// Returns the remote span that a peer needs to read a part of it.
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

/// A message that the receiver is done with: its buffer is its owner's again.
#[derive(Debug)]
#[must_use = "it may have been refused"]
pub struct Sent<B> {
    /// The buffer, as it was.
    pub buffer: B,
    /// The outcome: it was read, or refused.
    pub outcome: Outcome,
}
