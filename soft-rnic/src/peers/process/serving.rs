//! Threads that others rely on, and those that wait for another process's memory.

use core::cell::Cell;
use core::sync::atomic::AtomicBool;

/// Nanoseconds to the next look at a send queue whose holder waits for another process's memory,
/// or for which there was no thread to wait.
pub(crate) const BLOCKED_RETRY_NS: u64 = 1_000_000;

/// The blocking section of a queue pair's send queue: its holder may be inside.
#[derive(Debug, Default)]
pub(crate) struct BlockingFlags {
    pub(crate) is_inside: AtomicBool,
    /// A thread has gone on without the send queue.
    pub(crate) missed: AtomicBool,
    /// The pending requests were left to a thread of its own, which has not begun.
    pub(crate) is_left: AtomicBool,
}

thread_local! {
    /// Others rely on this thread.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn serves() -> bool {
    SERVES.get()
}

/// While it lives, others rely on this thread.
pub(crate) struct Serving(bool);

impl Serving {
    pub(crate) fn begin() -> Serving {
        Serving(SERVES.replace(true))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES.set(self.0);
    }
}
