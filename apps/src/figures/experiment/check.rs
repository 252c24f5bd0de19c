//! Consistency checks between the parts of an experiment.

use super::parts::{Expect, MODELS, Scale};
use super::{Experiment, MOST_CASES};
use crate::figures::location::PathStep;
use crate::figures::unit;

/// An inconsistency, and the path to the value.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<PathStep>,
    pub(super) what: String,
}

type Checked = Result<(), Fault>;

/// A [`Fault`] at the value with this path.
macro_rules! fault {
    ([$($step:expr),*], $($what:tt)+) => {
        Fault { path: vec![$(PathStep::from($step)),*], what: format!($($what)+) }
    };
}

impl Experiment {
    pub(super) fn check(&self) -> Checked {
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

    fn check_axes(&self) -> Checked {
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

    fn check_cases(&self) -> Checked {
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

    fn check_papers(&self) -> Checked {
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

    fn check_expect(&self, at: usize) -> Checked {
        let expect = &self.expects[at];
        let kind = match expect {
            Expect::Ratio(_) => "ratio",
            Expect::Monotone(_) => "monotone",
            Expect::Plateau(_) => "plateau",
        };
        let wrong = |key, what: &str| fault!(["expect", at, kind, key], "{what}");
        self.check_key(expect.key(), |y| wrong("y", &y))?;
        match expect {
            Expect::Ratio(ratio) => {
                self.check_case(Some(&ratio.of), |case| wrong("of", &case))?;
                self.check_case(Some(&ratio.to), |case| wrong("to", &case))?;
                for (key, bound) in [("at_least", ratio.at_least), ("at_most", ratio.at_most)] {
                    if bound.is_some_and(|bound| !bound.is_finite()) {
                        return Err(wrong(key, "a bound is a finite number"));
                    }
                }
                if ratio.at_least.is_none() && ratio.at_most.is_none() {
                    return Err(wrong("x", "a ratio needs at_least, at_most, or both"));
                }
                for (key, x) in [("x", Some(ratio.x)), ("to_x", ratio.to_x)] {
                    let is_run = |x: u64| self.xs(false).contains(&x) || self.xs(true).contains(&x);
                    if x.is_some_and(|x| !is_run(x.0)) {
                        return Err(wrong(key, "it must be one of the values of x"));
                    }
                }
                Ok(())
            }
            Expect::Monotone(monotone) => {
                self.check_case(Some(&monotone.case), |case| wrong("case", &case))?;
                let tolerance = monotone.tolerance_percent;
                match (0.0..=100.0).contains(&tolerance) {
                    true => Ok(()),
                    false => Err(wrong("tolerance_percent", "it may be 0 to 100")),
                }
            }
            Expect::Plateau(plateau) => {
                self.check_case(Some(&plateau.case), |case| wrong("case", &case))?;
                if !(2..=self.x.values.len()).contains(&plateau.last) {
                    return Err(wrong("last", "it may be 2 to the number of values of x"));
                }
                match plateau.within_percent.is_finite() && plateau.within_percent >= 0.0 {
                    true => Ok(()),
                    false => Err(wrong("within_percent", "it may be 0 or more")),
                }
            }
        }
    }

    fn check_key(&self, key: Option<&str>, wrong: impl Fn(String) -> Fault) -> Checked {
        let keys: Vec<&str> = self.y.iter().map(|y| &*y.key).collect();
        match key {
            Some(key) if !keys.contains(&key) => {
                Err(wrong(format!("no axis has the key {key}: there are {}", keys.join(", "))))
            }
            _ => Ok(()),
        }
    }

    fn check_case(&self, case: Option<&str>, wrong: impl Fn(String) -> Fault) -> Checked {
        let labels: Vec<&str> = self.cases.iter().map(|case| &*case.label).collect();
        match case {
            Some(case) if !labels.contains(&case) => {
                Err(wrong(format!("no case is called {case}: there are {}", labels.join(", "))))
            }
            _ => Ok(()),
        }
    }
}
