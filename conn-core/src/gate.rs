//! The gate: of many threads that have something to be done, one does it for all.
//!
//! The protocol (*combining*), with a [`RepostQueue`](crate::repost::RepostQueue) as
//! the thing to be done:
//!
//! 1. Publish the work: `queue.enqueue(id)`.
//! 2. Ask for it to be done: `gate.try_enter()`. If that is false, return: somebody
//!    is inside, and will look again before leaving.
//! 3. Inside, alone: drain the queue until it gives nothing.
//! 4. `gate.leave()`. If that is true, somebody asked since the last look: go to
//!    step 3.
//!
//! Without the answer of step 4, work could be stranded: a thread publishes it after
//! the last look of the one inside, finds the gate taken, and goes away; then the one
//! inside leaves. **Whoever entered must call `leave` until it is false**, also when
//! the work failed.
//!
//! The gate is one counter: 0 when free, otherwise the requests since the last look,
//! among them the one that entered. So a request costs one read-modify-write,
//! whatever the others do, and entering an undisturbed gate costs no second look.

use crate::sync::{AtomicU64, Ordering, ordering};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// `AcqRel`. Release: the work published before the request is seen by the look that
/// the request brings about. Acquire: who enters sees all that was done inside before.
const REQUEST: Ordering = if cfg!(rdma_conn_mutant = "gate-request-publish") {
    Ordering::Acquire
} else if cfg!(rdma_conn_mutant = "gate-enter-take") {
    Ordering::Release
} else {
    Ordering::AcqRel
};
/// Hands what was done inside to the next who enters.
const LEAVE: Ordering = ordering!("gate-leave-publish", Release => Relaxed);
/// Sees the work of those who asked; pairs with `REQUEST`.
const LOOK_AGAIN: Ordering = ordering!("gate-look-again-take", Acquire => Relaxed);

/// One at a time, and nothing left undone. See the [module](self).
///
/// ```
/// use conn_core::gate::Gate;
///
/// let gate = Gate::new();
/// assert!(gate.try_enter());
/// assert!(!gate.try_enter(), "somebody else asks, and may go");
/// assert!(gate.leave(), "but is not forgotten: look again");
/// assert!(!gate.leave());
/// assert!(gate.try_enter());
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    /// 0: free. n: held, and n requests since the last look. A u64 cannot overflow.
    requests: AtomicU64,
}

impl Gate {
    /// A free gate.
    #[cfg(not(rdma_conn_loom))]
    pub const fn new() -> Self {
        Self { requests: AtomicU64::new(0) }
    }

    /// A free gate.
    #[cfg(rdma_conn_loom)]
    pub fn new() -> Self {
        Self { requests: AtomicU64::new(0) }
    }

    /// Asks for the published work to be done. True: the caller is inside and does
    /// it. False: whoever is inside will look again.
    #[inline]
    #[must_use = "whoever is inside must do the work and leave"]
    pub fn try_enter(&self) -> bool {
        self.requests.fetch_add(1, REQUEST) == 0
    }

    /// Ends a look. False: the gate is free, the caller is outside. True: somebody has
    /// asked since the last look; the caller is still inside and looks again.
    ///
    /// To be called only from inside; from outside it does nothing and is false.
    #[inline]
    #[must_use = "true means: still inside, look again"]
    pub fn leave(&self) -> bool {
        // Relaxed on failure: the swap acquires.
        match self.requests.compare_exchange(1, 0, LEAVE, Ordering::Relaxed) {
            Ok(_) | Err(0) => false,
            Err(_) => {
                self.requests.swap(1, LOOK_AGAIN);
                true
            }
        }
    }
}
