//! Raw verbs of the command: what they print, and what they refuse.
//!
//! Shows: the command.
//! Not on distant, wired: a ping-pong of READs ends there by its timeout.

use serde_json::Value;

mod support;

use support::{assert_refused, device, json, one, run, text};

/// Flags of `write`: where the device does not promise order, it has to be wanted.
const ASSUME: &str = "--assume-in-order";

fn ops() -> [(&'static str, &'static [&'static str]); 4] {
    [("send", &[]), ("write", &[ASSUME]), ("write-imm", &[]), ("read", &[])]
}

/// Checks the fields that every line of raw verbs has.
#[track_caller]
fn assert_line(line: &Value, op: &str, size: u64) {
    assert_eq!(line["protocol"], format!("raw-{op}"), "{line}");
    assert_eq!(line["device"], device(), "{line}");
    assert_eq!(line["transport"], "rc", "{line}");
    assert_eq!(line["size_bytes"], size, "{line}");
    assert_eq!(line["verified"], true, "{line}");
    let number = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{field}: {line}"));
    for field in ["unacked", "batch", "threads", "senders", "messages"] {
        assert!(number(field) >= 1.0, "{field}: {line}");
    }
    assert!(number("messages_per_s") > 0.0, "{line}");
    let per_s = number("messages_per_s") * size as f64;
    assert!((number("bytes_per_s") - per_s).abs() <= per_s * 1e-9, "{line}");
    // One request a message, and nothing else: no credits, no acknowledgements.
    assert_eq!(number("rdma_ops_per_message"), 1.0, "{line}");
    let assumed = device() != "soft0" && op == "write" && line["latency_of"].is_string();
    assert_eq!(line["assumed_in_order"].as_bool().unwrap_or(false), assumed, "{line}");
}

#[track_caller]
fn assert_latencies(line: &Value, op: &str) {
    let quantile = |q: &str| line[format!("latency_ns_{q}")].as_u64().unwrap();
    let all = ["min", "p50", "p90", "p99", "p999", "max"].map(quantile);
    assert!(all.is_sorted() && all[0] > 0, "{line}");
    let of = if op == "read" { "operation" } else { "half round trip" };
    assert_eq!(line["latency_of"], of, "{line}");
}

#[test]
fn pingpong_of_every_verb_prints_one_object_a_size() {
    for (op, flags) in ops() {
        let sizes = "1,2,16,4096,70000";
        let args =
            [&["pingpong", "--op", op, "--size", sizes, "--iterations", "50"], flags].concat();
        let lines = json(&args);
        assert_eq!(lines.len(), 5);
        for (line, size) in lines.iter().zip([1, 2, 16, 4096, 70_000]) {
            assert_line(line, op, size);
            assert_latencies(line, op);
            assert_eq!(line["messages"], if op == "read" { 50 } else { 100 });
        }
    }
}

#[test]
fn bench_of_every_verb_sends_what_it_was_asked_to() {
    for (op, _) in ops() {
        let args = ["bench", "--op", op, "--size", "1,16,4096,70000", "--messages", "999"];
        let lines = json(&args);
        assert_eq!(lines.len(), 4);
        for (line, size) in lines.iter().zip([1, 16, 4096, 70_000]) {
            assert_line(line, op, size);
            assert_eq!(line["messages"], 999);
        }
    }
}

/// One receive queue has one size of buffers, so two classes have two: and memory is
/// saved.
#[test]
fn two_classes_of_sizes_have_a_shared_receive_queue_each() {
    let flags = ["--op", "send", "--size", "16,8192", "--recv-depth", "64"];
    let both = |command: &[&str]| {
        json(&[command, &flags, &["--srq-classes", "--unacked", "6", "--qps", "5"]].concat())
    };
    for (command, messages) in [
        (&["pingpong", "--iterations", "100"][..], [120, 80]),
        (&["bench", "--messages", "100"], [300, 200]),
    ] {
        let lines = both(command);
        assert_eq!(lines.len(), 2);
        for ((line, size), messages) in lines.iter().zip([16, 8192]).zip(messages) {
            assert_line(line, "send", size);
            assert_eq!(line["srq"], "classes", "{line}");
            assert_eq!(line["registered_bytes"], 64 * (64 + 8192), "{line}");
            let near = line["messages"].as_u64().unwrap().abs_diff(messages);
            assert!(near <= 4, "{messages}: {line}");
        }
    }
}

#[test]
fn what_is_not_checked_is_said() {
    for (op, flags) in ops() {
        let args =
            [&["pingpong", "--op", op, "--size", "64", "--iterations", "20", "--no-verify"], flags];
        assert_eq!(one(&args.concat())["verified"], false);
        let args = ["bench", "--op", op, "--size", "64", "--messages", "500", "--no-verify"];
        let line = one(&args);
        assert_eq!((&line["verified"], &line["messages"]), (&false.into(), &500.into()));
    }
}

#[test]
fn people_are_told_what_a_latency_is_of() {
    for (op, says) in [("send", "Half of a round trip"), ("read", "The whole operation")] {
        let output = run(&["pingpong", "--op", op, "--size", "16", "--iterations", "10"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).starts_with(says), "{}", text(&output.stdout));
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line_with_status_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["pingpong", "--op", "teleport"], "teleport"),
        (&["pingpong", "--op", "write", "--size", "0", ASSUME], "--size"),
        (&["pingpong", "--op", "read", "--size", "0"], "--size"),
        (&["pingpong", "--op", "send", "--size", "4294967295"], "--size"),
        (&["pingpong", "--op", "send", "--unacked", "0"], "--unacked"),
        (&["pingpong", "--op", "send", "--unacked", "99999"], "--unacked"),
        (&["bench", "--op", "send", "--unacked", "4", "--batch", "5"], "--batch"),
        (&["bench", "--op", "send", "--unacked", "4", "--signal-every", "5"], "--signal-every"),
        (&["pingpong", "--op", "send", "--recv-depth", "1", "--unacked", "2"], "--recv-depth"),
        (&["pingpong", "--op", "read", "--signal-every", "2"], "--signal-every"),
        (&["bench", "--op", "send", "--poll-batch", "0"], "--poll-batch"),
        (&["bench", "--op", "send", "--qps", "1025"], "--qps"),
        (&["bench", "--op", "send", "--srq", "--qps", "257"], "--qps"),
        (&["bench", "--op", "send", "--transport", "uc", "--qps", "257"], "--qps"),
        (&["bench", "--op", "read", "--srq"], "--srq"),
        (&["pingpong", "--op", "write", "--srq", ASSUME], "--srq"),
        (&["pingpong", "--op", "send", "--srq-classes", "--size", "16"], "--srq-classes"),
        (&["pingpong", "--op", "send", "--srq-classes", "--size", "64,16"], "--srq-classes"),
        (&["pingpong", "--op", "send", "--srq-classes", "--size", "16,64", "--qps", "1"], "--qps"),
        (&["pingpong", "--op", "send", "--wait", "block"], "--wait"),
        (&["pingpong", "--op", "send", "--preset", "batched"], "--preset"),
        (&["pingpong", "--op", "send", "--pack", "64"], "--pack"),
        (&["pingpong", "--op", "send", "--no-credits"], "--no-credits"),
        (&["bench", "--op", "send", "--threads", "2"], "--qps"),
        (&["bench", "--op", "send", "--rate", "1000"], "--rate"),
        (&["bench", "--op", "send", "--input", "Cargo.toml"], "--input"),
        (&["bench", "--op", "read", "--transport", "uc"], "--transport rc"),
        (&["bench", "--op", "write", "--transport", "ud"], "--transport rc"),
        (&["bench", "--op", "send", "--transport", "ud", "--size", "4097"], "MTU"),
        (&["bench", "--op", "send", "--transport", "ud", "--qps", "2"], "--peers"),
        (&["bench", "--op", "send", "--peers", "2"], "--qps"),
        (&["bench", "--op", "send", "--transport", "uc", "--srq"], "--srq"),
        (&["pingpong", "--op", "write-imm", "--transport", "uc", "--unacked", "2"], "--unacked"),
        (&["bench", "--op", "send", "--faults", "loss=0.1"], "--faults"),
        (&["bench", "--op", "send", "--transport", "ud", "--faults", "loss=2"], "0 to 1"),
        (&["bench", "--op", "send", "--transport", "ud", "--faults", "luck=1"], "loss"),
        (&["pingpong", "--op", "send", "--answer-timeout", "0"], "--answer-timeout"),
        (&["pingpong", "--srq"], "--op"),
        (&["pingpong", "--qps", "2"], "--op"),
        (&["bench", "--srq-classes"], "--op"),
        (&["pingpong", "--assume-in-order"], "--op"),
    ];
    for (args, says) in cases {
        assert_refused(args, 2, says);
    }
}

/// Polling memory takes a promise that soft0 gives, and rxe does not.
#[test]
fn write_is_refused_where_bytes_may_come_in_any_order() {
    let args = ["pingpong", "--op", "write", "--size", "16", "--iterations", "10"];
    if device() == "soft0" {
        assert_eq!(one(&args)["assumed_in_order"], Value::Null);
        return;
    }
    assert_refused(&args, 2, "--assume-in-order");
    assert_eq!(one(&[&args[..], &[ASSUME]].concat())["assumed_in_order"], true);
    let output = run(&[&args[..], &[ASSUME]].concat());
    assert!(text(&output.stdout).contains("assumed"), "{}", text(&output.stdout));
}
