//! Adds samples to a report.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{FORMAT, Figure, FiguresReport, Manifest, ReportPoint, Series};
use crate::experiment::{CommandRun, Experiment};

impl FiguresReport {
    /// A report without figures.
    pub(crate) fn new(manifest: Manifest) -> FiguresReport {
        FiguresReport { format: FORMAT, manifest, figures: Vec::new() }
    }
}

impl Figure {
    /// A figure without points.
    pub(crate) fn new(name: &str, experiment: Experiment) -> Figure {
        let empty = |label: &str| Series { case: label.into(), skipped: None, points: Vec::new() };
        let series = experiment.cases.iter().map(|case| empty(&case.label)).collect();
        Figure { name: name.into(), experiment, skipped: None, series, predicted: Vec::new() }
    }

    /// Adds a sample for each key of the experiment that the result of `run` contains.
    pub(crate) fn add(&mut self, run: &CommandRun<'_>, result: &Map<String, Value>) {
        let keys: Vec<String> = self.experiment.y.iter().map(|y| y.key.clone()).collect();
        let Some(series) = self.series.iter_mut().find(|series| series.case == run.case) else {
            return;
        };
        let point = series.point_mut(run.x, || command_line(&run.words));
        point.rounds += 1;
        for key in keys {
            let value = result.get(&key).and_then(Value::as_f64);
            if let Some(value) = value.filter(|value| value.is_finite()) {
                point.values.entry(key).or_default().push(value);
            }
        }
    }
}

impl Figure {
    /// A key of which no result has a value, though there are results, and the figure's name.
    pub(crate) fn key_without_values(&self) -> Option<(String, String)> {
        let has = |key: &str| self.points().any(|(_, point)| point.values.contains_key(key));
        let key =
            self.experiment.y.iter().find(|y| self.points().next().is_some() && !has(&y.key))?;
        Some((self.name.clone(), key.key.clone()))
    }
}

impl Series {
    fn point_mut(&mut self, x: u64, command: impl FnOnce() -> String) -> &mut ReportPoint {
        let at = self.points.partition_point(|point| point.x < x);
        if self.points.get(at).is_none_or(|point| point.x != x) {
            self.points.insert(
                at,
                ReportPoint { x, command: command(), rounds: 0, values: BTreeMap::new() },
            );
        }
        &mut self.points[at]
    }
}

/// The command line of a run.
pub(crate) fn command_line(words: &[String]) -> String {
    format!("rdma-conn {}", words.join(" "))
}
