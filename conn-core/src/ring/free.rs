//! The free list: records are freed in any order and by any thread, and the head moves
//! over the unbroken row of them at the front.
//!
//! ```text
//!            first                       next
//!   slots  …  | 96   | 120 ✓ | 160   | 184 ✓ | …        ✓ freed
//!   head 72 --^
//! ```
//!
//! A record that is lent takes the next slot of a circle, which holds the position behind
//! it; freeing it sets the lowest bit, which positions do not have. The owner moves the
//! front over the slots with that bit. Every operation takes constant time (moving the
//! front, for each record); there is no allocation, and no read-modify-write: a slot has
//! one writer at a time, the owner when it lends, the holder of [`Lent`] when it frees.
//!
//! The circle bounds how many records can be lent at once. Positions are never used
//! again, so a free recognizes its slot by the position in it.
//!
//! It needs 64-bit atomics, and is left out where there are none. There, free records in order:
//! the read pointer of the [`Consumer`](super::Consumer) is the head.

use static_assertions::assert_impl_all;

use crate::sync::{AtomicU64, Ordering, orderings};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

orderings! {
    /// Orders all accesses to the record (the application's last read) before the head moves over
    /// it: the sender overwrites it then.
    free_publish = Release, "ring-free-publish" => Relaxed;
    /// Pairs with `free_publish`.
    free_see = Acquire, "ring-free-see" => Relaxed;
}

pub(super) const FREED: u64 = 1;

/// The free list's memory of one record.
#[derive(Debug, Default)]
pub struct RecordSlot(pub(super) AtomicU64);

#[cfg(not(rdma_conn_loom))]
static_assertions::const_assert_eq!(size_of::<RecordSlot>(), 8);
assert_impl_all!(FreeList<[RecordSlot; 2]>: Send, Sync);

impl RecordSlot {
    /// A slot: `[const { RecordSlot::new() }; N]` makes storage.
    #[cfg(not(rdma_conn_loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A slot.
    #[cfg(rdma_conn_loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Storage that makes no free list: its slots are no power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a free list of {slots} slots: they are a power of two up to 2^31")]
pub struct FreeListError {
    /// The slots.
    pub slots: usize,
}

/// As many records are lent as the list has slots: free some first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many messages are held: free some of them first")]
pub struct TooManyLent;

/// A free of a record that this list has not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("free of a message of another connection")]
pub struct NotLent;

/// The right to free one record, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a record that is not freed blocks the ring"]
pub struct Lent {
    slot: u32,
    end: u64,
}

/// The slots, shared by all threads that free.
///
/// ```
/// use conn_core::ring::free::*;
///
/// let list = FreeList::new([const { RecordSlot::new() }; 4])?;
/// let mut front = FreeFront::new();
/// let (a, b) = (front.lend(&list, 16)?, front.lend(&list, 40)?);
/// std::thread::scope(|s| { s.spawn(|| list.free(b)); });
/// assert_eq!(front.head(&list), 0); // the first is still held
/// list.free(a)?;
/// assert_eq!(front.head(&list), 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FreeList<S> {
    slots: S,
}

impl<S: AsRef<[RecordSlot]>> FreeList<S> {
    /// A list over `storage`, which has a power of two of slots.
    ///
    /// # Errors
    /// [`FreeListError`].
    pub fn new(storage: S) -> Result<Self, FreeListError> {
        let slots = storage.as_ref().len();
        if !slots.is_power_of_two() || slots > 1 << 31 {
            return Err(FreeListError { slots });
        }
        Ok(Self { slots: storage })
    }

    /// Records that can be lent at once.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.slots.as_ref().len() as u32
    }

    /// Frees a record, on any thread.
    ///
    /// # Errors
    /// [`NotLent`] when it is another list's.
    #[inline]
    pub fn free(&self, lent: Lent) -> Result<(), NotLent> {
        let slot = self.slots.as_ref().get(lent.slot as usize).ok_or(NotLent)?;
        // Relaxed: it was passed here with `lent`.
        if slot.0.load(Ordering::Relaxed) != lent.end {
            return Err(NotLent);
        }
        slot.0.store(lent.end | FREED, free_publish());
        Ok(())
    }

    #[inline]
    fn slot(&self, number: u64) -> (u32, &AtomicU64) {
        let slots = self.slots.as_ref();
        let at = number as usize & (slots.len() - 1);
        (at as u32, &slots[at].0)
    }
}

/// The owner's view: the lent records, and the head. See the [module](self).
// Invariant: first <= next <= first + slots. The slots first..next hold the positions
// behind the records that are lent, in rising order; head is the one before the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeFront {
    first: u64,
    next: u64,
    head: u64,
}

impl FreeFront {
    /// The front of a list that has lent nothing.
    pub const fn new() -> Self {
        Self { first: 0, next: 0, head: 0 }
    }

    /// Records that are lent, or were freed and not yet moved over.
    #[inline]
    pub fn lent(&self) -> u32 {
        (self.next - self.first) as u32
    }

    /// Lends the record that ends at `end`: the [end](super::Record::end) of the next one.
    ///
    /// # Errors
    /// [`TooManyLent`] when there is no slot.
    #[inline]
    pub fn lend<S: AsRef<[RecordSlot]>>(
        &mut self,
        list: &FreeList<S>,
        end: u64,
    ) -> Result<Lent, TooManyLent> {
        if self.first == self.next {
            // With nothing lent, the first slots serve: they are in the processor's cache.
            (self.first, self.next) = (0, 0);
        }
        // More, if the caller passed another list: its slots are not written over.
        if self.lent() >= list.slots() {
            return Err(TooManyLent);
        }
        let (at, slot) = list.slot(self.next);
        // Relaxed: the thread that frees it gets it together with `Lent`.
        slot.store(end, Ordering::Relaxed);
        self.next += 1;
        Ok(Lent { slot: at, end })
    }

    /// Frees a record on the owner's thread. It is cheapest in order.
    ///
    /// # Errors
    /// [`NotLent`] when it is another list's.
    #[inline]
    pub fn free<S: AsRef<[RecordSlot]>>(
        &mut self,
        list: &FreeList<S>,
        lent: Lent,
    ) -> Result<(), NotLent> {
        let (at, slot) = list.slot(self.first);
        // Relaxed: the owner wrote it.
        let is_first = lent.slot == at && slot.load(Ordering::Relaxed) == lent.end;
        if !is_first || self.first == self.next {
            return list.free(lent);
        }
        // Relaxed: only a repeated free of this record reads it.
        slot.store(lent.end | FREED, Ordering::Relaxed);
        self.first += 1;
        self.head = lent.end;
        Ok(())
    }

    /// Moves the head over freed records, and returns it.
    #[inline]
    pub fn head<S: AsRef<[RecordSlot]>>(&mut self, list: &FreeList<S>) -> u64 {
        while self.first < self.next {
            let word = list.slot(self.first).1.load(free_see());
            if word & FREED == 0 {
                break;
            }
            self.head = word & !FREED;
            self.first += 1;
        }
        self.head
    }
}
