//! Speed as ratios: each side of a comparison runs in turn with the other, in one
//! process run, several rounds; medians are compared.
//!
//! `cargo bench --bench ratios` takes about seven minutes; with `-- NAME …` only the named
//! parts run: `connection`, `device`, `processes`, `programs`, `one-core`, `in-place`, `wake`,
//! `rings` (or one of `rings/small`, `rings/read`, `rings/write`), `prefetch` (`prefetch/near`,
//! `prefetch/far`), `direct-read` (`direct-read/memcpy`, `direct-read/fence`), `async`
//! (`async/rate`, `async/wake`), `copy`, `copy-disk`. UCX's shared memory is the peer where
//! `ucx_perftest` is installed (Debian: ucx-utils).
#![forbid(unsafe_code)]

mod asynchronous;
mod connection;
mod copy;
mod cores;
mod device;
mod direct_read;
mod hand_over;
mod in_place;
mod one_core;
mod prefetch;
mod processes;
mod programs;
mod rings;
mod ucx;
mod wake;

use std::time::Duration;

/// Rounds of each comparison.
const ROUNDS: usize = 7;

/// A part of the report.
type Part = (&'static str, fn());

const PARTS: [Part; 18] = [
    ("connection", connection::run),
    ("device", device::run),
    ("processes", processes::run),
    ("programs", programs::run),
    ("one-core", one_core::run),
    ("in-place", in_place::run),
    ("wake", wake::run),
    ("rings/small", rings::small),
    ("rings/read", rings::read),
    ("rings/write", rings::write),
    ("prefetch/near", prefetch::near),
    ("prefetch/far", prefetch::far),
    ("direct-read/memcpy", direct_read::memcpy),
    ("direct-read/fence", direct_read::fence),
    ("async/rate", asynchronous::rates),
    ("async/wake", asynchronous::wakes),
    ("copy", copy::in_memory),
    ("copy-disk", copy::on_disk),
];

fn main() {
    // Parts of themselves, in another process.
    if wake::has_slept() || direct_read::has_offered() {
        return;
    }
    // cargo bench passes --bench; everything else names a part.
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(unknown) = asked.iter().find(|a| PARTS.iter().all(|(name, _)| !names(a, name))) {
        let names = PARTS.map(|(name, _)| name).join(", ");
        eprintln!("ratios: no part is called {unknown}: there are {names}");
        std::process::exit(2);
    }
    println!("{}; {ROUNDS} rounds each, medians", rdma_conn::build::summary());
    println!("{}", processor());
    for (name, part) in PARTS {
        if asked.is_empty() || asked.iter().any(|a| names(a, name)) {
            part();
        }
    }
}

/// The processor that the figures are of, and how many cores of it may be used.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name"));
    let name = name.map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, cores: {cores}")
}

/// Reports whether `asked` is the part's name, or the name of the whole that it belongs to.
fn names(asked: &str, part: &str) -> bool {
    asked == part || part.split_once('/').is_some_and(|(whole, _)| asked == whole)
}

/// Messages per second.
fn rate(messages: u64, time: Duration) -> f64 {
    messages as f64 / time.as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs both in turn, and returns the medians.
fn in_turn(mut left: impl FnMut() -> f64, mut right: impl FnMut() -> f64) -> (f64, f64) {
    let (lefts, rights) = (0..ROUNDS).map(|_| (left(), right())).unzip();
    (median(lefts), median(rights))
}

/// Runs both in turn, and returns what the round of the median ratio had: where the machine
/// is slower for some rounds, it is so for both.
fn typical_round(left: impl FnMut() -> f64, right: impl FnMut() -> f64) -> (f64, f64) {
    typical_of(ROUNDS, left, right)
}

/// [`typical_round`] of `count` rounds.
fn typical_of(
    count: usize,
    mut left: impl FnMut() -> f64,
    mut right: impl FnMut() -> f64,
) -> (f64, f64) {
    typical((0..count).map(|_| (left(), right())).collect())
}

/// The round of the median ratio.
fn typical(mut rounds: Vec<(f64, f64)>) -> (f64, f64) {
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    rounds[rounds.len() / 2]
}

/// One line: what it is, both figures, the ratio, and what it should be.
fn line(what: &str, ours: f64, theirs: f64, unit: &str, target: Target) {
    let ratio = ours / theirs;
    let (wanted, met) = match target {
        Target::AtLeast(least) => (format!("at least {least}"), ratio >= least),
        Target::AtMost(most) => (format!("at most {most}"), ratio <= most),
        Target::None => {
            return println!("  {what:<58} {ours:>8.2} : {theirs:<8.2} {unit:<6} = {ratio:.2}");
        }
    };
    let verdict = if met { "met" } else { "NOT met" };
    println!(
        "  {what:<58} {ours:>8.2} : {theirs:<8.2} {unit:<6} = {ratio:.2} ({wanted}: {verdict})"
    );
}

#[derive(Clone, Copy)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// It is only shown.
    None,
}
