//! The soft device by raw verbs, against UCX's shared memory and against memcpy.

use std::hint::black_box;
use std::time::Instant;

use rdma_conn::device;
use rdma_conn::verbs_safe::baseline::{RawLoop, RawLoopConfig};

use super::{ROUNDS, Target, in_turn, line, median, rate, ucx};

const SMALL: u64 = 2_000_000;
const LARGE: u64 = 40_000;
const LARGE_BYTES: usize = 65_536;

pub(crate) fn run() {
    println!("The soft device by raw verbs (16 B: 8 to a doorbell, 256 unacknowledged)");
    let device = device::soft().expect("soft0 opens");
    let mut small = RawLoop::new(device.context(), RawLoopConfig::default()).expect("a raw loop");
    match ucx::find() {
        None => {
            let two = || mega(small.run_two_threads(SMALL).expect("it runs"));
            let two = median(std::iter::repeat_with(two).take(ROUNDS).collect());
            println!(
                "  16 B, two threads: {two:.2} M/s; ucx_perftest is not installed (Debian: ucx-utils), so there is no ratio"
            );
        }
        Some(()) => {
            let (ours, theirs) = in_turn(
                || mega(small.run_two_threads(SMALL).expect("it runs")),
                || ucx::tag_rate(16, SMALL) / 1e6,
            );
            line(
                "16 B, two threads : UCX shared memory",
                ours,
                theirs,
                "M/s",
                Target::AtLeast(1.0),
            );
            let (ours, theirs) = in_turn(
                || mega(small.run(SMALL).expect("it runs")),
                || ucx::tag_rate(16, SMALL) / 1e6,
            );
            line("16 B, one thread : UCX shared memory", ours, theirs, "M/s", Target::AtLeast(2.5));
        }
    }
    let config = RawLoopConfig {
        size: LARGE_BYTES as u32,
        unacked: 32,
        signal_every: 8,
        slots: 64,
        ..RawLoopConfig::default()
    };
    let mut large = RawLoop::new(device.context(), config).expect("a raw loop");
    let gigabytes = |per_s: f64| per_s * LARGE_BYTES as f64 / 1e9;
    let (ours, theirs) = in_turn(
        || gigabytes(rate(LARGE, large.run(LARGE).expect("it runs"))),
        || gigabytes(memcpy_rate()),
    );
    line("64 KiB, one thread : memcpy", ours, theirs, "GB/s", Target::AtLeast(0.8));
    let (ours, theirs) = in_turn(
        || gigabytes(rate(LARGE, large.run_two_threads(LARGE).expect("it runs"))),
        || gigabytes(memcpy_rate()),
    );
    line("64 KiB, two threads : memcpy", ours, theirs, "GB/s", Target::AtLeast(0.8));
}

fn mega(time: std::time::Duration) -> f64 {
    rate(SMALL, time) / 1e6
}

/// Copies per second of one large message between rings like those of the loop.
fn memcpy_rate() -> f64 {
    let source = vec![1u8; 32 * LARGE_BYTES];
    let mut target = vec![0u8; 64 * LARGE_BYTES];
    let start = Instant::now();
    for i in 0..LARGE as usize {
        let from = &source[i % 32 * LARGE_BYTES..][..LARGE_BYTES];
        target[i % 64 * LARGE_BYTES..][..LARGE_BYTES].copy_from_slice(black_box(from));
    }
    black_box(&target);
    rate(LARGE, start.elapsed())
}
