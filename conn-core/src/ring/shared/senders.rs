//! The senders of a shared ring: they reserve atomically, and publish in order.

use static_assertions::assert_impl_all;

use super::super::free::{FreeListError, RecordSlot};
use super::super::{
    ALIGN, Geometry, HEADER_BYTES, HeadError, Header, ReserveError, Span, header_word,
    record_bytes, skip_word,
};
use super::{
    CLAIM, CLAIM_SEE, COUNT, ClaimWord, check_slots, head_publish, head_see, slot_of,
    written_publish, written_see,
};
use crate::combiner::Combiner;
use crate::sync::{AtomicU64, Ordering};

assert_impl_all!(Senders<[RecordSlot; 2]>: Send, Sync);

/// Room for one record of a shared ring. Until it is published, nothing behind it is.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the ring stands still until it is published"]
pub struct SharedGrant {
    /// Position of the skip record, or of the record if there is none.
    pub(super) tail: u64,
    pub(super) start: u64,
    pub(super) count: u64,
    pub(super) payload: Span,
}

impl SharedGrant {
    /// Location to write the payload to.
    #[inline]
    pub fn payload(&self) -> Span {
        self.payload
    }

    /// The position of the record, in bytes since the beginning.
    #[inline]
    pub fn position(&self) -> u64 {
        self.start
    }
}

/// The senders' view of a ring. See the [module](super).
///
/// ```
/// use conn_core::ring::{Geometry, free::RecordSlot, shared::Senders};
/// use std::sync::atomic::{AtomicU64, Ordering::*};
///
/// let (ring, tail) = (Geometry::mirrored(1 << 10, 100)?, AtomicU64::new(0));
/// let ring = Senders::new(ring, [const { RecordSlot::new() }; 8])?;
/// std::thread::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| {
///             let grant = ring.reserve(16).unwrap();
///             let headers = ring.headers(&grant);
///             // … payload and headers are written, then:
///             ring.publish(grant, |position| tail.store(position, Release));
///         });
///     }
/// });
/// assert_eq!(tail.load(Acquire), 3 * 24);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: head <= published <= reserved <= head + capacity, and as many records lie
// between published and reserved as the claim counts beyond `published_count`, which are
// no more than the slots.
#[derive(Debug)]
pub struct Senders<S> {
    pub(super) geometry: Geometry,
    pub(super) reserved: AtomicU64,
    pub(super) head: AtomicU64,
    /// Written inside the combiner alone.
    pub(super) published: AtomicU64,
    pub(super) published_count: AtomicU64,
    pub(super) combiner: Combiner,
    pub(super) slots: S,
}

/// Any thread.
impl<S: AsRef<[RecordSlot]>> Senders<S> {
    /// The senders of an empty ring: as many can write at once as `storage` has slots, a
    /// power of two.
    ///
    /// # Errors
    /// [`FreeListError`].
    pub fn new(geometry: Geometry, storage: S) -> Result<Self, FreeListError> {
        check_slots(&storage)?;
        Ok(Self {
            geometry,
            reserved: AtomicU64::new(0),
            head: AtomicU64::new(0),
            published: AtomicU64::new(0),
            published_count: AtomicU64::new(0),
            combiner: Combiner::new(),
            slots: storage,
        })
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// End of the published records.
    #[inline]
    pub fn tail(&self) -> u64 {
        // Relaxed: the thread that published it has told the receiver.
        self.published.load(Ordering::Relaxed)
    }

    /// Claims room for a record of `len` bytes.
    ///
    /// # Errors
    /// [`ReserveError::Full`] and [`ReserveError::Crowded`] when there is none now;
    /// [`ReserveError::TooLong`] when there never is.
    #[inline]
    pub fn reserve(&self, len: u32) -> Result<SharedGrant, ReserveError> {
        if len > self.geometry.max_payload {
            return Err(ReserveError::TooLong { most: self.geometry.max_payload });
        }
        let (bytes, capacity) = (record_bytes(len), self.geometry.capacity());
        let mut word = self.reserved.load(CLAIM_SEE);
        loop {
            let head = self.head.load(head_see());
            let Some(claim) = ClaimWord::unpack(word, head, capacity) else {
                word = self.reserved.load(CLAIM_SEE);
                continue;
            };
            let ClaimWord { position: tail, count } = claim;
            let needed = self.geometry.skipped_before(tail, bytes) + bytes;
            let free = head + capacity - tail;
            if needed > free {
                return Err(ReserveError::Full { needed, free });
            }
            let unpublished = count.wrapping_sub(self.published_count.load(head_see())) & COUNT;
            if unpublished >= self.slots.as_ref().len() as u64 {
                let now = self.reserved.load(CLAIM_SEE);
                if now == word {
                    return Err(ReserveError::Crowded);
                }
                word = now; // what was published since is not of the old claim
                continue;
            }
            let next = ClaimWord { position: tail + needed, count: count + 1 }.pack();
            match self.reserved.compare_exchange_weak(word, next, CLAIM, CLAIM_SEE) {
                Ok(_) => return Ok(self.grant(claim, needed - bytes, len)),
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    fn grant(
        &self,
        ClaimWord { position: tail, count }: ClaimWord,
        skipped: u64,
        len: u32,
    ) -> SharedGrant {
        let start = tail + skipped;
        let offset = self.geometry.offset(start) + u64::from(HEADER_BYTES);
        SharedGrant { tail, start, count, payload: Span { offset, len } }
    }

    /// Returns the headers to be written with the payload before the record is published: its own,
    /// and that of a skip record before it.
    #[inline]
    pub fn headers(&self, grant: &SharedGrant) -> (Header, Option<Header>) {
        let skipped = grant.start - grant.tail;
        let skip = (skipped > 0).then(|| self.skip_at(grant.tail, skipped));
        let word = header_word(grant.start, grant.payload.len);
        (Header { offset: self.geometry.offset(grant.start), word }, skip)
    }

    /// Returns the headers to be written before unused room is published: one that skips the room,
    /// and that of a skip record before it.
    #[inline]
    pub fn unused(&self, grant: &SharedGrant) -> (Header, Option<Header>) {
        let skipped = grant.start - grant.tail;
        let skip = (skipped > 0).then(|| self.skip_at(grant.tail, skipped));
        (self.skip_at(grant.start, record_bytes(grant.payload.len)), skip)
    }

    #[inline]
    fn skip_at(&self, position: u64, bytes: u64) -> Header {
        Header { offset: self.geometry.offset(position), word: skip_word(position, bytes) }
    }

    /// The record is in memory. When this or any other call has returned, all records are
    /// published that are complete and have no incomplete one before them. `tell` is given
    /// the new tail, and makes it known to the receiver; never by two threads at once.
    #[inline]
    pub fn publish(&self, grant: SharedGrant, mut tell: impl FnMut(u64)) {
        let end = grant.start + record_bytes(grant.payload.len);
        slot_of(&self.slots, grant.count).store(end, written_publish());
        if !self.combiner.try_enter() {
            return;
        }
        loop {
            self.move_tail(&mut tell);
            if !self.combiner.leave() {
                break;
            }
        }
    }

    /// Inside the combiner.
    fn move_tail(&self, tell: &mut impl FnMut(u64)) {
        // Relaxed: the combiner orders the threads that enter it.
        let before = self.published.load(Ordering::Relaxed);
        let mut count = self.published_count.load(Ordering::Relaxed);
        let mut tail = before;
        loop {
            let end = slot_of(&self.slots, count).load(written_see());
            if end <= tail {
                break;
            }
            tail = end;
            count = count.wrapping_add(1) & COUNT;
        }
        if tail == before {
            return;
        }
        // Relaxed: the receiver's head comes after `tell`.
        self.published.store(tail, Ordering::Relaxed);
        tell(tail);
        // Release: a thread that sees this uses the slots again.
        self.published_count.store(count, head_publish());
    }

    /// Takes the receiver's head; returns true if it is new. An older head than the known one is
    /// ignored: another thread has seen a later one.
    ///
    /// # Errors
    /// [`HeadError`] when the head is impossible: close the connection.
    pub fn on_head(&self, head: u64) -> Result<bool, HeadError> {
        // Relaxed: the head was told after the tail, and by way of it.
        let tail = self.published.load(Ordering::Relaxed);
        if head > tail {
            return Err(HeadError::BeyondTail { by: head - tail });
        }
        if !head.is_multiple_of(ALIGN) {
            return Err(HeadError::Misaligned);
        }
        Ok(self.head.fetch_max(head, head_publish()) < head)
    }
}
