//! The device's clock, by which completions are timed: nanoseconds of the system's monotonic
//! clock, which all processes and all devices share.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Frequency in kHz, as `ibv_query_device_ex` gives it.
pub(crate) const KHZ: u64 = 1_000_000;

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// What the clock says now.
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// The time of day, in nanoseconds since 1970, at which the clock said `then`.
pub(crate) fn wall_time(then: u64) -> u64 {
    let wall = nanoseconds(clock_gettime(ClockId::Realtime));
    wall.wrapping_sub(now().wrapping_sub(then))
}
