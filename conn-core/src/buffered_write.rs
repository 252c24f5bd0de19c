//! Buffered Write: the sender writes records into the receiver's ring, and the receiver
//! writes its head back.
//!
//! ```text
//!   sender                                              receiver
//!   records in a ring of its own     push: records,     ring, polled
//!   [ . . r r r r . . ]  ------------ then tail ------> [ . . r r r r . . ]
//!   control block        <----------- head, taken ----- hands out, frees
//! ```
//!
//! What has gathered since the last push goes with the next one: that batches by itself,
//! as much as the pushes before it take time. The tail comes behind the records, either as
//! the immediate of their last write, which takes one of the receiver's posted receives, or
//! as a write of its own, which the receiver polls ([`Tail`](crate::ring::offer::Tail)). Positions
//! are the credits for the bytes; for the immediates it is the count of those whose receives
//! are posted again, which comes with the head.
//!
//! ```text
//!            open --- close() ---> closing --- push with FIN ---> said
//!   sender    |                       |                             |
//!             +-------- STOP ---------+-----------------------------+---> stopped
//!
//!   receiver  open --- FIN, all handed out ---> ended          open --- stop() ---> stopped
//! ```

pub mod inline_record;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

use crate::ring::{
    AdvertisedCursor, CommitError, Committed, Consumer, ConsumerConfig, Geometry, Grant, HeadError,
    Producer, Record, RecordError, ReserveError, TailError, Taken, claim_of, record_bytes,
};

/// Bytes of a ring whose pushes are single work requests: their length has 31 bits.
pub const MAX_CAPACITY: u64 = 1 << 30;

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

/// An invalid push of the sender: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushedError {
    /// Its tail.
    #[error("{0}")]
    Tail(TailError),
    /// An immediate for which it had no credit, or that this ring does not have.
    #[error("the peer sent an immediate without a credit for it")]
    Uncredited,
    /// A push after the goodbye.
    #[error("the peer sends on after it has said goodbye")]
    AfterEnd,
    /// A record inline with its tail that would begin before the last tail.
    #[error("the record beside the peer's tail begins {by} bytes before the last tail")]
    InlineRecord {
        /// By how many bytes.
        by: u64,
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

/// The sender's end. See the [module](self).
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
    ring: Producer,
    pushed: u64,
    /// Receives that the peer has posted for immediates; `None` where the tail is written.
    window: Option<u32>,
    immediates: u64,
    taken: u64,
    is_closing: bool,
    has_said: bool,
    /// Messages that the receiver had taken when it stopped.
    stopped: Option<u64>,
}

/// Sending.
impl WriteSender {
    /// The sender of an empty ring. If the tail is told by immediates, `window` is the number
    /// of receives that the peer has posted for them, less one for the goodbye.
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

    /// Reports whether the tail is told by immediates.
    pub fn has_window(&self) -> bool {
        self.window.is_some()
    }

    /// Up to where records are committed.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// Up to where they were pushed.
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

    /// Messages that the receiver says it had taken when it stopped. It may lie.
    #[inline]
    pub fn taken_messages(&self) -> Option<u64> {
        self.stopped
    }

    /// Up to where the receiver has freed.
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

    /// Makes a record of what was granted, as [`Producer::commit`].
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
        // One receive more than there are credits waits for the goodbye.
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
    /// head, the count of messages. Returns whether anything is new; nothing is, once the receiver
    /// has stopped.
    ///
    /// # Errors
    /// [`UpdateError`]: the connection is to be closed. Nothing has changed.
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

/// An update for the sender, in one write: two adjacent words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The head; the last one says STOP.
    pub head: AdvertisedCursor,
    /// Immediates taken, whose receives are posted again; with STOP, messages taken.
    pub taken: u64,
}

/// The receiver's end. See the [module](self).
///
/// ```
/// use conn_core::{buffered_write::*, ring::{Geometry, AdvertisedCursor}};
///
/// let mut receiver = WriteReceiver::new(Geometry::mirrored(64, 40)?, 0, Some(4));
/// let tail = AdvertisedCursor { position: 16, is_last: true };
/// assert_eq!(receiver.on_immediate(tail.to_imm())?, 16);
/// assert_eq!(receiver.next_header(), Some(0));
/// receiver.take(5)?; // the header that lies there: mark 0, 5 bytes
/// assert!(receiver.has_ended());
/// receiver.on_freed(16);
/// let update = receiver.update_due().expect("every free is told");
/// assert_eq!((update.head.position, update.taken), (16, 1));
/// receiver.mark_told(update);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: that of `Consumer`; told_taken <= immediates <= told_taken + window + 1;
// in_ring <= tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteReceiver {
    ring: Consumer,
    /// Up to where records are known to lie in the ring: the last one may be inline.
    in_ring: u64,
    window: Option<u32>,
    immediates: u64,
    told_taken: u64,
    said_goodbye: bool,
    /// Messages that were taken when it stopped.
    stopping: Option<u64>,
    /// STOP was written to the sender; nothing follows it.
    has_told_stop: bool,
}

/// Arrivals.
impl WriteReceiver {
    /// The receiver of an empty ring. Freed bytes are told when `head_threshold` of them
    /// have gathered, or when the sender might be waiting. If the tail is told by immediates,
    /// `window` is the number of receives that are posted for them, less one for the goodbye.
    pub const fn new(geometry: Geometry, head_threshold: u64, window: Option<u32>) -> Self {
        Self {
            ring: Consumer::new(geometry, ConsumerConfig { head_threshold }),
            in_ring: 0,
            window,
            immediates: 0,
            told_taken: 0,
            said_goodbye: false,
            stopping: None,
            has_told_stop: false,
        }
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        self.ring.geometry()
    }

    /// Up to where records have been handed out.
    #[inline]
    pub fn read_pointer(&self) -> u64 {
        self.ring.read_pointer()
    }

    /// Up to where the sender has written.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// A tail has arrived: the word of the control block, or what an immediate says. Returns
    /// the bytes that are new.
    ///
    /// # Errors
    /// [`PushedError`]: the connection is to be closed. Nothing has changed.
    #[inline]
    pub fn on_tail(&mut self, tail: AdvertisedCursor) -> Result<u64, PushedError> {
        if tail.position == self.ring.tail() && tail.is_last == self.said_goodbye {
            return Ok(0);
        }
        if self.said_goodbye {
            return Err(PushedError::AfterEnd);
        }
        let new = self.ring.on_tail_landed(tail.position).map_err(PushedError::Tail)?;
        self.in_ring = tail.position;
        self.said_goodbye = tail.is_last;
        Ok(new)
    }

    /// A tail has arrived, with the record [inline](inline_record) whose end it is, of
    /// `bytes` bytes.
    /// Returns the bytes that are new.
    ///
    /// # Errors
    /// [`PushedError`]: the connection is to be closed. Nothing has changed.
    #[inline]
    pub fn on_inline_tail(
        &mut self,
        tail: AdvertisedCursor,
        bytes: u64,
    ) -> Result<u64, PushedError> {
        let (last, begins) = (self.ring.tail(), tail.position.saturating_sub(bytes));
        if tail.position > last && begins < last {
            return Err(PushedError::InlineRecord { by: last - begins });
        }
        let new = self.on_tail(tail)?;
        self.in_ring = if new > 0 { begins } else { self.in_ring };
        Ok(new)
    }

    /// An immediate has arrived; its receive is posted again before the sender is told
    /// anything. Returns the bytes that are new.
    ///
    /// # Errors
    /// [`PushedError`]: the connection is to be closed. Nothing has changed.
    #[inline]
    pub fn on_immediate(&mut self, imm: u32) -> Result<u64, PushedError> {
        let told = AdvertisedCursor::from_imm(imm, self.ring.tail());
        if self.said_goodbye {
            return Err(PushedError::AfterEnd);
        }
        let window = self.window.map_or(0, |window| u64::from(window) + u64::from(told.is_last));
        if self.immediates - self.told_taken >= window {
            return Err(PushedError::Uncredited);
        }
        let new = self.on_tail(told)?;
        self.immediates += 1;
        Ok(new)
    }
}

/// Handing out, freeing, telling.
impl WriteReceiver {
    /// Returns the offset of the next header, as [`Consumer::next_header`].
    #[inline]
    pub fn next_header(&self) -> Option<u64> {
        self.ring.next_header()
    }

    /// Reports whether the next record lies [inline](inline_record) with the tail, and may not be
    /// in the ring yet.
    #[inline]
    pub fn is_inline(&self) -> bool {
        let read = self.ring.read_pointer();
        read >= self.in_ring && read < self.ring.tail()
    }

    /// Bytes of the record at the read pointer, if this is the header of a message; where it
    /// is not, [`take`](Self::take) skips it, or says what is wrong.
    #[inline]
    pub fn message_bytes(&self, header: u64) -> Option<u64> {
        let claim = claim_of(header, self.ring.read_pointer());
        let is_message = claim <= u64::from(self.ring.geometry().max_payload());
        is_message.then(|| record_bytes(claim as u32))
    }

    /// Up to where bytes from the read pointer on lie in the ring, contiguous.
    #[inline]
    pub fn contiguous(&self) -> u64 {
        let (geometry, read) = (self.ring.geometry(), self.ring.read_pointer());
        let left = geometry.capacity() - geometry.offset(read);
        let end = self.in_ring.max(read);
        if geometry.is_mirrored() { end } else { end.min(read + left) }
    }

    /// Takes the record whose header was read, or skips what is none: `None`.
    ///
    /// # Errors
    /// [`RecordError`] when it is no record: the connection is to be closed.
    #[inline]
    pub fn take(&mut self, header: u64) -> Result<Option<Record>, RecordError> {
        match self.ring.take(header)? {
            Taken::Record(record) => Ok(Some(record)),
            // All of it has landed: nothing is there in part.
            Taken::Skipped | Taken::Partial => Ok(None),
        }
    }

    /// All records up to `head` have been freed, as [`Consumer::on_freed`].
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn on_freed(&mut self, head: u64) {
        self.ring.on_freed(head);
    }

    /// Reports whether the sender has said goodbye, and everything was handed out.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.said_goodbye && self.ring.read_pointer() == self.ring.tail()
    }

    /// Reports whether the sender has said goodbye: it needs no more updates.
    #[inline]
    pub fn has_heard_goodbye(&self) -> bool {
        self.said_goodbye
    }

    /// Takes no more, after so many messages: the next update says STOP.
    pub fn stop(&mut self, messages: u64) {
        self.stopping = Some(messages);
    }

    /// The update for the sender, when it is worth a write: freed bytes, as
    /// [`Consumer::head_due`]; or immediates, when half of its credits have gathered.
    #[inline]
    pub fn update_due(&self) -> Option<Update> {
        let half = self.window.map_or(u64::MAX, |window| u64::from(window).div_ceil(2));
        let is_due = self.ring.head_due().is_some() || self.immediates - self.told_taken >= half;
        (is_due && !self.has_told_stop).then(|| self.update())
    }

    /// The update for the sender, as it is now.
    #[inline]
    pub fn update(&self) -> Update {
        let head =
            AdvertisedCursor { position: self.ring.head(), is_last: self.stopping.is_some() };
        Update { head, taken: self.stopping.unwrap_or(self.immediates) }
    }

    /// The update is being written to the sender.
    ///
    /// # Panics
    /// When it was never due: a bug of the driver.
    #[inline]
    pub fn mark_told(&mut self, update: Update) {
        self.ring.mark_told(update.head.position);
        match update.head.is_last {
            true => self.has_told_stop = true,
            false => self.told_taken = update.taken,
        }
    }
}
