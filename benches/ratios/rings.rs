//! Buffered Read and Buffered Write between two processes on `soft0`, each pinned to a core,
//! beside UCX's shared memory, Send/Receive on the same device, memcpy, and buffers that are
//! handed over.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use super::cores::{as_neighbours, tell_repeated};
use super::processes::{TRIPS, both_ends, build, half_trip};
use super::{ROUNDS, Target, hand_over, line, rate, typical, typical_round, ucx};

const SMALL: u64 = 2_000_000;
/// Seconds for which a connection sends.
const SECONDS: &str = "0.3";
/// Bytes that UCX and memcpy move in one measurement.
const BYTES: usize = 2 << 30;

pub(crate) fn small() {
    println!(
        "Connections with rings, two processes on soft0, 16 B : UCX shared memory, and others"
    );
    let program = build();
    let read = || as_neighbours(|| rate_of(&program, "--protocol buffered-read --size 16") / 1e6);
    let batched = as_neighbours(|| rate_of(&program, "--preset batched --size 16") / 1e6);
    let what = "Buffered Read, 16 B";
    let (ours, theirs) = typical_round(read(), batched);
    line(&format!("{what} : Send/Receive"), ours, theirs, "M/s", Target::AtLeast(5.0));
    if has_ucx() {
        let rate = as_neighbours(|| ucx::tag_rate(16, SMALL) / 1e6);
        let (ours, theirs) = typical_round(read(), rate);
        line(&format!("{what} : UCX"), ours, theirs, "M/s", Target::AtLeast(5.0));
        let trip = || half_trip(&program, TRIPS, "--protocol buffered-write --wait spin");
        let theirs = as_neighbours(|| ucx::tag_half_trip(16, TRIPS));
        let (ours, theirs) = typical_round(as_neighbours(trip), theirs);
        line("Buffered Write, 16 B, half a trip : UCX", ours, theirs, "µs", Target::AtMost(1.0));
    }
    tell_repeated();
}

pub(crate) fn read() {
    bandwidth("buffered-read", "Buffered Read");
}

pub(crate) fn write() {
    bandwidth("buffered-write", "Buffered Write");
}

/// A comparison for a connection: its name, the target, and a function that returns the GB/s of a
/// round.
type Bound<'a> = (&'static str, Target, Box<dyn FnMut() -> f64 + 'a>);

fn bandwidth(protocol: &str, name: &str) {
    println!("{name}, two processes on soft0 : UCX shared memory, memcpy, and buffers handed over");
    let program = build();
    let has_ucx = has_ucx();
    for size in [8 << 10, 64 << 10] {
        let flags = format!("--protocol {protocol} --size {size}");
        let mut ours = as_neighbours(|| gigabytes(size, rate_of(&program, &flags)));
        let mut bounds = bounds(size, has_ucx);
        // All of a round in turn, so that each figure is of the same minutes.
        let rounds: Vec<(f64, Vec<f64>)> = (0..ROUNDS)
            .map(|_| (ours(), bounds.iter_mut().map(|(_, _, measure)| measure()).collect()))
            .collect();
        for (i, (what, target, _)) in bounds.iter().enumerate() {
            let (ours, theirs) = typical(rounds.iter().map(|(ours, b)| (*ours, b[i])).collect());
            line(&format!("{name}, {size} B : {what}"), ours, theirs, "GB/s", *target);
        }
    }
    tell_repeated();
}

fn bounds(size: usize, has_ucx: bool) -> Vec<Bound<'static>> {
    let messages = (BYTES / size) as u64;
    let ucx = as_neighbours(move || gigabytes(size, ucx::tag_rate(size, messages)));
    let handed = as_neighbours(move || hand_over::gigabytes_per_s(size, messages));
    let mut bounds: Vec<Bound> = vec![];
    if has_ucx {
        bounds.push(("UCX", Target::AtLeast(1.0), Box::new(ucx)));
    }
    bounds.push(("memcpy of 2 MiB", Target::AtLeast(0.8), Box::new(memcpy)));
    bounds.push(("filled, handed over, copied out", Target::None, Box::new(handed)));
    bounds
}

fn has_ucx() -> bool {
    let is_there = ucx::find().is_some();
    if !is_there {
        println!("  ucx_perftest is not installed (Debian: ucx-utils), so only the rest is shown");
    }
    is_there
}

/// Messages per second.
pub(crate) fn rate_of(program: &PathBuf, flags: &str) -> f64 {
    both_ends(program, "bench", &format!("--seconds {SECONDS} {flags}"), "messages_per_s")
}

fn gigabytes(size: usize, per_s: f64) -> f64 {
    per_s * size as f64 / 1e9
}

/// GB/s of copies of 2 MiB from one place to another, again and again.
fn memcpy() -> f64 {
    const BLOCK: usize = 2 << 20;
    let (source, mut target) = (vec![1_u8; BLOCK], vec![0_u8; BLOCK]);
    let start = Instant::now();
    for _ in 0..BYTES / BLOCK {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
    }
    rate(BYTES as u64, start.elapsed()) / 1e9
}
