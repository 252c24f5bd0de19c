//! Files of experiments, right and wrong.

use proptest::prelude::*;

use super::*;

const RIGHT: &str = r#"
group = "Send/Receive"
title = "Rate by batch"
about = "What lists are worth."

[x]
label = "Messages to a doorbell"
scale = "log2"
values = "1,2..32"
quick = "1,32"
threads = { per_x = 2 }

[[y]]
key = "messages_per_s"
label = "Messages per second"
unit = "M msg/s"

[[y]]
key = "rdma_ops_per_message"
label = "Operations"
unit = "operations"

[[case]]
label = "window 32"
run = "bench --unacked 32 --batch {x}"

[[case]]
label = "packed"
run = "bench --pack={x*20}"
max_x = "16"

[[paper]]
label = "paper"
source = "a page"
y = "messages_per_s"
points = [[8, 14]]

[[expect]]
ratio = { of = "packed", to = "window 32", x = 8, at_least = 1 }
"#;

fn parse(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::parse("mine.toml", text)
}

#[test]
fn an_experiment_is_what_its_file_says() {
    let experiment = parse(RIGHT).unwrap();
    assert_eq!(experiment.xs(false), [1, 2, 4, 8, 16, 32]);
    assert_eq!(experiment.xs(true), [1, 32]);
    assert_eq!(experiment.axis(None).unwrap().key, "messages_per_s");
    let runs: Vec<CommandRun<'_>> = experiment.runs(false).collect();
    assert_eq!(runs.len(), 11, "packed has 16 at most");
    let words = ["bench", "--pack=40"].map(str::to_owned).to_vec();
    assert_eq!(runs[3], CommandRun { case: "packed", x: 2, words });
    // Each case in turn, not all rounds of one first.
    let cases: Vec<&str> = runs.iter().map(|run| run.case).collect();
    assert_eq!(cases[..4], ["window 32", "packed", "window 32", "packed"]);
}

/// The example in the documentation of the module is an experiment.
#[test]
fn the_documented_experiment_is_one() {
    let lines = include_str!("../experiment.rs").lines().skip_while(|line| *line != "//! ```toml");
    let lines = lines.skip(1).take_while(|line| *line != "//! ```");
    let text: Vec<&str> = lines.map(|line| line.trim_start_matches("//!")).collect();
    let experiment = parse(&text.join("\n")).unwrap();
    assert_eq!(experiment.expects.len(), 6);
}

#[test]
fn what_is_saved_is_read_again() {
    let experiment = parse(RIGHT).unwrap();
    let json = serde_json::to_string(&experiment).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&json).unwrap(), experiment);
}

/// An error has the line and the column, and says what is allowed.
#[test]
fn an_error_has_its_place_and_what_is_allowed() {
    for (old, new, says) in [
        (
            "about =",
            "abuot =",
            "mine.toml:4:1: unknown field `abuot`, expected one of `group`, `title`",
        ),
        ("title = \"Rate by batch\"", "", "missing field `title`"),
        (
            "scale = \"log2\"",
            "scale = \"log3\"",
            "mine.toml:8:9: unknown variant `log3`, expected one of `linear`, `log2`, `log10`",
        ),
        ("\"1,2..32\"", "\"1,2..\"", "mine.toml:9:10: column 6: '': bytes"),
        ("\"1,2..32\"", "\"4,2\"", "mine.toml:9:10: 2 follows 4: values must rise"),
        ("\"1,2..32\"", "\"0,1\"", "mine.toml:9:10: a logarithmic scale has no 0"),
        ("\"1,2..32\"", "7", "mine.toml:9:10: invalid type: integer `7`"),
        ("quick = \"1,32\"", "quick = \"0\"", "mine.toml:10:9: a logarithmic scale has no 0"),
        ("per_x = 2", "per_x = 0", "mine.toml:11:11: per_x may be 1 or more"),
        (
            "per_x = 2",
            "every = 2",
            "mine.toml:11:13: unknown field `every`, expected `per_x` or `fixed`",
        ),
        (
            "\"M msg/s\"",
            "\"Gbit/s\"",
            "mine.toml:16:8: the unit of messages_per_s may be msg/s, k msg/s, M msg/s",
        ),
        ("key = \"rdma_ops_per_message\"", "key = \"messages_per_s\"", "mine.toml:21:8: the unit"),
        (
            "\"packed\"\nrun",
            "\"window 32\"\nrun",
            "mine.toml:28:9: there is a case window 32 already",
        ),
        (
            "\"bench --pack={x*20}\"",
            "\"copy {x}\"",
            "mine.toml:29:7: 'copy': a run begins with bench, pingpong, multicast",
        ),
        ("--pack={x*20}", "--pack=20", "mine.toml:29:7: a run must contain {x}"),
        ("--pack={x*20}", "--pack={y}", "mine.toml:29:7: {y}: there are {x} and {x*20}"),
        ("--pack={x*20}", "--pack={x", "mine.toml:29:7: a '{' needs a '}'"),
        ("--pack={x*20}", "{x} --json", "mine.toml:29:7: --json is set for all runs"),
        ("--pack={x*20}", "{x} --seconds=1", "mine.toml:29:7: --seconds is set for all runs"),
        ("max_x = \"16\"", "max_x = 0", "mine.toml:30:9: no value of x is that small"),
        ("max_x = \"16\"", "max_x = -1", "expected a number from 0"),
        ("points = [[8, 14]]", "", "mine.toml:32:1: give either points or a level"),
        ("[[8, 14]]", "[[8, nan]]", "mine.toml:36:10: points are finite numbers"),
        (
            "\ny = \"messages_per_s\"",
            "\ny = \"bytes_per_s\"",
            "no axis has the key bytes_per_s: there are messages_per_s, rdma_ops_per_message",
        ),
        (
            "ratio =",
            "quotient =",
            "mine.toml:39:1: unknown field `quotient`, expected one of `claim`, `not_reproduced`, `on`, `y`, `value`",
        ),
        (
            "to = \"window 32\"",
            "to = \"window\"",
            "mine.toml:39:31: no case is called window: there are window 32, packed",
        ),
        (", at_least = 1", "", "a ratio needs at_least, at_most, or both"),
        ("x = 8,", "x = 9,", "mine.toml:39:48: it must be one of the values of x"),
        (
            "ratio = { of",
            "value = { case = \"packed\" } #",
            "a value needs at_least, at_most, or both",
        ),
        (
            "ratio = { of",
            "value = { case = \"packed\", x = 9, at_most = 1 } #",
            "mine.toml:39:32: it must be one of the values of x",
        ),
        (
            "ratio = { of",
            "monotone = { case = \"packed\", direction = \"sideways\" } #",
            "unknown variant `sideways`, expected `rising` or `falling`",
        ),
        (
            "ratio = { of",
            "plateau = { case = \"packed\", last = 1, within_percent = 5 } #",
            "mine.toml:39:37: it may be 2",
        ),
        (
            "ratio = { of",
            "plateau = { case = \"packed\", last = 2, to = 8, within_percent = 5 } #",
            "a plateau needs either last, or from and to (one of them may be left out)",
        ),
        (
            "ratio = { of",
            "peak = { case = \"packed\", from = 2, to = 8, falls_to = 2 } #",
            "it may be 0 to 1",
        ),
        (
            "ratio = { of",
            "linear = { case = \"packed\", to = 9, within_percent = 5 } #",
            "it must be one of the values of x",
        ),
        (
            "ratio = { of",
            "claim = \"faster\" #",
            "an expectation needs exactly one of value, ratio, monotone",
        ),
        (
            "ratio =",
            "claim = \"faster\"\nnot_reproduced = \"slower\"\nratio =",
            "mine.toml:40:18: an expectation has either a claim or not_reproduced",
        ),
        ("[[y]]\nkey", "[[y]\nkey", "mine.toml:13:"),
    ] {
        assert!(RIGHT.contains(old), "{old}");
        let error = parse(&RIGHT.replacen(old, new, 1)).expect_err(new).to_string();
        assert!(error.starts_with("mine.toml:") && error.contains(says), "{new}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn there_is_a_bound_to_cases() {
    let case = |n: usize| format!("[[case]]\nlabel = \"{n}\"\nrun = \"bench --batch {{x}}\"\n");
    let more = |cases: usize| RIGHT.to_owned() + &(2..cases).map(case).collect::<String>();
    parse(&more(MOST_CASES)).unwrap();
    let error = parse(&more(MOST_CASES + 1)).unwrap_err();
    assert!(error.what.contains("up to 8 cases"), "{error}");
}

proptest! {
    /// Whatever the file has, it is an experiment, or an error at a place in it.
    #[test]
    fn a_broken_file_is_an_error_within_it(from in 0..RIGHT.len(), bytes in 1_usize..40) {
        let mut text = RIGHT.to_owned();
        text.replace_range(from..(from + bytes).min(RIGHT.len()), "");
        if let Err(e) = parse(&text) {
            prop_assert!((1..=text.lines().count() + 1).contains(&e.line), "{}", e);
            prop_assert!(e.column > 0 && !e.what.is_empty());
        }
    }
}
