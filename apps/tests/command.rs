//! The command: what it prints where, and with which status it ends.
//!
//! Only on soft0: the command prints and refuses the same on every device.

use std::process::{Command, Stdio};

use serde_json::Value;

mod support;

use support::processes::SpawnedProcess;
use support::{ScratchFile, assert_refused, device, json, one, run, text};

#[test]
fn what_cannot_be_is_refused_in_one_line_with_status_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["bench", "--device", "mlx9_9", "--size", "16"], "mlx9_9"),
        (&["devices", "--device", "mlx9_9"], "mlx9_9"),
        (&["pingpong", "--device", "mlx9_9"], "mlx9_9"),
        (&["pingpong", "--iterations", "18446744073709551615"], "--iterations"),
        (&["pingpong", "--seconds", "1", "--iterations", "1"], "--iterations"),
        (&["pingpong", "--seconds", "1", "--op", "send"], "--op"),
        (&["pingpong", "--seconds", "1", "--compat", "ibv_rc_pingpong"], "--compat"),
        (&["pingpong", "--seconds", "0"], "--seconds 0: a number of seconds from 0.0001 to 86400"),
        (&["multicast", "--seconds", "1e300"], "--seconds"),
        (&["multicast", "--rate", "1e-300"], "--rate"),
        (&["multicast", "--connect", "127.0.0.1:1", "--size", "20"], "--size"),
        (&["copy", "--to", "127.0.0.1:1", "--to", "127.0.0.1:1", "/"], "given twice"),
        (&["bench", "--preset", "fast"], "fast"),
        (&["bench", "--protocol", "telepathy"], "telepathy"),
        (&["bench", "--gid-index", "250", "--size", "16"], "250"),
        (&["pingpong", "--gid-index", "250"], "250"),
        (&["bench", "--size", "4294967295"], "--size 4294967295"),
        (&["pingpong", "--size", "4294967295"], "--size 4294967295"),
        (&["bench", "--size", "many"], "bytes, e.g. 4096 or 64k"),
        (&["pingpong", "--size", "4kk"], "bytes, e.g. 4096 or 64k"),
        (&["bench", "--protocol", "write"], "--op write"),
        (&["bench", "--reads", "4"], "--reads means nothing to send-recv"),
        (&["pingpong", "--ring-bytes", "4096"], "--protocol buffered-read"),
        (&["bench", "--op", "send", "--reads", "4"], "--reads"),
        (&["bench", "--op", "send", "--ack", "write"], "--ack means nothing to --op"),
        (&["bench", "--protocol", "buffered-read", "--unacked", "4"], "--protocol send-recv"),
        (&["bench", "--protocol", "buffered-read", "--srq"], "--srq means nothing"),
        (&["bench", "--protocol", "buffered-read", "--rate", "auto"], "--rate auto"),
        (&["bench", "--protocol", "buffered-read", "--no-credits"], "--no-credits"),
        (&["bench", "--protocol", "buffered-read", "--ring-bytes", "5000"], "--ring-bytes 5000"),
        (&["bench", "--protocol", "buffered-read", "--reads", "17"], "1 to 16"),
        (&["bench", "--protocol", "buffered-read", "--max-read-bytes", "7"], "at least 8"),
        (
            &["bench", "--protocol", "buffered-read", "--ring-bytes", "4096", "--size", "4096"],
            "--size 4096",
        ),
        (&["bench", "--sending-threads", "2"], "--protocol buffered-read"),
        (&["bench", "--protocol", "buffered-write", "--receiving-threads", "2"], "buffered-read"),
        (&["bench", "--sending-threads", "2", "--senders", "2"], "--senders"),
        (&["bench", "--sending-threads", "2", "--connect", "127.0.0.1:1"], "--connect"),
        (&["bench", "--transfer-thread"], "--receiving-threads"),
        (
            &["bench", "--protocol", "buffered-read", "--sending-threads", "2", "--size", "8"],
            "--no-verify",
        ),
        (&["bench", "--protocol", "buffered-read", "--sending-threads", "1025"], "1 to 1024"),
        (&["bench", "--protocol", "buffered-write", "--reads", "4"], "--protocol buffered-read"),
        (&["bench", "--protocol", "buffered-write", "--tail", "told"], "told"),
        (&["bench", "--protocol", "buffered-write", "--recv-depth", "0"], "--recv-depth 0"),
        (&["bench", "--protocol", "buffered-read", "--tail", "written"], "--tail"),
        (&["bench", "--op", "write", "--tail", "written"], "--tail"),
        (&["pipe"], "--listen ADDRESS"),
        (&["pipe", "--listen", "127.0.0.1:0", "--protocol", "pigeon"], "pigeon"),
        (&["pipe", "--connect", "127.0.0.1:1", "--size", "0"], "at least 1"),
        (&["pipe", "--connect", "127.0.0.1:1", "--reads", "0"], "--reads 0"),
        (&["pipe", "--listen", "127.0.0.1:0", "--connect", "127.0.0.1:1"], "--connect"),
        (&["multicast", "--members", "1"], "--members 1: it may be 2 to 16"),
        (&["multicast", "--members", "17"], "--members 17: it may be 2 to 16"),
        (&["multicast", "--members", "300"], "--members 300: it may be 2 to 16"),
        (&["multicast", "--members", "few"], "--members few: it may be a whole number"),
        (&["multicast", "--senders", "4"], "--senders 4: it may be 1 to --members (3)"),
        (&["multicast", "--senders", "0"], "--senders 0: it may be 1 to --members (3)"),
        (&["multicast", "--size", "1G"], "--size 1073741824: with --window 1000 it may be up to"),
        (&["multicast", "--window", "0"], "--window 0: it may be 1 to 1048576"),
        (&["multicast", "--ring", "300000"], "--ring 300000: it may be a power of two"),
        (&["devices", "--device", "soft0@5ms"], "soft0@5ms: the distance may be"),
        (&["bench", "--device", "soft0@5ms"], "us or ns, up to 10000000us: soft0@5000us"),
        (&["pingpong", "--device", "soft0@5"], ": soft0@5us"),
        (&["devices", "--device", "soft0@99999999999us"], ": soft0@10000000us"),
        (&["devices", "--device", "soft0@"], ": soft0@5us"),
        (&["copy", "--listen", "127.0.0.1:0", "--into", "Cargo.toml"], "it is no directory"),
        (&["copy", "--listen", "127.0.0.1:0", "--into", "Cargo.toml/x"], "choose another --into"),
        (&["bench", "--senders", "2000", "--size", "16"], "--senders 2000: it may be 1 to 1024"),
        (&["bench", "--threads", "2000", "--size", "16"], "--threads 2000: it may be 1 to 1024"),
        (&["bench", "--op", "send", "--qps", "2000"], "--qps 2000: it may be 1 to 1024"),
        (&["bench", "--op", "send", "--unacked", "0"], "--unacked 0: it may be 1 to 16384"),
        (&["bench", "--unacked", "4000000000"], "--unacked 4000000000: it may be 1 to 16384"),
        (
            &["bench", "--protocol", "direct-read", "--unacked", "0"],
            "--unacked 0: it may be 1 to 16384",
        ),
        (
            &["bench", "--protocol", "buffered-write", "--ring-bytes", "3"],
            "--ring-bytes 3: it may be a power of two, 4096 to 4294967296",
        ),
        (&["bench", "--extents", "9"], "--protocol shared-write"),
        (&["pingpong", "--protocol", "shared-write", "--buffers", "9"], "--protocol direct-write"),
        (&["bench", "--protocol", "shared-write", "--extents", "0"], "--extents 0: it may be 1 to"),
        (
            &["bench", "--protocol", "shared-write", "--senders", "9", "--extents", "17"],
            "--extents 17: it may be 18 or more with 9 senders",
        ),
        (
            &["bench", "--protocol", "shared-write", "--extent-bytes", "100"],
            "--extent-bytes 100: it may be 0 (choose), or a multiple of 64",
        ),
        (&["bench", "--protocol", "shared-write", "--size", "2G"], "--size 2147483648: it may be"),
        (&["bench", "--protocol", "shared-write", "--srq"], "--srq means nothing to shared-write"),
        (&["multicast", "--slow", "9", "--messages", "9"], "cannot be used with"),
        (&["multicast", "--flush-every", "0"], "--flush-every 0: it may be 1 or more"),
        (&["multicast", "--window", "10", "--push", "every:11"], "1 to --window (10)"),
        (&["multicast", "--ring", "64k"], "needs 112064 bytes: give a larger --ring (131072)"),
        (&["multicast", "--push", "sometimes"], "opportunistic-null"),
        (&["bench", "--size", "-1"], "-1"),
        (&["bench", "--unacked", "0", "--size", "16"], "unacked"),
        (&["bench", "--unacked", "4", "--batch", "5", "--size", "16"], "1 to --unacked (4)"),
        (&["bench", "--recv-depth", "0", "--size", "16"], "--recv-depth"),
        (&["bench", "--recv-depth", "99999", "--size", "16"], "--recv-depth 99999"),
        (&["bench", "--poll-batch", "0", "--size", "16"], "--poll-batch 0"),
        (&["bench", "--pack", "7", "--size", "16"], "--pack 7"),
        (&["bench", "--size", "2G"], "--size 2147483648: it may be up to 1073741824"),
        (&["pingpong", "--size", "16,2G"], "--size 2147483648: it may be up to 1073741824"),
        (&["bench", "--pack", "2G", "--size", "16"], "--pack 2147483648: it may be 0 (off)"),
        (&["pipe", "--size", "2G", "--listen", "127.0.0.1:0"], "--size 2147483648: it may be up"),
        (&["pipe", "--listen", "127.0.0.1:0", "--protocol", "write"], "bench and pingpong have"),
        (&["bench", "--size", "4G"], "below 4 GiB"),
        (&["bench", "--ack", "loudly"], "fenced-write, write, send, cumulative, pull"),
        (&["bench", "--pack", "16", "--size", "16"], "20 would"),
        (&["pingpong", "--pack", "16", "--size", "16"], "20 would"),
        (&["bench", "--input", "Cargo.toml", "--pack", "65536"], "65540 would"),
        (&["bench", "--rate", "0", "--size", "16"], "rate"),
        (&["bench", "--rate", "fast", "--size", "16"], "rate"),
        (&["bench", "--seconds", "0", "--size", "16"], "seconds"),
        (&["bench", "--seconds", "1", "--messages", "1", "--size", "16"], "--messages"),
        (&["bench", "--threads", "2", "--senders", "2", "--size", "16"], "--senders"),
        (&["bench", "--senders", "0", "--size", "16"], "senders"),
        (&["bench", "--threads", "0", "--size", "16"], "threads"),
        (&["bench", "--senders", "100000", "--size", "16"], "senders"),
        (&["bench", "--single-receiver", "--size", "16"], "--senders"),
        (&["bench", "--single-sender", "--size", "16"], "--threads"),
        (&["bench", "--single-sender", "--threads", "2", "--listen", "[::1]:0"], "--single-sender"),
        (&["bench", "--srq", "magic", "--size", "16"], "magic"),
        (&["bench", "--srq-buffers", "100", "--size", "16"], "--srq"),
        (&["bench", "--srq", "--srq-buffers", "4294967295", "--size", "16"], "too many"),
        (
            &["bench", "--srq", "--srq-buffers", "1", "--senders", "2", "--size", "16"],
            "1 is too few",
        ),
        (&["bench", "--input", "/nonexistent"], "/nonexistent"),
        (&["bench", "--input", "/"], "--input /: not a regular file"),
        (&["bench", "--input", "/dev/null"], "--input /dev/null: not a regular file"),
        (&["bench", "--input", "/no/such"], "--input /no/such: No such file"),
        (&["bench", "--faults", "loss=0.1"], "--faults needs --op"),
        (&["bench", "--seconds", "-1"], "--seconds -1: a number of seconds from 0.0001 to 86400"),
        (&["bench", "--size", "16,,32"], "--size '': bytes"),
        (
            &["bench", "--cpu", "0-1023", "--size", "16"],
            "--cpu 0-1023: this process may not run on ",
        ),
        (&["multicast", "--connect", "::1", "--size", "5"], "--size: the leader decides it"),
        (&["bench", "--input", "x", "--messages", "5"], "--messages"),
        (&["bench", "--input", "x", "--srq"], "--srq"),
        (&["bench", "--input", "x", "--single-receiver"], "--single-receiver"),
        (&["bench", "--messages", "0"], "--messages"),
        (&["pingpong", "--iterations", "0"], "--iterations"),
        (&["bench", "--wait", "impatiently"], "impatiently"),
        (&["bench", "--listen", "10.0.0.1:nowhere"], "ADDRESS[:PORT]"),
        (&["bench", "--listen", "127.0.0.1:0", "--connect", "127.0.0.1:1"], "--connect"),
        (&["dance"], "dance"),
        (&["bench", "--no-such-flag"], "--no-such-flag"),
    ];
    for (args, says) in cases {
        assert_refused(args, 2, says);
    }
}

#[test]
fn each_shell_has_a_completion_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
        let output = command.args(["completions", shell]).output().unwrap();
        assert!(output.status.success(), "{shell}: {}", text(&output.stderr));
        let script = text(&output.stdout);
        for word in ["rdma-conn", "multicast", "single-receiver", "buffered-read"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
    }
    assert_refused(&["completions", "csh"], 2, "csh");
    // A device and results are of no concern to it.
    assert_refused(&["completions", "bash"], 2, "--device: completions opens no device");
}

#[test]
fn a_size_over_the_devices_limit_is_refused() {
    // The library's limit is the lower one, or the device's: one of them speaks.
    let output = run(&["bench", "--size", "1073741825"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

/// As of all programs with that variable; `-v` counts more.
#[test]
fn a_log_is_as_long_as_rust_log_asks_for() {
    let run = |log: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
        command.args(["--device", "soft0", "pingpong", "--size", "16,512", "--iterations", "30"]);
        command.args(["--rounds", "3"]).args(more).env("RUST_LOG", log).stdin(Stdio::null());
        command.output().unwrap()
    };
    for (log, more, lines) in [
        ("", &[][..], 0),
        ("info", &[], 6),
        ("rdma_conn=info,off", &[], 6),
        ("rdma_conn=warn,trace", &[], 0),
        ("off", &["-v"], 6),
    ] {
        let output = run(log, more);
        assert!(output.status.success(), "{log}: {output:?}");
        let rounds = text(&output.stderr).lines().filter(|line| line.contains(": round "));
        assert_eq!(rounds.count(), lines, "{log}: {output:?}");
    }
    let refused = run("rdma_conn=loudly", &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let says = "rdma-conn: RUST_LOG=rdma_conn=loudly: it is a level (error, warn, ";
    assert!(text(&refused.stderr).starts_with(says), "{refused:?}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    for args in [&["--help"][..], &["bench", "--help"], &["--version"]] {
        let output = run(args);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("rdma-conn"), "{args:?}");
        assert_eq!(text(&output.stderr), "");
    }
}

/// Checks the fields that every line of a measurement has, of any kind.
#[track_caller]
fn assert_contract(line: &Value, size: u64) {
    let text = |field: &str| line[field].as_str().unwrap_or_else(|| panic!("{field}: {line}"));
    let number = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{field}: {line}"));
    assert_eq!(text("protocol"), "send-recv");
    let device = std::env::var("RDMA_CONN_DEVICE").unwrap_or_else(|_| "soft0".into());
    assert_eq!(text("device"), device);
    assert!(!text("transport").is_empty());
    assert!(!text("build").is_empty());
    assert_eq!(line["size_bytes"], size);
    for field in ["unacked", "batch", "messages"] {
        assert!(number(field) >= 1.0, "{field}: {line}");
    }
}

#[track_caller]
fn assert_bench(line: &Value, size: u64) {
    assert_contract(line, size);
    let number = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{field}: {line}"));
    for field in ["messages_per_s", "rdma_ops_per_message", "registered_bytes"] {
        assert!(number(field) > 0.0, "{field}: {line}");
    }
    let per_s = number("messages_per_s") * size as f64;
    assert!((number("bytes_per_s") - per_s).abs() <= per_s * 1e-9, "{line}");
    assert!(number("threads") >= 1.0 && number("senders") >= 1.0, "{line}");
    assert!(line["srq"].is_string(), "{line}");
    assert_eq!(line["verified"], true, "{line}");
}

/// Flags, how many senders they mean, and what the line has to say about them.
type SenderFlags = (&'static [&'static str], u64, &'static [(&'static str, Expected)]);

/// A field of a line.
#[derive(Debug)]
enum Expected {
    Is(u64),
    Says(&'static str),
    Holds(bool),
}

impl PartialEq<Expected> for Value {
    fn eq(&self, expected: &Expected) -> bool {
        match expected {
            Expected::Is(number) => self == number,
            Expected::Says(text) => self == text,
            Expected::Holds(truth) => self == truth,
        }
    }
}

#[test]
fn bench_prints_one_object_in_every_mode() {
    use Expected::{Holds, Is, Says};
    let modes: &[SenderFlags] = &[
        (&[], 1, &[("srq", Says("off")), ("credits", Holds(true))]),
        (&["--preset", "sequential"], 1, &[("unacked", Is(1)), ("batch", Is(1))]),
        (&["--preset", "unbatched"], 1, &[("unacked", Is(64)), ("batch", Is(1))]),
        (&["--preset", "batched"], 1, &[("unacked", Is(256)), ("batch", Is(8))]),
        (&["--senders", "4"], 4, &[("senders", Is(4)), ("threads", Is(1))]),
        (&["--senders", "4", "--single-receiver"], 4, &[("single_receiver", Holds(true))]),
        (&["--threads", "2"], 2, &[("threads", Is(2))]),
        (&["--threads", "4", "--single-sender"], 4, &[("single_sender", Holds(true))]),
        (&["--srq"], 1, &[("srq", Says("combining"))]),
        (&["--srq", "lock", "--senders", "2"], 2, &[("srq", Says("lock"))]),
        (
            &["--srq", "thread", "--senders", "2", "--single-receiver"],
            2,
            &[("srq", Says("thread"))],
        ),
        (&["--srq", "combining", "--threads", "2"], 2, &[("srq", Says("combining"))]),
        (&["--pack", "4096"], 1, &[("pack_bytes", Is(4096))]),
        (&["--wait", "block"], 1, &[]),
        (&["--wait", "spin"], 1, &[]),
        (&["--inline", "0"], 1, &[]),
        (&["--recv-depth", "2", "--unacked", "2", "--batch", "1"], 1, &[("recv_depth", Is(2))]),
    ];
    for (mode, senders, fields) in modes {
        let messages = (20_000 / senders).to_string();
        let args = [&["bench", "--size", "16", "--messages", &messages][..], mode].concat();
        let line = one(&args);
        assert_bench(&line, 16);
        assert_eq!(line["messages"], 20_000, "{mode:?}");
        if line["device"] == "soft0" {
            assert_eq!(line["rnr_events"], 0, "{mode:?}");
        }
        for (field, expected) in *fields {
            assert_eq!(line[*field], *expected, "{mode:?}: {line}");
        }
    }
}

/// Many senders share one ring, whether or not `--single-receiver` says so.
#[test]
fn senders_over_shared_write_have_one_receiver() {
    let bench = ["bench", "--protocol", "shared-write", "--size", "16", "--messages", "1000"];
    let registered = |more: &[&str], senders: u64, extents: u64| {
        let line = one(&[&bench, more].concat());
        assert_eq!(line["messages"], 1000 * senders, "{more:?}: {line}");
        assert_eq!(line["senders"], senders, "{more:?}: {line}");
        assert_eq!(line["single_receiver"], senders > 1, "{more:?}: {line}");
        assert_eq!((&line["extents"], &line["extent_bytes"]), (&extents.into(), &16384.into()));
        assert!(line["rdma_ops_per_message"].as_f64().is_some_and(|n| n > 0.0), "{line}");
        line["registered_bytes"].as_u64().unwrap_or_else(|| panic!("{line}"))
    };
    let one = registered(&[], 1, 256);
    let sixteen = registered(&["--senders", "16"], 16, 256);
    assert!(sixteen < one + one / 8, "{one} bytes for one sender, {sixteen} for 16");
    assert_eq!(registered(&["--senders", "16", "--single-receiver"], 16, 256), sixteen);
    // Where these are too few for the senders, there are 2 for each.
    registered(&["--senders", "150", "--rounds", "1"], 150, 300);
}

#[test]
fn threads_share_the_ends_of_one_connection() {
    let modes: [(&[&str], u64, u64, bool); 4] = [
        (&["--sending-threads", "3"], 3, 1, false),
        (&["--receiving-threads", "3"], 1, 3, false),
        (&["--receiving-threads", "2", "--transfer-thread"], 1, 2, true),
        (&["--sending-threads", "2", "--receiving-threads", "2", "--no-verify"], 2, 2, false),
    ];
    for (mode, sending, receiving, has_thread) in modes {
        let load = &["bench", "--protocol", "buffered-read", "--size", "16", "--messages", "3000"];
        let line = one(&[&load[..], mode].concat());
        assert_eq!(line["messages"], 3000 * sending, "{mode:?}: {line}");
        assert_eq!(line["sending_threads"], sending, "{mode:?}: {line}");
        assert_eq!(line["receiving_threads"], receiving, "{mode:?}: {line}");
        assert_eq!(line["transfer_thread"], has_thread, "{mode:?}: {line}");
        assert_eq!(line["verified"], !mode.contains(&"--no-verify"), "{mode:?}: {line}");
        assert_eq!((&line["threads"], &line["senders"]), (&1.into(), &1.into()), "{line}");
        // Each message is a record of 24 bytes, and each transfer one of the operations.
        let figure = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line}"));
        let transferred = figure("mean_transfer_bytes") * figure("rdma_ops_per_message");
        assert!(transferred >= 24.0 && figure("mean_transfer_bytes") >= 24.0, "{line}");
    }
}

#[test]
fn bench_without_credits_counts_what_it_costs() {
    let line =
        one(&["bench", "--size", "16", "--messages", "500", "--no-credits", "--rate", "2000"]);
    assert_bench(&line, 16);
    assert_eq!(line["credits"], false);
    assert_eq!(line["rate_per_sender"], 2000.0);
    assert!(line["rnr_events"].is_u64() || line["device"] != "soft0", "{line}");
}

#[test]
fn bench_prints_one_object_a_size() {
    let lines = json(&["bench", "--size", "0,1,512,70000", "--messages", "300"]);
    assert_eq!(lines.len(), 4);
    for (line, size) in lines.iter().zip([0, 1, 512, 70_000]) {
        assert_contract(line, size);
        assert_eq!(line["messages"], 300);
    }
}

#[test]
fn bench_says_when_it_has_not_verified() {
    let line = one(&["bench", "--size", "16", "--messages", "1000", "--no-verify"]);
    assert_eq!(line["verified"], false);
}

#[test]
fn pingpong_prints_quantiles() {
    for wait in ["adaptive", "block", "spin"] {
        let args = ["pingpong", "--size", "16,4096", "--iterations", "300", "--wait", wait];
        let lines = json(&args);
        assert_eq!(lines.len(), 2);
        for (line, size) in lines.iter().zip([16, 4096]) {
            assert_contract(line, size);
            let quantile = |q: &str| line[format!("latency_ns_{q}")].as_u64().unwrap();
            let all = ["min", "p50", "p90", "p99", "p999", "max"].map(quantile);
            assert!(all.is_sorted() && all[0] > 0, "{line}");
            assert!(line["rdma_ops_per_message"].as_f64().unwrap() >= 1.0, "{line}");
            assert_eq!(line["messages"], 600);
        }
    }
}

#[test]
fn rounds_share_a_run_and_show_how_far_they_lie_apart() {
    let commands: [&[&str]; 8] = [
        &["multicast", "--size", "16", "--messages", "3001"],
        &["multicast", "--size", "16", "--seconds", "0.1"],
        &["bench", "--size", "16", "--messages", "3001"],
        &["bench", "--size", "16", "--messages", "3001", "--protocol", "buffered-write"],
        &["bench", "--size", "16", "--messages", "3001", "--op", "send"],
        &["pingpong", "--size", "16", "--iterations", "301"],
        &["pingpong", "--size", "16", "--iterations", "301", "--op", "write-imm"],
        &["bench", "--size", "16", "--seconds", "0.1"],
    ];
    for command in commands {
        for (flags, rounds) in [(&[][..], 3), (&["--rounds", "1"], 1), (&["--rounds", "4"], 4)] {
            let line = one(&[command, flags].concat());
            assert_eq!(line["rounds"], rounds, "{command:?}: {line}");
            let all =
                match command.iter().find_map(|arg| arg.parse::<u64>().ok().filter(|n| *n > 16)) {
                    Some(n) if command[0] == "pingpong" => 2 * n,
                    Some(n) => n,
                    None => line["messages"].as_u64().unwrap(),
                };
            assert_eq!(line["messages"], all, "{command:?}: {line}");
            let key = if command[0] == "pingpong" { "latency_ns_p50" } else { "messages_per_s" };
            let figure =
                |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line}"));
            let [least, most] = ["min", "max"].map(|end| figure(&format!("{key}_{end}")));
            assert!(least <= figure(key) && figure(key) <= most, "{command:?}: {line}");
            assert!(rounds > 1 || least == most, "{command:?}: {line}");
        }
    }
    // A round has a message at least.
    assert_eq!(one(&["bench", "--size", "16", "--messages", "2"])["rounds"], 2);
    let few = ["bench", "--rounds", "5", "--messages", "3"];
    assert_refused(&few, 2, "--rounds 5: each round has one at least of --messages 3");
    let few = ["bench", "--op", "send", "--rounds", "5", "--messages", "3"];
    assert_refused(&few, 2, "--rounds 5: each round has one at least of --messages 3");
    let few = ["pingpong", "--rounds", "5", "--iterations", "3"];
    assert_refused(&few, 2, "--rounds 5: each round has one at least of --iterations 3");
    let few = ["multicast", "--rounds", "5", "--messages", "3"];
    assert_refused(&few, 2, "--rounds 5: each round has one at least of --messages 3");
    assert_refused(&["bench", "--rounds", "0"], 2, "--rounds 0: it may be 1 to 1000");
    assert_eq!(one(&["multicast", "--messages", "2"])["rounds"], 2);
    assert_refused(&["bench", "--rounds", "2", "--input", "x"], 2, "--input sends a file once");
    let group = ["multicast", "--rounds", "2", "--listen", "127.0.0.1:0"];
    assert_refused(&group, 2, "--rounds 2: members in several processes meet for one round");
}

#[test]
fn timed_runs_of_several_senders_report_sender_fairness() {
    for protocol in ["send-recv", "direct-read"] {
        let many = [
            "bench",
            "--protocol",
            protocol,
            "--senders",
            "3",
            "--single-receiver",
            "--size",
            "64",
        ];
        let line = one(&[&many[..], &["--seconds", "0.06"]].concat());
        let fairness = line["sender_fairness"].as_f64().unwrap_or_else(|| panic!("{line}"));
        assert!((0.0..=1.0).contains(&fairness), "{line}");
        let line = one(&[&many[..], &["--messages", "300"]].concat());
        assert!(line.get("sender_fairness").is_none(), "each has as many to send: {line}");
    }
    let line = one(&["bench", "--size", "64", "--seconds", "0.06"]);
    assert!(line.get("sender_fairness").is_none(), "{line}");
}

/// The device delivers nothing sooner than its network does: p50 is never below the plan.
#[test]
fn a_device_at_a_distance_has_a_plan_beside_the_median() {
    let hops = [
        ("send-recv", Some(1)),
        ("buffered-write", Some(1)),
        ("direct-write", Some(1)),
        ("shared-write", Some(1)),
        ("direct-read", Some(3)),
        ("buffered-read", None),
    ];
    for (protocol, hops) in hops {
        let run = ["--device", "soft0@2000us", "pingpong", "--protocol", protocol];
        let line =
            one(&[&run[..], &["--size", "16", "--iterations", "10", "--rounds", "1"]].concat());
        let planned = line.get("latency_ns_planned").map(|ns| ns.as_u64().unwrap());
        assert_eq!(planned, hops.map(|hops| hops * 1_000_000), "{line}");
        assert!(line["latency_ns_p50"].as_u64() >= planned, "{line}");
    }
    let line = one(&["pingpong", "--size", "16", "--iterations", "10"]);
    assert!(line.get("latency_ns_planned").is_none(), "soft0 takes no time: {line}");
}

#[test]
fn threads_run_on_the_processors_that_are_listed() {
    let line = one(&["bench", "--size", "16", "--messages", "3000", "--cpu", "0"]);
    assert_eq!((&line["cpu"], &line["messages"]), (&"0".into(), &3000.into()));
    assert_eq!(
        one(&["pingpong", "--size", "16", "--iterations", "30", "--cpu", "0"])["messages"],
        60
    );
    one(&["pingpong", "--size", "16", "--iterations", "30", "--cpu", "0", "--op", "send"]);
    for command in [
        &["pingpong", "--size", "16", "--iterations", "30"][..],
        &["bench", "--size", "16", "--messages", "30", "--op", "send"],
        &["multicast", "--messages", "30"],
        &["bench", "--input", "Cargo.toml"],
    ] {
        assert_eq!(one(&[command, &["--cpu", "0"]].concat())["cpu"], "0", "{command:?}");
    }
    for command in ["pipe", "copy", "multicast"] {
        let help = run(&[command, "--help"]);
        let words = text(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("All threads of pipe, copy and multicast share the whole list"));
    }
    assert_refused(
        &["bench", "--size", "16", "--cpu", "1023"],
        2,
        "may not run on 1023: it may on 0",
    );
    assert_refused(&["bench", "--cpu", "first"], 2, "--cpu first: it may be processors' numbers");
}

/// Each end leaves when it knows that its last message has arrived.
#[test]
fn a_pingpong_that_went_well_warns_of_nothing() {
    let sizes = ["16"; 40].join(",");
    let output = run(&["pingpong", "--size", &sizes, "--iterations", "20", "--json"]);
    assert!(output.status.success());
    assert!(!text(&output.stderr).contains("WARN"), "{}", text(&output.stderr));
}

#[test]
fn devices_lists_what_there_is() {
    let lines = json(&["devices"]);
    let devices: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "device").collect();
    assert_eq!(devices.len(), 1, "only the one that was asked for: {lines:?}");
    assert!(devices[0]["limits"]["max_qp"].as_u64().unwrap() > 0);
    assert!(!devices[0]["ports"].as_array().unwrap().is_empty());
    for line in &lines {
        match line["kind"].as_str() {
            Some("device") => {}
            Some("obstacle") => assert!(line["remedy"].as_str().is_some_and(|r| !r.is_empty())),
            _ => panic!("{line}"),
        }
    }
    let all = Command::new(env!("CARGO_BIN_EXE_rdma-conn")).arg("devices").output().unwrap();
    assert!(all.status.success());
    assert!(text(&all.stdout).contains("soft0"));
}

#[test]
fn a_file_arrives_with_an_equal_checksum() {
    const SIZE: usize = 65_536;
    for length in [0, 1, SIZE - 1, SIZE, SIZE + 1, 7 * SIZE - 1, 7 * SIZE, 7 * SIZE + 1] {
        let file = ScratchFile::new(&format!("input-{length}"), length);
        let path = file.0.to_str().unwrap();
        let line = one(&["bench", "--input", path]);
        assert_contract_of_file(&line, length, SIZE);
        assert_eq!(
            line["checksum_crc32"],
            format!("{:08x}", crc32fast::hash(&std::fs::read(path).unwrap()))
        );
        let people = run(&["bench", "--input", path]);
        assert!(people.status.success());
        assert!(text(&people.stdout).contains("equal to the file's"), "{length}");
    }
    let file = ScratchFile::new("input-packed", 100_000);
    let line =
        one(&["bench", "--input", file.0.to_str().unwrap(), "--size", "100", "--pack", "4096"]);
    assert_eq!((&line["equal"], &line["messages"]), (&true.into(), &1000.into()));
}

/// The receiving end has no memory for a second buffer, while the file's only message is on offer:
/// it gives its connection up, and the sending end waits for no acknowledgement.
#[test]
fn an_end_of_a_file_that_fails_ends_the_other() {
    /// In the shell's blocks of 512 bytes: half a message more each time, until three buffers fit.
    const STEP: u32 = 1 << 10;
    let file = ScratchFile::new("input-limited", 1 << 20);
    let device = device();
    let args = [
        &["--device", &*device, "bench", "--protocol", "direct-read", "--size", "1048576"][..],
        &["--input", file.0.to_str().unwrap()],
    ]
    .concat();
    let mut failed = 0;
    for step in 1.. {
        let ended = SpawnedProcess::limited(&format!("-f {}", step * STEP), &args).ended();
        if ended.status.success() {
            break;
        }
        assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
        assert!(step < 100, "{ended:#?}");
        failed += 1;
    }
    assert!(failed > 1, "the memory was not limited");
}

/// With one descriptor too few, the following end has no socket: it closes its end of the stream,
/// and the leading one waits for no answer.
#[test]
fn an_end_of_plain_udp_that_fails_ends_the_other() {
    let args = ["bench", "--op", "udp", "--size", "16", "--messages", "10", "--rounds", "1"];
    let mut reasons = Vec::new();
    for descriptors in 6..100 {
        let ended = SpawnedProcess::limited(&format!("-n {descriptors}"), &args).ended();
        if ended.status.success() {
            break;
        }
        reasons.push(ended.err);
    }
    let has_gone = |said: &Vec<String>| said.concat().contains("the other end has gone");
    assert!(reasons.iter().any(has_gone), "{reasons:#?}");
}

/// So what disturbs the machine for a while disturbs no case alone.
#[test]
fn the_demonstration_goes_over_all_cases_in_each_round() {
    let mut running = SpawnedProcess::command(&["-v", "bench", "--rounds", "200"]);
    for case in ["sequential at 16", "unbatched at 16", "batched at 16", "sequential at 512"] {
        let said = running.wait_for(": round ");
        assert!(said.ends_with(&format!(": round 1: {case} B")), "{said}");
    }
}

#[track_caller]
fn assert_contract_of_file(line: &Value, length: usize, size: usize) {
    assert_eq!(line["equal"], true, "{line}");
    assert_eq!(line["bytes"], length, "{line}");
    assert_eq!(line["messages"], length.div_ceil(size), "{line}");
    assert_eq!(line["size_bytes"], size, "{line}");
    assert_eq!(line["protocol"], "send-recv", "{line}");
}

#[test]
fn people_get_a_table() {
    let output = run(&["bench", "--size", "16", "--messages", "1000"]);
    assert!(output.status.success());
    let table = text(&output.stdout);
    assert!(table.contains("messages/s") && table.contains("16 B"), "{table}");
    // No figure that was not measured, and nothing that is no figure.
    assert!(!table.contains("NaN") && !table.contains("inf"), "{table}");
}

/// Long messages have a longer ring than short ones: nothing is said of both that is true of one.
#[test]
fn results_of_other_settings_have_a_table_of_their_own() {
    let output = run(&[
        "bench",
        "--protocol",
        "buffered-write",
        "--size",
        "16,64,4096",
        "--messages",
        "100",
    ]);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    let rings: Vec<&&str> = lines.iter().filter(|line| line.contains("a ring of ")).collect();
    assert_eq!(rings.len(), 2, "{lines:#?}");
    assert!(rings[0].contains(" 1 MiB") && rings[1].contains(" 4 MiB"), "{rings:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("messages/s")).count(), 2, "{lines:#?}");
}

/// Tables and their titles have 80 columns at most where standard output is no terminal.
#[test]
fn tables_fit_80_columns_and_name_the_protocol() {
    for command in [
        &["bench", "--size", "16,65536", "--messages", "300"][..],
        &["bench", "--size", "16", "--messages", "300", "--op", "send"],
        &["bench", "--size", "16", "--messages", "300", "--op", "send", "--transport", "ud"],
        &["bench", "--size", "16", "--messages", "300", "--protocol", "buffered-read"],
        &["bench", "--size", "16", "--messages", "300", "--protocol", "direct-read"],
        &["bench", "--size", "16", "--messages", "300", "--protocol", "shared-write"],
        &["pingpong", "--size", "16,65536", "--iterations", "30"],
        &["pingpong", "--size", "16", "--iterations", "30", "--op", "send"],
        &["multicast", "--messages", "300", "--push", "every:1,opportunistic-null"],
        &["multicast", "--senders", "2", "--slow", "1000", "--seconds", "0.05"],
    ] {
        let output = run(command);
        assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        let name = command.iter().skip_while(|arg| **arg != "--protocol").nth(1);
        let name = match (command[0], command.contains(&"--op"), name) {
            ("multicast", ..) => "multicast",
            (_, true, _) => "raw-send",
            (_, _, name) => name.copied().unwrap_or("send-recv"),
        };
        assert!(said.lines().next().unwrap().contains(name), "{command:?}: {said}");
        assert!(!said.contains("1 senders"), "{said}");
        for line in said.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: {said}");
        }
        assert_eq!(said.contains("64 KiB"), command.contains(&"16,65536"), "{said}");
    }
}

/// The help of a command says nothing of other commands, and names the defaults.
#[test]
fn help_speaks_of_the_commands_own_flags_and_of_defaults() {
    let help = |command: &str| text(&run(&[command, "--help"]).stdout).to_owned();
    assert!(!help("pipe").contains("--op"));
    let bench = help("bench");
    for says in ["A WRITE for each READ", "[default: 4]", "[default: 512k]", "--op <VERB>"] {
        assert!(bench.contains(says), "{says}: {bench}");
    }
}

/// A reader that goes away (`| head -1`) is no reason to panic.
#[test]
fn a_closed_standard_output_is_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_rdma-conn"))
        .args(["--device", "soft0", "devices"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
}

#[test]
fn a_slow_sender_is_compared_with_none() {
    let arguments =
        "multicast --members 3 --senders 3 --slow 1000 --size 100 --seconds 0.1 --rounds 1 --push";
    let policies = "opportunistic,opportunistic-null";
    let lines = json(&arguments.split(' ').chain([policies]).collect::<Vec<_>>());
    assert_eq!(lines.len(), 2);
    let others: Vec<f64> = lines
        .iter()
        .map(|line| {
            let rate = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(rate("others_messages_per_s_without_slow") > 0.0, "{line}");
            let others = rate("others_messages_per_s");
            assert!(0.0 < others && others < rate("messages_per_s"), "{line}");
            others
        })
        .collect();
    // Without nulls, each of the two others waits for a turn of the slow one; a window and what
    // is sent at once may be ahead of it.
    assert!(others[0] <= 2.0 * (1000.0 + 2.0 * 1000.0 / 0.1), "{others:?}");
    assert!(others[1] > others[0], "what nulls are for: {others:?}");
    let alone = run(&["multicast", "--slow", "1000", "--seconds", "0.05"]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(text(&alone.stderr).contains("--senders 2"), "{}", text(&alone.stderr));
}

#[test]
fn an_inhibited_lone_message_is_pushed_at_the_deadline() {
    let common = ["multicast", "--lone", "--messages", "20", "--deadline-us", "20000"];
    let lines = json(&[&common[..], &["--push", "every:1,every:250,opportunistic"]].concat());
    let p50 = |at: usize| lines[at]["latency_ns_p50"].as_u64().unwrap();
    for line in &lines {
        assert_eq!((&line["lone"], &line["messages"]), (&true.into(), &20.into()));
        // Each takes as many writes as the formula says, whatever the policy. (A member that the
        // system has held up pushes to show that it lives, and the message goes along.)
        assert!(line["rdma_ops_per_message"].as_f64().unwrap() >= 9.0, "{line}");
    }
    assert!(p50(1) >= 20_000_000, "what is inhibited waits: {}", lines[1]);
    assert!((11..=20).contains(&lines[1]["forced_pushes"].as_u64().unwrap()), "{}", lines[1]);
    assert_eq!((&lines[0]["forced_pushes"], &lines[2]["forced_pushes"]), (&0.into(), &0.into()));
}

#[test]
fn a_batch_shares_the_ten_operations_of_a_multicast() {
    let common = ["multicast", "--members", "3", "--size", "100", "--messages", "20000"];
    let policies = "every:1,every:25,opportunistic,opportunistic-null";
    let lines = json(&[&common[..], &["--push", policies]].concat());
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_eq!(line["protocol"], "multicast");
        assert_eq!((&line["members"], &line["messages"]), (&3.into(), &20000.into()));
        assert!(line["messages_per_s"].as_f64().unwrap() > 0.0);
        assert!(line["latency_ns_p50"].as_u64() <= line["latency_ns_p99"].as_u64());
    }
    let ops = |at: usize| lines[at]["rdma_ops_per_message"].as_f64().unwrap();
    if support::device() == "soft0" {
        assert_eq!(ops(0), 10.0);
    }
    // A member that the system holds up for long shows that it lives, by pushes of its own.
    assert!((ops(0) - 10.0).abs() < 0.05, "{}", ops(0));
    assert!(ops(1) <= 0.44, "{}", ops(1));
    let flushed = json(&[&common[..], &["--push", "every:1000", "--flush-every", "50"]].concat());
    assert_eq!((&flushed[0]["messages"], &flushed[0]["flush_every"]), (&20000.into(), &50.into()));
}

/// Each key of the lines is in their documentation.
#[test]
fn every_key_is_documented() {
    let documentation = include_str!("../../docs/json.md");
    let rings = "bench --messages 100 --size 64 --protocol buffered-";
    for arguments in [
        "bench --messages 100 --size 64 --preset batched --pack 256",
        "bench --messages 100 --size 64 --senders 2 --srq --rate 100000",
        &format!("{rings}read --sending-threads 2 --receiving-threads 2 --transfer-thread"),
        &format!("{rings}write --head-threshold 4096"),
        "bench --messages 100 --size 4096 --protocol direct-read",
        "bench --messages 100 --size 64 --protocol direct-write",
        "bench --messages 100 --size 64 --protocol shared-write --senders 2",
        "bench --messages 100 --size 64 --op send --transport ud --peers 2",
        "pingpong --iterations 10 --size 64",
        "pingpong --iterations 10 --size 64 --op write-imm",
        "multicast --messages 100 --flush-every 10 --lone",
        "multicast --senders 2 --slow 1000 --seconds 0.05",
        "devices",
    ] {
        for line in json(&arguments.split(' ').collect::<Vec<_>>()) {
            let known = |key: &&String| documentation.contains(&format!("`{key}`"));
            let unknown: Vec<_> = line.as_object().unwrap().keys().filter(|k| !known(k)).collect();
            assert!(unknown.is_empty(), "{arguments}: {unknown:?}");
        }
    }
}

#[test]
fn a_table_that_is_piped_has_whole_words_and_columns_splits_it() {
    let group = ["multicast", "--senders", "2", "--slow", "1000", "--seconds", "0.05"];
    let table = |columns: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
        command.args(["--device", &support::device()]).args(group);
        command.args(["--rounds", "1", "--push", "opportunistic-null"]);
        let output = command.env("COLUMNS", columns).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).to_owned()
    };
    for (columns, parts) in [("", 1), ("200", 1), ("60", 2)] {
        let table = table(columns);
        assert_eq!(
            table.matches("opportunistic-null").count(),
            parts,
            "COLUMNS={columns}:\n{table}"
        );
    }
}

#[test]
fn a_title_names_what_is_turned_off() {
    let bench = ["bench", "--size", "16", "--messages", "3", "--rounds", "1", "--unacked", "1"];
    let title = |more: &[&str]| text(&run(&[&bench, more].concat()).stdout).to_owned();
    assert!(title(&["--no-credits"]).contains("no credits"), "{}", title(&["--no-credits"]));
    assert!(!title(&[]).contains("no credits"));
}
