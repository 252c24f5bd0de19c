//! The device's clock, by which completions are timed: nanoseconds of the system's monotonic
//! clock, which all processes and all devices share.

pub(crate) use host::time::monotonic_ns as now;

/// Frequency in kHz, as `ibv_query_device_ex` gives it.
pub(crate) const KHZ: u64 = 1_000_000;

/// The time of day, in nanoseconds since 1970, at which the clock said `then`.
pub(crate) fn wall_time(then: u64) -> u64 {
    host::time::wall_ns().wrapping_sub(now().wrapping_sub(then))
}
