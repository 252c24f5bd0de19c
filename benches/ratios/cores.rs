//! Distance between the two processors on which two processes run.
//!
//! In a virtual machine that changes while it runs ([`host::processors`]). Between cores that share
//! no cache, a cache line takes five times as long, and a transfer through memory has a fraction of
//! its bandwidth, whichever way it takes.

use std::cell::Cell;

/// Nanoseconds of a cache line's round trip between two cores that share a cache; less is one
/// core's.
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
        let were_neighbours = are_neighbours();
        let measured = round();
        if were_neighbours && are_neighbours() || left == 0 {
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

/// Reports whether the two processors are two cores that share a cache.
fn are_neighbours() -> bool {
    host::processors::cache_line_ns([0, 1]).is_some_and(|ns| NEIGHBOURS.contains(&(2.0 * ns)))
}
