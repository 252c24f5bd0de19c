//! Evaluates the expectations of an experiment. They compare medians.

use core::ops::RangeInclusive;

use super::experiment::{
    Axis as _, Expect, ExpectedShape, Experiment, FlagNumber, Linear, Monotone, MonotoneDirection,
    Peak, Plateau, PointValue, Ratio, Y,
};
use super::report::{Figure, FiguresReport, Manifest, Series};
use super::scale::{digits, value_of_x};

/// The result of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectationStatus {
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
pub(crate) struct ExpectationVerdict {
    pub(crate) expected: String,
    /// The sentence of the source that it stands for.
    pub(crate) claim: Option<String>,
    /// The sentence of the source that is not so here.
    pub(crate) not_reproduced: Option<String>,
    pub(crate) found: String,
    pub(crate) status: ExpectationStatus,
}

/// Number of failed expectations that are named in words.
const MOST_MISSES: usize = 4;

/// Numbers of expectations by status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatusTally {
    pub(crate) passed: usize,
    pub(crate) weaker: usize,
    pub(crate) failed: usize,
    pub(crate) not_measured: usize,
    /// The first of those that do not hold, in words.
    pub(crate) misses: Vec<String>,
}

impl StatusTally {
    /// Evaluates all figures of a report.
    pub(crate) fn count(report: &FiguresReport) -> StatusTally {
        let Manifest { device, quick, .. } = &report.manifest;
        let mut tally = StatusTally::default();
        let all = report.figures.iter().flat_map(|figure| {
            verdicts(figure, device, *quick).into_iter().map(|verdict| (&figure.name, verdict))
        });
        for (figure, verdict) in all {
            match verdict.status {
                ExpectationStatus::Passed => tally.passed += 1,
                ExpectationStatus::Weaker => tally.weaker += 1,
                ExpectationStatus::Failed => {
                    tally.failed += 1;
                    if tally.misses.len() < MOST_MISSES {
                        let ExpectationVerdict { expected, found, .. } = verdict;
                        tally.misses.push(format!("{figure}: {expected}; found {found}"));
                    }
                }
                ExpectationStatus::NotMeasured => tally.not_measured += 1,
                ExpectationStatus::Elsewhere => {}
            }
        }
        tally
    }

    /// Result of `--check`; the error names the expectations that do not hold.
    pub(crate) fn check(&self) -> Result<(), String> {
        let StatusTally { passed, weaker, failed, not_measured, misses } = self;
        let passed = passed + weaker;
        match failed {
            0 if passed == 0 && *not_measured > 0 => Err(
                "--check: nothing that the experiments expect was measured: the page shows what is missing"
                    .into(),
            ),
            0 => Ok(()),
            _ => Err(format!(
                "{failed} of {} expectations do not hold: {}{}",
                passed + failed,
                misses.join("; "),
                if *failed > misses.len() { "; the page shows all" } else { "" }
            )),
        }
    }
}

/// Evaluates the expectations about this device, in the order of the file.
pub(crate) fn verdicts(figure: &Figure, device: &str, quick: bool) -> Vec<ExpectationVerdict> {
    let of = |expect: &Expect| {
        let (found, status) = match expect.on.as_deref() {
            Some(on) if !is_on(device, on) => {
                (format!("only on {}", on.trim_start_matches('=')), ExpectationStatus::Elsewhere)
            }
            _ => found(figure, expect, quick)
                .unwrap_or_else(|| ("not measured".into(), ExpectationStatus::NotMeasured)),
        };
        let expected = expected(&figure.experiment, expect);
        let (claim, not_reproduced) = (expect.claim.clone(), expect.not_reproduced.clone());
        ExpectationVerdict { expected, claim, not_reproduced, found, status }
    };
    figure.experiment.expects.iter().map(of).collect()
}

/// True if the device's name begins with `on`, or equals the name behind `=`.
fn is_on(device: &str, on: &str) -> bool {
    on.strip_prefix('=').map_or_else(|| device.starts_with(on), |name| device == name)
}

/// The value found, and whether the expectation holds; `None` if points are missing.
type FoundValue = Option<(String, ExpectationStatus)>;

fn status(holds: bool) -> ExpectationStatus {
    if holds { ExpectationStatus::Passed } else { ExpectationStatus::Failed }
}

fn found(figure: &Figure, expect: &Expect, quick: bool) -> FoundValue {
    let y = figure.experiment.axis(expect.y.as_deref())?;
    match expect.shapes().next()? {
        ExpectedShape::Value(value) => found_value(figure, value, y, quick),
        ExpectedShape::Ratio(ratio) => found_ratio(figure, ratio, &y.key),
        ExpectedShape::Monotone(monotone) => found_monotone(figure, monotone, &y.key, quick),
        ExpectedShape::Plateau(plateau) => found_plateau(figure, plateau, &y.key, quick),
        ExpectedShape::Peak(peak) => found_peak(figure, peak, &y.key, quick),
        ExpectedShape::Linear(linear) => found_linear(figure, linear, &y.key, quick),
    }
}

/// The expectation in words.
fn expected(experiment: &Experiment, expect: &Expect) -> String {
    let y = experiment.axis(expect.y.as_deref());
    let what = y.map_or("", |y| y.label());
    let at = |x: FlagNumber| value_of_x(x.0, experiment.x.unit());
    let x = |x: FlagNumber| format!("{} {}", experiment.x.label(), at(x));
    let bounds = |at_least: Option<f64>, at_most: Option<f64>, unit: &str| {
        let bounds = [("at least", at_least), ("at most", at_most)];
        let bounds = bounds.iter().filter_map(|(word, n)| Some(format!("{word} {}{unit}", (*n)?)));
        bounds.collect::<Vec<_>>().join(", ")
    };
    let Some(shape) = expect.shapes().next() else { return String::new() };
    let text = match shape {
        ExpectedShape::Value(value) => {
            let at = value.x.map_or("each point".into(), x);
            let unit = y.map_or("", |y| y.unit());
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            let bounds = bounds(value.at_least, value.at_most, &unit);
            format!("{}, {at}: {bounds}", value.case)
        }
        ExpectedShape::Ratio(ratio) => {
            let from = x(ratio.x);
            let pair = match ratio.to_x {
                Some(other) if ratio.of == ratio.to => {
                    format!("{}, {from}, divided by {}", ratio.of, x(other))
                }
                Some(other) => {
                    format!("{}, {from}, divided by {}, {}", ratio.of, ratio.to, x(other))
                }
                None => format!("{} divided by {}, {from}", ratio.of, ratio.to),
            };
            let bounds = bounds(ratio.at_least, ratio.at_most, "");
            let paper = ratio.paper.map_or_else(String::new, |n| format!(" (the paper: {n})"));
            format!("{pair}: {bounds}{paper}")
        }
        ExpectedShape::Monotone(monotone) => {
            let way =
                if monotone.direction == MonotoneDirection::Rising { "rises" } else { "falls" };
            let tolerance = match monotone.tolerance_percent {
                0.0 => String::new(),
                percent => format!(", but for {percent} %"),
            };
            format!("{} {way}{tolerance}", monotone.case)
        }
        ExpectedShape::Plateau(Plateau { case, last, from, to, within_percent }) => {
            let from = from.map_or(String::new(), |from| format!(" from {}", x(from)));
            let to = to.map_or(String::new(), |to| format!(" up to {}", x(to)));
            let points = match last {
                Some(last) => format!("the last {last} points"),
                None => format!("the points{from}{to}"),
            };
            format!("{points} of {case} lie within {within_percent} %")
        }
        ExpectedShape::Peak(Peak { case, from, to, falls_to }) => {
            let (from, to) = (x(*from), at(*to));
            format!(
                "{case} is highest from {from} to {to}, and its last point is at most {falls_to} of that"
            )
        }
        ExpectedShape::Linear(Linear { case, to, within_percent }) => {
            let to = x(*to);
            format!(
                "{case} grows as {} does up to {to}, within {within_percent} %",
                experiment.x.label()
            )
        }
    };
    format!("{what}: {text}")
}

/// Evaluates a value. Of several points, the one furthest beyond a bound is reported.
fn found_value(figure: &Figure, value: &PointValue, y: &Y, quick: bool) -> FoundValue {
    let points = match value.x {
        Some(x) => vec![(x.0, figure.series(&value.case)?.at(x.0)?.median(&y.key)?)],
        None => values_in(figure, &value.case, &y.key, 0..=u64::MAX, quick)?,
    };
    let values: Vec<f64> = points.iter().map(|(_, n)| n / y.divisor()).collect();
    let beyond = |n: f64| {
        let below = value.at_least.map_or(f64::NEG_INFINITY, |least| least - n);
        below.max(value.at_most.map_or(f64::NEG_INFINITY, |most| n - most))
    };
    let worst = values.into_iter().max_by(|a, b| beyond(*a).total_cmp(&beyond(*b)))?;
    Some((digits(worst), status(beyond(worst) <= 0.0)))
}

fn found_ratio(figure: &Figure, ratio: &Ratio, key: &str) -> FoundValue {
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
    let status = if holds && !is_near { ExpectationStatus::Weaker } else { status(holds) };
    Some((digits(found), status))
}

fn found_monotone(figure: &Figure, monotone: &Monotone, key: &str, quick: bool) -> FoundValue {
    let values = values_in(figure, &monotone.case, key, 0..=u64::MAX, quick)?;
    // A falling case is a rising one of the other sign.
    let sign = if monotone.direction == MonotoneDirection::Rising { 1.0 } else { -1.0 };
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

fn found_plateau(figure: &Figure, plateau: &Plateau, key: &str, quick: bool) -> FoundValue {
    let case = figure.experiment.cases.iter().find(|case| case.label == plateau.case)?;
    // A quick run has fewer points: compare those in the range of the last points of a full run.
    let xs = figure.experiment.xs(false).iter().filter(|x| case.covers(**x));
    let from = match plateau.last {
        Some(last) => *xs.rev().nth(last.saturating_sub(1))?,
        None => plateau.from.map_or(0, |from| from.0),
    };
    let to = plateau.to.map_or(u64::MAX, |to| to.0);
    let values = values_in(figure, &plateau.case, key, from..=to, quick)?;
    let of = |best: fn(f64, f64) -> f64| values.iter().map(|(_, value)| *value).reduce(best);
    let (low, high) = (of(f64::min)?, of(f64::max)?);
    let apart = 100.0 * (high - low) / low.abs().max(f64::MIN_POSITIVE);
    let found = format!("within {} %", digits(apart));
    Some((found, status(apart <= plateau.within_percent)))
}

fn found_peak(figure: &Figure, peak: &Peak, key: &str, quick: bool) -> FoundValue {
    let values = values_in(figure, &peak.case, key, 0..=u64::MAX, quick)?;
    let (at, highest) = *values.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let (_, last) = *values.last()?;
    let falls_to = last / highest.abs().max(f64::MIN_POSITIVE);
    let at_x = value_of_x(at, figure.experiment.x.unit());
    let holds = (peak.from.0..=peak.to.0).contains(&at) && falls_to <= peak.falls_to;
    Some((format!("highest at {at_x}, and {} of that at the end", digits(falls_to)), status(holds)))
}

fn found_linear(figure: &Figure, linear: &Linear, key: &str, quick: bool) -> FoundValue {
    let values = values_in(figure, &linear.case, key, 0..=linear.to.0, quick)?;
    let (first_x, first) = *values.first()?;
    let off = |(x, value): &(u64, f64)| {
        let line = first * *x as f64 / first_x as f64;
        100.0 * (value - line).abs() / line.abs().max(f64::MIN_POSITIVE)
    };
    let worst = values.iter().map(off).max_by(f64::total_cmp)?;
    let found = format!("within {} % of the line", digits(worst));
    Some((found, status(worst <= linear.within_percent)))
}

/// The medians of a case in a range of x; `None` unless there are two and none is missing.
fn values_in(
    figure: &Figure,
    case: &str,
    key: &str,
    range: RangeInclusive<u64>,
    quick: bool,
) -> Option<Vec<(u64, f64)>> {
    let series: &Series = figure.series(case)?;
    let known = figure.experiment.cases.iter().find(|known| known.label == case)?;
    let xs = figure.experiment.xs(quick).iter();
    let xs = xs.filter(|x| range.contains(x) && known.covers(**x));
    let values = xs.map(|x| Some((*x, series.at(*x)?.median(key)?))).collect::<Option<Vec<_>>>()?;
    (values.len() > 1).then_some(values)
}

#[cfg(test)]
mod tests;
