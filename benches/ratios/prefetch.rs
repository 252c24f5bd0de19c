//! Buffered Read with READs ahead of what is handed out, several at once, of limited length,
//! against one READ after the other of all that there is: between two processes on `soft0`,
//! where a READ is done inside the post that asks for it, and on a device whose READs take a
//! network's round trip.

use std::path::Path;

use super::cores::{as_neighbours, tell_repeated};
use super::processes::{build, one_process};
use super::rings::rate_of;
use super::{Target, line, typical_round};

/// One READ at a time, as long as the ring, when nothing is left to hand out.
const OFF: &str = "--no-prefetch --reads 1 --max-read-bytes 2097152";

const SIZES: [usize; 6] = [16, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// A round trip that takes as long as the copy of a good part of the ring.
const FAR: &str = "soft0@50us";

pub(crate) fn near() {
    let program = build();
    println!("Buffered Read, two processes on soft0: prefetching with its limit : without");
    compare(|flags| rate_of(&program, flags));
}

pub(crate) fn far() {
    let program = build();
    println!("Buffered Read, one process on {FAR}: the same");
    let best =
        compare(|flags| rate_within(&program, &format!("--device {FAR} --wait spin {flags}")));
    line("the best of them", best, 1.0, "", Target::AtLeast(1.3));
}

/// Compares the rates of all sizes; the best ratio.
fn compare(rate: impl Fn(&str) -> f64) -> f64 {
    let mut best: f64 = 0.0;
    for size in SIZES {
        let flags = format!("--protocol buffered-read --size {size}");
        let on = as_neighbours(|| rate(&flags) / 1e6);
        let off = as_neighbours(|| rate(&format!("{flags} {OFF}")) / 1e6);
        let (ours, theirs) = typical_round(on, off);
        line(&format!("{size} B"), ours, theirs, "M/s", Target::AtLeast(0.95));
        best = best.max(ours / theirs);
    }
    tell_repeated();
    best
}

/// Messages per second, both ends in one process.
fn rate_within(program: &Path, flags: &str) -> f64 {
    one_process(program, "bench", &format!("--seconds 0.3 {flags}"), "messages_per_s")
}
