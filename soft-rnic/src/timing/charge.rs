//! Costs of a card's operations for their caller.

use host::sync::OnceLock;
use std::time::{Duration, Instant};

use verbs_sys::ibv_recv_wr;

use crate::timing::card::Card;

/// Keeps the caller until `cost` nanoseconds after `start`: what the call has taken is part of it.
pub(crate) fn charge(start: Instant, cost: u64) {
    // The look at the clock that finds that the time is over takes a part of it.
    let end = start + Duration::from_nanos(cost.saturating_sub(look()));
    host::thread::busy_wait_until(end);
}

/// Returns the time that a look at the clock takes, in nanoseconds.
fn look() -> u64 {
    if host::is_in_world() {
        // Found out in each world, it would take time in the first one only.
        return 0;
    }
    static LOOK: OnceLock<u64> = OnceLock::new();
    *LOOK.get_or_init(|| {
        let start = host::time::now();
        let last = (0..1000).fold(start, |_, _| host::time::now());
        last.duration_since(start).as_nanos() as u64 / 1000
    })
}

/// A list of receives that is being posted: the post ends no earlier than they cost.
pub(crate) struct Charged {
    start: Instant,
    cost: u64,
}

impl Charged {
    /// `None` where they cost nothing, on no card.
    ///
    /// # Safety
    /// `wr` heads a list of valid requests, or is NULL.
    #[inline]
    pub(crate) unsafe fn for_receives(
        card: Option<&Card>,
        wr: *const ibv_recv_wr,
    ) -> Option<Charged> {
        let (card, start) = (card?, host::time::now());
        // SAFETY: `wr` heads a list of valid requests, or is NULL (see # Safety).
        let list = core::iter::successors(unsafe { wr.as_ref() }, |wr| unsafe { wr.next.as_ref() });
        Some(Charged { start, cost: card.receive(list.count() as u32) })
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        charge(self.start, self.cost);
    }
}
