//! Distance of two processors: the time in which a line of memory goes from one to the other.
//!
//! In a virtual machine that changes while it runs: the host moves a virtual processor to another
//! core, which may share a cache with the other one's or not. Figures of both states do not
//! compare.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Round trips of the line in one batch; the quickest batch counts, in which neither processor did
/// anything else.
const TRIPS: u64 = 200;
const BATCHES: u64 = 20;
/// The longest that all batches may take: a processor may be another program's.
const LIMIT: Duration = Duration::from_millis(20);
/// Nanoseconds on the way within a shared cache, at most: AMD's complexes have 20 to 60, their
/// borders 100 and more.
const NEAR_NS: f64 = 80.0;

/// The distance of two processors: near if they share a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distance {
    Near,
    Far,
}

impl Distance {
    /// The distance of processors between which a line takes this time.
    pub(crate) fn of(line_ns: f64) -> Distance {
        if line_ns <= NEAR_NS { Distance::Near } else { Distance::Far }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Distance::Near => "near: they share a cache",
            Distance::Far => "far: they share no cache",
        }
    }
}

/// Nanoseconds that a line takes from one of the first two processors that this process may use to
/// the other. `None` where there is one only, or they had no time for it.
pub(crate) fn line_ns() -> Option<f64> {
    let ours = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu));
    let (one, other) = (processors.next()?, processors.next()?);
    let (there, back) = (Line::default(), Line::default());
    let end = host::time::now() + LIMIT;
    host::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            pin(other);
            (1..=BATCHES * TRIPS).all(|n| answer(&there.0, &back.0, n));
        });
        let asking = scope.spawn(|| {
            pin(one);
            let quickest = (0..BATCHES).filter_map(|batch| {
                let start = host::time::now();
                let all = (1..=TRIPS).all(|n| ask(&there.0, &back.0, batch * TRIPS + n, end));
                all.then(|| host::time::since(start))
            });
            let quickest = quickest.min();
            there.0.store(STOP, Ordering::Release);
            quickest
        });
        if asking.is_err() || answering.is_err() {
            there.0.store(STOP, Ordering::Release);
        }
        let quickest = asking.ok()?.join().ok()??;
        Some(quickest.as_nanos() as f64 / (2 * TRIPS) as f64)
    })
}

fn pin(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    // Where that is refused, the threads are where the system puts them.
    let _ = sched_setaffinity(None, &only);
}

/// A word with its line to itself, and the one that is fetched with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Asks for no answer any more.
const STOP: u64 = u64::MAX;

// Release and acquire, as words that tell of others have; there are none here.
fn ask(there: &AtomicU64, back: &AtomicU64, n: u64, end: Instant) -> bool {
    there.store(n, Ordering::Release);
    let mut looks = 0_u32;
    while back.load(Ordering::Acquire) != n {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1024) && host::time::now() > end {
            return false;
        }
    }
    true
}

fn answer(there: &AtomicU64, back: &AtomicU64, n: u64) -> bool {
    loop {
        match there.load(Ordering::Acquire) {
            STOP => return false,
            asked if asked == n => break,
            _ => {}
        }
    }
    back.store(n, Ordering::Release);
    true
}

#[cfg(test)]
mod tests;
