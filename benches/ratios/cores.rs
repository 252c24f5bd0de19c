//! Distance between the two processors on which two processes run.
//!
//! In a virtual machine that changes while it runs: the host moves a virtual processor to
//! another core, which may share a cache with the other one's, or be the same core, or lie
//! beyond the cache that cores share. A line of memory takes five times as long then, and
//! a transfer through memory has a fraction of its bandwidth, whichever way it takes.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::processes::on_core;

/// Round trips of a line in one measurement.
const TRIPS: u64 = 5000;
/// Nanoseconds of a round trip between two cores that share a cache; less is one core's.
const NEIGHBOURS: std::ops::Range<f64> = 60.0..250.0;
/// Rounds taken again, of one comparison, at most.
const AGAIN: usize = 40;

thread_local! {
    static REPEATED: Cell<usize> = const { Cell::new(0) };
}

/// Wraps a round so that it is taken again until the processors are two cores that share a cache
/// both before and after it; at most `AGAIN` times in all.
pub(crate) fn as_neighbours<T>(mut round: impl FnMut() -> T) -> impl FnMut() -> T {
    let mut left = AGAIN;
    move || loop {
        let before = round_trip_ns();
        let measured = round();
        let is_good = NEIGHBOURS.contains(&before) && NEIGHBOURS.contains(&round_trip_ns());
        if is_good || left == 0 {
            return measured;
        }
        left -= 1;
        REPEATED.set(REPEATED.get() + 1);
    }
}

/// Says how often a measurement was taken again.
pub(crate) fn tell_repeated() {
    let times = REPEATED.take();
    println!("  (taken again, because the processors were not neighbours: {times})");
}

/// Nanoseconds from one processor to the other and back, of a line of memory.
fn round_trip_ns() -> f64 {
    let (there, back) = (Line::default(), Line::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on_core(1, || (1..=TRIPS).for_each(|n| answer(&there.0, &back.0, n)));
        });
        on_core(0, || {
            ask(&there.0, &back.0, 1);
            let start = Instant::now();
            (2..=TRIPS).for_each(|n| ask(&there.0, &back.0, n));
            start.elapsed().as_nanos() as f64 / (TRIPS - 1) as f64
        })
    })
}

/// A word with its line to itself, and the one that is fetched with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

// Release and acquire, as words that tell of others have; there are none here.
fn ask(there: &AtomicU64, back: &AtomicU64, n: u64) {
    there.store(n, Ordering::Release);
    while back.load(Ordering::Acquire) != n {}
}

fn answer(there: &AtomicU64, back: &AtomicU64, n: u64) {
    while there.load(Ordering::Acquire) != n {}
    back.store(n, Ordering::Release);
}
