//! The combiner: of many threads that publish work, one thread does the work of all.
//!
//! The protocol (*combining*), with a [`RepostQueue`](crate::repost::RepostQueue) as the work:
//!
//! 1. Publish the work: `queue.enqueue(id)`.
//! 2. Request it: `combiner.try_enter()`. If that is false, return: another thread is inside, and
//!    looks again before it leaves.
//! 3. Inside, alone: drain the queue until it gives nothing.
//! 4. `combiner.leave()`. If that is true, a request has arrived since the last look: go to
//!    step 3.
//!
//! Without the answer of step 4, work could be stranded: a thread publishes it after
//! the last look of the thread inside, finds the combiner taken, and returns; then the
//! thread inside leaves. **A thread that has entered must call `leave` until it is
//! false**, also when the work failed.
//!
//! The combiner is one counter: 0 when free, otherwise the requests since the last look, including
//! the request that entered. So a request always costs one read-modify-write, and a thread without
//! contention drains once.
//!
//! It needs 64-bit atomics, and is left out where there are none.

use crate::sync::{AtomicU64, Ordering, is_mutant, orderings};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// `AcqRel`. Release: the work published before the request is seen by the look that
/// the request brings about. Acquire: a thread that enters sees all that was done inside before.
#[inline(always)]
fn request() -> Ordering {
    match () {
        () if is_mutant!("combiner-request-publish") => Ordering::Acquire,
        () if is_mutant!("combiner-enter-take") => Ordering::Release,
        () => Ordering::AcqRel,
    }
}

orderings! {
    /// Publishes the work done inside to the next thread that enters.
    leave = Release, "combiner-leave-publish" => Relaxed;
    /// Sees the work of the threads that asked; pairs with `request`.
    look_again = Acquire, "combiner-look-again-take" => Relaxed;
}

/// One thread at a time is inside, and no work is left undone. See the [module](self).
///
/// ```
/// use conn_core::combiner::Combiner;
///
/// let combiner = Combiner::new();
/// assert!(combiner.try_enter());
/// assert!(!combiner.try_enter(), "another thread asks, and may return");
/// assert!(combiner.leave(), "its request is not forgotten: look again");
/// assert!(!combiner.leave());
/// assert!(combiner.try_enter());
/// ```
#[derive(Debug, Default)]
pub struct Combiner {
    /// 0: free. n: held, and n requests since the last look. A u64 cannot overflow.
    requests: AtomicU64,
}

impl Combiner {
    /// A free combiner.
    #[cfg(not(rdma_conn_loom))]
    pub const fn new() -> Self {
        Self { requests: AtomicU64::new(0) }
    }

    /// A free combiner.
    #[cfg(rdma_conn_loom)]
    pub fn new() -> Self {
        Self { requests: AtomicU64::new(0) }
    }

    /// Asks for the published work to be done. True: the caller is inside and does
    /// it. False: the thread inside will look again.
    #[inline]
    #[must_use = "if true, the caller must do the work and leave"]
    pub fn try_enter(&self) -> bool {
        self.requests.fetch_add(1, request()) == 0
    }

    /// Ends a look. False: the combiner is free, the caller is outside. True: a request
    /// has arrived since the last look; the caller is still inside and looks again.
    ///
    /// Call it only from inside; from outside it does nothing and returns false.
    #[inline]
    #[must_use = "true means: still inside, look again"]
    pub fn leave(&self) -> bool {
        // Relaxed on failure: the swap acquires.
        match self.requests.compare_exchange(1, 0, leave(), Ordering::Relaxed) {
            Ok(_) | Err(0) => false,
            Err(_) => {
                self.requests.swap(1, look_again());
                true
            }
        }
    }
}
