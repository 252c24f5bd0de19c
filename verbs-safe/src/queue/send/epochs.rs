//! Completions that are out of date.

use std::sync::atomic::{AtomicU64, Ordering};

/// After how many requests old completions become out of date.
pub(super) const EPOCH: u64 = 1 << 30;

/// Tells completions that are long out of date from new ones.
///
/// A completion has the low 32 bits of its request's count only. Safe code may keep
/// one for as long as it likes, and show it after 2³² further requests, when those
/// bits mean another request, one that is in flight. So the completion queue has an
/// epoch, which each poll notes *before* it takes completions; every [`EPOCH`]
/// requests, before they are posted, a send queue begins a new one, and from then on
/// refuses completions that were taken before the one before it began.
///
/// A completion that is not refused was taken after the queue's posted count had reached
/// one of the last two multiples of `EPOCH`. Completions of a queue are taken in order, so
/// that at that time its request was not retired: its count is at most `depth` below
/// that multiple, and less than 2³² below the present one. A completion that is refused
/// is of a request that was retired long ago: had it not been, the queue would be full.
#[derive(Debug)]
pub(super) struct Epochs {
    /// Completions noted before this epoch are out of date.
    pub(super) oldest: u64,
    current: u64,
    /// The count at which the next epoch begins.
    pub(super) next: u64,
}

impl Epochs {
    pub(super) fn new(epoch: &AtomicU64) -> Epochs {
        // Acquire: as in `turn`.
        let current = epoch.load(Ordering::Acquire);
        Epochs { oldest: 0, current, next: EPOCH }
    }

    #[cold]
    pub(super) fn turn(&mut self, epoch: &AtomicU64) {
        self.oldest = self.current;
        // Release: a poll that notes the new epoch sees all that this queue retired
        // before. Acquire: other queues' turns are ordered before this one.
        self.current = epoch.fetch_add(1, Ordering::AcqRel) + 1;
        self.next += EPOCH;
    }
}
