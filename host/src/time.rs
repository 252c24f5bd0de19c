//! The clock.

use std::time::{Duration, Instant};

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The time now. In a world, reading the clock takes virtual time, so that a thread that polls until a
/// deadline reaches it.
#[inline]
#[must_use]
pub fn now() -> Instant {
    #[cfg(feature = "world")]
    if let Some(now) = crate::world::here(crate::world::Here::now) {
        return now;
    }
    Instant::now()
}

/// The time since `then`.
#[inline]
#[must_use]
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Lets this thread sleep for `time`. Unlike the standard library's, this is no cancellation point (`pthread_cancel`).
pub fn sleep(time: Duration) {
    #[cfg(feature = "world")]
    if crate::world::here(|here| here.sleep(time)).is_some() {
        return;
    }
    let mut left = timespec(time);
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// Nanoseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    #[cfg(feature = "world")]
    if let Some(ns) = crate::world::here(crate::world::Here::now_ns) {
        return ns;
    }
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// A number that changes with each tick of the system's coarse clock, of 1 to 10 ms (in a world, of 1 ms). Reading it
/// takes a few nanoseconds, and no system call where the system has a vDSO.
#[inline]
#[must_use]
pub fn tick() -> u64 {
    #[cfg(feature = "world")]
    if let Some(ns) = crate::world::here(crate::world::Here::now_ns) {
        return ns >> 20;
    }
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec.cast_unsigned() << 30 | time.tv_nsec as u64
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall_ns() -> u64 {
    /// The first day of worlds: 2020-01-01.
    #[cfg(feature = "world")]
    const WORLDS_BEGIN_NS: u64 = 1_577_836_800_000_000_000;
    #[cfg(feature = "world")]
    if let Some(ns) = crate::world::here(crate::world::Here::now_ns) {
        return WORLDS_BEGIN_NS + ns;
    }
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// The time that this thread has had a processor for; in a world, that the world has lasted.
#[must_use]
pub fn thread_cpu() -> Duration {
    #[cfg(feature = "world")]
    if let Some(ns) = crate::world::here(crate::world::Here::now_ns) {
        return Duration::from_nanos(ns);
    }
    Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ThreadCPUTime)))
}

/// The time as the system's calls take it; longer ones than they can hold are as long as they can.
#[must_use]
pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
