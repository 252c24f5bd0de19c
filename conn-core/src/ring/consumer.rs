//! The end that reads records.

use core::hint::cold_path;

use super::{ALIGN, Geometry, HEADER_BYTES, SKIP, Span, claim_of, record_bytes};

/// A tail that no honest sender writes: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TailError {
    /// It is lower than an earlier one.
    #[error("the peer's tail went back by {by} bytes")]
    Backwards {
        /// Bytes by which it is below the last one.
        by: u64,
    },
    /// It exceeds the ring.
    #[error("the peer's tail is {by} bytes beyond what was free")]
    BeyondCapacity {
        /// Bytes by which it is above the head plus the capacity.
        by: u64,
    },
    /// It lies within a record.
    #[error("the peer's tail is within a record")]
    Misaligned,
}

/// Bytes in the ring that are no record: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The header does not have the mark of its position.
    #[error("what lies at byte {position} of the ring is no record")]
    Mark {
        /// The position, in bytes.
        position: u64,
    },
    /// The payload is longer than was agreed on.
    #[error("a record claims {claimed} bytes where {most} are the most")]
    TooLong {
        /// Length that the header claims, in bytes.
        claimed: u32,
        /// The longest payload, in bytes.
        most: u32,
    },
    /// The record ends beyond the tail.
    #[error("a record ends {by} bytes beyond the tail")]
    BeyondTail {
        /// Bytes by which it does.
        by: u64,
    },
    /// It crosses the end of memory that is not mirrored, or skips no whole words.
    #[error("a record breaks the rules at the ring's end")]
    Wrap,
}

/// A record that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its payload.
    pub payload: Span,
    /// The position behind it: where the head will be, once it and all before it have
    /// been freed.
    pub end: u64,
}

/// Result of taking the record at the read pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message.
    Record(Record),
    /// Something that is no message was skipped: look again.
    Skipped,
    /// A record that has not landed as a whole: look again when more has.
    Partial,
}

/// Policy for sending the head to the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// Freed bytes that are worth a write of the head. The sender gets it earlier when it
    /// might be waiting. 0 tells every free.
    pub head_threshold: u64,
}

/// The receiver's view of the ring. See the [module](super).
///
/// ```
/// use conn_core::ring::*;
///
/// let geometry = Geometry::mirrored(64, 40)?;
/// let (mut sender, config) = (Producer::new(geometry), ConsumerConfig { head_threshold: 32 });
/// let mut ring = Consumer::new(geometry, config);
/// let header = sender.commit(sender.reserve(5)?, 5)?.header;
///
/// ring.on_tail(sender.tail())?;
/// ring.on_landed(sender.tail())?;
/// assert_eq!(ring.next_header(), Some(header.offset));
/// let Taken::Record(record) = ring.take(header.word)? else { panic!() };
/// assert_eq!((record.payload, ring.next_header()), (Span { offset: 8, len: 5 }, None));
///
/// ring.on_freed(record.end);
/// assert_eq!(ring.head_due(), None); // 16 bytes are not worth it yet
/// assert_eq!(ring.on_tail(8), Err(TailError::Backwards { by: 8 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: told <= head <= read <= until <= landed <= tail <= limit = told + capacity; all are
// multiples of 8. The bytes between read and until are contiguous; records that end beyond until
// take the slow path. due_at is beyond told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    geometry: Geometry,
    head_threshold: u64,
    /// The head as the sender knows it.
    told: u64,
    /// End of the space that the sender may use.
    limit: u64,
    /// A tail beyond this leaves the sender less room than the longest message may need.
    scarce_beyond: u64,
    /// The next head to advertise: told + head_threshold, or the first one beyond told when the
    /// sender might be waiting.
    due_at: u64,
    head: u64,
    read: u64,
    /// The lesser of lap_end and landed.
    until: u64,
    /// End of the contiguous memory, as of the last check.
    lap_end: u64,
    landed: u64,
    tail: u64,
}

/// Arrivals.
impl Consumer {
    /// The receiver of an empty ring.
    pub const fn new(geometry: Geometry, config: ConsumerConfig) -> Self {
        let ConsumerConfig { head_threshold } = config;
        // 0 and 1 advertise every free; a capacity advertises only when the sender may be waiting.
        let capacity = geometry.capacity();
        let head_threshold = match head_threshold {
            0 => 1,
            _ if head_threshold > capacity => capacity,
            _ => head_threshold,
        };
        Self {
            geometry,
            head_threshold,
            told: 0,
            limit: capacity,
            scarce_beyond: capacity - geometry.most_needed(),
            due_at: head_threshold,
            head: 0,
            read: 0,
            until: 0,
            lap_end: geometry.contiguous_until(0),
            landed: 0,
            tail: 0,
        }
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// End of the published records.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// End of the records that were handed out.
    #[inline]
    pub fn read_pointer(&self) -> u64 {
        self.read
    }

    /// End of the freed records.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Takes the sender's tail. Returns the number of new bytes.
    ///
    /// # Errors
    /// [`TailError`] when the tail is impossible: close the connection.
    #[inline]
    pub fn on_tail(&mut self, tail: u64) -> Result<u64, TailError> {
        if tail < self.tail || tail > self.limit || !tail.is_multiple_of(ALIGN) {
            cold_path();
            return Err(self.lie(tail));
        }
        if tail > self.scarce_beyond {
            self.due_at = self.told + 1;
        }
        let new = tail - self.tail;
        self.tail = tail;
        Ok(new)
    }

    #[cold]
    fn lie(&self, tail: u64) -> TailError {
        match (self.tail.checked_sub(tail), tail.checked_sub(self.limit)) {
            (Some(by @ 1..), _) => TailError::Backwards { by },
            (_, Some(by @ 1..)) => TailError::BeyondCapacity { by },
            _ => TailError::Misaligned,
        }
    }

    /// Takes the tail of a sender that writes to the receiver's memory, where all bytes before it
    /// have landed: [`on_tail`](Self::on_tail) and [`on_landed`](Self::on_landed) in one.
    ///
    /// # Errors
    /// [`TailError`] when the tail is impossible: close the connection.
    #[inline]
    pub fn on_tail_landed(&mut self, tail: u64) -> Result<u64, TailError> {
        let new = self.on_tail(tail)?;
        self.land(tail);
        Ok(new)
    }

    #[inline]
    fn land(&mut self, landed: u64) {
        self.landed = landed;
        self.until = landed.min(self.lap_end);
    }

    /// All bytes up to `landed` are in the receiver's memory. Where the sender writes
    /// into it, that is the tail.
    ///
    /// # Errors
    /// [`TailError`] when that is less than before, or more than was sent.
    #[inline]
    pub fn on_landed(&mut self, landed: u64) -> Result<(), TailError> {
        if landed < self.landed {
            return Err(TailError::Backwards { by: self.landed - landed });
        }
        if landed > self.tail {
            return Err(TailError::BeyondCapacity { by: landed - self.tail });
        }
        if !landed.is_multiple_of(ALIGN) {
            return Err(TailError::Misaligned);
        }
        self.land(landed);
        Ok(())
    }
}

/// Handing out.
impl Consumer {
    /// Offset of the next header, in bytes from the beginning of the ring's memory; `None` when all
    /// that has landed was handed out.
    #[inline]
    pub fn next_header(&self) -> Option<u64> {
        (self.read < self.landed).then(|| self.geometry.offset(self.read))
    }

    /// Takes the record at the read pointer, given its header.
    ///
    /// # Errors
    /// [`RecordError`] when it is no record: close the connection. All later calls return it again.
    #[inline]
    pub fn take(&mut self, header: u64) -> Result<Taken, RecordError> {
        if self.read == self.landed {
            return Ok(Taken::Partial);
        }
        let (len, claim) = (header as u32, claim_of(header, self.read));
        let end = self.read + record_bytes(len);
        // Two separate branches cost less than one combined condition.
        if claim > u64::from(self.geometry.max_payload) {
            cold_path();
            let is_skipped = self.skip(header)?;
            return Ok(if is_skipped { Taken::Skipped } else { Taken::Partial });
        } else if end > self.until {
            cold_path();
            if !self.is_whole(header)? {
                return Ok(Taken::Partial);
            }
        }
        let offset = self.geometry.offset(self.read) + u64::from(HEADER_BYTES);
        self.read = end;
        Ok(Taken::Record(Record { payload: Span { offset, len }, end }))
    }

    /// Advances past a skip record that has landed whole; errors if it is invalid.
    #[cold]
    fn skip(&mut self, header: u64) -> Result<bool, RecordError> {
        let reach = (self.landed, self.tail);
        let Parsed::Skipped { end } = parse(&self.geometry, self.read, header, reach)? else {
            return Ok(false);
        };
        self.read = end;
        self.begin_lap();
        Ok(true)
    }

    /// Parses a message that ends behind the lap, once in each lap, or that has not landed whole.
    #[cold]
    fn is_whole(&mut self, header: u64) -> Result<bool, RecordError> {
        self.begin_lap();
        let reach = (self.landed, self.tail);
        let parsed = parse(&self.geometry, self.read, header, reach)?;
        Ok(matches!(parsed, Parsed::Record(_)))
    }

    /// Sets the end of the lap of the read pointer.
    fn begin_lap(&mut self) {
        self.lap_end = self.geometry.contiguous_until(self.read);
        self.until = self.landed.min(self.lap_end);
    }
}

impl Consumer {
    /// Advances the read pointer to `position`, up to which other threads have handed out records:
    /// [`Receivers::claimed`](super::shared::Receivers::claimed).
    ///
    /// # Panics
    /// Panics if `position` is below the read pointer or beyond the landed bytes: a bug of the
    /// driver.
    #[inline]
    pub fn on_claimed(&mut self, position: u64) {
        let claimed = position.wrapping_sub(self.read);
        assert!(claimed <= self.landed - self.read, "claimed what has not landed");
        self.read = position;
        self.begin_lap();
    }

    /// Reports whether the record at the read pointer, which has this header, has landed only in
    /// part. False if the header is invalid.
    pub fn is_partial(&self, header: u64) -> bool {
        let parsed = parse(&self.geometry, self.read, header, (self.landed, self.tail));
        self.read < self.landed && matches!(parsed, Ok(Parsed::Partial))
    }
}

/// Meaning of a header.
pub(crate) enum Parsed {
    Record(Record),
    Skipped { end: u64 },
    Partial,
}

/// Parses the header at `position`; bytes up to `landed` are here, and bytes up to `tail` were
/// sent.
#[inline]
pub(crate) fn parse(
    geometry: &Geometry,
    position: u64,
    header: u64,
    (landed, tail): (u64, u64),
) -> Result<Parsed, RecordError> {
    let (len, claim) = (header as u32, claim_of(header, position));
    let end = position + record_bytes(len);
    let is_whole = claim <= u64::from(geometry.max_payload)
        && end <= landed
        && end <= geometry.contiguous_until(position);
    if !is_whole {
        return parse_otherwise(geometry, position, header, (landed, tail));
    }
    let offset = geometry.offset(position) + u64::from(HEADER_BYTES);
    Ok(Parsed::Record(Record { payload: Span { offset, len }, end }))
}

/// Parses a header that is not that of a whole message.
#[cold]
fn parse_otherwise(
    geometry: &Geometry,
    position: u64,
    header: u64,
    (landed, tail): (u64, u64),
) -> Result<Parsed, RecordError> {
    let (len, claim) = (header as u32, claim_of(header, position));
    let end = position + record_bytes(len);
    let is_skip = claim == u64::from(len) | SKIP;
    if !is_skip && claim != u64::from(len) {
        return Err(RecordError::Mark { position });
    }
    if !is_skip && len > geometry.max_payload {
        return Err(RecordError::TooLong { claimed: len, most: geometry.max_payload });
    }
    let crosses = geometry.skipped_before(position, end - position) > 0;
    if crosses || is_skip && !len.is_multiple_of(ALIGN as u32) {
        return Err(RecordError::Wrap);
    }
    if end > tail {
        return Err(RecordError::BeyondTail { by: end - tail });
    }
    // Whole messages do not get here.
    Ok(if end > landed { Parsed::Partial } else { Parsed::Skipped { end } })
}

/// Freeing.
impl Consumer {
    /// All records up to `head` have been freed: the [end](Record::end) of the last one
    /// of an unbroken row, which [`free`](super::free) finds. When nothing is lent, it is
    /// [all](Self::on_all_freed), so that nothing that was skipped stays behind.
    ///
    /// # Panics
    /// When that is less than before, or more than was handed out: a bug of the driver.
    #[inline]
    pub fn on_freed(&mut self, head: u64) {
        let freed = head.wrapping_sub(self.head);
        assert!(freed <= self.read - self.head, "freed what was not lent");
        self.head = head;
    }

    /// All that was handed out, or skipped, has been freed.
    #[inline]
    pub fn on_all_freed(&mut self) {
        self.head = self.read;
    }

    /// The head, when it is worth telling the sender: a threshold of bytes has gathered,
    /// or the sender might wait for just these.
    #[inline]
    pub fn head_due(&self) -> Option<u64> {
        (self.head >= self.due_at).then_some(self.head)
    }

    /// The head, when the sender does not know it yet.
    #[inline]
    pub fn head_unreported(&self) -> Option<u64> {
        (self.head > self.told).then_some(self.head)
    }

    /// Marks this head as sent: the sender may use the freed bytes from now on.
    ///
    /// # Panics
    /// Panics if this head was never due: a bug of the driver.
    #[inline]
    pub fn mark_told(&mut self, head: u64) {
        let new = head.wrapping_sub(self.told);
        assert!(new <= self.head - self.told, "told what was not freed");
        self.told = head;
        self.limit += new;
        self.scarce_beyond += new;
        let worth = if self.tail > self.scarce_beyond { 1 } else { self.head_threshold };
        self.due_at = head + worth;
    }
}
