//! Every mode of the connections between processes: what both ends print, and
//! what they claim.
//!
//! Not on apart, distant: its ends are processes, as apart makes them, and soft0@5us joins none.
//! Shows: the command.

use serde_json::Value;

mod support;

use support::ScratchFile;
use support::modes::{MODES, Mode, UNCONTROLLED};
use support::processes::{SpawnedProcess, connects_processes};

/// Runs a session to its end: the results of the listening end, and those of each of the
/// others.
#[track_caller]
fn session(mode: &Mode, more: &[&str]) -> (Vec<Value>, Vec<Vec<Value>>) {
    let (listener, address) = SpawnedProcess::listener(&mode.listener(&[]));
    let address = address.to_string();
    let start = |_| SpawnedProcess::command(&mode.connector(&address, more));
    let connectors: Vec<SpawnedProcess> = (0..mode.processes).map(start).collect();
    let connected = connectors.into_iter().map(SpawnedProcess::results).collect();
    (listener.results(), connected)
}

/// Both ends say the same of what they have measured together.
#[track_caller]
fn assert_agree(mode: &Mode, near: &Value, far: &Value) {
    let (is_ring, settings) = match mode.protocol {
        [] => (false, ["unacked", "batch"]),
        [_, "shared-write"] => (false, ["extents", "extent_bytes"]),
        _ => (true, ["ring_bytes"; 2]),
    };
    let same = ["protocol", "device", "transport", "size_bytes", "verified"];
    for field in same.into_iter().chain(settings) {
        assert!(!near[field].is_null(), "{mode:?}: no {field} in {near}");
        assert_eq!(near[field], far[field], "{mode:?}: {field}");
    }
    let operations = |line: &Value| line["rdma_ops_per_message"].as_f64();
    assert_eq!(operations(near), operations(far), "{mode:?}");
    let transfer = |line: &Value| line["mean_transfer_bytes"].as_f64();
    assert_eq!(transfer(near), transfer(far), "{mode:?}");
    assert_eq!(transfer(near).is_some_and(|bytes| bytes >= 16.0), is_ring, "{mode:?}: {near}");
    let gathers = is_ring || mode.connecting.contains(&"--pack");
    let least = if gathers { 0.0 } else { 1.0 };
    assert!(operations(near).is_some_and(|n| n > 0.0 && n >= least), "{mode:?}: {near}");
    for line in [near, far] {
        for (field, says) in mode.says {
            assert_eq!(line[field].to_string(), *says, "{mode:?}: {field} of {line}");
        }
        if mode.has_credits() {
            assert_eq!(line["rnr_events"], 0, "{mode:?}: {line}");
        } else {
            assert!(line["rnr_events"].is_u64(), "{mode:?}: {line}");
        }
    }
}

#[track_caller]
fn assert_bench(mode: &Mode, messages: u64) {
    let count = messages.to_string();
    let (listened, connected) = session(mode, &["--size", "16,300", "--messages", &count]);
    assert_eq!(listened.len(), 2, "{mode:?}");
    for near in &connected {
        assert_eq!(near.len(), 2, "{mode:?}");
        for (near, far) in near.iter().zip(&listened) {
            assert_agree(mode, near, far);
            let sent = messages * mode.senders;
            assert_eq!(near["messages"], sent, "{mode:?}: {near}");
            assert_eq!(far["messages"], sent * mode.processes as u64, "{mode:?}: {far}");
            assert!(far["registered_bytes"].as_u64().is_some_and(|n| n > 0), "{mode:?}: {far}");
        }
    }
}

#[track_caller]
fn assert_pingpong(mode: &Mode) {
    let (listened, connected) = session(mode, &["--size", "16,48", "--iterations", "60"]);
    assert_eq!((listened.len(), connected[0].len()), (2, 2), "{mode:?}");
    for (near, far) in connected[0].iter().zip(&listened) {
        assert_agree(mode, near, far);
        assert_eq!(near["messages"], 120, "{mode:?}: {near}");
        let quantile = |q: &str| near[format!("latency_ns_{q}")].as_u64().unwrap();
        let all = ["min", "p50", "p90", "p99", "p999", "max"].map(quantile);
        assert!(all.is_sorted() && all[0] > 0, "{mode:?}: {near}");
        // One of them measures, and tells the other.
        for field in ["latency_ns_p50", "latency_ns_p99", "messages"] {
            assert_eq!(near[field], far[field], "{mode:?}");
        }
    }
}

#[test]
fn all_that_is_sent_arrives_in_every_mode() {
    if !connects_processes() {
        return;
    }
    for mode in MODES.iter().filter(|mode| mode.command == "bench") {
        let is_slow = mode.says.contains(&("unacked", "1"));
        assert_bench(mode, if is_slow { 200 } else { 1200 });
    }
}

#[test]
fn all_that_is_sent_comes_back_in_every_mode() {
    if !connects_processes() {
        return;
    }
    MODES.iter().filter(|mode| mode.command != "bench").for_each(assert_pingpong);
}

#[test]
fn all_that_is_sent_slowly_arrives_without_credits() {
    if !connects_processes() {
        return;
    }
    for mode in UNCONTROLLED {
        match mode.command {
            "bench" => assert_bench(mode, 60),
            _ => assert_pingpong(mode),
        }
    }
}

#[test]
fn a_file_arrives_with_its_checksum() {
    if !connects_processes() {
        return;
    }
    const BYTES: usize = 200_001;
    let file = ScratchFile::new("a-file-between-processes", BYTES);
    let path = file.0.to_str().unwrap();
    let checksum = format!("{:08x}", crc32fast::hash(&std::fs::read(path).unwrap()));
    for (both, more, messages) in [
        (&[][..], &[][..], BYTES.div_ceil(65_536)),
        (&[], &["--size", "1000", "--pack", "4096"], BYTES.div_ceil(1000)),
        (&[], &["--size", "4096", "--preset", "sequential"], BYTES.div_ceil(4096)),
        (&["--wait", "block"], &["--size", "512"], BYTES.div_ceil(512)),
        (&["--protocol", "buffered-read"], &[], BYTES.div_ceil(65_536)),
        (&["--protocol", "buffered-write"], &["--size", "900"], BYTES.div_ceil(900)),
        (&["--protocol", "shared-write"], &["--size", "900"], BYTES.div_ceil(900)),
    ] {
        let (listener, address) = SpawnedProcess::listener(&[&["bench"], both].concat());
        let address = address.to_string();
        let args = [&["bench", "--connect", &address, "--input", path], both, more].concat();
        let (connected, listened) = (SpawnedProcess::command(&args).results(), listener.results());
        assert_eq!((connected.len(), listened.len()), (1, 1), "{more:?}");
        for line in [&connected[0], &listened[0]] {
            assert_eq!(line["equal"], true, "{more:?}: {line}");
            assert_eq!(line["bytes"], BYTES, "{more:?}: {line}");
            assert_eq!(line["messages"], messages, "{more:?}: {line}");
            assert_eq!(line["checksum_crc32"], checksum, "{more:?}: {line}");
        }
    }
}

#[test]
fn a_listener_reports_missing_and_complete_senders_once() {
    if !connects_processes() {
        return;
    }
    let (mut listener, address) = SpawnedProcess::listener(&["bench", "--senders", "2"]);
    let address = address.to_string();
    let start = || {
        let load = ["--size", "16,64", "--messages", "100"];
        SpawnedProcess::command(&[&["bench", "--connect", &address][..], &load].concat())
    };
    let first = start();
    listener.wait_for("1 of 2 senders is there; waiting for 1 more");
    let second = start();
    assert_eq!((first.results().len(), second.results().len()), (2, 2));
    let listened = listener.ended();
    let said = |text: &str| listened.err.iter().filter(|line| line.contains(text)).count();
    assert_eq!(said("all senders are there (2)"), 1, "{listened:#?}");
    assert_eq!(said("waiting for"), 1, "{listened:#?}");
}
