//! `ucx_perftest` as it is installed: two processes, pinned to two cores.

use std::process::{Child, Command, Stdio};

/// Whether it is there.
pub(crate) fn find() -> Option<()> {
    let mut help = Command::new("ucx_perftest");
    help.arg("-h").stdout(Stdio::null()).stderr(Stdio::null());
    help.status().ok().map(drop)
}

/// Messages per second of the tag-matching bandwidth test over shared memory.
pub(crate) fn tag_rate(size: usize, messages: u64) -> f64 {
    // A port that the operating system has just called free.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let port = free.expect("a free port").port().to_string();
    let mut server = perftest(0, &port, size, messages, None);
    let rate = loop {
        // The server needs a moment to listen; until then the client fails at once.
        let client = perftest(1, &port, size, messages, Some("127.0.0.1"));
        let output = client.wait_with_output().expect("ucx_perftest ends");
        if let Some(rate) = overall_rate(&String::from_utf8_lossy(&output.stdout)) {
            break rate;
        }
        if let Ok(Some(status)) = server.try_wait() {
            panic!("ucx_perftest's server ended: {status}");
        }
    };
    server.wait().expect("ucx_perftest ends");
    rate
}

fn perftest(core: u32, port: &str, size: usize, messages: u64, peer: Option<&str>) -> Child {
    let (core, size, messages) = (core.to_string(), size.to_string(), messages.to_string());
    Command::new("taskset")
        .args(["-c", &core, "ucx_perftest", "-p", port])
        .args(peer)
        .args(["-t", "tag_bw", "-s", &size, "-n", &messages, "-f", "-v"])
        .env("UCX_TLS", "shm,self")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("taskset (util-linux) and ucx_perftest start")
}

/// The last field of the line of values: `overall_mr`.
fn overall_rate(csv: &str) -> Option<f64> {
    let values = csv.lines().rfind(|l| l.starts_with(|c: char| c.is_ascii_digit()))?;
    values.rsplit(',').next()?.trim().parse().ok()
}
