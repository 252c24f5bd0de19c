//! Operations that a link needs of the memory that its READs land in.

use verbs_safe::{LandError, LandingRing, RemoteSpan, SendFlags, SendQueue, SharedLandingRing};

/// The flags of a signalled request.
pub(super) const SIGNALLED: SendFlags =
    SendFlags { signalled: true, solicited: false, fence: false };

/// A ring that READs land in: of one thread that receives, or of several.
pub trait ReadRing {
    /// Stages a signalled READ: see [`LandingRing::stage_read`].
    fn read(&mut self, queue: &mut SendQueue, len: u32, from: RemoteSpan) -> Result<(), LandError>;

    /// Takes in landed records, of those sent up to `tail`.
    fn land(&mut self, queue: &SendQueue, tail: u64);

    /// Position up to which all bytes have landed.
    fn landed(&self) -> u64;

    /// Position up to which other threads have claimed records, if the ring is shared; at least the
    /// freed position.
    fn claimed(&self) -> Option<u64>;

    /// Position up to which all bytes were freed.
    fn freed(&mut self) -> u64;

    /// The word at a position that has landed and was not freed.
    fn word(&self, position: u64) -> Option<u64>;

    /// Reports whether one more record can be handed out.
    fn can_lend(&mut self) -> bool;

    /// Bytes of the ring.
    fn capacity(&self) -> usize;
}

impl ReadRing for LandingRing {
    fn read(&mut self, queue: &mut SendQueue, len: u32, from: RemoteSpan) -> Result<(), LandError> {
        self.stage_read(queue, len, from, SIGNALLED)
    }

    fn land(&mut self, queue: &SendQueue, _: u64) {
        self.land(queue);
    }

    #[inline]
    fn landed(&self) -> u64 {
        self.landed()
    }

    #[inline]
    fn claimed(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn freed(&mut self) -> u64 {
        self.freed()
    }

    #[inline]
    fn word(&self, position: u64) -> Option<u64> {
        self.word(position)
    }

    #[inline]
    fn can_lend(&mut self) -> bool {
        self.can_lend()
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }
}

impl ReadRing for SharedLandingRing {
    fn read(&mut self, queue: &mut SendQueue, len: u32, from: RemoteSpan) -> Result<(), LandError> {
        self.stage_read(queue, len, from, SIGNALLED)
    }

    fn land(&mut self, queue: &SendQueue, tail: u64) {
        self.land(queue, tail);
    }

    fn landed(&self) -> u64 {
        self.landed()
    }

    fn claimed(&self) -> Option<u64> {
        Some(self.claimed())
    }

    fn freed(&mut self) -> u64 {
        self.freed()
    }

    fn word(&self, position: u64) -> Option<u64> {
        self.word(position)
    }

    fn can_lend(&mut self) -> bool {
        true
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }
}
