//! Expectations that hold, and their reverse, which fails.

mod turned;

use super::*;
use crate::sample;

const HEAD: &str = r#"
group = "g"
title = "t"
about = "a"
[x]
label = "Batch"
scale = "log2"
values = "1..8"
quick = "1,8"
[[y]]
key = "messages_per_s"
label = "Rate"
unit = "msg/s"
[[case]]
label = "a"
run = "bench --batch {x}"
[[case]]
label = "b"
run = "bench --unacked 8 --batch {x}"
[[expect]]
"#;

/// A figure with these values of the cases a and b.
fn figure_with(expect: &str, a: &[f64], b: &[f64]) -> Figure {
    let experiment = Experiment::parse("e.toml", &format!("{HEAD}{expect}")).unwrap();
    let mut figure = Figure::new("f", experiment.clone());
    for run in experiment.runs(false) {
        let at = experiment.xs(false).iter().position(|x| *x == run.x).unwrap();
        let values = if run.case == "a" { a } else { b };
        if let Some(value) = values.get(at) {
            let result = [("messages_per_s".to_owned(), (*value).into())].into_iter().collect();
            figure.add(&run, &result);
        }
    }
    figure
}

fn status(expect: &str, a: &[f64], b: &[f64]) -> ExpectationStatus {
    let verdicts = verdicts(&figure_with(expect, a, b), "soft0", false);
    assert_eq!(verdicts.len(), 1);
    verdicts[0].status
}

const UP: &[f64] = &[1.0, 2.0, 3.9, 4.0];
const DOWN: &[f64] = &[4.0, 3.9, 2.0, 1.0];

#[test]
fn a_ratio_holds_and_fails_when_it_is_reversed() {
    let least = |of, to| format!("ratio = {{ of = \"{of}\", to = \"{to}\", x = 8, at_least = 3 }}");
    assert_eq!(status(&least("a", "b"), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&least("b", "a"), UP, DOWN), ExpectationStatus::Failed);
    let most = |of, to| format!("ratio = {{ of = \"{of}\", to = \"{to}\", x = 8, at_most = 0.5 }}");
    assert_eq!(status(&most("b", "a"), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&most("a", "b"), UP, DOWN), ExpectationStatus::Failed);
}

#[test]
fn a_ratio_that_is_far_from_the_papers_is_no_tick() {
    let of = |paper| {
        format!("ratio = {{ of = \"a\", to = \"b\", x = 8, at_least = 1, paper = {paper} }}")
    };
    assert_eq!(status(&of(4), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&of(7), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&of(9), UP, DOWN), ExpectationStatus::Weaker);
    assert_eq!(
        status(&of(1), UP, DOWN),
        ExpectationStatus::Weaker,
        "four times as much is no confirmation either"
    );
    assert_eq!(status(&of(9), DOWN, UP), ExpectationStatus::Failed);
}

#[test]
fn a_ratio_of_two_points_of_a_case() {
    let of = |x, to_x| {
        format!("ratio = {{ of = \"a\", to = \"a\", x = {x}, to_x = {to_x}, at_least = 3 }}")
    };
    assert_eq!(status(&of(8, 1), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&of(1, 8), UP, DOWN), ExpectationStatus::Failed);
}

#[test]
fn a_value_is_compared_in_the_unit_of_its_axis() {
    let at = |x: &str, bound: &str| format!("value = {{ case = \"a\", {x}{bound} }}");
    assert_eq!(
        status(&at("x = 8, ", "at_least = 4, at_most = 4.1"), UP, DOWN),
        ExpectationStatus::Passed
    );
    assert_eq!(
        status(&at("x = 8, ", "at_least = 4, at_most = 4.1"), DOWN, UP),
        ExpectationStatus::Failed
    );
    // Each point of the case.
    assert_eq!(status(&at("", "at_most = 4"), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&at("", "at_most = 3.95"), UP, DOWN), ExpectationStatus::Failed);
    assert_eq!(status(&at("", "at_least = 1.5"), UP, DOWN), ExpectationStatus::Failed);
    assert_eq!(status(&at("", "at_most = 0"), &[0.0; 4], DOWN), ExpectationStatus::Passed);
    let verdict =
        |x, bound| verdicts(&figure_with(&at(x, bound), UP, DOWN), "soft0", false)[0].clone();
    let one = verdict("x = 8, ", "at_most = 5");
    assert_eq!((&*one.expected, &*one.found), ("Rate: a, Batch 8: at most 5 msg/s", "4"));
    let each = verdict("", "at_least = 0.5, at_most = 4");
    assert_eq!(each.expected, "Rate: a, each point: at least 0.5 msg/s, at most 4 msg/s");
    let text =
        format!("{HEAD}{}", at("x = 8, ", "at_most = 0.004")).replace("\"msg/s\"", "\"k msg/s\"");
    let mut figure = figure_with(&at("x = 8, ", "at_most = 5"), UP, DOWN);
    figure.experiment = Experiment::parse("e.toml", &text).unwrap();
    assert_eq!(verdicts(&figure, "soft0", false)[0].status, ExpectationStatus::Passed, "4 msg/s");
}

#[test]
fn a_verdict_has_the_sentence_that_its_expectation_stands_for() {
    let expect = "claim = \"It rises.\"\nmonotone = { case = \"a\", direction = \"rising\" }";
    let verdict = &verdicts(&figure_with(expect, UP, DOWN), "soft0", false)[0];
    assert_eq!(verdict.claim.as_deref(), Some("It rises."));
    let verdict = &verdicts(
        &figure_with(&expect.replace("claim", "not_reproduced"), UP, DOWN),
        "soft0",
        false,
    )[0];
    assert_eq!((&verdict.claim, verdict.not_reproduced.as_deref()), (&None, Some("It rises.")));
}

#[test]
fn a_monotone_case_holds_and_fails_when_it_is_reversed() {
    let goes = |way| {
        format!("monotone = {{ case = \"a\", direction = \"{way}\", tolerance_percent = 10 }}")
    };
    assert_eq!(status(&goes("rising"), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&goes("falling"), UP, DOWN), ExpectationStatus::Failed);
    assert_eq!(status(&goes("falling"), DOWN, UP), ExpectationStatus::Passed);
    assert_eq!(status(&goes("rising"), DOWN, UP), ExpectationStatus::Failed);
    // A step back within the tolerance, and many small ones that add up to more.
    assert_eq!(status(&goes("rising"), &[1.0, 2.0, 1.9, 4.0], UP), ExpectationStatus::Passed);
    assert_eq!(status(&goes("rising"), &[2.0, 1.9, 1.8, 1.7], UP), ExpectationStatus::Failed);
    assert_eq!(status(&goes("falling"), &[2.0, 2.1, 2.19, 2.3], UP), ExpectationStatus::Failed);
}

#[test]
fn a_plateau_holds_where_the_last_points_are_level() {
    let last = |n| format!("plateau = {{ case = \"a\", last = {n}, within_percent = 5 }}");
    assert_eq!(status(&last(2), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&last(3), UP, DOWN), ExpectationStatus::Failed);
    assert_eq!(status(&last(2), DOWN, UP), ExpectationStatus::Failed);
}

#[test]
fn a_plateau_in_a_range_is_about_its_points() {
    let range = |range| format!("plateau = {{ case = \"a\", {range}, within_percent = 5 }}");
    assert_eq!(status(&range("from = 4"), UP, DOWN), ExpectationStatus::Passed);
    assert_eq!(status(&range("from = 2"), UP, DOWN), ExpectationStatus::Failed);
    assert_eq!(status(&range("to = 2"), DOWN, UP), ExpectationStatus::Passed);
    assert_eq!(status(&range("to = 4"), DOWN, UP), ExpectationStatus::Failed);
    assert_eq!(
        status(&range("from = 2, to = 4"), &[9.0, 2.0, 2.0, 9.0], UP),
        ExpectationStatus::Passed
    );
}

#[test]
fn a_peak_holds_where_it_is_and_what_is_behind_it_falls() {
    let peak = "peak = { case = \"a\", from = 2, to = 4, falls_to = 0.5 }";
    assert_eq!(status(peak, &[1.0, 4.0, 3.0, 2.0], UP), ExpectationStatus::Passed);
    assert_eq!(status(peak, &[1.0, 4.0, 3.0, 2.1], UP), ExpectationStatus::Failed, "it stays high");
    assert_eq!(status(peak, DOWN, UP), ExpectationStatus::Failed, "it begins high");
    assert_eq!(status(peak, UP, DOWN), ExpectationStatus::Failed, "it ends high");
}

#[test]
fn a_linear_case_grows_as_x_does() {
    let linear = "linear = { case = \"a\", to = 4, within_percent = 10 }";
    assert_eq!(status(linear, &[3.0, 6.0, 12.9, 13.0], UP), ExpectationStatus::Passed);
    assert_eq!(status(linear, &[3.0, 6.0, 10.0, 24.0], UP), ExpectationStatus::Failed);
    assert_eq!(status(linear, &[3.0, 6.0, 14.0, 24.0], UP), ExpectationStatus::Failed);
}

#[test]
fn what_was_not_measured_neither_holds_nor_fails() {
    for expect in [
        "value = { case = \"a\", x = 8, at_most = 9 }",
        "value = { case = \"a\", at_most = 9 }",
        "ratio = { of = \"a\", to = \"b\", x = 8, at_least = 3 }",
        "monotone = { case = \"a\", direction = \"rising\" }",
        "plateau = { case = \"a\", last = 2, within_percent = 5 }",
        "peak = { case = \"a\", from = 2, to = 4, falls_to = 0.5 }",
        "linear = { case = \"a\", to = 8, within_percent = 5 }",
    ] {
        assert_eq!(status(expect, &UP[..3], DOWN), ExpectationStatus::NotMeasured, "{expect}");
    }
    let zero = "ratio = { of = \"a\", to = \"b\", x = 8, at_least = 3 }";
    assert_eq!(status(zero, UP, &[1.0, 1.0, 1.0, 0.0]), ExpectationStatus::NotMeasured);
}

/// A quick run has only some of the values: those count.
#[test]
fn a_quick_run_is_judged_by_its_own_points() {
    let expect = "monotone = { case = \"a\", direction = \"rising\" }";
    let mut figure = figure_with(expect, &[1.0, 9.0, 9.0, 4.0], DOWN);
    figure.series[0].points.retain(|point| [1, 8].contains(&point.x));
    assert_eq!(verdicts(&figure, "soft0", true)[0].status, ExpectationStatus::Passed);
    assert_eq!(verdicts(&figure, "soft0", false)[0].status, ExpectationStatus::NotMeasured);
}

#[test]
fn a_verdict_says_what_was_expected_and_found() {
    let expect = "ratio = { of = \"a\", to = \"b\", x = 8, at_least = 5 }";
    let verdict = &verdicts(&figure_with(expect, UP, DOWN), "soft0", false)[0];
    assert_eq!(verdict.expected, "Rate: a divided by b, Batch 8: at least 5");
    assert_eq!(verdict.found, "4");
    let expect = "monotone = { case = \"a\", direction = \"rising\", tolerance_percent = 10 }";
    let verdict = &verdicts(&figure_with(expect, DOWN, UP), "soft0", false)[0];
    assert_eq!(verdict.expected, "Rate: a rises, but for 10 %");
    assert_eq!(verdict.found, "75 % back");
}

#[test]
fn a_report_counts_its_verdicts() {
    let tally = StatusTally::count(&sample::report(1.0));
    assert!(tally.passed > 0, "{tally:?}");
    assert_eq!(tally.not_measured, 0, "a whole run has every point");
}

#[test]
fn an_expectation_about_a_device_is_evaluated_on_no_other() {
    let expect = "on = \"soft0@card\"\nratio = { of = \"a\", to = \"b\", x = 8, at_least = 5 }";
    let figure = figure_with(expect, UP, DOWN);
    let on = |device| verdicts(&figure, device, false)[0].clone();
    assert_eq!(on("soft0@card=connectx5,slow=8").status, ExpectationStatus::Failed);
    assert_eq!(
        (on("soft0").status, &*on("soft0").found),
        (ExpectationStatus::Elsewhere, "only on soft0@card")
    );
    // A name behind = is the whole name.
    let of_soft0 = figure_with(&expect.replace("soft0@card", "=soft0"), UP, DOWN);
    let on_soft0 = |device| verdicts(&of_soft0, device, false)[0].clone();
    assert_eq!(on_soft0("soft0").status, ExpectationStatus::Failed);
    let card = on_soft0("soft0@card=connectx5");
    assert_eq!((card.status, &*card.found), (ExpectationStatus::Elsewhere, "only on soft0"));
    let mut report = FiguresReport::new(Manifest { device: "soft0".into(), ..sample::manifest() });
    report.figures.push(figure);
    assert_eq!(StatusTally::count(&report), StatusTally::default());
    report.manifest.device = "soft0@card=connectx5".into();
    let misses = vec!["f: Rate: a divided by b, Batch 8: at least 5; found 4".into()];
    assert_eq!(
        StatusTally::count(&report),
        StatusTally { failed: 1, misses, ..StatusTally::default() }
    );
}

/// Checks that the figure expects inlining to save a card's fetch, where there is one.
#[test]
fn inlining_is_expected_to_gain_on_a_card_only() {
    let name = "send-recv-latency-by-inline-size";
    let experiment = crate::builtin::named(name).unwrap().experiment().unwrap();
    // By x: nanoseconds of messages that are fetched, and of inline ones.
    let status = |device: &str, fetched: fn(u64) -> f64, inline: fn(u64) -> f64| {
        let mut figure = Figure::new(name, experiment.clone());
        for run in experiment.runs(false) {
            let value = if run.case == "inline" { inline(run.x) } else { fetched(run.x) };
            let result = [("latency_ns_p50".to_owned(), value.into())].into_iter().collect();
            figure.add(&run, &result);
        }
        verdicts(&figure, device, false).iter().map(|v| v.status).collect::<Vec<_>>()
    };
    use ExpectationStatus::{Elsewhere, Failed, Passed};
    let (slow, fast) = (|_| 2300.0, |_| 2100.0);
    assert_eq!(status("mlx5_0", slow, fast), [Passed, Elsewhere, Elsewhere]);
    assert_eq!(status("mlx5_0", fast, slow), [Failed, Elsewhere, Elsewhere]);
    let card = "soft0@card=connectx5,slow=8";
    assert_eq!(status(card, slow, fast), [Elsewhere, Passed, Passed]);
    assert_eq!(status(card, fast, fast), [Elsewhere, Passed, Failed]);
    assert_eq!(status(card, fast, |x| 10.0 * x as f64), [Elsewhere, Failed, Passed]);
    assert_eq!(status(card, fast, |x| 1e5 / x as f64), [Elsewhere, Failed, Failed]);
    // There, a run of some milliseconds may share its processor, or not.
    assert_eq!(status("soft0", fast, |x| 1e5 / x as f64), [Elsewhere; 3]);
}

/// The number of expectations of the command's experiment that fail on soft0, with these results
/// of each run.
fn failures(name: &str, results: impl Fn(&str, u64) -> Vec<(&'static str, f64)>) -> usize {
    let experiment = crate::builtin::named(name).unwrap().experiment().unwrap();
    let mut figure = Figure::new(name, experiment.clone());
    for run in experiment.runs(false) {
        let results = results(run.case, run.x).into_iter();
        figure.add(&run, &results.map(|(key, n)| (key.to_owned(), n.into())).collect());
    }
    let verdicts = verdicts(&figure, "soft0", false);
    assert!(verdicts.iter().all(|v| v.status != ExpectationStatus::NotMeasured), "{verdicts:?}");
    verdicts.iter().filter(|v| v.status == ExpectationStatus::Failed).count()
}

#[test]
fn k_is_expected_to_divide_the_operations() {
    let failures = |k_of: fn(u64) -> u64| {
        failures("multicast-rate-by-k", |case, x| {
            let members: f64 = case.split(' ').next().unwrap().parse().unwrap();
            let ops = (members - 1.0) * (members + 2.0) / k_of(x) as f64;
            vec![("rdma_ops_per_message", ops), ("messages_per_s", 1e6 / (0.3 + ops))]
        })
    };
    assert_eq!(failures(|k| k), 0);
    assert!(failures(|_| 1) > 0, "k is ignored");
    assert!(failures(|k| if k > 1 { 250 } else { k }) > 0, "gathering");
    let exchanged = |k: u64| match k {
        5 => 25,
        25 => 5,
        k => k,
    };
    assert!(failures(exchanged) > 0);
}

#[test]
fn a_shared_receive_queue_saves_memory_without_losing_rate() {
    let failures = |windows: u64, rnr: f64, slow: f64| {
        failures("send-recv-memory-by-senders", |case, senders| {
            let window = if case.ends_with("batched") { 256 } else { 64 };
            let own = (2 * window + 1) * senders;
            let shared = (3 * senders + windows * window).min(own);
            let (buffers, rate) =
                if case.starts_with("own") { (own, 1.0) } else { (shared, 1.0 / slow) };
            let (memory, rate) = ((512 * buffers) as f64, 1e6 * rate);
            vec![("registered_bytes", memory), ("messages_per_s", rate), ("rnr_events", rnr)]
        })
    };
    assert_eq!(failures(6, 0.0, 1.0), 0);
    assert!(failures(16, 0.0, 1.0) > 0);
    assert!(failures(6, 1.0, 1.0) > 0);
    assert!(failures(6, 0.0, 1.2) > 0);
}
