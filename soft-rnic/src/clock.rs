//! The device's clock, by which completions are timed: nanoseconds of the system's monotonic
//! clock, which all processes and all devices share.

use core::sync::atomic::{AtomicU64, Ordering};

pub(crate) use host::time::monotonic_ns as now;

/// Frequency in kHz, as `ibv_query_device_ex` gives it.
pub(crate) const KHZ: u64 = 1_000_000;

/// Nanoseconds by which the offset of the two clocks may change before the new one counts: it differs with every look, by
/// the time between its two reads.
const STEADY: u64 = 1_000_000;

/// The time of day, in nanoseconds since 1970, at which the clock said `then`. Times of one order have times of day of the
/// same order, unless the clock was set back in between.
pub(crate) fn wall_time(then: u64) -> u64 {
    static OFFSET: AtomicU64 = AtomicU64::new(0);
    let looked = host::time::wall_ns().wrapping_sub(now());
    // Relaxed: a number that guards no memory.
    let known = OFFSET.load(Ordering::Relaxed);
    // Worlds have a clock each.
    let is_known = known != 0 && !host::is_in_world() && known.abs_diff(looked) < STEADY;
    if !is_known {
        OFFSET.store(looked, Ordering::Relaxed);
    }
    then.wrapping_add(if is_known { known } else { looked })
}

#[cfg(test)]
mod tests;
