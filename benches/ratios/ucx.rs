//! `ucx_perftest` as it is installed: two processes, pinned to two cores.

use std::process::{Child, Command, Stdio};

/// Finds `ucx_perftest`; returns `None` if it cannot be started.
pub(crate) fn find() -> Option<()> {
    let mut help = Command::new("ucx_perftest");
    help.arg("-h").stdout(Stdio::null()).stderr(Stdio::null());
    help.status().ok().map(drop)
}

/// Messages per second of the tag-matching bandwidth test over shared memory.
pub(crate) fn tag_rate(size: usize, messages: u64) -> f64 {
    // The last field is the rate over all: `overall_mr`.
    measure(["tag_bw", &size.to_string(), &messages.to_string()], |values| values.last().copied())
}

/// Half a round trip, in µs, of the tag-matching latency test over shared memory: the
/// median.
pub(crate) fn tag_half_trip(size: usize, trips: u64) -> f64 {
    measure(["tag_lat", &size.to_string(), &trips.to_string()], |values| values.get(1).copied())
}

/// An address that the operating system has just called free.
pub(crate) fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    free.expect("a free port").to_string()
}

/// Runs a test (its name, the size, how many), and picks out of the values it ends with.
fn measure(test: [&str; 3], pick: impl Fn(&[f64]) -> Option<f64>) -> f64 {
    let address = free_address();
    let port = address.rsplit(':').next().expect("an address has a port");
    let mut server = perftest(0, port, test, None);
    let figure = loop {
        // The server needs a moment to listen; until then the client fails at once.
        let client = perftest(1, port, test, Some("127.0.0.1"));
        let output = client.wait_with_output().expect("ucx_perftest ends");
        let values = last_values(&String::from_utf8_lossy(&output.stdout));
        if let Some(figure) = values.as_deref().and_then(&pick) {
            break figure;
        }
        if let Ok(Some(status)) = server.try_wait() {
            panic!("ucx_perftest's server ended: {status}");
        }
    };
    server.wait().expect("ucx_perftest ends");
    figure
}

fn perftest(core: u32, port: &str, test: [&str; 3], peer: Option<&str>) -> Child {
    let [name, size, n] = test;
    Command::new("taskset")
        .args(["-c", &core.to_string(), "ucx_perftest", "-p", port])
        .args(peer)
        .args(["-t", name, "-s", size, "-n", n, "-f", "-v"])
        .env("UCX_TLS", "shm,self")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("taskset (util-linux) and ucx_perftest start")
}

/// The last line of values.
fn last_values(csv: &str) -> Option<Vec<f64>> {
    let values = csv.lines().rfind(|l| l.starts_with(|c: char| c.is_ascii_digit()))?;
    values.split(',').map(|value| value.trim().parse().ok()).collect()
}
