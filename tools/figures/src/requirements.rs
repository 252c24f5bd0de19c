//! Requirements of the thesis on a connection, and how each connection meets them: a table, as
//! data.
//!
//! It is `requirements.toml`. The page of a report shows it with what that report has
//! measured; a test compares the table of `docs/protocols/README.md` with it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::experiment::{Axis, Y};
use super::report::{Figure, FiguresReport};
use super::scale::{digits, value_of_x};

/// The connections, in the order of the columns.
pub(super) const CONNECTIONS: [&str; 6] = [
    "Send/Receive",
    "Buffered Write",
    "Direct Write",
    "Shared Write",
    "Buffered Read",
    "Direct Read",
];

const TEXT: &str = include_str!("../requirements.toml");

#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct RequirementsFile {
    #[serde(rename = "requirement")]
    requirements: Vec<Requirement>,
}

/// A row of the table.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    pub(super) name: String,
    pub(super) asks: String,
    /// Evidence for it: tests, pages, figures.
    pub(super) shown: String,
    #[serde(default)]
    measured: Vec<MeasuredFigure>,
    /// By connection.
    does: BTreeMap<String, String>,
}

/// A figure whose values are about a requirement.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct MeasuredFigure {
    figure: String,
    /// The key of the axis.
    y: String,
}

/// Values of a case of a figure at its least and at its greatest x.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    /// The name of the figure.
    pub(super) figure: String,
    pub(super) case: String,
    pub(super) values: String,
}

/// All of them.
///
/// # Errors
/// None: a test reads the file.
pub(super) fn all() -> anyhow::Result<Vec<Requirement>> {
    Ok(toml::from_str::<RequirementsFile>(TEXT)?.requirements)
}

impl Requirement {
    /// Returns what a connection does about the requirement.
    pub(super) fn does(&self, connection: &str) -> &str {
        self.does.get(connection).map_or("", String::as_str)
    }

    /// Returns a report's measurements about it: the heading of each axis, and its facts.
    pub(super) fn measured(&self, report: &FiguresReport) -> Vec<(String, Vec<Fact>)> {
        let of = |measured: &MeasuredFigure| {
            let figure = report.figure(&measured.figure)?;
            let y = figure.experiment.axis(Some(&measured.y))?;
            let facts: Vec<Fact> =
                figure.series.iter().filter_map(|s| fact(figure, &s.case, y)).collect();
            let heading = format!("{}: {}", figure.experiment.title, y.heading());
            (!facts.is_empty()).then_some((heading, facts))
        };
        self.measured.iter().filter_map(of).collect()
    }
}

/// The medians of a case at both ends of x, as far as it has a value there.
fn fact(figure: &Figure, case: &str, y: &Y) -> Option<Fact> {
    let points = &figure.series(case)?.points;
    let values = points.iter().filter_map(|point| {
        let value = digits(point.median(&y.key)? / y.divisor());
        let x = &figure.experiment.x;
        Some(format!("{value} ({} {})", x.label(), value_of_x(point.x, x.unit())))
    });
    let values: Vec<String> = values.collect();
    let values = match &values[..] {
        [] => return None,
        [only] => only.clone(),
        [first, .., last] => format!("{first}, {last}"),
    };
    Some(Fact { figure: figure.name.clone(), case: case.into(), values })
}

#[cfg(test)]
mod tests;
