//! Direct Read between two processes on `soft0`, each pinned to a core, beside a memcpy from
//! one process to the other by hand.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Instant;

use rdma_conn::verbs_safe::baseline::SharedMessages;

use super::cores::{as_neighbours, tell_repeated};
use super::processes::{both_ends, build, on_core, one_process};
use super::{ROUNDS, Target, line, median, rate, typical_round};

const SIZE: usize = 65_536;
/// Unacknowledged messages, at both ends, of the connection and of the baseline.
const WINDOW: usize = 32;
const MESSAGES: u64 = 200_000;
/// A device whose READs take a network's round trip.
const FAR: &str = "soft0@5us";
/// The argument that makes this program the other end of the baseline.
const OFFER: &str = "--offer-shared-messages";

pub(crate) fn memcpy() {
    println!("Direct Read between two processes on soft0, 64 KiB, {WINDOW} unacknowledged");
    let program = build();
    for (ack, target) in [
        ("write", Target::AtLeast(0.8)),
        ("fenced-write", Target::None),
        ("cumulative", Target::None),
    ] {
        let ours = || both_ends(&program, "bench", &flags(ack), "bytes_per_s") / 1e9;
        let theirs = baseline_gigabytes_per_s;
        let (ours, theirs) = typical_round(as_neighbours(ours), as_neighbours(theirs));
        let fence = if ack == "write" { ", unfenced" } else { "" };
        line(&format!("--ack {ack}{fence} : memcpy"), ours, theirs, "GB/s", target);
    }
    tell_repeated();
    for ack in ["write", "fenced-write"] {
        let flags = format!("--protocol direct-read --size 65536 --ack {ack} --wait spin");
        let trip = || both_ends(&program, "pingpong", &flags, "latency_ns_p50") / 1e3;
        let trips = std::iter::repeat_with(trip).take(ROUNDS).collect();
        println!("  --ack {ack}, half a round trip: {:.2} µs", median(trips));
    }
}

pub(crate) fn fence() {
    println!("Direct Read, one process on {FAR}: unfenced : fenced");
    let program = build();
    for (size, unacked) in [4096, SIZE].into_iter().flat_map(|s| [1, 2, 8, 32].map(|n| (s, n))) {
        let rate = |ack: &str| {
            let flags = format!(
                "--device {FAR} --protocol direct-read --size {size} --ack {ack} --unacked {unacked} \
                 --seconds 0.3"
            );
            let program = program.clone();
            as_neighbours(move || one_process(&program, "bench", &flags, "messages_per_s") / 1e3)
        };
        let (ours, theirs) = typical_round(rate("write"), rate("fenced-write"));
        line(&format!("{size} B, --unacked {unacked}"), ours, theirs, "k/s", Target::None);
    }
    tell_repeated();
}

fn flags(ack: &str) -> String {
    format!(
        "--protocol direct-read --size 65536 --ack {ack} --unacked {WINDOW} --wait spin --seconds 0.3"
    )
}

/// Bytes per second that one process copies out of a memory file of another one.
fn baseline_gigabytes_per_s() -> f64 {
    let messages = SharedMessages::new(WINDOW, SIZE).expect("messages");
    let (process, file) = (std::process::id(), messages.as_fd().as_raw_fd());
    let program = std::env::current_exe().expect("a program knows its path");
    let mut other = Command::new("taskset");
    other.args(["-c", "1"]).arg(program).arg(OFFER).arg(format!("/proc/{process}/fd/{file}"));
    let mut other = other.stdout(Stdio::null()).spawn().expect("taskset (util-linux) starts");
    let mut into = vec![0; WINDOW * SIZE];
    let time = on_core(0, || {
        // It is there with its first message.
        messages.take(0..1, &mut into);
        let start = Instant::now();
        messages.take(1..MESSAGES, &mut into);
        start.elapsed()
    });
    assert!(other.wait().is_ok_and(|status| status.success()), "it was all taken");
    rate((MESSAGES - 1) * SIZE as u64, time) / 1e9
}

/// Plays the other end of the baseline if this process was started for that, and reports whether it
/// was.
pub(crate) fn has_offered() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(OFFER) {
        return false;
    }
    let path = arguments.next().expect("the file that is shared");
    let file = File::options().read(true).write(true).open(path).expect("the other's file");
    let messages = SharedMessages::open(file.into(), WINDOW, SIZE).expect("messages");
    messages.offer(MESSAGES, WINDOW as u64);
    true
}
