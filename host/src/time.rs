//! The clock.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The time now. In a world, reading the clock takes virtual time, so that a thread that polls until a
/// deadline reaches it.
#[inline]
#[must_use]
pub fn now() -> Instant {
    in_world!(return crate::world::CurrentTask::now);
    let now = Instant::now();
    if is_slowed() { slowed(now) } else { now }
}

/// The bits of how many times slower the clock goes than the system's; 0 where it goes as that.
static SLOWED: AtomicU64 = AtomicU64::new(0);
/// The moment from which it does, by both clocks of the system.
static BEGINNING: OnceLock<(Instant, u64)> = OnceLock::new();

/// Slows the clock of this process by this factor from now on, and stretches its waits accordingly:
/// a device that takes a card's time more slowly is in time with the program then. Another call
/// changes nothing, and returns false unless it asks for the same.
///
/// ```
/// // A clock as the system's.
/// assert!(host::time::slow_down(1.0) && host::time::slow_down(1.0) && !host::time::slow_down(2.0));
/// assert_eq!(host::time::slowness(), 1.0);
/// ```
pub fn slow_down(times: f64) -> bool {
    BEGINNING.get_or_init(|| (Instant::now(), nanoseconds(clock_gettime(ClockId::Monotonic))));
    // Release: a thread that sees it sees the beginning.
    let before = SLOWED.compare_exchange(0, times.to_bits(), Ordering::Release, Ordering::Relaxed);
    before.is_ok() || before == Err(times.to_bits())
}

/// The factor by which the clock goes slower than the system's.
#[must_use]
pub fn slowness() -> f64 {
    // Acquire: the other side of `slow_down`.
    match SLOWED.load(Ordering::Acquire) {
        0 => 1.0,
        bits => f64::from_bits(bits),
    }
}

#[inline(always)]
fn is_slowed() -> bool {
    // Relaxed: `slowness` orders.
    SLOWED.load(Ordering::Relaxed) != 0
}

#[cold]
fn slowed(now: Instant) -> Instant {
    match BEGINNING.get() {
        Some((beginning, _)) => {
            *beginning + now.saturating_duration_since(*beginning).div_f64(slowness())
        }
        None => now,
    }
}

#[cold]
fn slowed_ns(now: u64) -> u64 {
    match BEGINNING.get() {
        Some((_, beginning)) => {
            beginning + (now.saturating_sub(*beginning) as f64 / slowness()) as u64
        }
        None => now,
    }
}

/// The time by the system's clock that `time` lasts.
#[inline]
#[must_use]
pub fn by_system(time: Duration) -> Duration {
    if is_slowed() {
        Duration::try_from_secs_f64(time.as_secs_f64() * slowness()).unwrap_or(Duration::MAX)
    } else {
        time
    }
}

/// The time until then, by the system's clock: what a condition variable waits for.
#[must_use]
pub fn until(then: Instant) -> Duration {
    by_system(then.saturating_duration_since(now()))
}

/// The time since `then`.
#[inline]
#[must_use]
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Lets this thread sleep for `time`. Unlike the standard library's, this is no cancellation point (`pthread_cancel`).
pub fn sleep(time: Duration) {
    in_world!(return |here| here.sleep(time));
    let mut left = timespec(time);
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// Nanoseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    in_world!(return crate::world::CurrentTask::now_ns);
    let now = nanoseconds(clock_gettime(ClockId::Monotonic));
    if is_slowed() { slowed_ns(now) } else { now }
}

/// A number that changes with each tick of the system's coarse clock, of 1 to 10 ms (in a world, of 1 ms). Reading it
/// takes a few nanoseconds, and no system call where the system has a vDSO.
#[inline]
#[must_use]
pub fn tick() -> u64 {
    in_world!(return |here| here.now_ns() >> 20);
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec.cast_unsigned() << 30 | time.tv_nsec as u64
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall_ns() -> u64 {
    /// The first day of worlds: 2020-01-01.
    #[cfg(feature = "world")]
    const WORLDS_BEGIN_NS: u64 = 1_577_836_800_000_000_000;
    in_world!(return |here| WORLDS_BEGIN_NS + here.now_ns());
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// The time that this thread has had a processor for; in a world, from the world's begin and without its waits.
#[must_use]
pub fn thread_cpu() -> Duration {
    in_world!(return |here| Duration::from_nanos(here.busy_ns()));
    let time = Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ThreadCPUTime)));
    if is_slowed() { time.div_f64(slowness()) } else { time }
}

/// The time as the system's calls take it; longer ones than they can hold are as long as they can.
#[must_use]
pub fn timespec(time: Duration) -> Timespec {
    let time = by_system(time);
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
