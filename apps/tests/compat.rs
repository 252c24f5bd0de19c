//! rdma-core's own program at the other end: `ibv_rc_pingpong` as client and as server.
//!
//! It takes a device of rdma-core (`RDMA_CONN_DEVICE`), and the program
//! (Debian: ibverbs-utils).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod support;

use support::{assert_refused, device, text};

const PROGRAM: &str = "ibv_rc_pingpong";
/// How long what must come may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether there is a device that reaches the program. soft0 connects the ends of one
/// process only; how both ends of ours get on with each other there is a unit test.
fn reachable() -> bool {
    device() != "soft0"
}

/// A TCP port that nobody uses at the moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A process that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn new(command: &mut Command) -> Running {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
    }

    /// What it printed, once it has ended well.
    #[track_caller]
    fn output(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut out = self.0.stdout.take().unwrap();
        let mut err = self.0.stderr.take();
        let status = loop {
            match self.0.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("it does not end"),
                None => std::thread::yield_now(),
            }
        };
        let mut texts = [Vec::new(), Vec::new()];
        std::io::Read::read_to_end(&mut out, &mut texts[0]).unwrap();
        if let Some(err) = &mut err {
            std::io::Read::read_to_end(err, &mut texts[1]).unwrap();
        }
        assert!(status.success(), "{status}: {}{}", text(&texts[0]), text(&texts[1]));
        text(&texts[0]).to_owned()
    }
}

/// The index of the RoCE v2 GID that ours chooses, for the program.
fn gid_index() -> String {
    let output = support::json(&["devices"]);
    let ours = output.iter().find(|line| line["kind"] == "device").unwrap();
    ours["ports"][0]["gid_index"].to_string()
}

fn program(port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["-d", &device(), "-g", &gid_index(), "-p", &port.to_string()]).args(more);
    command
}

fn ours(more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    command.args(["pingpong", "--device", &device(), "--compat", PROGRAM, "--json"]).args(more);
    command
}

#[track_caller]
fn assert_line(printed: &str, size: u64, messages: u64) -> Value {
    let line: Value = serde_json::from_str(printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
    assert_eq!((&line["protocol"], &line["compat"]), (&"raw-send".into(), &PROGRAM.into()));
    assert_eq!((&line["size_bytes"], &line["messages"]), (&size.into(), &messages.into()));
    assert!(line["messages_per_s"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(line["verified"], false);
    line
}

/// Settings of the program, the same of ours, and what then happens.
const CASES: [(&[&str], &[&str], u64, u64); 2] = [
    (&[], &[], 4096, 2000),
    (
        &["-s", "65536", "-n", "77", "-m", "4096", "-r", "9"],
        &["--size", "65536", "--iterations", "77", "--mtu", "4096", "--recv-window", "9"],
        65_536,
        154,
    ),
];

#[test]
fn the_program_is_our_client() {
    if !reachable() {
        return;
    }
    for (its, our, size, messages) in CASES {
        let mut server = Running::new(ours(our).args(["--listen", "127.0.0.1:0"]));
        let mut said = String::new();
        BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
        let port = said.trim().rsplit(':').next().unwrap().parse().unwrap();
        let client = Running::new(program(port, its).arg("127.0.0.1"));
        let its = client.output();
        assert!(its.contains(&format!("{} iters", messages / 2)), "{its}");
        let line = assert_line(&server.output(), size, messages);
        assert!(line["latency_ns_p50"].is_null(), "who answers measures no latency: {line}");
    }
}

#[test]
fn the_program_is_our_server() {
    if !reachable() {
        return;
    }
    for (its, our, size, messages) in CASES {
        let port = free_port();
        let server = Running::new(&mut program(port, its));
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + PATIENCE;
        // It says nothing when it listens: so it is called until it answers.
        let printed = loop {
            let client = ours(our).args(["--connect", &address]).output().unwrap();
            if client.status.success() {
                break text(&client.stdout).to_owned();
            }
            let why = text(&client.stderr);
            assert!(why.contains("nobody listens") && Instant::now() < deadline, "{why}");
        };
        let line = assert_line(&printed, size, messages);
        assert!(line["latency_ns_p50"].as_u64().unwrap() > 0, "{line}");
        let its = server.output();
        assert!(its.contains(&format!("{} iters", messages / 2)), "{its}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line_with_status_2() {
    let compat = ["pingpong", "--compat", PROGRAM];
    let cases: &[(&[&str], &str)] = &[
        (&[], "--listen"),
        (&["--listen", "127.0.0.1:0", "--size", "16,64"], "--size"),
        (&["--listen", "127.0.0.1:0", "--no-verify"], "--no-verify"),
        (&["--listen", "127.0.0.1:0", "--mtu", "1500"], "1500"),
        (&["--listen", "127.0.0.1:0", "--unacked", "2"], "--unacked"),
        (&["--listen", "127.0.0.1:0", "--op", "send"], "--op"),
        (&["--listen", "nowhere"], "nowhere"),
        (&["--listen", "127.0.0.1:0", "--recv-window", "99999"], "--recv-window"),
    ];
    for (more, says) in cases {
        assert_refused(&[&compat[..], more].concat(), 2, says);
    }
    assert_refused(&["pingpong", "--compat", "iperf"], 2, "iperf");
    assert_refused(&["pingpong", "--mtu", "1024"], 2, "--compat");
}
