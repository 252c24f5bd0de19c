//! What a process knows of its part in multicast groups.

use core::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// The part of this process in the multicast groups of its user's processes.
#[derive(Debug, Default)]
pub(crate) struct Participation {
    /// Held by the thread that meets the others.
    pub(crate) meeting: Mutex<Meeting>,
    /// The marker is shown, and all that had one before have been introduced to.
    pub(crate) has_met: AtomicBool,
    /// A thread is making pairs. A process that has seen our introduction takes us for met,
    /// before it is among our pairs.
    pub(crate) is_taking_in: AtomicBool,
}

/// How the others are met.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    /// Some could not be introduced to: messages begin no other meeting until then.
    pub(crate) rests_until: Option<Instant>,
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
