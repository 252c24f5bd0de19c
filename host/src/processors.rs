//! Processors: the time in which a cache line goes from one to another.
//!
//! In a virtual machine that changes while it runs: the hypervisor moves a virtual processor to
//! another core, which may share a cache with the other one's, or be the same core, or lie beyond
//! the cache that cores share. Figures of two such states do not compare.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{thread, time};

/// Round trips of the line in one batch; the quickest batch counts, in which neither processor did
/// anything else.
const TRIPS: u64 = 200;
const BATCHES: u64 = 20;
/// The longest that all batches may take: a processor may be another program's.
const LIMIT: Duration = Duration::from_millis(20);

/// Nanoseconds that a cache line takes from one of two processors to the other. `None` where they
/// had no time for it, and in a world, whose threads run one at a time.
#[must_use]
pub fn cache_line_ns([one, other]: [usize; 2]) -> Option<f64> {
    if crate::is_in_world() {
        return None;
    }
    let (there, back) = (PaddedWord::default(), PaddedWord::default());
    let end = time::now() + LIMIT;
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            pin(other);
            (1..=BATCHES * TRIPS).all(|n| answer(&there.0, &back.0, n));
        });
        let asking = scope.spawn(|| {
            pin(one);
            let quickest = (0..BATCHES).filter_map(|batch| {
                let start = time::now();
                let all = (1..=TRIPS).all(|n| ask(&there.0, &back.0, batch * TRIPS + n, end));
                all.then(|| time::since(start))
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
struct PaddedWord(AtomicU64);

/// Asks for no answer any more.
const STOP: u64 = u64::MAX;

// Release and acquire, as words that tell of others have; there are none here.
fn ask(there: &AtomicU64, back: &AtomicU64, n: u64, end: Instant) -> bool {
    there.store(n, Ordering::Release);
    let mut looks = 0_u32;
    while back.load(Ordering::Acquire) != n {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1024) && time::now() > end {
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
