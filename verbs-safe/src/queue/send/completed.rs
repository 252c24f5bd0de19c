//! Completed requests: retiring them, and reading the data of READs and atomics.

use crate::error::ForeignCompletion;
use crate::object::completion::Completion;
use crate::queue::send::SendQueue;
use crate::queue::send::op::lands;
use crate::queue::send::places::RequestPlace;

impl SendQueue {
    /// Retires the completed request, and all before it: their places and slots are free again.
    /// Returns the total of retired requests. A failed completion retires as well; check its
    /// [`status`](Completion::status).
    ///
    /// # Errors
    /// [`ForeignCompletion`]: it is another queue's, or too old to be matched to a request; nothing
    /// has changed.
    #[inline]
    pub fn retire(&mut self, completion: &Completion<'_>) -> Result<u64, ForeignCompletion> {
        let found = completion.queue_id();
        if found != self.id || completion.epoch() < self.epochs.oldest {
            return Err(ForeignCompletion { expected: self.id, found });
        }
        // Counts of requests in flight are within `depth` of `retired`, and those of valid
        // completions within 2^32: see `Epochs`.
        let ahead = u64::from(completion.low().wrapping_sub(self.retired as u32));
        if ahead != 0 && ahead <= self.posted - self.retired {
            self.retired += ahead;
            // SAFETY: the place is inside, and only written to through `&mut self`.
            self.slots_retired = unsafe { (*self.places.at(self.place(self.retired))).slots_after };
            if !completion.is_success() && self.failed.is_none() {
                self.failed = Some(self.retired);
            }
            if self.retired >= self.leaving.next {
                self.leaving.let_go(&self.qp.uses.pinned, self.retired);
            }
        }
        Ok(self.retired)
    }

    /// Returns the bytes that have landed in the slot of a READ or an atomic: `request` is its
    /// count, that is, [`staged_total`](Self::staged_total) right after it was staged. `None` if it
    /// is not retired, has failed, is of another kind, or its slot has been lent again.
    #[must_use]
    pub fn landed(&self, request: u64) -> Option<&[u8]> {
        let known = request <= self.retired && self.staged - request <= self.mask as u64;
        let failed = self.failed.is_some_and(|failed| request >= failed);
        if request == 0 || !known || failed {
            return None;
        }
        // SAFETY: places are inside, and only written to through `&mut self`.
        let RequestPlace { slots_after, entry, work } =
            unsafe { &*self.places.at(self.place(request)) };
        // Slots that were lent to be filled, or staged without that (READs).
        let used = self.slots_lent.max(self.slots_staged);
        let lent_again = used >= slots_after + u64::from(self.slots);
        if !lands(work.opcode) || work.num_sge == 0 || lent_again {
            return None;
        }
        let slot = self.ring.slot((slots_after.checked_sub(1)? % u64::from(self.slots)) as u32);
        if entry.addr != slot.as_ptr() as u64 {
            return None; // it landed in a region
        }
        // SAFETY: the device is done with the request, and the slot has been neither
        // lent nor staged since; while `self` is borrowed, it will not be.
        Some(unsafe { std::slice::from_raw_parts(slot.as_ptr(), entry.length as usize) })
    }

    /// Reports whether the request of that count was executed: it is retired, and neither it nor
    /// one before it has failed.
    pub(crate) fn has_succeeded(&self, count: u64) -> bool {
        count <= self.retired && self.failed.is_none_or(|failed| count < failed)
    }
}
