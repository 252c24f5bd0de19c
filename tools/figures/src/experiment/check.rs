//! Consistency checks between the parts of an experiment.

use super::parts::{ExpectedShape, FlagNumber, Linear, MODELS, Peak, Plateau, Scale};
use super::{Experiment, MOST_CASES};
use crate::location::PathStep;
use crate::unit;

/// An inconsistency, and the path to the value.
#[derive(Debug)]
pub(super) struct ExperimentFault {
    pub(super) path: Vec<PathStep>,
    pub(super) what: String,
}

type CheckResult = Result<(), ExperimentFault>;

/// An [`ExperimentFault`] at the value with this path.
macro_rules! fault {
    ([$($step:expr),*], $($what:tt)+) => {
        ExperimentFault { path: vec![$(PathStep::from($step)),*], what: format!($($what)+) }
    };
}

impl Experiment {
    pub(super) fn check(&self) -> CheckResult {
        self.check_axes()?;
        self.check_cases()?;
        self.check_papers()?;
        for (at, curve) in self.curves.iter().enumerate() {
            self.check_key(curve.y.as_deref(), |y| fault!(["curve", at, "y"], "{y}"))?;
            if !MODELS.contains(&&*curve.model) {
                let known = MODELS.join(", ");
                return Err(fault!(["curve", at, "model"], "there is no such model: {known}"));
            }
            let case = curve.case.as_deref();
            self.check_case(case, |c| fault!(["curve", at, "case"], "{c}"))?;
        }
        (0..self.expects.len()).try_for_each(|at| self.check_expect(at))
    }

    fn check_axes(&self) -> CheckResult {
        if self.x.scale != Scale::Linear && self.x.values.contains(&0) {
            return Err(fault!(["x", "values"], "a logarithmic scale has no 0"));
        }
        if self
            .x
            .quick
            .as_ref()
            .is_some_and(|few| self.x.scale != Scale::Linear && few.contains(&0))
        {
            return Err(fault!(["x", "quick"], "a logarithmic scale has no 0"));
        }
        if !["", "B"].contains(&&*self.x.unit) {
            return Err(fault!(["x", "unit"], "the unit of x may be B, or be left out"));
        }
        if self.x.threads.is_some_and(|threads| threads.per_x == 0) {
            return Err(fault!(["x", "threads"], "per_x may be 1 or more"));
        }
        if self.y.is_empty() {
            return Err(fault!([], "there is no y: add [[y]] with key, label and unit"));
        }
        for (at, y) in self.y.iter().enumerate() {
            if let Err(allowed) = unit::divisor(&y.key, &y.unit) {
                return Err(fault!(["y", at, "unit"], "{allowed}"));
            }
            if self.y[..at].iter().any(|other| other.key == y.key) {
                return Err(fault!(["y", at, "key"], "{} has an axis already", y.key));
            }
        }
        Ok(())
    }

    fn check_cases(&self) -> CheckResult {
        if self.cases.is_empty() {
            return Err(fault!([], "there is no case: add [[case]] with label and run"));
        }
        for (at, case) in self.cases.iter().enumerate() {
            if at == MOST_CASES {
                return Err(fault!(["case", at], "there may be up to {MOST_CASES} cases"));
            }
            if self.cases[..at].iter().any(|other| other.label == case.label) {
                return Err(fault!(
                    ["case", at, "label"],
                    "there is a case {} already",
                    case.label
                ));
            }
            if !self.x.values.iter().any(|x| case.covers(*x)) {
                return Err(fault!(["case", at, "max_x"], "no value of x is that small"));
            }
        }
        Ok(())
    }

    fn check_papers(&self) -> CheckResult {
        for (at, paper) in self.papers.iter().enumerate() {
            self.check_key(paper.y.as_deref(), |y| fault!(["paper", at, "y"], "{y}"))?;
            if paper.points.is_empty() == paper.level.is_none() {
                return Err(fault!(["paper", at], "give either points or a level"));
            }
            let finite = |value: &f64| value.is_finite();
            if !paper.points.iter().all(|(x, y)| finite(x) && finite(y)) {
                return Err(fault!(["paper", at, "points"], "points are finite numbers"));
            }
            if !paper.level.iter().all(finite) {
                return Err(fault!(["paper", at, "level"], "a level is a finite number"));
            }
        }
        Ok(())
    }

    fn check_expect(&self, at: usize) -> CheckResult {
        let expect = &self.expects[at];
        self.check_key(expect.y.as_deref(), |y| fault!(["expect", at, "y"], "{y}"))?;
        let mut shapes = expect.shapes();
        let (Some(shape), None) = (shapes.next(), shapes.next()) else {
            let shapes = "value, ratio, monotone, plateau, peak, linear";
            return Err(fault!(
                ["expect", at],
                "an expectation needs exactly one of {shapes}: put several into an [[expect]] each"
            ));
        };
        if expect.claim.is_some() && expect.not_reproduced.is_some() {
            return Err(fault!(
                ["expect", at, "not_reproduced"],
                "an expectation has either a claim or not_reproduced"
            ));
        }
        let kind = shape.name();
        let wrong = |key, what: &str| fault!(["expect", at, kind, key], "{what}");
        let bounds = |at_least: Option<f64>, at_most: Option<f64>| {
            for (key, bound) in [("at_least", at_least), ("at_most", at_most)] {
                if bound.is_some_and(|bound| !bound.is_finite()) {
                    return Err(wrong(key, "a bound is a finite number"));
                }
            }
            match at_least.or(at_most) {
                Some(_) => Ok(()),
                None => Err(wrong("x", &format!("a {kind} needs at_least, at_most, or both"))),
            }
        };
        let has_case = |key, case: &str| self.check_case(Some(case), |case| wrong(key, &case));
        let is_run = |key, x: Option<FlagNumber>| {
            let is_run = |x: FlagNumber| [true, false].iter().any(|q| self.xs(*q).contains(&x.0));
            match x.is_none_or(is_run) {
                true => Ok(()),
                false => Err(wrong(key, "it must be one of the values of x")),
            }
        };
        // A range of one point says nothing, and would never be evaluated.
        let has_two = |key, from: Option<FlagNumber>, to: Option<FlagNumber>| {
            let (from, to) = (from.map_or(0, |from| from.0), to.map_or(u64::MAX, |to| to.0));
            let values = self.xs(false);
            match values.iter().filter(|x| (from..=to).contains(x)).count() {
                0 | 1 => Err(wrong(key, "two values of x at least lie in the range")),
                _ => Ok(()),
            }
        };
        let is_part = |key, part: f64, most: f64| match (0.0..=most).contains(&part) {
            true if part.is_finite() => Ok(()),
            _ if most.is_infinite() => Err(wrong(key, "it may be 0 or more")),
            _ => Err(wrong(key, &format!("it may be 0 to {most}"))),
        };
        match shape {
            ExpectedShape::Value(value) => {
                has_case("case", &value.case)?;
                bounds(value.at_least, value.at_most)?;
                is_run("x", value.x)
            }
            ExpectedShape::Ratio(ratio) => {
                has_case("of", &ratio.of)?;
                has_case("to", &ratio.to)?;
                bounds(ratio.at_least, ratio.at_most)?;
                is_run("x", Some(ratio.x))?;
                is_run("to_x", ratio.to_x)
            }
            ExpectedShape::Monotone(monotone) => {
                has_case("case", &monotone.case)?;
                is_part("tolerance_percent", monotone.tolerance_percent, 100.0)
            }
            ExpectedShape::Plateau(Plateau { case, last, from, to, within_percent }) => {
                has_case("case", case)?;
                is_run("from", *from)?;
                is_run("to", *to)?;
                has_two("to", *from, *to)?;
                match (last, from.or(*to)) {
                    (Some(last), None) if (2..=self.x.values.len()).contains(last) => {}
                    (Some(_), None) => {
                        return Err(wrong("last", "it may be 2 to the number of values of x"));
                    }
                    (None, Some(_)) => {}
                    _ => {
                        return Err(wrong(
                            "case",
                            "a plateau needs either last, or from and to (one of them may be left out)",
                        ));
                    }
                }
                is_part("within_percent", *within_percent, f64::INFINITY)
            }
            ExpectedShape::Peak(Peak { case, from, to, falls_to }) => {
                has_case("case", case)?;
                is_run("from", Some(*from))?;
                is_run("to", Some(*to))?;
                if from.0 > to.0 {
                    return Err(wrong("to", "it may not be below from"));
                }
                is_part("falls_to", *falls_to, 1.0)
            }
            ExpectedShape::Linear(Linear { case, to, within_percent }) => {
                has_case("case", case)?;
                is_run("to", Some(*to))?;
                has_two("to", None, Some(*to))?;
                if self.x.values.first() == Some(&0) {
                    return Err(wrong("to", "a line through 0 and the point at 0 has no slope"));
                }
                is_part("within_percent", *within_percent, 100.0)
            }
        }
    }

    fn check_key(
        &self,
        key: Option<&str>,
        wrong: impl Fn(String) -> ExperimentFault,
    ) -> CheckResult {
        let keys: Vec<&str> = self.y.iter().map(|y| &*y.key).collect();
        match key {
            Some(key) if !keys.contains(&key) => {
                Err(wrong(format!("no axis has the key {key}: there are {}", keys.join(", "))))
            }
            _ => Ok(()),
        }
    }

    fn check_case(
        &self,
        case: Option<&str>,
        wrong: impl Fn(String) -> ExperimentFault,
    ) -> CheckResult {
        let labels: Vec<&str> = self.cases.iter().map(|case| &*case.label).collect();
        match case {
            Some(case) if !labels.contains(&case) => {
                Err(wrong(format!("no case is called {case}: there are {}", labels.join(", "))))
            }
            _ => Ok(()),
        }
    }
}
