use clap::Parser;

use super::*;
use crate::cli::Args;

#[test]
fn a_range_is_told_in_words() {
    assert_eq!(allowed("0 is not in 1..=1024"), "it may be 1 to 1024");
    assert_eq!(allowed("0 is not in 1..18446744073709551615"), "it may be 1 or more");
    let number = "x".parse::<u32>().unwrap_err().to_string();
    assert_eq!(allowed(&number), "it may be a whole number that is not too large");
    assert_eq!(allowed("256 or 512"), "256 or 512");
}

fn says(words: &[&str]) -> String {
    let given: Vec<String> =
        ["rdma-conn"].iter().chain(words).map(|word| (*word).to_owned()).collect();
    line(&Args::try_parse_from(&given).unwrap_err(), &given)
}

#[test]
fn an_empty_value_is_named() {
    for words in [&["bench", "--size", "16,,32"], &["multicast", "--size", ""]] {
        assert!(says(words).starts_with("--size '': bytes"), "{}", says(words));
    }
    assert!(says(&["bench", "--cpu", ""]).starts_with("--cpu '': "));
    assert!(says(&["bench", "--connect", ""]).starts_with("--connect '': "));
}

#[test]
fn a_number_below_zero_is_a_value_and_not_a_flag() {
    for words in [
        &["bench", "--seconds", "-1"],
        &["bench", "--rate", "-1"],
        &["bench", "--messages", "-1"],
        &["pingpong", "--iterations", "-1"],
        &["multicast", "--seconds", "-1"],
        &["pipe", "--size", "-1"],
    ] {
        let start = format!("{} -1: ", words[1]);
        assert!(says(words).starts_with(&start), "{words:?}: {}", says(words));
    }
}

#[test]
fn a_joining_member_is_told_whose_flag_it_is() {
    let rule = ": the leader decides it for all members: give it where you --listen";
    for words in [["--connect", "::1", "--size", "500"], ["--size", "500", "--connect", "::1"]] {
        assert_eq!(says(&[&["multicast"][..], &words].concat()), format!("--size{rule}"));
    }
    let both = says(&["multicast", "--connect", "::1", "--listen", "::1"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let crowd = says(&["bench", "--connect", "::1", "--sending-threads", "2"]);
    assert!(crowd.contains("cannot be used with"), "{crowd}");
}

/// Each flag of the table needs what it says there.
#[test]
fn a_flag_that_needs_another_one_is_named() {
    let values = [
        ("--transport", "ud"),
        ("--qps", "2"),
        ("--peers", "2"),
        ("--answer-timeout", "5"),
        ("--faults", "loss=0.1"),
        ("--mtu", "256"),
        ("--srq-buffers", "64"),
        ("--max-ring", "1m"),
        ("--into", "here"),
        ("--render", "here"),
        ("--compare", "here there"),
    ];
    for (flag, needs) in NEEDS {
        let command = match flag {
            "--max-ring" => "multicast",
            "--into" => "copy",
            "--render" | "--compare" => "figures",
            "--srq" | "--mtu" => "pingpong",
            _ => "bench",
        };
        let value = values.iter().find(|(named, _)| *named == flag).map(|(_, value)| *value);
        let values = value.iter().flat_map(|value| value.split(' '));
        let words: Vec<&str> = [command, flag].into_iter().chain(values).collect();
        assert!(says(&words).starts_with(&format!("{flag} needs {needs}")), "{}", says(&words));
    }
}
