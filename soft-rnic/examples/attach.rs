//! Half a round trip of two processes that write 16 bytes into each other's memory by
//! `process_vm_writev`, each spinning on its last word on a core of its own: what a WRITE to
//! memory that cannot be mapped is measured by.
//!
//! `cargo run --release -p soft-rnic --example attach` prints the median of some blocks of trips,
//! in µs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

const BLOCKS: usize = 20;
const TRIPS: u64 = 5_000;

/// Where the other process writes.
static WORDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn main() {
    let addr = (&raw const WORDS).expose_provenance();
    if let Some(other) = std::env::args().nth(1) {
        let (pid, there) = other.split_once(':').expect("PID:ADDRESS");
        println!("{addr}");
        pin(1);
        let other = (pid.parse().expect("a number"), there.parse().expect("an address"));
        for n in 1..=BLOCKS as u64 * TRIPS {
            wait(n);
            write(other, n);
        }
        return;
    }
    let itself = std::env::current_exe().expect("a program knows its path");
    let mut child = Command::new(itself)
        .arg(format!("{}:{addr}", std::process::id()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("an address");
    let other = (child.id() as i32, line.trim().parse().expect("an address"));
    pin(0);
    let mut n = 0;
    let mut blocks: Vec<Duration> = (0..BLOCKS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TRIPS {
                n += 1;
                write(other, n);
                wait(n);
            }
            start.elapsed()
        })
        .collect();
    child.wait().expect("it ends");
    blocks.sort();
    let half = blocks[BLOCKS / 2].as_secs_f64() * 1e6 / (2 * TRIPS) as f64;
    writeln!(std::io::stdout(), "{half:.3}").expect("it is printed");
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("two cores");
}

fn wait(n: u64) {
    while WORDS[1].load(Ordering::Acquire) != n {
        std::hint::spin_loop();
    }
}

fn write((pid, there): (i32, usize), n: u64) {
    let mut words = [n; 2];
    let here = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: 16 };
    let to = core::ptr::with_exposed_provenance_mut(there);
    let there = libc::iovec { iov_base: to, iov_len: 16 };
    // SAFETY: our own words are read; the other process, which runs this program, has words there
    // that it accesses atomically.
    let n = unsafe { libc::process_vm_writev(pid, &here, 1, &there, 1, 0) };
    assert_eq!(n, 16, "{}", std::io::Error::last_os_error());
}
