//! The end that writes records.

use core::hint::cold_path;

use super::{ALIGN, Geometry, HEADER_BYTES, Header, Span, header_word, record_bytes, skip_word};

/// No room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The ring is full: try again when the receiver's head has moved.
    #[error("the ring has {free} bytes free, and {needed} are needed")]
    Full {
        /// Bytes that have to be free.
        needed: u64,
        /// Bytes that are.
        free: u64,
    },
    /// As many records are reserved and not published as there are slots
    /// ([`shared`](super::shared) rings only): try again.
    #[error("too many messages are being written at once")]
    Crowded,
    /// It will never fit.
    #[error("a message longer than the ring takes: {most} bytes is the most")]
    TooLong {
        /// The longest payload, in bytes.
        most: u32,
    },
}

/// A grant that does not begin at the ring's present tail, or is shorter than the committed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("commit of a record that was not reserved")]
pub struct CommitError;

/// A head that no honest receiver writes: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// It is lower than an earlier one.
    #[error("the peer's head went back by {by} bytes")]
    Backwards {
        /// Bytes by which it is below the last one.
        by: u64,
    },
    /// It frees bytes that were never sent.
    #[error("the peer's head is {by} bytes beyond what was sent")]
    BeyondTail {
        /// Bytes by which it is above the tail.
        by: u64,
    },
    /// It lies within a record.
    #[error("the peer's head is within a record")]
    Misaligned,
}

/// Room for one record, at the ring's tail. Nothing has changed until it is committed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "room is taken by committing it"]
pub struct Grant {
    /// Position of the skip record, or of the record if there is none.
    tail: u64,
    /// Position of the record.
    start: u64,
    payload: Span,
}

impl Grant {
    /// Location to write the payload to.
    #[inline]
    pub fn payload(&self) -> Span {
        self.payload
    }
}

/// Headers to be written before the new tail is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The record's header.
    pub header: Header,
    /// The header of the skip record before it.
    pub skip: Option<Header>,
}

/// The sender's view of the ring. See the [module](super).
///
/// ```
/// use conn_core::ring::*;
///
/// let mut ring = Producer::new(Geometry::mirrored(64, 40)?);
/// let grant = ring.reserve(5)?;
/// assert_eq!(grant.payload(), Span { offset: 8, len: 5 });
/// // … the payload is written there, then:
/// let committed = ring.commit(grant, 5)?;
/// assert_eq!((committed.header.offset, committed.skip, ring.tail()), (0, None, 16));
///
/// let grant = ring.reserve(40)?;
/// ring.commit(grant, 40)?;
/// assert_eq!(ring.reserve(0), Err(ReserveError::Full { needed: 8, free: 0 }));
/// assert_eq!(ring.on_head(16)?, 16);
/// assert!(ring.reserve(0).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: head <= tail <= until <= limit = head + capacity; all are multiples of 8. The bytes
// before until are contiguous. A record that does not fit there takes the slow path, so until may
// be less than possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    geometry: Geometry,
    tail: u64,
    until: u64,
    limit: u64,
}

impl Producer {
    /// The sender of an empty ring.
    pub const fn new(geometry: Geometry) -> Self {
        Self { geometry, tail: 0, until: geometry.capacity(), limit: geometry.capacity() }
    }

    /// Records up to `tail` were committed elsewhere: by several threads
    /// ([`shared`](super::shared)), which do their own reserving. A `tail` that is not
    /// ahead, or beyond the room, is ignored.
    pub fn catch_up(&mut self, tail: u64) {
        if self.tail < tail && tail <= self.limit {
            self.tail = tail;
            self.until = self.limit.min(self.geometry.contiguous_until(tail));
        }
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// End of the committed records: the tail to publish.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The head that the receiver advertised last.
    #[inline]
    pub fn head(&self) -> u64 {
        self.limit - self.geometry.capacity()
    }

    /// Free bytes.
    #[inline]
    pub fn free(&self) -> u64 {
        self.limit - self.tail
    }

    /// Finds room for a record of `len` bytes.
    ///
    /// # Errors
    /// [`ReserveError::Full`] when there is none now; [`ReserveError::TooLong`] when
    /// there never is.
    #[inline]
    pub fn reserve(&self, len: u32) -> Result<Grant, ReserveError> {
        let mut start = self.tail;
        // Two separate branches cost less than one combined condition.
        if start + record_bytes(len) > self.until {
            cold_path();
            start = self.start_beyond(len)?;
        } else if len > self.geometry.max_payload {
            cold_path();
            return Err(ReserveError::TooLong { most: self.geometry.max_payload });
        }
        let offset = self.geometry.offset(start) + u64::from(HEADER_BYTES);
        Ok(Grant { tail: self.tail, start, payload: Span { offset, len } })
    }

    /// Once in a lap, or when there is no room: where the record begins.
    #[cold]
    fn start_beyond(&self, len: u32) -> Result<u64, ReserveError> {
        if len > self.geometry.max_payload {
            return Err(ReserveError::TooLong { most: self.geometry.max_payload });
        }
        let (bytes, free) = (record_bytes(len), self.free());
        let skipped = self.geometry.skipped_before(self.tail, bytes);
        let needed = skipped + bytes;
        if needed > free {
            return Err(ReserveError::Full { needed, free });
        }
        Ok(self.tail + skipped)
    }

    /// Makes a record of the first `len` bytes of the grant. Write the returned headers and the
    /// payload to memory before you publish the [tail](Self::tail).
    ///
    /// # Errors
    /// [`CommitError`] when the grant is an old one, or has fewer bytes.
    #[inline]
    pub fn commit(&mut self, grant: Grant, len: u32) -> Result<Committed, CommitError> {
        if grant.tail != self.tail || len > grant.payload.len {
            return Err(CommitError);
        }
        let end = grant.start + record_bytes(len);
        let mut skip = None;
        if end > self.until {
            cold_path();
            if end > self.limit {
                return Err(CommitError);
            }
            skip = self.begin_lap(grant.start);
        }
        self.tail = end;
        let offset = grant.payload.offset - u64::from(HEADER_BYTES);
        Ok(Committed { header: Header { offset, word: header_word(grant.start, len) }, skip })
    }

    /// Makes a record of `len` bytes: [`reserve`](Self::reserve) and [`commit`](Self::commit) in
    /// one, where the length is known. Returns the location of the payload. Write it and the
    /// headers to memory before you publish the [tail](Self::tail).
    ///
    /// ```
    /// use conn_core::ring::*;
    ///
    /// let mut ring = Producer::new(Geometry::mirrored(64, 40)?);
    /// let (payload, Committed { header, skip }) = ring.push(5)?;
    /// assert_eq!((payload, header.offset, skip), (Span { offset: 8, len: 5 }, 0, None));
    /// assert_eq!(ring.tail(), 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of [`reserve`](Self::reserve).
    #[inline]
    pub fn push(&mut self, len: u32) -> Result<(Span, Committed), ReserveError> {
        let (mut start, mut skip) = (self.tail, None);
        if start + record_bytes(len) > self.until {
            cold_path();
            start = self.start_beyond(len)?;
            skip = self.begin_lap(start);
        } else if len > self.geometry.max_payload {
            cold_path();
            return Err(ReserveError::TooLong { most: self.geometry.max_payload });
        }
        self.tail = start + record_bytes(len);
        let offset = self.geometry.offset(start);
        let header = Header { offset, word: header_word(start, len) };
        let payload = Span { offset: offset + u64::from(HEADER_BYTES), len };
        Ok((payload, Committed { header, skip }))
    }

    /// Begins the lap of a record at `start`; returns the header of the skip record before it, if
    /// there is one.
    #[cold]
    fn begin_lap(&mut self, start: u64) -> Option<Header> {
        self.until = self.limit.min(self.geometry.contiguous_until(start));
        let skipped = start - self.tail;
        let offset = self.geometry.offset(self.tail);
        (skipped > 0).then(|| Header { offset, word: skip_word(self.tail, skipped) })
    }

    /// Takes the receiver's head. Returns the number of bytes that it frees.
    ///
    /// # Errors
    /// [`HeadError`] when the head is impossible: close the connection.
    #[inline]
    pub fn on_head(&mut self, head: u64) -> Result<u64, HeadError> {
        let freed = head.wrapping_sub(self.head());
        if freed <= self.tail - self.head() && freed.is_multiple_of(ALIGN) {
            self.limit += freed;
            self.until = self.limit.min(self.geometry.contiguous_until(self.tail));
            return Ok(freed);
        }
        Err(self.lie(head))
    }

    #[cold]
    fn lie(&self, head: u64) -> HeadError {
        match (self.head().checked_sub(head), head.checked_sub(self.tail)) {
            (Some(by @ 1..), _) => HeadError::Backwards { by },
            (_, Some(by @ 1..)) => HeadError::BeyondTail { by },
            _ => HeadError::Misaligned,
        }
    }
}
