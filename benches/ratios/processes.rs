//! Two processes on `soft0`, each pinned to a core, by the command `rdma-conn`; beside
//! them UCX's shared memory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Target, in_turn, line, ucx};

pub(crate) const TRIPS: u64 = 100_000;
/// To connect.
const TRIES: usize = 1_000;
const SECONDS: &str = "1";
const LARGE: usize = 65_536;

pub(crate) fn run() {
    println!("Two processes on soft0 : UCX shared memory");
    let program = build();
    if ucx::find().is_none() {
        return println!("  ucx_perftest is not installed (Debian: ucx-utils)");
    }
    beside_ucx(&program);
}

fn beside_ucx(program: &PathBuf) {
    let ways = [
        ("16 B, half a round trip, --op write", "--op write --wait spin", 1.0),
        ("16 B, half a round trip, --op send", "--op send --wait spin", 1.5),
        ("16 B, half a round trip, a connection", "--wait spin", 1.5),
    ];
    for (what, flags, most) in ways {
        let ours = || half_trip(program, TRIPS, flags);
        let (ours, theirs) = in_turn(ours, || ucx::tag_half_trip(16, TRIPS));
        line(what, ours, theirs, "µs", Target::AtMost(most));
    }
    let small = || rate(program, "--preset batched --size 16 --wait spin") / 1e6;
    let (ours, theirs) = in_turn(small, || ucx::tag_rate(16, 2_000_000) / 1e6);
    line("16 B, a connection, batched", ours, theirs, "M/s", Target::AtLeast(1.0));
    // Both ends stay in their caches, as UCX does, which uses one buffer again and again.
    let large = || rate(program, "--preset batched --unacked 16 --size 65536 --wait spin");
    let to_gb = |rate: f64| rate * LARGE as f64 / 1e9;
    let (ours, theirs) = in_turn(|| to_gb(large()), || to_gb(ucx::tag_rate(LARGE, 40_000)));
    line("64 KiB, a connection, 16 unacknowledged", ours, theirs, "GB/s", Target::AtLeast(1.0));
}

/// The command, built as it is shipped.
pub(crate) fn build() -> PathBuf {
    build_of(&["--package", "rdma-conn-apps"]).join("rdma-conn")
}

/// Builds what these arguments of `cargo build` select, in release mode; mostly cargo finds it
/// built. Returns the folder of the result.
pub(crate) fn build_of(what: &[&str]) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "--release"]).args(what).status();
    assert!(built.is_ok_and(|status| status.success()), "{what:?} is built");
    // This program is in `deps` beside it.
    let here = std::env::current_exe().expect("a program knows its path");
    here.parent().and_then(Path::parent).expect("two folders").to_owned()
}

/// Half a round trip in µs, the median.
pub(crate) fn half_trip(program: &PathBuf, trips: u64, flags: &str) -> f64 {
    let flags = format!("--size 16 --iterations {trips} {flags}");
    both_ends(program, "pingpong", &flags, "latency_ns_p50") / 1e3
}

/// Messages per second.
fn rate(program: &PathBuf, flags: &str) -> f64 {
    let flags = format!("--seconds {SECONDS} {flags}");
    both_ends(program, "bench", &flags, "messages_per_s")
}

/// A figure of a session of two processes, each on a core of its own.
pub(crate) fn both_ends(program: &PathBuf, command: &str, flags: &str, field: &str) -> f64 {
    both_ends_on([0, 1], program, command, flags, field)
}

/// A figure of a session of two processes on these cores.
pub(crate) fn both_ends_on(
    cores: [usize; 2],
    program: &PathBuf,
    command: &str,
    flags: &str,
    field: &str,
) -> f64 {
    let address = ucx::free_address();
    let flags: Vec<&str> = flags.split(' ').collect();
    // What both ends have to be told; the rest is the connecting one's.
    let told = |name: &str| {
        flags.iter().position(|flag| *flag == name).map_or(&[][..], |at| &flags[at..at + 2])
    };
    let listen = [command, "--listen", &address];
    let mut listener =
        end(program, cores[0], &[&listen[..], told("--op"), told("--protocol")].concat());
    let mut tries = 0..TRIES;
    let figure = loop {
        // The listener needs a moment; until then the other end fails at once.
        let connect = [command, "--connect", &address, "--no-verify"];
        let connector = end(program, cores[1], &[&connect[..], &flags].concat());
        let output = connector.wait_with_output().expect("rdma-conn ends");
        if let Some(figure) = number(&String::from_utf8_lossy(&output.stdout), field) {
            break figure;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if tries.next().is_none() || !matches!(listener.try_wait(), Ok(None)) {
            panic!("rdma-conn {command} {flags:?}: {said}");
        }
    };
    listener.wait().expect("rdma-conn ends");
    figure
}

/// A figure of one process that is both ends.
pub(crate) fn one_process(program: &Path, command: &str, flags: &str, field: &str) -> f64 {
    let mut both = Command::new(program);
    both.args([command, "--json", "--no-verify"]).args(flags.split(' '));
    let output = both.output().expect("rdma-conn starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let figure = number(&String::from_utf8_lossy(&output.stdout), field);
    figure.unwrap_or_else(|| panic!("rdma-conn {command} {flags}: {said}"))
}

fn end(program: &PathBuf, core: usize, arguments: &[&str]) -> Child {
    Command::new("taskset")
        .args(["-c", &core.to_string()])
        .arg(program)
        .args(arguments)
        .args(["--device", "soft0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("taskset (util-linux) and rdma-conn start")
}

/// The number behind a name in a JSON object.
pub(crate) fn number(json: &str, field: &str) -> Option<f64> {
    let (_, value) = json.split_once(&format!("\"{field}\":"))?;
    value.split([',', '}']).next()?.trim().parse().ok()
}

/// Does something on one core.
pub(crate) fn on_core<T>(core: usize, what: impl FnOnce() -> T) -> T {
    let before = rustix::thread::sched_getaffinity(None).expect("a thread has its cores");
    let mut one = rustix::thread::CpuSet::new();
    one.set(core);
    rustix::thread::sched_setaffinity(None, &one).expect("there is this core");
    let done = what();
    rustix::thread::sched_setaffinity(None, &before).expect("as it was");
    done
}
