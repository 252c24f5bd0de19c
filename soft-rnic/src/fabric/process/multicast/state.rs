//! What a process knows of its part in multicast groups.

use core::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The part of this process in the multicast groups of its user's processes.
#[derive(Debug, Default)]
pub(crate) struct Participation {
    /// Held by the thread that meets the others.
    pub(crate) meeting: Mutex<()>,
    /// The marker is shown, and all that had one before have been introduced to.
    pub(crate) has_met: AtomicBool,
    /// A thread is making pairs. A process that has seen our introduction takes us for met,
    /// before it is among our pairs.
    pub(crate) is_taking_in: AtomicBool,
}

impl Participation {
    /// Whether all processes that have members, and know that this one may send to them, are among
    /// its pairs.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        // Acquire: the pairs were made before.
        self.has_met.load(Ordering::Acquire) && !self.is_taking_in.load(Ordering::Acquire)
    }
}
