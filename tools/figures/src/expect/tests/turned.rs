//! Each expectation of the command's experiments holds for results that are as it says, and fails for
//! those that are the other way round: none of them is always true.

use super::*;
use crate::builtin::ALL;
use crate::experiment::CommandRun;

/// Results of an experiment, with each value by its x and its place among those of the case.
fn with(
    (experiment, quick): (&Experiment, bool),
    key: &str,
    of: impl Fn(&CommandRun<'_>, usize) -> f64,
) -> Figure {
    let mut figure = Figure::new("f", experiment.clone());
    for run in experiment.runs(quick) {
        let case = experiment.cases.iter().find(|case| case.label == run.case).unwrap();
        let mut xs = experiment.xs(quick).iter().filter(|x| case.covers(**x));
        let at = xs.position(|x| *x == run.x).unwrap();
        figure.add(&run, &[(key.to_owned(), of(&run, at).into())].into_iter().collect());
    }
    figure
}

/// A number within bounds, or one beyond one of them.
fn number(at_least: Option<f64>, at_most: Option<f64>, holds: bool) -> f64 {
    match (at_least, at_most, holds) {
        (Some(least), Some(most), true) => (least + most) / 2.0,
        (Some(n), None, true) | (None, Some(n), false) => 2.0 * n + 1.0,
        (Some(n), _, false) => n / 2.0 - 1e-6,
        (None, Some(n), true) => n / 2.0,
        (None, None, _) => unreachable!("a bound is there"),
    }
}

/// Results for which one expectation, and no other one need, holds or does not.
fn results((experiment, quick): (&Experiment, bool), expect: &Expect, holds: bool) -> Figure {
    let y = experiment.axis(expect.y.as_deref()).unwrap();
    let of =
        |value: &dyn Fn(&CommandRun<'_>, usize) -> f64| with((experiment, quick), &y.key, value);
    match expect.shapes().next().unwrap() {
        ExpectedShape::Value(PointValue { at_least, at_most, .. }) => {
            let value = y.divisor() * number(*at_least, *at_most, holds);
            of(&|_, _| value)
        }
        ExpectedShape::Ratio(ratio) => {
            let value = number(ratio.at_least, ratio.at_most, holds);
            of(&|run, _| if (run.case, run.x) == (&ratio.of, ratio.x.0) { value } else { 1.0 })
        }
        ExpectedShape::Monotone(Monotone { direction, .. }) => {
            let rises = (*direction == MonotoneDirection::Rising) == holds;
            of(&|_, at| if rises { 100_f64.powi(at as i32) } else { 100_f64.powi(-(at as i32)) })
        }
        ExpectedShape::Plateau(plateau) => {
            let step = if holds { 0.0 } else { 1.0 + plateau.within_percent / 100.0 };
            of(&|_, at| (1.0 + step).powi(at as i32))
        }
        ExpectedShape::Peak(peak) => {
            let from = peak.from.0;
            of(&|run, _| if (run.x == from) == holds { 1.0 } else { peak.falls_to / 2.0 })
        }
        ExpectedShape::Linear(_) => {
            of(&|run, _| if holds { run.x as f64 } else { 1.0 / run.x as f64 })
        }
    }
}

#[test]
fn each_expectation_fails_once_it_is_turned_round() {
    turn_each(false);
}

/// A quick run has points for each of them, but for shapes that take several of a full run's.
#[test]
fn a_quick_run_fails_each_expectation_that_is_turned_round() {
    turn_each(true);
}

fn turn_each(quick: bool) {
    for builtin in ALL {
        let experiment = builtin.experiment().unwrap();
        for (n, expect) in experiment.expects.iter().enumerate() {
            let shape = expect.shapes().next();
            if quick && matches!(shape, Some(ExpectedShape::Plateau(_) | ExpectedShape::Peak(_))) {
                continue;
            }
            // One at a time, about the device that it is about.
            let experiment = Experiment { expects: vec![expect.clone()], ..experiment.clone() };
            let on = expect.on.as_deref().unwrap_or("soft0").trim_start_matches('=');
            let check = |holds| {
                let manifest = Manifest { device: on.into(), quick, ..sample::manifest() };
                let mut report = FiguresReport::new(manifest);
                report.figures.push(results((&experiment, quick), expect, holds));
                StatusTally::count(&report).check()
            };
            let what = format!("{}, expectation {}: {expect:?}", builtin.name, n + 1);
            assert!(check(true).is_ok(), "{what}: {:?}", check(true));
            assert!(
                check(false).is_err_and(|e| e.starts_with("1 of 1 ")),
                "{what}: it never fails"
            );
        }
    }
}

#[test]
fn every_experiment_stands_for_a_sentence_of_a_text() {
    let quotes = |e: &Expect| e.claim.is_some() || e.not_reproduced.is_some();
    let none = |b: &&crate::builtin::Builtin| !b.experiment().unwrap().expects.iter().any(quotes);
    let names: Vec<&str> = ALL.iter().filter(none).map(|b| b.name).collect();
    assert!(names.is_empty(), "no [[expect]] with claim or not_reproduced in {names:?}");
}
