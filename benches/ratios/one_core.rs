//! Half a round trip of 16 bytes in the default wait mode where both ends run on one core,
//! beside that of a pipe; and where they have two, beside the same without sleeping.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::processes::{both_ends_on, build, number, on_core};
use super::{Target, in_turn, line, typical_round};

const PROTOCOLS: [&str; 4] = ["send-recv", "buffered-read", "buffered-write", "direct-read"];
const TRIPS: u64 = 20_000;
/// The core that both ends share.
const SHARED: usize = 0;

pub(crate) fn run() {
    let program = build();
    println!("Half a round trip of 16 B on soft0, both ends on one core : two pipes");
    for protocol in PROTOCOLS {
        let ours = || between_processes([SHARED; 2], &program, protocol, "");
        let (ours, theirs) = typical_round(ours, pipe_to_a_process);
        line(&format!("{protocol}, two processes"), ours, theirs, "µs", Target::AtMost(2.0));
    }
    for protocol in PROTOCOLS {
        let ours = || between_threads("0", &program, protocol, "");
        let (ours, theirs) = typical_round(ours, pipe_to_a_thread);
        line(&format!("{protocol}, two threads"), ours, theirs, "µs", Target::AtMost(2.0));
    }
    println!("Half a round trip of 16 B on soft0, a core each: default : --wait spin");
    for protocol in PROTOCOLS {
        let of = |flags| {
            let program = program.clone();
            move || between_processes([0, 1], &program, protocol, flags)
        };
        let (ours, theirs) = in_turn(of(""), of(" --wait spin"));
        line(&format!("{protocol}, two processes"), ours, theirs, "µs", Target::AtMost(1.1));
    }
    for protocol in PROTOCOLS {
        let of = |flags| {
            let program = program.clone();
            move || between_threads("0,1", &program, protocol, flags)
        };
        let (ours, theirs) = in_turn(of(""), of(" --wait spin"));
        line(&format!("{protocol}, two threads"), ours, theirs, "µs", Target::AtMost(1.1));
    }
}

fn flags(protocol: &str, more: &str) -> String {
    format!("--protocol {protocol} --size 16 --iterations {TRIPS}{more}")
}

fn between_processes(cores: [usize; 2], program: &PathBuf, protocol: &str, more: &str) -> f64 {
    let flags = flags(protocol, more);
    both_ends_on(cores, program, "pingpong", &flags, "latency_ns_p50") / 1e3
}

/// Both ends in one process on these cores.
fn between_threads(cores: &str, program: &Path, protocol: &str, more: &str) -> f64 {
    let mut both = Command::new("taskset");
    both.args(["-c", cores]).arg(program);
    both.args(["pingpong", "--json", "--no-verify", "--device", "soft0"]);
    both.args(flags(protocol, more).split(' '));
    let output = both.output().expect("taskset (util-linux) and rdma-conn start");
    let said = String::from_utf8_lossy(&output.stderr);
    let figure = number(&String::from_utf8_lossy(&output.stdout), "latency_ns_p50");
    figure.unwrap_or_else(|| panic!("rdma-conn pingpong --protocol {protocol}: {said}")) / 1e3
}

/// Half a round trip through two pipes, to a process (`cat`) on the same core and back.
fn pipe_to_a_process() -> f64 {
    let mut echo = Command::new("taskset");
    echo.args(["-c", &SHARED.to_string(), "cat"]);
    echo.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut echo = echo.spawn().expect("taskset (util-linux) and cat start");
    let (to, from) = (echo.stdin.take().expect("piped"), echo.stdout.take().expect("piped"));
    let time = on_core(SHARED, || half_trip(to, from));
    echo.wait().expect("it ends with its input");
    time
}

/// Half a round trip through two pipes, to a thread on the same core and back.
fn pipe_to_a_thread() -> f64 {
    let ((there, to), (from, back)) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
    std::thread::scope(|scope| {
        scope.spawn(|| on_core(SHARED, || answer(there, back)));
        on_core(SHARED, || half_trip(to, from))
    })
}

fn answer(mut from: PipeReader, mut to: PipeWriter) {
    let mut message = [0; 16];
    while from.read_exact(&mut message).is_ok() {
        to.write_all(&message).expect("it is read");
    }
}

fn half_trip(mut to: impl Write, mut from: impl Read) -> f64 {
    let (mut message, mut times) = ([7; 16], Vec::new());
    for _ in 0..TRIPS {
        let start = Instant::now();
        to.write_all(&message).expect("it is read");
        from.read_exact(&mut message).expect("it is answered");
        times.push(start.elapsed().as_nanos() as f64 / 2e3);
    }
    super::median(times)
}
