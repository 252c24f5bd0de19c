//! What a card's operations cost their caller.

use std::time::{Duration, Instant};

use verbs_sys::ibv_recv_wr;

use crate::objects::state::Device;

/// Keeps the caller until `cost` nanoseconds after `start`: what the call has taken is part of it.
pub(crate) fn charge(start: Instant, cost: u64) {
    let end = start + Duration::from_nanos(cost);
    while Instant::now() < end {
        core::hint::spin_loop();
    }
}

/// A list of receives that is being posted: the post ends no earlier than they cost.
pub(crate) struct Charged {
    start: Instant,
    cost: u64,
}

impl Charged {
    /// `None` where they cost nothing.
    ///
    /// # Safety
    /// `wr` heads a list of valid requests, or is NULL.
    #[inline]
    pub(crate) unsafe fn of(device: &Device, wr: *const ibv_recv_wr) -> Option<Charged> {
        if device.is_prompt() {
            return None;
        }
        let (card, start) = (device.card()?, Instant::now());
        // SAFETY: the caller's promise.
        let list = core::iter::successors(unsafe { wr.as_ref() }, |wr| unsafe { wr.next.as_ref() });
        Some(Charged { start, cost: card.receive(list.count() as u32) })
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        charge(self.start, self.cost);
    }
}
