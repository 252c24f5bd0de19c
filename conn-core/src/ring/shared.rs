//! Several threads at one end of a ring: senders reserve atomically and publish in order,
//! receivers claim atomically and free in any order (the future work of Buffered Read:
//! "multiple threads can write to and receive from a single connection by atomically
//! updating head or tail pointers").
//!
//! ```text
//!   senders     head <= published <= reserved <= head + capacity
//!   receivers   head <= claimed <= landed <= tail
//! ```
//!
//! A claim, of either kind, is one compare-and-swap of a word that holds how far the
//! ring is claimed and how many records that was (modulo 2^40 units of 8 bytes, and
//! modulo 2^24; what is missing is known, since a claim lies within a capacity of the
//! head). The count gives each record a slot: there the position behind it is put when it
//! is published, or freed. Positions rise, so that a slot of the lap before is never taken
//! for one of this lap.
//!
//! Publishing moves the tail over the unbroken row of records that are complete. One thread
//! does that for all ([`Combiner`]), so no thread waits for another that still writes a record;
//! only the records behind that record wait.
//!
//! Both need 64-bit atomics, and are left out where there are none.

use core::fmt;

use static_assertions::assert_impl_all;

use super::consumer::{Parsed, parse};
use super::free::{FREED, FreeListError, RecordSlot};
use super::{
    ALIGN, Geometry, HEADER_BYTES, HeadError, Header, Record, RecordError, ReserveError, Span,
    header_word, record_bytes, skip_word,
};
use crate::combiner::Combiner;
use crate::sync::{AtomicU64, Ordering, is_mutant, orderings};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

orderings! {
    /// The receiver's work on the bytes before it freed them comes before what is
    /// written there next, by whichever thread.
    head_publish = Release, "ring-head-publish" => Relaxed;
    /// Pairs with `head_publish`.
    head_see = Acquire, "ring-head-see" => Relaxed;
    /// The record is written before its slot says so.
    written_publish = Release, "ring-written-publish" => Relaxed;
    /// Pairs with `written_publish`, for the thread that publishes the tail behind it.
    written_see = Acquire, "ring-written-see" => Relaxed;
    /// Landed bytes are in memory before a receiver that claims it looks.
    landed_publish = Release, "ring-landed-publish" => Relaxed;
    /// Pairs with `landed_publish`.
    landed_see = Acquire, "ring-landed-see" => Relaxed;
    /// The application's last read comes before the slot says that the record is free.
    free_publish = Release, "ring-shared-free-publish" => Relaxed;
    /// Pairs with `free_publish`.
    free_see = Acquire, "ring-shared-free-see" => Relaxed;
}

/// A thread that sees a claim sees the head, or what had landed, that made it possible:
/// else it would retry again and again.
const CLAIM: Ordering = Ordering::Release;
/// Pairs with `CLAIM`.
const CLAIM_SEE: Ordering = Ordering::Acquire;

const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const UNITS: u64 = (1 << (64 - COUNT_BITS)) - 1;

assert_impl_all!(Senders<[RecordSlot; 2]>: Send, Sync);
assert_impl_all!(Receivers<[RecordSlot; 2]>: Send, Sync);

/// Position up to which a ring is claimed, and the number of records claimed so far.
///
/// Both wrap: positions after 2^43 bytes, counts after 2^24 records. A thread that stands
/// between its load and its exchange while exactly a multiple of both goes by takes an old
/// claim for the new one; at 50 GB/s that is asleep for three minutes, to the record.
#[derive(Clone, Copy)]
struct Claim {
    position: u64,
    /// Modulo 2^24.
    count: u64,
}

impl Claim {
    #[inline]
    fn pack(self) -> u64 {
        (self.position / ALIGN) << COUNT_BITS | self.count & COUNT
    }

    /// `None` when it is an old one: it lies before `head`, which has come further since.
    #[inline]
    fn unpack(word: u64, head: u64, capacity: u64) -> Option<Self> {
        let ahead = ((word >> COUNT_BITS).wrapping_sub(head / ALIGN) & UNITS) * ALIGN;
        let claim = Self { position: head.wrapping_add(ahead), count: word & COUNT };
        (ahead <= capacity).then_some(claim)
    }
}

fn check_slots<S: AsRef<[RecordSlot]>>(storage: &S) -> Result<(), FreeListError> {
    let slots = storage.as_ref().len();
    // Slots in use are told from their number modulo 2^24.
    if !slots.is_power_of_two() || slots > 1 << (COUNT_BITS - 1) {
        return Err(FreeListError { slots });
    }
    Ok(())
}

#[inline]
fn slot_of<S: AsRef<[RecordSlot]>>(slots: &S, count: u64) -> &AtomicU64 {
    let slots = slots.as_ref();
    &slots[count as usize & (slots.len() - 1)].0
}

/// Room for one record of a shared ring. Until it is published, nothing behind it is.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the ring stands still until it is published"]
pub struct SharedGrant {
    /// Position of the skip record, or of the record if there is none.
    tail: u64,
    start: u64,
    count: u64,
    payload: Span,
}

impl SharedGrant {
    /// Location where the payload is to be written.
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

/// The senders' view of a ring. See the [module](self).
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
    geometry: Geometry,
    reserved: AtomicU64,
    head: AtomicU64,
    /// Written inside the combiner alone.
    published: AtomicU64,
    published_count: AtomicU64,
    combiner: Combiner,
    slots: S,
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

    /// Up to where records are published.
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
            let Some(claim) = Claim::unpack(word, head, capacity) else {
                word = self.reserved.load(CLAIM_SEE);
                continue;
            };
            let Claim { position: tail, count } = claim;
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
            let next = Claim { position: tail + needed, count: count + 1 }.pack();
            match self.reserved.compare_exchange_weak(word, next, CLAIM, CLAIM_SEE) {
                Ok(_) => return Ok(self.grant(claim, needed - bytes, len)),
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    fn grant(&self, Claim { position: tail, count }: Claim, skipped: u64, len: u32) -> SharedGrant {
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

    /// The receiver's head was seen. An older one than is known does no harm: another
    /// thread has seen more. Returns whether it was news.
    ///
    /// # Errors
    /// [`HeadError`] when it cannot be: the connection is to be closed.
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

/// A record that a receiver has claimed, to be freed once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a record that is not freed blocks the ring"]
pub struct Claimed {
    count: u64,
    end: u64,
}

/// Result of a receiver's claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Taking {
    /// A message.
    Record(Record, Claimed),
    /// There is none now.
    Nothing,
    /// As many are claimed and not freed as there are slots.
    Crowded,
}

/// The receivers' view of a ring. See the [module](self). One thread lets records land,
/// and tells the head; any may claim and free.
///
/// ```
/// use conn_core::ring::{Geometry, Span, free::RecordSlot, shared::{Receivers, Taking}};
///
/// let ring = Geometry::mirrored(1 << 10, 100)?;
/// let ring = Receivers::new(ring, [const { RecordSlot::new() }; 8])?;
/// ring.on_landed(24, 24);
/// let header = |offset| { assert_eq!(offset, 0); 16 }; // loaded from the ring's memory
/// let Taking::Record(record, claimed) = ring.take(header)? else { panic!() };
/// assert_eq!(record.payload, Span { offset: 8, len: 16 });
/// assert_eq!(ring.head(), 0);
/// ring.free(claimed);
/// assert_eq!(ring.head(), 24);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: head <= claimed <= landed <= tail <= head + capacity, and as many records lie
// between head and claimed as the claim counts beyond `freed`, no more than the slots.
#[derive(Debug)]
pub struct Receivers<S> {
    geometry: Geometry,
    claimed: AtomicU64,
    landed: AtomicU64,
    /// Up to where records were sent, as far as was known when the last one landed.
    tail: AtomicU64,
    /// Written by the thread that tells the head.
    head: AtomicU64,
    freed: AtomicU64,
    slots: S,
}

/// Any thread.
impl<S: AsRef<[RecordSlot]>> Receivers<S> {
    /// The receivers of an empty ring: they can hold as many records as `storage` has slots,
    /// a power of two.
    ///
    /// # Errors
    /// [`FreeListError`].
    pub fn new(geometry: Geometry, storage: S) -> Result<Self, FreeListError> {
        check_slots(&storage)?;
        Ok(Self {
            geometry,
            claimed: AtomicU64::new(0),
            landed: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            slots: storage,
        })
    }

    /// The ring's shape.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Claims the next record that has landed as a whole. `header` loads the header at an
    /// offset of the ring's memory, atomically and with `Acquire`: others may have claimed
    /// and freed it meanwhile, so that it is being written again; then what was loaded is
    /// not looked at.
    ///
    /// # Errors
    /// [`RecordError`] when what lies there is no record: the connection is to be closed.
    #[inline]
    pub fn take(&self, header: impl Fn(u64) -> u64) -> Result<Taking, RecordError> {
        let mut word = self.claimed.load(CLAIM_SEE);
        loop {
            let freed = self.freed.load(free_see());
            let head = self.head.load(free_see());
            let landed = self.landed.load(landed_see());
            // Relaxed: it is stored before `landed`.
            let tail = self.tail.load(Ordering::Relaxed);
            let claim = Claim::unpack(word, head, self.geometry.capacity());
            let Some(claim) = claim.filter(|claim| claim.position <= landed) else {
                word = self.claimed.load(CLAIM_SEE);
                continue;
            };
            if claim.position == landed {
                return Ok(Taking::Nothing);
            }
            if claim.count.wrapping_sub(freed) & COUNT >= self.slots.as_ref().len() as u64 {
                let now = self.claimed.load(CLAIM_SEE);
                if now == word {
                    return Ok(Taking::Crowded);
                }
                word = now; // what was freed since is not of the old claim
                continue;
            }
            let loaded = header(self.geometry.offset(claim.position));
            let parsed = parse(&self.geometry, claim.position, loaded, (landed, tail));
            let (end, records) = match &parsed {
                Ok(Parsed::Record(record)) => (record.end, 1),
                Ok(Parsed::Skipped { end }) => (*end, 0),
                // Not whole yet, or no record; if the claim is not an old one.
                Ok(Parsed::Partial) | Err(_) => {
                    let now = self.claimed.load(CLAIM_SEE);
                    // A header may be loaded after others have freed its record, when something
                    // else is there.
                    if now == word || is_mutant!("ring-old-claim-trust") {
                        return parsed.map(|_| Taking::Nothing);
                    }
                    word = now;
                    continue;
                }
            };
            let next = Claim { position: end, count: claim.count + records }.pack();
            match (self.claimed.compare_exchange_weak(word, next, CLAIM, CLAIM_SEE), parsed) {
                (Ok(_), Ok(Parsed::Record(record))) => {
                    let claimed = Claimed { count: claim.count, end };
                    return Ok(Taking::Record(record, claimed));
                }
                (Ok(_), _) => word = next,
                (Err(now), _) => word = now,
            }
        }
    }

    /// Frees a record.
    #[inline]
    pub fn free(&self, claimed: Claimed) {
        slot_of(&self.slots, claimed.count).store(claimed.end | FREED, free_publish());
    }
}

/// The thread that lets records land, and tells the head.
impl<S: AsRef<[RecordSlot]>> Receivers<S> {
    /// All bytes up to `landed` are in memory, and records were sent up to `tail`, as
    /// [`Consumer::on_landed`](super::Consumer::on_landed) and
    /// [`on_tail`](super::Consumer::on_tail) have found to be possible.
    #[inline]
    pub fn on_landed(&self, landed: u64, tail: u64) {
        // Relaxed: a thread that sees `landed` sees it.
        self.tail.store(tail, Ordering::Relaxed);
        self.landed.store(landed, landed_publish());
    }

    /// Up to where records were claimed; no less than any head that was returned before.
    #[inline]
    pub fn claimed(&self) -> u64 {
        // Relaxed: this thread writes the head, and has seen the claim that made it.
        let head = self.head.load(Ordering::Relaxed);
        let word = self.claimed.load(Ordering::Relaxed);
        Claim::unpack(word, head, self.geometry.capacity()).map_or(head, |claim| claim.position)
    }

    /// Moves the head over what was freed, and returns it.
    pub fn head(&self) -> u64 {
        // Relaxed: this thread writes both.
        let mut freed = self.freed.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        let before = head;
        loop {
            let word = slot_of(&self.slots, freed).load(free_see());
            let end = word & !FREED;
            if word & FREED == 0 || end <= head {
                break;
            }
            head = end;
            freed = freed.wrapping_add(1) & COUNT;
        }
        // What was skipped behind the last record that was claimed goes with it.
        let claimed = self.claimed.load(Ordering::Relaxed);
        if let Some(claim) = Claim::unpack(claimed, head, self.geometry.capacity())
            && claim.count == freed
        {
            head = claim.position;
        }
        if head != before {
            // The count first: a thread that sees the new head has no old count.
            self.freed.store(freed, head_publish());
            self.head.store(head, head_publish());
        }
        head
    }
}

impl fmt::Display for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(record, _) => write!(f, "a message of {} bytes", record.payload.len),
            Self::Nothing => f.write_str("no message"),
            Self::Crowded => f.write_str("too many messages are held"),
        }
    }
}
