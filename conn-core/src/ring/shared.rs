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
//! A claim, of either kind, is one compare-and-swap of a word with the claimed position and the
//! count of claimed records. The word has them modulo 2^40 units of 8 bytes and modulo 2^24; the
//! rest is known, since a claim lies within a capacity of the head. The count gives each record a
//! slot, which gets the position behind the record when it is published or freed. Positions rise,
//! so a slot of an earlier lap is never taken for one of this lap.
//!
//! Publishing moves the tail over the unbroken row of records that are complete. One thread
//! does that for all ([`Combiner`](crate::combiner::Combiner)), so no thread waits for another
//! that still writes a record; only the records behind that record wait.
//!
//! Both need 64-bit atomics, and are left out where there are none.

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod receivers;
mod senders;
#[cfg(test)]
mod tests;

use super::ALIGN;
use super::free::{FreeListError, RecordSlot};
use crate::sync::{AtomicU64, Ordering, orderings};

pub use receivers::{Claimed, Receivers, Taking};
pub use senders::{Senders, SharedGrant};

orderings! {
    /// Orders the receiver's accesses to freed bytes before the next writes to them, by any thread.
    head_publish = Release, "ring-head-publish" => Relaxed;
    /// Pairs with `head_publish`.
    head_see = Acquire, "ring-head-see" => Relaxed;
    /// Orders the writes of a record before the store to its slot.
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

/// A thread that sees a claim also sees the head or the landed position that made it possible:
/// otherwise it would retry until it does.
const CLAIM: Ordering = Ordering::Release;
/// Pairs with `CLAIM`.
const CLAIM_SEE: Ordering = Ordering::Acquire;

const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const UNITS: u64 = (1 << (64 - COUNT_BITS)) - 1;

/// Position up to which a ring is claimed, and the number of records claimed so far.
///
/// Both wrap: positions after 2^43 bytes, counts after 2^24 records. A thread that stands
/// between its load and its exchange while exactly a multiple of both goes by takes an old
/// claim for the new one; at 50 GB/s that is asleep for three minutes, to the record.
#[derive(Clone, Copy)]
struct ClaimWord {
    position: u64,
    /// Modulo 2^24.
    count: u64,
}

impl ClaimWord {
    #[inline]
    fn pack(self) -> u64 {
        (self.position / ALIGN) << COUNT_BITS | self.count & COUNT
    }

    /// `None` when the claim is outdated: it lies before `head`, which has advanced since.
    #[inline]
    fn unpack(word: u64, head: u64, capacity: u64) -> Option<Self> {
        let ahead = ((word >> COUNT_BITS).wrapping_sub(head / ALIGN) & UNITS) * ALIGN;
        let claim = Self { position: head.wrapping_add(ahead), count: word & COUNT };
        (ahead <= capacity).then_some(claim)
    }
}

fn check_slots<S: AsRef<[RecordSlot]>>(storage: &S) -> Result<(), FreeListError> {
    let slots = storage.as_ref().len();
    // Counts modulo 2^24 distinguish all slots in use.
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
