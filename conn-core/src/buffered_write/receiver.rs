//! The receiver's end: hands out pushed records, and advertises freed bytes.

use crate::ring::{
    AdvertisedCursor, Consumer, ConsumerConfig, Geometry, Record, RecordError, TailError, Taken,
    claim_of, record_bytes,
};

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

/// An update for the sender, in one write: two adjacent words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The head; the last one says STOP.
    pub head: AdvertisedCursor,
    /// Immediates taken, with their receives reposted; with STOP, messages taken.
    pub taken: u64,
}

/// The receiver's end. See the [module](super).
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
    pub(super) ring: Consumer,
    /// Position up to which records are known to lie in the ring: the last one may be inline.
    pub(super) in_ring: u64,
    window: Option<u32>,
    immediates: u64,
    told_taken: u64,
    said_goodbye: bool,
    /// Messages that were taken when it stopped.
    pub(super) stopping: Option<u64>,
    /// STOP was written to the sender; nothing follows it.
    has_told_stop: bool,
}

/// Arrivals.
impl WriteReceiver {
    /// The receiver of an empty ring. It advertises its head when `head_threshold` bytes were
    /// freed, or when the sender might be waiting. If tails arrive as immediates, `window` is the
    /// number of receives posted for them, less one for the goodbye.
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

    /// End of the records that were handed out.
    #[inline]
    pub fn read_pointer(&self) -> u64 {
        self.ring.read_pointer()
    }

    /// End of the bytes that the sender has written.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// Takes a tail, from the control block or from an immediate. Returns the number of new bytes.
    ///
    /// # Errors
    /// [`PushedError`]: close the connection. Nothing has changed.
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

    /// Takes a tail that arrived with the last record before it [inline](super::inline_record), of
    /// `bytes` bytes. Returns the number of new bytes.
    ///
    /// # Errors
    /// [`PushedError`]: close the connection. Nothing has changed.
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

    /// Takes an immediate; repost its receive before the next update to the sender. Returns the
    /// number of new bytes.
    ///
    /// # Errors
    /// [`PushedError`]: close the connection. Nothing has changed.
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

    /// Reports whether the next record lies [inline](super::inline_record) with the tail, and may
    /// not be in the ring yet.
    #[inline]
    pub fn is_inline(&self) -> bool {
        let read = self.ring.read_pointer();
        read >= self.in_ring && read < self.ring.tail()
    }

    /// Bytes of the record at the read pointer, if this is the header of a message. For any other
    /// header, call [`take`](Self::take), which skips the record or fails.
    #[inline]
    pub fn message_bytes(&self, header: u64) -> Option<u64> {
        let claim = claim_of(header, self.ring.read_pointer());
        let is_message = claim <= u64::from(self.ring.geometry().max_payload());
        is_message.then(|| record_bytes(claim as u32))
    }

    /// End of the contiguous bytes in the ring from the read pointer on.
    #[inline]
    pub fn contiguous(&self) -> u64 {
        let (geometry, read) = (self.ring.geometry(), self.ring.read_pointer());
        let left = geometry.capacity() - geometry.offset(read);
        let end = self.in_ring.max(read);
        if geometry.is_mirrored() { end } else { end.min(read + left) }
    }

    /// Takes the record of this header; `None` if it is a skip record, which is passed.
    ///
    /// # Errors
    /// [`RecordError`] when it is no record: close the connection.
    #[inline]
    pub fn take(&mut self, header: u64) -> Result<Option<Record>, RecordError> {
        match self.ring.take(header)? {
            Taken::Record(record) => Ok(Some(record)),
            // The tail covers whole records only, so no record is partial.
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

    /// Takes no more messages after `messages` of them: the next update says STOP.
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
    /// Panics if it was never due: a bug of the driver.
    #[inline]
    pub fn mark_told(&mut self, update: Update) {
        self.ring.mark_told(update.head.position);
        match update.head.is_last {
            true => self.has_told_stop = true,
            false => self.told_taken = update.taken,
        }
    }
}
