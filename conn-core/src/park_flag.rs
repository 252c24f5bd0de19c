//! Sleep without lost wake-ups, and wake-ups only for a thread that sleeps.
//!
//! A thread that finds nothing to do sleeps; a thread that publishes work wakes it.
//! Waking costs a system call, so it must not happen without need; after a lost wake-up
//! a thread sleeps for ever. The protocol:
//!
//! | the sleeper | the publisher |
//! |---|---|
//! | 1. `announce()` | 1. publish the work |
//! | 2. look for work once more | 2. `should_wake()`? |
//! | 3. none: sleep; some: `retract()` | 3. yes: wake it |
//!
//! Each side writes first, then reads. With a fence in between on both sides, at least
//! one side sees the other's write: the sleeper the work, or the publisher the
//! announcement. `should_wake` takes the announcement, so one of many publishers wakes
//! the sleeper.

use crate::sync::{AtomicU32, Ordering, fence, orderings};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

orderings! {
    /// Between the announcement and the second look.
    announce = SeqCst, "park-flag-announce-fence" => AcqRel;
    /// Between the publication and the question.
    ask = SeqCst, "park-flag-ask-fence" => AcqRel;
}

const AWAKE: u32 = 0;
const ANNOUNCED: u32 = 1;

/// The flag of one thread that may sleep. See the [module](self).
///
/// ```
/// use conn_core::park_flag::ParkFlag;
///
/// let flag = ParkFlag::new();
/// assert!(!flag.should_wake(), "no thread sleeps");
/// flag.announce();
/// assert!(flag.should_wake());
/// assert!(!flag.should_wake(), "one wake-up is enough");
/// assert!(!flag.retract(), "too late: a wake-up is under way");
/// ```
#[derive(Debug, Default)]
pub struct ParkFlag {
    state: AtomicU32,
}

impl ParkFlag {
    /// Awake.
    #[cfg(not(rdma_conn_loom))]
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE) }
    }

    /// Awake.
    #[cfg(rdma_conn_loom)]
    pub fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE) }
    }

    /// The sleeper announces that it is about to sleep. It must look for work once more
    /// after this, and before it sleeps.
    #[inline]
    pub fn announce(&self) {
        // Relaxed: the fence orders it before the second look.
        self.state.store(ANNOUNCED, Ordering::Relaxed);
        fence(announce());
    }

    /// The sleeper has found work, or has woken, and takes its announcement back.
    /// False: a publisher was first, so a wake-up is under way or has arrived.
    #[inline]
    pub fn retract(&self) -> bool {
        // Relaxed: the flag guards no data; the look that found work acquires it.
        self.state.swap(AWAKE, Ordering::Relaxed) == ANNOUNCED
    }

    /// Reports whether the publisher must wake the sleeper: true once for an announcement.
    #[inline]
    #[must_use = "true means: wake the sleeper, no other thread will"]
    pub fn should_wake(&self) -> bool {
        fence(ask());
        // Relaxed: the fence orders it behind the publication. Only an announced sleep
        // costs the swap, which is relaxed because it only chooses the publisher that wakes.
        self.state.load(Ordering::Relaxed) == ANNOUNCED
            && self.state.swap(AWAKE, Ordering::Relaxed) == ANNOUNCED
    }
}
