//! Lists of numbers on the command line: each is a measurement, and its results are as those of a
//! command line with one number.
//!
//! Only on soft0: each measurement is one that other tests make.

mod support;

use serde_json::Value;
use support::{ScratchFile, assert_refused, json, one, run, text};

const SHORT: [&str; 6] = ["--size", "16", "--messages", "3000", "--rounds", "3"];

fn numbers(lines: &[Value], key: &str) -> Vec<u64> {
    lines.iter().map(|line| line[key].as_u64().unwrap()).collect()
}

#[test]
fn each_number_of_a_list_is_measured() {
    let lines = json(&[&["bench", "--unacked", "4,8..16", "--batch", "1,2"], &SHORT[..]].concat());
    assert_eq!(numbers(&lines, "unacked"), [4, 4, 8, 8, 16, 16]);
    assert_eq!(numbers(&lines, "batch"), [1, 2, 1, 2, 1, 2]);
    for line in &lines {
        let rate = |key: &str| line[key].as_f64().unwrap();
        let (min, max) = (rate("messages_per_s_min"), rate("messages_per_s_max"));
        assert!(min > 0.0 && (min..=max).contains(&rate("messages_per_s")), "{line}");
        assert_eq!((&line["messages"], &line["rounds"]), (&3000.into(), &3.into()), "{line}");
        assert_eq!(line["verified"], true);
    }
    // The same keys as without a list.
    let single = one(&[&["bench", "--unacked", "4", "--batch", "1"], &SHORT[..]].concat());
    let keys = |line: &Value| {
        let mut keys: Vec<String> = line.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&lines[0]), keys(&single));
}

#[test]
fn pingpong_and_multicast_have_lists_too() {
    let lines = json(&["pingpong", "--size", "16..64*2", "--iterations", "30", "--rounds", "2"]);
    assert_eq!(numbers(&lines, "size_bytes"), [16, 32, 64]);
    let lines = json(&["multicast", "--window", "8,16", "--members", "2,3", "--messages", "100"]);
    assert_eq!(numbers(&lines, "window"), [8, 8, 16, 16]);
    assert_eq!(numbers(&lines, "members"), [2, 3, 2, 3]);
}

#[test]
fn results_are_written_as_comma_separated_values() {
    let file = ScratchFile::new("sweep.csv", 0);
    let path = file.0.to_str().unwrap();
    let sweep = ["bench", "--unacked", "4,8", "--csv", path];
    let lines = json(&[&sweep[..], &SHORT].concat());
    let written = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = written.lines().collect();
    assert_eq!(rows.len(), 1 + lines.len());
    assert!(rows[0].starts_with("unacked,") && rows[0].contains(",messages_per_s,"), "{written}");
    assert!(rows[1].starts_with("4,") && rows[2].starts_with("8,"), "{written}");
    // One measurement has a file as well.
    one(&[&["bench", "--csv", path], &SHORT[..]].concat());
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
}

#[test]
fn a_number_that_cannot_be_is_left_out_with_the_reason() {
    let output = run(&[&["bench", "--unacked", "4,0,8", "--json"], &SHORT[..]].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout).lines().count(), 2);
    let error = text(&output.stderr);
    assert_eq!(error, "--unacked 0: left out: --unacked 0: it may be 1 to 16384\n");
    // Where none can be, the command line is what is wrong.
    let none = run(&[&["bench", "--unacked", "0,99999999"], &SHORT[..]].concat());
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(2), ""));
}

#[test]
fn lists_that_cannot_be_measured_are_refused() {
    assert_refused(&["bench", "--unacked", "8..4"], 2, "--unacked: column 1: '8..4'");
    assert_refused(&["bench", "--threads", "0,1"], 2, "--threads");
    assert_refused(&["bench", "--unacked", "4,8", "--connect", "127.0.0.1:1"], 2, "both ends in");
    assert_refused(
        &["bench", "--csv", "/nowhere/x.csv", "--size", "16", "--messages", "10"],
        1,
        "--csv",
    );
    assert_refused(&["bench", "--unacked", "4,8", "--input", "x"], 2, "--input");
}

/// Lists that the flag accepts itself are measured in one process.
#[test]
fn the_rounds_of_a_list_go_over_all_its_numbers_in_turn() {
    let size = ["16 B", "512 B"];
    let group = ["2 members, every:1", "3 members, every:1"];
    for (args, labels) in [
        (&["bench", "--size", "16,512", "--messages", "300"][..], size),
        (&["bench", "--op", "write", "--size", "16,512", "--messages", "300"], size),
        (&["pingpong", "--size", "16,512", "--iterations", "30"], size),
        (&["pingpong", "--op", "send", "--size", "16,512", "--iterations", "30"], size),
        (&["multicast", "--members", "2,3", "--messages", "100"], group),
    ] {
        let output = run(&[args, &["--rounds", "3", "--json", "-v"]].concat());
        assert!(output.status.success(), "{output:?}");
        let log = text(&output.stderr);
        let begun = log.lines().filter_map(|line| Some(line.split_once(": round ")?.1));
        let wanted = (1..=3).flat_map(|round| labels.map(|label| format!("{round}: {label}")));
        assert_eq!(begun.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{args:?}: {log}");
        assert_eq!(text(&output.stdout).lines().count(), 2, "{args:?}");
    }
}
