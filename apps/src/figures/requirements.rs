//! Requirements of the thesis on a connection, and how each connection meets them: a table, as
//! data.
//!
//! It is `apps/requirements.toml`. The page of a report shows it with what that report has
//! measured; a test compares the table of `docs/protocols/README.md` with it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::experiment::{Axis, Y};
use super::report::{Figure, Report};
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

const TEXT: &str = include_str!("../../requirements.toml");

#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct File {
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
    measured: Vec<Measured>,
    /// By connection.
    does: BTreeMap<String, String>,
}

/// A figure whose values are about a requirement.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct Measured {
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
    Ok(toml::from_str::<File>(TEXT)?.requirements)
}

impl Requirement {
    /// Returns what a connection does about the requirement.
    pub(super) fn does(&self, connection: &str) -> &str {
        self.does.get(connection).map_or("", String::as_str)
    }

    /// Returns a report's measurements about it: the heading of each axis, and its facts.
    pub(super) fn measured(&self, report: &Report) -> Vec<(String, Vec<Fact>)> {
        let of = |measured: &Measured| {
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
mod tests {
    use std::path::Path;

    use super::*;
    use crate::figures::{builtin, sample};

    /// The table as Markdown.
    fn markdown() -> String {
        let head = ["", "asks for"].iter().chain(&CONNECTIONS).chain(&["shown by"]);
        let row = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
        let mut text = row(head.copied().collect());
        text += &format!("|{}\n", "---|".repeat(CONNECTIONS.len() + 3));
        for requirement in all().unwrap() {
            let does = CONNECTIONS.map(|connection| requirement.does(connection).to_owned());
            let does = does.each_ref().map(|text| if text.is_empty() { "–" } else { text });
            let ends = [&*requirement.name, &requirement.asks];
            text += &row(ends.into_iter().chain(does).chain([&*requirement.shown]).collect());
        }
        text
    }

    #[test]
    fn the_documentation_has_the_table() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocols/README.md");
        let documentation = std::fs::read_to_string(file).unwrap();
        let table = markdown();
        assert!(documentation.contains(&table), "it should have this table:\n{table}");
    }

    #[test]
    fn every_row_is_of_connections_and_figures_that_there_are() {
        for requirement in all().unwrap() {
            let known: Vec<&str> = requirement.does.keys().map(String::as_str).collect();
            let mut all = CONNECTIONS;
            all.sort_unstable();
            assert_eq!(known, all, "{}", requirement.name);
            for measured in &requirement.measured {
                let experiment = builtin::named(&measured.figure).unwrap().experiment().unwrap();
                assert!(experiment.y.iter().any(|y| y.key == measured.y), "{measured:?}");
            }
        }
    }

    #[test]
    fn a_fact_is_a_case_at_both_ends_of_x() {
        let report = sample::report(1.0);
        let all = all().unwrap();
        let memory = all.iter().find(|requirement| requirement.name == "Memory by N").unwrap();
        let measured = memory.measured(&report);
        assert_eq!(measured.len(), 2);
        let (heading, facts) = &measured[1];
        assert_eq!(
            heading,
            "Memory and rate by senders, with a shared receive queue and without: Memory registered to receive (KiB)"
        );
        // The made-up value is the root of x, times the number of the case.
        let srq = &facts[1];
        assert_eq!(
            (&*srq.figure, &*srq.case),
            ("send-recv-memory-by-senders", "shared receive queue")
        );
        assert_eq!(srq.values, "2.97 (Senders 2), 33.6 (Senders 256)");
        // What was not measured is left out.
        let mut few = report;
        few.figures.retain(|figure| figure.name != "send-recv-memory-by-senders");
        assert_eq!(memory.measured(&few).len(), 1);
        few.figures.clear();
        assert!(memory.measured(&few).is_empty());
    }
}
