//! rdma-core's own program at the other end: `ibv_rc_pingpong` as client and as server.
//!
//! It takes a device of rdma-core (`RDMA_CONN_DEVICE`), and the program
//! (Debian: ibverbs-utils).
//!
//! Only on soft0, rxe0: the other end is a program of rdma-core.

use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

mod support;

use support::processes::{
    PATIENCE, PROGRAM, SpawnedProcess, free_port, is_of_the_kernel, rc_pingpong,
};
use support::{assert_refused, device, text};

const COMPAT: [&str; 3] = ["pingpong", "--compat", PROGRAM];

fn ours(more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    command.args(["--device", &device(), "--json"]).args(COMPAT).args(more).stdin(Stdio::null());
    command
}

#[track_caller]
fn assert_line(printed: &[Value], size: u64, messages: u64) -> Value {
    let [line] = printed else { panic!("{printed:#?}") };
    let line = line.clone();
    assert_eq!((&line["protocol"], &line["compat"]), (&"raw-send".into(), &PROGRAM.into()));
    assert_eq!((&line["size_bytes"], &line["messages"]), (&size.into(), &messages.into()));
    assert!(line["messages_per_s"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(line["verified"], false);
    line
}

/// Settings of the program, the same of ours, and what then happens.
const CASES: [(&[&str], &[&str], u64, u64); 4] = [
    (&[], &[], 4096, 2000),
    (&["-e", "-n", "200"], &["--iterations", "200"], 4096, 400),
    (
        &["-s", "65536", "-n", "77", "-m", "4096", "-r", "9"],
        &["--size", "65536", "--iterations", "77", "--mtu", "4096", "--recv-depth", "9"],
        65_536,
        154,
    ),
    // Longer than the MTU, with events, and checked by the program.
    (
        &["-e", "-c", "-s", "5000", "-n", "33", "-m", "256"],
        &["--size", "5000", "--iterations", "33", "--mtu", "256"],
        5000,
        66,
    ),
];

#[test]
fn the_program_is_our_client() {
    if !is_of_the_kernel() {
        return;
    }
    for (its, our, size, messages) in CASES {
        let (server, address) = SpawnedProcess::listener(&[&COMPAT, our].concat());
        let its = [its, &["127.0.0.1"]].concat();
        let its = SpawnedProcess::new(&mut rc_pingpong(address.port(), &its)).ended();
        assert!(its.status.success(), "{its:#?}");
        assert_iterations(&its.out, messages / 2);
        let line = assert_line(&server.results(), size, messages);
        assert!(line["latency_ns_p50"].is_null(), "the answering end measures no latency: {line}");
    }
}

#[test]
fn the_program_is_our_server() {
    if !is_of_the_kernel() {
        return;
    }
    for (its, our, size, messages) in CASES {
        let port = free_port();
        let server = SpawnedProcess::new(&mut rc_pingpong(port, its));
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + PATIENCE;
        // It says nothing when it listens: so it is called until it answers.
        let printed = loop {
            let client = ours(our).args(["--connect", &address]).output().unwrap();
            if client.status.success() {
                break text(&client.stdout).to_owned();
            }
            let why = text(&client.stderr);
            assert!(why.contains("nothing listens") && Instant::now() < deadline, "{why}");
        };
        let line = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
        let line = assert_line(&[line], size, messages);
        assert!(line["latency_ns_p50"].as_u64().unwrap() > 0, "{line}");
        let its = server.ended();
        assert!(its.status.success(), "{its:#?}");
        assert_iterations(&its.out, messages / 2);
    }
}

#[track_caller]
fn assert_iterations(printed: &[String], count: u64) {
    let says = format!("{count} iters");
    assert!(printed.iter().any(|line| line.contains(&says)), "{printed:#?}");
}

#[test]
fn what_cannot_be_is_refused_in_one_line_with_status_2() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "--listen"),
        (&["--listen", "127.0.0.1:0", "--size", "16,64"], "--size"),
        (&["--listen", "127.0.0.1:0", "--no-verify"], "--no-verify"),
        (&["--listen", "127.0.0.1:0", "--mtu", "1500"], "1500"),
        (&["--listen", "127.0.0.1:0", "--unacked", "2"], "--unacked"),
        (&["--listen", "127.0.0.1:0", "--op", "send"], "--op"),
        (&["--listen", "nowhere"], "nowhere"),
        (&["--listen", "127.0.0.1:0", "--recv-depth", "99999"], "--recv-depth"),
    ];
    for (more, says) in cases {
        assert_refused(&[&COMPAT[..], more].concat(), 2, says);
    }
    assert_refused(&["pingpong", "--compat", "iperf"], 2, "iperf");
    assert_refused(&["pingpong", "--mtu", "1024"], 2, "--compat");
}
