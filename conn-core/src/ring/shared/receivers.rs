//! The receivers of a shared ring: they claim atomically, and free in any order.

use core::fmt;

use static_assertions::assert_impl_all;

use super::super::consumer::{Parsed, parse};
use super::super::free::{FREED, FreeListError, RecordSlot};
use super::super::{Geometry, Record, RecordError};
use super::{
    CLAIM, CLAIM_SEE, COUNT, ClaimWord, check_slots, free_publish, free_see, head_publish,
    landed_publish, landed_see, slot_of,
};
use crate::sync::{AtomicU64, Ordering, is_mutant};

assert_impl_all!(Receivers<[RecordSlot; 2]>: Send, Sync);

/// A record that a receiver has claimed, to be freed once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a record that is not freed blocks the ring"]
pub struct Claimed {
    pub(super) count: u64,
    pub(super) end: u64,
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

/// The receivers' view of a ring. See the [module](super). One thread lets records land,
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
    pub(super) geometry: Geometry,
    pub(super) claimed: AtomicU64,
    pub(super) landed: AtomicU64,
    /// End of the sent records, as known when the last one landed.
    pub(super) tail: AtomicU64,
    /// Written by the thread that tells the head.
    pub(super) head: AtomicU64,
    pub(super) freed: AtomicU64,
    pub(super) slots: S,
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

    /// Claims the next record that has landed whole. `header` loads the header at an offset of the
    /// ring's memory, atomically and with `Acquire`: other threads may have claimed and freed it
    /// meanwhile, so that it is being overwritten; then the loaded value is discarded.
    ///
    /// # Errors
    /// [`RecordError`] when there is no valid record: close the connection.
    #[inline]
    pub fn take(&self, header: impl Fn(u64) -> u64) -> Result<Taking, RecordError> {
        let mut word = self.claimed.load(CLAIM_SEE);
        loop {
            let freed = self.freed.load(free_see());
            let head = self.head.load(free_see());
            let landed = self.landed.load(landed_see());
            // Relaxed: it is stored before `landed`.
            let tail = self.tail.load(Ordering::Relaxed);
            let claim = ClaimWord::unpack(word, head, self.geometry.capacity());
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
                // The record is partial or invalid, unless the claim is outdated.
                Ok(Parsed::Partial) | Err(_) => {
                    let now = self.claimed.load(CLAIM_SEE);
                    // Other threads may have freed the record before the load, so that the header
                    // is another one.
                    if now == word || is_mutant!("ring-old-claim-trust") {
                        return parsed.map(|_| Taking::Nothing);
                    }
                    word = now;
                    continue;
                }
            };
            let next = ClaimWord { position: end, count: claim.count + records }.pack();
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
    /// [`Consumer::on_landed`](crate::ring::Consumer::on_landed) and
    /// [`on_tail`](crate::ring::Consumer::on_tail) have found to be possible.
    #[inline]
    pub fn on_landed(&self, landed: u64, tail: u64) {
        // Relaxed: a thread that sees `landed` sees it.
        self.tail.store(tail, Ordering::Relaxed);
        self.landed.store(landed, landed_publish());
    }

    /// End of the claimed records; at least any head that was returned before.
    #[inline]
    pub fn claimed(&self) -> u64 {
        // Relaxed: this thread writes the head, and has seen the claim that made it.
        let head = self.head.load(Ordering::Relaxed);
        let word = self.claimed.load(Ordering::Relaxed);
        ClaimWord::unpack(word, head, self.geometry.capacity()).map_or(head, |claim| claim.position)
    }

    /// Moves the head over freed records, and returns it.
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
        // The head also passes skip records behind the last claimed record.
        let claimed = self.claimed.load(Ordering::Relaxed);
        if let Some(claim) = ClaimWord::unpack(claimed, head, self.geometry.capacity())
            && claim.count == freed
        {
            head = claim.position;
        }
        if head != before {
            // The count is stored first: a thread that sees the new head also sees the new count.
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
