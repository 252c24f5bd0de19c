//! Debian's perftest, unmodified, on `soft0`, two processes, each pinned to a
//! core. Beside them UCX's shared memory, and `process_vm_writev`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::processes::build_of;
use super::{Target, line, typical_round, ucx};

pub(crate) fn run() {
    println!("perftest on soft0, two processes");
    let Some(perftest) = Perftest::find() else {
        return println!("  left out: ib_send_lat is not installed (Debian: perftest)");
    };
    match ucx::find() {
        None => println!("  ucx_perftest is not installed (Debian: ucx-utils), so less is shown"),
        Some(()) => beside_ucx(&perftest),
    }
    let example = ["--package", "soft-rnic", "--example", "attach"];
    let attach = build_of(&example).join("examples/attach");
    let attached = || figure(&Command::new(&attach).output().expect("it runs").stdout, 0);
    let (ours, theirs) = typical_round(|| perftest.trip("ib_write_lat"), attached);
    let what = "16 B, ib_write_lat : process_vm_writev, half a round trip";
    line(what, ours, theirs, "µs", Target::AtMost(1.3));
    let rate = perftest.bandwidth("ib_atomic_bw", 8, 1_000_000, RATE);
    line("ib_atomic_bw : a million", rate, 1.0, "M/s", Target::AtLeast(1.0));
}

fn beside_ucx(perftest: &Perftest) {
    let (ours, theirs) =
        typical_round(|| perftest.trip("ib_send_lat"), || ucx::tag_half_trip(16, 100_000));
    line("16 B, ib_send_lat : UCX, half a round trip", ours, theirs, "µs", Target::AtMost(1.3));
    let (ours, theirs) = typical_round(
        || perftest.bandwidth("ib_send_bw", 16, 2_000_000, RATE),
        || ucx::tag_rate(16, 2_000_000) / 1e6,
    );
    line("16 B, ib_send_bw : UCX", ours, theirs, "M/s", Target::AtLeast(2.0));
    let to_gb = |rate: f64| rate * 65_536.0 / 1e9;
    let (ours, theirs) = typical_round(
        || to_gb(perftest.bandwidth("ib_send_bw", 65_536, 40_000, RATE) * 1e6),
        || to_gb(ucx::tag_rate(65_536, 40_000)),
    );
    line("64 KiB, ib_send_bw : UCX", ours, theirs, "GB/s", Target::AtLeast(1.0));
}

/// Columns of what perftest prints: the typical latency; millions of messages per second.
const TYPICAL: usize = 4;
const RATE: usize = 4;

/// perftest as it is installed, with our library before the system's.
struct Perftest(PathBuf);

impl Perftest {
    fn find() -> Option<Perftest> {
        let mut help = Command::new("ib_send_lat");
        help.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        help.status().ok()?;
        Some(Perftest(build_of(&["--package", "soft-rnic-abi"]).join("librdma_conn_soft.so")))
    }

    /// Half a round trip of 16 bytes, in µs: the median.
    fn trip(&self, test: &str) -> f64 {
        self.measure(&[test, "-s", "16", "-n", "100000"], TYPICAL)
    }

    fn bandwidth(&self, test: &str, size: usize, messages: u64, column: usize) -> f64 {
        let (size, n) = (size.to_string(), messages.to_string());
        // Those of atomics have one size.
        match test {
            "ib_atomic_bw" => self.measure(&[test, "-n", &n], column),
            _ => self.measure(&[test, "-s", &size, "-n", &n], column),
        }
    }

    fn measure(&self, test: &[&str], column: usize) -> f64 {
        let address = ucx::free_address();
        let port = address.rsplit(':').next().expect("an address has a port");
        let mut server = self.end(0, test, port, None);
        let found = loop {
            // The server needs a moment to listen; until then the client fails at once.
            let client = self.end(1, test, port, Some("127.0.0.1"));
            let output = client.wait_with_output().expect("perftest ends");
            if output.status.success() {
                break figure(&output.stdout, column);
            }
            if let Ok(Some(status)) = server.try_wait() {
                panic!("{}'s server ended: {status}", test[0]);
            }
        };
        server.wait().expect("perftest ends");
        found
    }

    fn end(&self, core: u32, test: &[&str], port: &str, peer: Option<&str>) -> Child {
        let Perftest(library) = self;
        Command::new("taskset")
            .args(["-c", &core.to_string()])
            .args(test)
            .args(["-d", "soft0", "-p", port])
            .args(peer)
            .env("LD_PRELOAD", library)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("taskset (util-linux) and perftest start")
    }
}

/// A column of the last line of figures.
fn figure(output: &[u8], column: usize) -> f64 {
    let text = String::from_utf8_lossy(output);
    let is_row = |l: &&str| l.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let row = text.lines().rfind(is_row).expect("a row of figures");
    let found = row.split_whitespace().nth(column).and_then(|word| word.parse().ok());
    found.unwrap_or_else(|| panic!("no column {column} in {row}"))
}
