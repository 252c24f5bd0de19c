//! The sender's end: records gather, and go with pushes.

use crate::ring::{
    AdvertisedCursor, CommitError, Committed, Geometry, Grant, HeadError, Producer, ReserveError,
};

/// An invalid update of the receiver: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// Its head.
    #[error("{0}")]
    Head(HeadError),
    /// It has taken more immediates than were sent, or fewer than before.
    #[error("the peer cannot have taken {taken} immediates")]
    Taken {
        /// Count of immediates in the update.
        taken: u64,
    },
}

/// A piece of the ring that is written in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the beginning of the ring's memory, at both ends.
    pub offset: u64,
    /// Bytes. In mirrored memory a piece may reach into the second view.
    pub len: u32,
}

/// Writes to be posted: the pieces in their order, and then the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// The records. There is a second piece only where plain memory ends in between, and
    /// none where there is only a goodbye to say.
    pub pieces: [Option<Piece>; 2],
    /// The tail that goes with the records.
    pub tail: AdvertisedCursor,
}

/// The sender's end. See the [module](super).
///
/// ```
/// use conn_core::{buffered_write::*, ring::{Geometry, AdvertisedCursor}};
///
/// let geometry = Geometry::mirrored(64, 40)?;
/// let mut sender = WriteSender::new(geometry, None);
/// for len in [5, 8] {
///     let grant = sender.reserve(len)?;
///     sender.commit(grant, len)?; // with the payload and the header in memory
/// }
/// let push = sender.push().expect("two records have gathered");
/// assert_eq!(push.pieces, [Some(Piece { offset: 0, len: 32 }), None]);
/// sender.mark_pushed(&push); // it was posted
///
/// let mut receiver = WriteReceiver::new(geometry, 16, None);
/// assert_eq!(receiver.on_tail(push.tail)?, 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: head <= pushed <= tail <= head + capacity; taken <= immediates, and no more
// than window of them, and the goodbye, are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteSender {
    pub(super) ring: Producer,
    pub(super) pushed: u64,
    /// Receives that the peer has posted for immediates; `None` where the tail is written.
    window: Option<u32>,
    pub(super) immediates: u64,
    pub(super) taken: u64,
    is_closing: bool,
    pub(super) has_said: bool,
    /// Messages that the receiver had taken when it stopped.
    stopped: Option<u64>,
}

/// Sending.
impl WriteSender {
    /// The sender of an empty ring. If tails go as immediates, `window` is the number of receives
    /// that the peer has posted for them, less one for the goodbye.
    pub const fn new(geometry: Geometry, window: Option<u32>) -> Self {
        Self {
            ring: Producer::new(geometry),
            pushed: 0,
            window,
            immediates: 0,
            taken: 0,
            is_closing: false,
            has_said: false,
            stopped: None,
        }
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        self.ring.geometry()
    }

    /// Reports whether tails go as immediates.
    pub fn has_window(&self) -> bool {
        self.window.is_some()
    }

    /// End of the committed records.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// End of the pushed records.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Committed bytes that were not pushed.
    #[inline]
    pub fn gathered(&self) -> u64 {
        self.ring.tail() - self.pushed
    }

    /// Reports whether the receiver has stopped: nothing more arrives.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Number of messages taken when the receiver stopped, by its own report: it may lie.
    #[inline]
    pub fn taken_messages(&self) -> Option<u64> {
        self.stopped
    }

    /// End of the bytes that the receiver has freed.
    #[inline]
    pub fn head(&self) -> u64 {
        self.ring.head()
    }

    /// Reports whether the goodbye was posted.
    #[inline]
    pub fn has_said_goodbye(&self) -> bool {
        self.has_said
    }

    /// Finds room for a record, as [`Producer::reserve`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn reserve(&self, len: u32) -> Result<Grant, ReserveError> {
        self.ring.reserve(len)
    }

    /// Makes a record in the grant, as [`Producer::commit`].
    ///
    /// # Errors
    /// As there, and after [`close`](Self::close).
    #[inline]
    pub fn commit(&mut self, grant: Grant, len: u32) -> Result<Committed, CommitError> {
        if self.is_closing {
            return Err(CommitError);
        }
        self.ring.commit(grant, len)
    }

    /// No more records come: the next push says goodbye.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Returns the push to be posted now: all that has gathered, and the goodbye if it is due.
    /// `None` if there is neither, or while the receiver has no receive for an immediate; the
    /// goodbye has a receive of its own.
    #[inline]
    pub fn push(&self) -> Option<Push> {
        let tail = self.ring.tail();
        let says_goodbye = self.is_closing && !self.has_said;
        // The goodbye needs no credit: it has a receive of its own.
        if !says_goodbye && (tail == self.pushed || !self.may_push()) {
            return None;
        }
        let pieces = self.pieces(tail);
        Some(Push { pieces, tail: AdvertisedCursor { position: tail, is_last: says_goodbye } })
    }

    /// Reports whether the receiver has a receive for an immediate, or needs none.
    #[inline]
    pub fn may_push(&self) -> bool {
        self.window.is_none_or(|window| self.immediates - self.taken < u64::from(window))
    }

    #[inline]
    fn pieces(&self, tail: u64) -> [Option<Piece>; 2] {
        let (geometry, len) = (self.ring.geometry(), tail - self.pushed);
        let left = geometry.capacity() - geometry.offset(self.pushed);
        let first = if geometry.is_mirrored() { len } else { len.min(left) };
        let piece = |offset, len| (len > 0).then_some(Piece { offset, len: len as u32 });
        [piece(geometry.offset(self.pushed), first), piece(0, len - first)]
    }

    /// Marks a push that [`push`](Self::push) returned as posted.
    #[inline]
    pub fn mark_pushed(&mut self, push: &Push) {
        debug_assert!(self.pushed <= push.tail.position && push.tail.position <= self.ring.tail());
        self.pushed = push.tail.position;
        self.immediates += u64::from(self.window.is_some());
        self.has_said |= push.tail.is_last;
    }

    /// Takes the words of the control block: the head, and the count of immediates; with the last
    /// head, the count of messages. Returns true if a word is new. Once the receiver has stopped,
    /// no word counts as new.
    ///
    /// # Errors
    /// [`UpdateError`]: close the connection. Nothing has changed.
    #[inline]
    pub fn on_update(&mut self, head: u64, taken: u64) -> Result<bool, UpdateError> {
        let told = AdvertisedCursor::from_word(head);
        let is_old = told.position == self.ring.head() && taken == self.taken;
        if self.is_stopped() || is_old && !told.is_last {
            return Ok(false);
        }
        if !told.is_last && (taken < self.taken || taken > self.immediates) {
            return Err(UpdateError::Taken { taken });
        }
        if let Some(by @ 1..) = told.position.checked_sub(self.pushed) {
            return Err(UpdateError::Head(HeadError::BeyondTail { by }));
        }
        self.ring.on_head(told.position).map_err(UpdateError::Head)?;
        match told.is_last {
            true => self.stopped = Some(taken),
            false => self.taken = taken,
        }
        Ok(true)
    }
}
