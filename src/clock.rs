//! The clock of all connections: the only place of this crate that knows the time and lets it pass,
//! so that another one can stand in for it.

use std::time::{Duration, Instant};

/// The time now.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets the thread sleep for so long.
pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}
