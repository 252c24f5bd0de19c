//! Results of a comparison: a line of JSON, or a row of a table.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::cases::{CompareQuantity, Comparison};

/// Relative deviation of a ratio that counts as noise.
const TOLERANCE: f64 = 0.05;

/// Figures of one round: messages a second, or nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) ours: f64,
    pub(super) theirs: f64,
}

/// The rounds of one comparison, and the commands that made them.
#[derive(Debug)]
pub(super) struct MeasuredComparison {
    pub(super) comparison: Comparison,
    pub(super) rounds: Vec<Round>,
    /// The connecting ends.
    pub(super) command: String,
    pub(super) perftest_command: String,
    pub(super) note: Option<String>,
}

/// One line of `--json`.
#[derive(Serialize, Debug)]
struct JsonLine<'a> {
    case: &'a str,
    size_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_latency: Option<f64>,
    rounds: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meets_target: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    perftest_messages_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    perftest_latency_ns_p50: Option<f64>,
    /// Figures of each round, ours and perftest's.
    each_round: Vec<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    command: &'a str,
    perftest_command: &'a str,
}

/// A comparison that gave no result.
#[derive(Serialize, Debug)]
struct FailedLine<'a> {
    case: &'a str,
    size_bytes: u32,
    failed: &'a str,
}

impl MeasuredComparison {
    fn median_of(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(figure).collect())
    }

    /// Ours to perftest's, of the medians of the rounds.
    fn ratio(&self) -> f64 {
        self.median_of(|r| r.ours) / self.median_of(|r| r.theirs)
    }

    /// The largest ratio of one round less the smallest one: what the ratio could have
    /// been with one round alone. One round has none.
    fn spread(&self) -> Option<f64> {
        let ratios = || self.rounds.iter().map(|r| r.ours / r.theirs);
        let most = ratios().fold(f64::MIN, f64::max);
        (self.rounds.len() > 1).then(|| most - ratios().fold(f64::MAX, f64::min))
    }

    /// Reports whether a target is met, where there is one.
    fn meets_target(&self) -> Option<bool> {
        let case = self.comparison.case;
        case.target.map(|target| match case.kind {
            CompareQuantity::Rate => self.ratio() >= target * (1.0 - TOLERANCE),
            CompareQuantity::Latency => self.ratio() <= target * (1.0 + TOLERANCE),
        })
    }

    fn line(&self) -> JsonLine<'_> {
        let Comparison { case, size, .. } = self.comparison;
        let rate = |figure: f64| (case.kind == CompareQuantity::Rate).then_some(figure);
        let latency = |figure: f64| (case.kind == CompareQuantity::Latency).then_some(figure);
        let (ours, theirs) = (self.median_of(|r| r.ours), self.median_of(|r| r.theirs));
        JsonLine {
            case: case.name,
            size_bytes: size,
            ratio_rate: rate(rounded(self.ratio())),
            ratio_latency: latency(rounded(self.ratio())),
            rounds: self.rounds.len(),
            spread: self.spread().map(rounded),
            meets_target: self.meets_target(),
            messages_per_s: rate(ours),
            perftest_messages_per_s: rate(theirs),
            latency_ns_p50: latency(ours),
            perftest_latency_ns_p50: latency(theirs),
            each_round: self.rounds.iter().map(|r| [r.ours, r.theirs]).collect(),
            note: self.note.as_deref(),
            command: &self.command,
            perftest_command: &self.perftest_command,
        }
    }

    fn row(&self) -> [String; 7] {
        let Comparison { case, size, .. } = self.comparison;
        let shown = |figure: f64| match case.kind {
            CompareQuantity::Rate => format!("{figure:.0}/s"),
            CompareQuantity::Latency => format!("{:.2} µs", figure / 1e3),
        };
        [
            case.name.to_owned(),
            format!("{size} B"),
            shown(self.median_of(|r| r.theirs)),
            shown(self.median_of(|r| r.ours)),
            format!("{:.3}", self.ratio()),
            self.spread().map_or_else(|| "one round".into(), |spread| format!("{spread:.3}")),
            match self.meets_target() {
                Some(true) => "met".into(),
                Some(false) => "missed".into(),
                None => "none".into(),
            },
        ]
    }
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

/// The middle one, or the mean of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

/// Gathers results, and prints them.
pub(super) struct CompareReport {
    json: bool,
    table: Table,
    /// Lines that are printed below the table.
    below: Vec<String>,
    measured: u32,
    missed: u32,
    failed: u32,
}

const HEADER: [&str; 7] =
    ["case", "size", "perftest", "rdma-conn", "ratio", "spread", "target (within 5 %)"];

impl CompareReport {
    pub(super) fn new(json: bool) -> CompareReport {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(HEADER);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        CompareReport { json, table, below: Vec::new(), measured: 0, missed: 0, failed: 0 }
    }

    pub(super) fn add(&mut self, measured: &MeasuredComparison) -> Result<()> {
        self.measured += 1;
        self.missed += u32::from(measured.meets_target() == Some(false));
        if self.json {
            println!("{}", serde_json::to_string(&measured.line())?);
            return Ok(());
        }
        self.table.add_row(measured.row());
        let Comparison { case, size, .. } = measured.comparison;
        self.below.push(format!("{}, {size} B", case.name));
        self.below.push(format!("  {}", measured.perftest_command));
        self.below.push(format!("  {}", measured.command));
        self.below.extend(measured.note.iter().map(|note| format!("  ({note})")));
        Ok(())
    }

    pub(super) fn add_failed(&mut self, comparison: &Comparison, why: &str) -> Result<()> {
        self.failed += 1;
        let Comparison { case, size, .. } = comparison;
        eprintln!("{}, {size} B failed: {why}", case.name);
        if self.json {
            let line = FailedLine { case: case.name, size_bytes: *size, failed: why };
            println!("{}", serde_json::to_string(&line)?);
        } else {
            let mut row = [const { String::new() }; HEADER.len()];
            row[0] = case.name.to_owned();
            row[1] = format!("{size} B");
            row[6] = "failed".to_owned();
            self.table.add_row(row);
            self.below.push(format!("{}, {size} B failed: {why}", case.name));
        }
        Ok(())
    }

    /// Prints what is left to print; returns true if nothing has failed.
    pub(super) fn finish(self) -> bool {
        if !self.json {
            println!("{}", self.table);
            println!("{}", self.below.join("\n"));
        }
        let CompareReport { measured, missed, failed, .. } = self;
        eprintln!(
            "{measured} comparisons measured, {missed} of them missed the target; {failed} failed"
        );
        failed == 0
    }
}

#[cfg(test)]
mod tests;
