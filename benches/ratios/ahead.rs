//! Buffered Read between two processes on `soft0`: READs ahead of what is handed out, several
//! at once, of limited length, against one READ after the other of all that there is.

use super::cores::{as_neighbours, tell_repeated};
use super::processes::build;
use super::rings::rate_of;
use super::{Target, line, typical_round};

/// One READ at a time, as long as the ring, when nothing is left to hand out.
const OFF: &str = "--no-reads-ahead --reads 1 --max-read-bytes 2097152";

pub(crate) fn run() {
    println!("Buffered Read, two processes: READs ahead with their limit : without");
    let program = build();
    for size in [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        let flags = format!("--protocol buffered-read --size {size}");
        let on = as_neighbours(|| rate_of(&program, &flags) / 1e6);
        let off = as_neighbours(|| rate_of(&program, &format!("{flags} {OFF}")) / 1e6);
        let (ours, theirs) = typical_round(on, off);
        line(&format!("{size} B"), ours, theirs, "M/s", Target::AtLeast(0.95));
    }
    tell_repeated();
}
