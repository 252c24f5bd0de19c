//! The sender's end.

use super::{LAST, Words};
use crate::ring::consumer::{Parsed, parse};
use crate::ring::{
    ALIGN, CommitError, Committed, Geometry, Grant, HeadError, Producer, ReserveError,
};

/// Words that no honest receiver writes: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// The head.
    #[error("{0}")]
    Head(HeadError),
    /// The landed position, which is judged as a head is.
    #[error("of what the peer has read: {0}")]
    Landed(HeadError),
    /// All was read, it says, before it was said that it is all.
    #[error("the peer has seen an end that was not told")]
    SeenTooEarly,
}

/// The sender of a Buffered Read connection. See the [module](super).
///
/// ```
/// use conn_core::{buffered_read::{Source, Words}, ring::Geometry};
///
/// let mut source = Source::new(Geometry::mirrored(64, 40)?);
/// let grant = source.reserve(5)?;
/// let committed = source.commit(grant, 5)?;
/// assert_eq!((committed.header.offset, source.tail_word()), (0, 16));
/// source.finish();
/// assert_eq!(source.tail_word(), 16 | 1);
/// source.on_words(Words { head: 0, landed: 16 | 1 })?;
/// assert!(source.has_landed(16) && source.is_seen());
/// assert_eq!(source.unacked(|_| Some(committed.header.word)), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: head <= landed <= tail, told <= landed. SEEN only with FIN and landed == tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    ring: Producer,
    landed: u64,
    /// The word itself. Where the head was seen and this not yet, more has landed.
    told_landed: u64,
    is_finished: bool,
    is_seen: bool,
    is_stopped: bool,
}

impl Source {
    /// The sender of an empty ring.
    pub const fn new(geometry: Geometry) -> Self {
        let ring = Producer::new(geometry);
        let (landed, told_landed) = (0, 0);
        Self { ring, landed, told_landed, is_finished: false, is_seen: false, is_stopped: false }
    }

    /// The ring.
    #[inline]
    pub fn ring(&self) -> &Producer {
        &self.ring
    }

    /// Finds room for a record: see [`Producer::reserve`].
    ///
    /// # Errors
    /// [`ReserveError`]; when it is full, take in the receiver's words and try again.
    #[inline]
    pub fn reserve(&self, len: u32) -> Result<Grant, ReserveError> {
        self.ring.reserve(len)
    }

    /// Makes a record of the first `len` bytes of the grant: see [`Producer::commit`].
    ///
    /// # Errors
    /// [`CommitError`] when the grant is an old one or has fewer bytes, or after
    /// [`finish`](Self::finish).
    #[inline]
    pub fn commit(&mut self, grant: Grant, len: u32) -> Result<Committed, CommitError> {
        if self.is_finished {
            return Err(CommitError);
        }
        self.ring.commit(grant, len)
    }

    /// Records up to `tail` were committed elsewhere: see [`Producer::catch_up`].
    pub fn catch_up(&mut self, tail: u64) {
        self.ring.catch_up(tail);
    }

    /// No more follows.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Returns the tail word, to be published when all that was committed is in memory.
    #[inline]
    pub fn tail_word(&self) -> u64 {
        self.ring.tail() | u64::from(self.is_finished)
    }

    /// Takes the receiver's words; returns true if either is new. They need not be of the same
    /// time.
    ///
    /// # Errors
    /// [`WordError`] when the words are impossible: close the connection. Nothing has changed.
    pub fn on_words(&mut self, words: Words) -> Result<bool, WordError> {
        let (head, is_stopped) = (words.head & !LAST, words.head & LAST != 0);
        let (landed, is_seen) = (words.landed & !LAST, words.landed & LAST != 0);
        self.check_landed(landed).map_err(WordError::Landed)?;
        if is_seen && (!self.is_finished || landed != self.ring.tail()) {
            return Err(WordError::SeenTooEarly);
        }
        let freed = self.ring.on_head(head).map_err(WordError::Head)?;
        let before = (self.landed, self.is_seen, self.is_stopped);
        self.told_landed = landed;
        // Freed records have landed.
        self.landed = self.landed.max(landed).max(head);
        self.is_seen |= is_seen;
        self.is_stopped |= is_stopped;
        Ok(freed > 0 || before != (self.landed, self.is_seen, self.is_stopped))
    }

    fn check_landed(&self, landed: u64) -> Result<(), HeadError> {
        match (self.told_landed.checked_sub(landed), landed.checked_sub(self.ring.tail())) {
            (Some(by @ 1..), _) => Err(HeadError::Backwards { by }),
            (_, Some(by @ 1..)) => Err(HeadError::BeyondTail { by }),
            _ if !landed.is_multiple_of(ALIGN) => Err(HeadError::Misaligned),
            _ => Ok(()),
        }
    }

    /// Reports whether all bytes up to `position` lie in the receiver's memory.
    #[inline]
    pub fn has_landed(&self, position: u64) -> bool {
        position <= self.landed
    }

    /// Counts the messages that end behind the landed position, and so are not acknowledged.
    /// `header` loads the header at an offset of the ring's memory; all headers that were not freed
    /// are there. `None` if one is missing or invalid.
    pub fn unacked(&self, header: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let (geometry, tail) = (self.ring.geometry(), self.ring.tail());
        let (mut at, mut unacked) = (self.ring.head(), 0);
        while at < tail {
            let word = header(geometry.offset(at))?;
            at = match parse(geometry, at, word, (tail, tail)).ok()? {
                Parsed::Record(record) => {
                    unacked += u64::from(record.end > self.landed);
                    record.end
                }
                Parsed::Skipped { end } => end,
                Parsed::Partial => return None,
            };
        }
        Some(unacked)
    }

    /// The second word as it was last taken in, without its lowest bit.
    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn landed_word(&self) -> u64 {
        self.told_landed
    }

    /// Position up to which all bytes lie in the receiver's memory.
    #[inline]
    pub fn landed(&self) -> u64 {
        self.landed
    }

    /// Reports whether the receiver has not read all yet, FIN included, as far as it has said. It
    /// says so before it asks for a [wake-up](super::wake): one without anything unread is in vain.
    pub fn has_unread(&self) -> bool {
        let is_end_unseen = self.is_finished() && !self.is_seen();
        self.ring.tail() > self.landed() || is_end_unseen
    }

    /// Reports whether this end has finished: no more records follow.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Reports whether the receiver knows that no more follows, and has read everything.
    #[inline]
    pub fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// Reports whether the receiver has stopped reading.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}
