//! Waiting until other processes have left this one's memory.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::errno;

use super::barrier;
use super::pair::Pair;

/// How long this process waits for another one that is inside its memory and does not go on.
pub(crate) const INSIDE: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };

pub(crate) fn wait_for<'a>(
    pair: &Pair,
    words: impl Iterator<Item = &'a core::sync::atomic::AtomicU32>,
) -> Result<(), c_int> {
    let mut since = None;
    // The other side of the barrier in `QpEntry::enter`.
    let is_seen = barrier::heavy();
    for word in words {
        // Acquire: a process that has left has finished its accesses.
        let seen = word.load(Ordering::Acquire);
        while seen & 1 == 1 && word.load(Ordering::Acquire) == seen {
            let since = *since.get_or_insert_with(Instant::now);
            if pair.has_gone() {
                return Ok(());
            }
            if since.elapsed() > INSIDE {
                return Err(errno::EBUSY);
            }
            std::thread::yield_now();
        }
    }
    // If not, other processes may be inside unseen.
    if is_seen { Ok(()) } else { Err(errno::EBUSY) }
}
