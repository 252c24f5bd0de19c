//! The end that reads records.

use core::fmt;

use super::{ALIGN, Geometry, HEADER_BYTES, SKIP, Span, mark_of, record_bytes};

/// A tail that no honest sender writes: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TailError {
    /// It takes back what was sent.
    Backwards {
        /// Bytes by which it lies below the last one.
        by: u64,
    },
    /// It is over what the ring holds.
    BeyondCapacity {
        /// Bytes by which it lies above the head and the capacity.
        by: u64,
    },
    /// It lies within a record.
    Misaligned,
}

impl fmt::Display for TailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards { by } => write!(f, "the peer's tail went back by {by} bytes"),
            Self::BeyondCapacity { by } => {
                write!(f, "the peer's tail is {by} bytes beyond what was free")
            }
            Self::Misaligned => f.write_str("the peer's tail is within a record"),
        }
    }
}

impl core::error::Error for TailError {}

/// Bytes in the ring that are no record: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// The header is not of its position: something else lies there.
    Mark {
        /// The position, in bytes.
        position: u64,
    },
    /// The payload is longer than was agreed on.
    TooLong {
        /// What the header claims, in bytes.
        claimed: u32,
        /// The longest payload, in bytes.
        most: u32,
    },
    /// The record ends beyond the tail.
    BeyondTail {
        /// Bytes by which it does.
        by: u64,
    },
    /// It crosses the end of memory that is not mirrored, or skips no whole words.
    Wrap,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark { position } => {
                write!(f, "what lies at byte {position} of the ring is no record")
            }
            Self::TooLong { claimed, most } => {
                write!(f, "a record claims {claimed} bytes where {most} are the most")
            }
            Self::BeyondTail { by } => write!(f, "a record ends {by} bytes beyond the tail"),
            Self::Wrap => f.write_str("a record breaks the rules at the ring's end"),
        }
    }
}

impl core::error::Error for RecordError {}

/// A record that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its payload.
    pub payload: Span,
    /// The position behind it: where the head will be, once it and all before it have
    /// been freed.
    pub end: u64,
}

/// What lies at the read pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message.
    Record(Record),
    /// Something that is no message was skipped: look again.
    Skipped,
    /// A record that has not landed as a whole: look again when more has.
    Partial,
}

/// What the sender is told, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
// Invariant: told <= head <= read <= landed <= tail <= head + capacity; all are
// multiples of 8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    geometry: Geometry,
    head_threshold: u64,
    /// The head as the sender knows it.
    told: u64,
    head: u64,
    read: u64,
    landed: u64,
    tail: u64,
}

/// What arrives.
impl Consumer {
    /// The receiver of an empty ring.
    pub const fn new(geometry: Geometry, config: ConsumerConfig) -> Self {
        let ConsumerConfig { head_threshold } = config;
        Self { geometry, head_threshold, told: 0, head: 0, read: 0, landed: 0, tail: 0 }
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Up to where the sender has published records.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Up to where they have been handed out.
    #[inline]
    pub fn read_pointer(&self) -> u64 {
        self.read
    }

    /// Up to where they have been freed.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The sender's tail has been seen. Returns the bytes that are new.
    ///
    /// # Errors
    /// [`TailError`] when it cannot be: the connection is to be closed.
    #[inline]
    pub fn on_tail(&mut self, tail: u64) -> Result<u64, TailError> {
        let new = tail.wrapping_sub(self.tail);
        // What the sender may use ends where it knows that it does.
        if new <= self.told + self.geometry.capacity - self.tail && new.is_multiple_of(ALIGN) {
            self.tail = tail;
            return Ok(new);
        }
        Err(self.lie(tail))
    }

    #[cold]
    fn lie(&self, tail: u64) -> TailError {
        let limit = self.told + self.geometry.capacity;
        match (self.tail.checked_sub(tail), tail.checked_sub(limit)) {
            (Some(by @ 1..), _) => TailError::Backwards { by },
            (_, Some(by @ 1..)) => TailError::BeyondCapacity { by },
            _ => TailError::Misaligned,
        }
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
        self.landed = landed;
        Ok(())
    }
}

/// Handing out.
impl Consumer {
    /// Where the next header lies, in bytes from the beginning of the ring's memory;
    /// `None` when all that has landed was handed out.
    #[inline]
    pub fn next_header(&self) -> Option<u64> {
        (self.read < self.landed).then(|| self.geometry.offset(self.read))
    }

    /// Takes what lies at the read pointer, given the header there.
    ///
    /// # Errors
    /// [`RecordError`] when it is no record: the connection is to be closed. It is given
    /// again every time.
    #[inline]
    pub fn take(&mut self, header: u64) -> Result<Taken, RecordError> {
        if self.read == self.landed {
            return Ok(Taken::Partial);
        }
        match parse(&self.geometry, self.read, header, (self.landed, self.tail))? {
            Parsed::Record(record) => {
                self.read = record.end;
                Ok(Taken::Record(record))
            }
            Parsed::Skipped { end } => {
                self.read = end;
                Ok(Taken::Skipped)
            }
            Parsed::Partial => Ok(Taken::Partial),
        }
    }
}

/// What a header says.
pub(super) enum Parsed {
    Record(Record),
    Skipped { end: u64 },
    Partial,
}

/// Reads the header at `position`, of which all up to `landed` is here and all up to
/// `tail` was sent.
#[inline]
pub(super) fn parse(
    geometry: &Geometry,
    position: u64,
    header: u64,
    (landed, tail): (u64, u64),
) -> Result<Parsed, RecordError> {
    let (len, mark) = (header as u32, (header >> 32) as u32);
    let end = position + record_bytes(len);
    let is_whole = mark == mark_of(position)
        && len <= geometry.max_payload
        && end <= landed
        && geometry.skipped_before(position, end - position) == 0;
    if !is_whole {
        return parse_otherwise(geometry, position, header, (landed, tail));
    }
    let offset = geometry.offset(position) + u64::from(HEADER_BYTES);
    Ok(Parsed::Record(Record { payload: Span { offset, len }, end }))
}

/// What is no whole message.
#[cold]
fn parse_otherwise(
    geometry: &Geometry,
    position: u64,
    header: u64,
    (landed, tail): (u64, u64),
) -> Result<Parsed, RecordError> {
    let (len, mark) = (header as u32, (header >> 32) as u32);
    let end = position + record_bytes(len);
    if mark & !SKIP != mark_of(position) {
        return Err(RecordError::Mark { position });
    }
    let is_skip = mark & SKIP != 0;
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
    // Whole messages do not come here.
    Ok(if end > landed { Parsed::Partial } else { Parsed::Skipped { end } })
}

/// Freeing.
impl Consumer {
    /// All records up to `head` have been freed: the [end](Record::end) of the last one
    /// of an unbroken row, which [`free`](super::free) finds; or, when nothing is lent, the
    /// [read pointer](Self::read_pointer), so that nothing that was skipped stays behind.
    ///
    /// # Panics
    /// When that is less than before, or more than was handed out: a bug of the driver.
    #[inline]
    pub fn on_freed(&mut self, head: u64) {
        assert!(self.head <= head && head <= self.read, "freed what was not lent");
        self.head = head;
    }

    /// The head, when it is worth telling the sender: a threshold of bytes has gathered,
    /// or the sender might wait for just these.
    #[inline]
    pub fn head_due(&self) -> Option<u64> {
        let freed = self.head - self.told;
        let free_for_sender = self.told + self.geometry.capacity - self.tail;
        let might_wait = free_for_sender < self.geometry.most_needed();
        (freed > 0 && (freed >= self.head_threshold || might_wait)).then_some(self.head)
    }

    /// The head, when there is anything to tell.
    #[inline]
    pub fn head_untold(&self) -> Option<u64> {
        (self.head > self.told).then_some(self.head)
    }

    /// The sender is being told this head. It may be using what it frees from now on.
    ///
    /// # Panics
    /// When it was never due: a bug of the driver.
    #[inline]
    pub fn mark_told(&mut self, head: u64) {
        assert!(self.told <= head && head <= self.head, "told what was not freed");
        self.told = head;
    }
}
