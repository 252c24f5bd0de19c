//! Evaluates the expectations of an experiment. They compare medians.

use super::experiment::{Axis, Direction, Expect, Experiment, Monotone, Plateau, Ratio};
use super::report::{Figure, Manifest, Report, Series};
use super::scale::{digits, value_of_x};

/// The result of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Passed,
    /// It holds, and is not half or more than twice what the paper has.
    Weaker,
    Failed,
    /// A point that the expectation compares is missing.
    NotMeasured,
    /// It is about other devices.
    Elsewhere,
}

/// An expectation, the value found, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) status: Status,
}

/// How many that do not hold are named in words.
const MOST_MISSES: usize = 4;

/// Numbers of expectations by status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) weaker: usize,
    pub(crate) failed: usize,
    pub(crate) not_measured: usize,
    /// The first of those that do not hold, in words.
    pub(crate) misses: Vec<String>,
}

impl Tally {
    /// Evaluates all figures of a report.
    pub(crate) fn of(report: &Report) -> Tally {
        let Manifest { device, quick, .. } = &report.manifest;
        let mut tally = Tally::default();
        let all = report.figures.iter().flat_map(|figure| {
            verdicts(figure, device, *quick).into_iter().map(|verdict| (&figure.name, verdict))
        });
        for (figure, verdict) in all {
            match verdict.status {
                Status::Passed => tally.passed += 1,
                Status::Weaker => tally.weaker += 1,
                Status::Failed => {
                    tally.failed += 1;
                    if tally.misses.len() < MOST_MISSES {
                        let Verdict { expected, found, .. } = verdict;
                        tally.misses.push(format!("{figure}: {expected}; found {found}"));
                    }
                }
                Status::NotMeasured => tally.not_measured += 1,
                Status::Elsewhere => {}
            }
        }
        tally
    }
}

/// Evaluates the expectations about this device, in the order of the file.
pub(crate) fn verdicts(figure: &Figure, device: &str, quick: bool) -> Vec<Verdict> {
    let of = |expect: &Expect| match expect.on() {
        Some(on) if !device.starts_with(on) => Verdict {
            expected: expected(&figure.experiment, expect),
            found: format!("only on {on}"),
            status: Status::Elsewhere,
        },
        _ => verdict(figure, expect, quick),
    };
    figure.experiment.expects.iter().map(of).collect()
}

/// The value found, and whether the expectation holds; `None` if points are missing.
type Found = Option<(String, Status)>;

fn status(holds: bool) -> Status {
    if holds { Status::Passed } else { Status::Failed }
}

fn verdict(figure: &Figure, expect: &Expect, quick: bool) -> Verdict {
    let found = match expect {
        Expect::Ratio(ratio) => found_ratio(figure, ratio),
        Expect::Monotone(monotone) => found_monotone(figure, monotone, quick),
        Expect::Plateau(plateau) => found_plateau(figure, plateau, quick),
    };
    let expected = expected(&figure.experiment, expect);
    match found {
        None => Verdict { expected, found: "not measured".into(), status: Status::NotMeasured },
        Some((found, status)) => Verdict { expected, found, status },
    }
}

/// The expectation in words.
fn expected(experiment: &Experiment, expect: &Expect) -> String {
    let what = experiment.axis(expect.key()).map_or("", |y| y.label());
    let x = |x: u64| format!("{} {}", experiment.x.label(), value_of_x(x, experiment.x.unit()));
    match expect {
        Expect::Ratio(ratio) => {
            let from = x(ratio.x.0);
            let pair = match ratio.to_x {
                Some(other) if ratio.of == ratio.to => {
                    format!("{}, {from}, divided by {}", ratio.of, x(other.0))
                }
                Some(other) => {
                    format!("{}, {from}, divided by {}, {}", ratio.of, ratio.to, x(other.0))
                }
                None => format!("{} divided by {}, {from}", ratio.of, ratio.to),
            };
            let bounds = [("at least", ratio.at_least), ("at most", ratio.at_most)];
            let bounds = bounds.iter().filter_map(|(word, n)| Some(format!("{word} {}", (*n)?)));
            let paper = ratio.paper.map_or_else(String::new, |n| format!(" (the paper: {n})"));
            format!("{what}: {pair}: {}{paper}", bounds.collect::<Vec<_>>().join(", "))
        }
        Expect::Monotone(monotone) => {
            let way = if monotone.direction == Direction::Rising { "rises" } else { "falls" };
            let tolerance = match monotone.tolerance_percent {
                0.0 => String::new(),
                percent => format!(", but for {percent} %"),
            };
            format!("{what}: {} {way}{tolerance}", monotone.case)
        }
        Expect::Plateau(Plateau { case, last, within_percent, .. }) => {
            format!("{what}: the last {last} points of {case} lie within {within_percent} %")
        }
    }
}

fn found_ratio(figure: &Figure, ratio: &Ratio) -> Found {
    let key = key_of(figure, ratio.y.as_deref())?;
    let at = |case: &str, x: u64| figure.series(case)?.at(x)?.median(key);
    let of = at(&ratio.of, ratio.x.0)?;
    let to = at(&ratio.to, ratio.to_x.unwrap_or(ratio.x).0)?;
    let found = of / to;
    if !found.is_finite() {
        return None;
    }
    let holds = ratio.at_least.is_none_or(|least| found >= least)
        && ratio.at_most.is_none_or(|most| found <= most);
    // A number is reproduced within a factor of two.
    let is_near = ratio.paper.is_none_or(|paper| (0.5..=2.0).contains(&(found / paper)));
    let status = if holds && !is_near { Status::Weaker } else { status(holds) };
    Some((digits(found), status))
}

fn found_monotone(figure: &Figure, monotone: &Monotone, quick: bool) -> Found {
    let key = key_of(figure, monotone.y.as_deref())?;
    let values = values_from(figure, &monotone.case, key, 0, quick)?;
    // A falling case is a rising one of the other sign.
    let sign = if monotone.direction == Direction::Rising { 1.0 } else { -1.0 };
    let mut worst: f64 = 0.0;
    let mut best = f64::NEG_INFINITY;
    for (_, value) in values {
        best = best.max(sign * value);
        let back = (best - sign * value) / best.abs().max(f64::MIN_POSITIVE);
        worst = worst.max(100.0 * back);
    }
    let found = match worst {
        0.0 => "no step back".into(),
        percent => format!("{} % back", digits(percent)),
    };
    Some((found, status(worst <= monotone.tolerance_percent)))
}

fn found_plateau(figure: &Figure, plateau: &Plateau, quick: bool) -> Found {
    let key = key_of(figure, plateau.y.as_deref())?;
    let case = figure.experiment.cases.iter().find(|case| case.label == plateau.case)?;
    // A quick run has fewer points: compare those in the range of the last points of a full run.
    let xs = figure.experiment.xs(false).iter().filter(|x| case.covers(**x));
    let from = *xs.rev().nth(plateau.last.saturating_sub(1))?;
    let values = values_from(figure, &plateau.case, key, from, quick)?;
    let of = |best: fn(f64, f64) -> f64| values.iter().map(|(_, value)| *value).reduce(best);
    let (low, high) = (of(f64::min)?, of(f64::max)?);
    let apart = 100.0 * (high - low) / low.abs().max(f64::MIN_POSITIVE);
    let found = format!("within {} %", digits(apart));
    Some((found, status(apart <= plateau.within_percent)))
}

/// The medians of a case for x >= `from`; `None` unless there are two and none is missing.
fn values_from(
    figure: &Figure,
    case: &str,
    key: &str,
    from: u64,
    quick: bool,
) -> Option<Vec<(u64, f64)>> {
    let series: &Series = figure.series(case)?;
    let known = figure.experiment.cases.iter().find(|known| known.label == case)?;
    let xs = figure.experiment.xs(quick).iter().filter(|x| **x >= from && known.covers(**x));
    let values = xs.map(|x| Some((*x, series.at(*x)?.median(key)?))).collect::<Option<Vec<_>>>()?;
    (values.len() > 1).then_some(values)
}

fn key_of<'a>(figure: &'a Figure, key: Option<&str>) -> Option<&'a str> {
    figure.experiment.axis(key).map(|y| &*y.key)
}

#[cfg(test)]
mod tests;
