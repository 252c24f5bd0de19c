//! Results of a comparison: a line of JSON, or a row of a table.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

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

    /// A line of `--json`.
    fn line(&self) -> Value {
        let Comparison { case, size, .. } = self.comparison;
        let [figure, ratio] = case.kind.keys();
        let each_round: Vec<[f64; 2]> = self.rounds.iter().map(|r| [r.ours, r.theirs]).collect();
        let mut line = json!({
            "case": case.name,
            "size_bytes": size,
            (ratio): rounded(self.ratio()),
            "rounds": self.rounds.len(),
            "spread": self.spread().map(rounded),
            "meets_target": self.meets_target(),
            (figure): self.median_of(|r| r.ours),
            (format!("perftest_{figure}")): self.median_of(|r| r.theirs),
            "each_round": each_round,
            "note": self.note,
            "command": self.command,
            "perftest_command": self.perftest_command,
        });
        if let Value::Object(keys) = &mut line {
            keys.retain(|_, value| !value.is_null());
        }
        line
    }

    /// The columns of the table behind case and size.
    fn columns(&self) -> [String; 5] {
        let shown = |figure: f64| match self.comparison.case.kind {
            CompareQuantity::Rate => format!("{figure:.0}/s"),
            CompareQuantity::Latency => format!("{:.2} µs", figure / 1e3),
        };
        [
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

    /// The commands, and the note.
    fn details(&self) -> String {
        let note = self.note.as_ref().map_or_else(String::new, |note| format!("\n  ({note})"));
        format!("\n  {}\n  {}{note}", self.perftest_command, self.command)
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

    /// Takes in a comparison, or the reason why it could not be made.
    pub(super) fn add(&mut self, comparison: &Comparison, measured: Result<MeasuredComparison>) {
        let Comparison { case, size, .. } = comparison;
        let mut about = format!("{}, {size} B", case.name);
        let (line, columns) = match measured {
            Ok(measured) => {
                self.measured += 1;
                self.missed += u32::from(measured.meets_target() == Some(false));
                about += &measured.details();
                (measured.line(), measured.columns())
            }
            Err(why) => {
                self.failed += 1;
                let why = format!("{why:#}");
                about += &format!(" failed: {why}");
                eprintln!("{about}");
                let line = json!({ "case": case.name, "size_bytes": size, "failed": why });
                (line, ["", "", "", "", "failed"].map(str::to_owned))
            }
        };
        if self.json {
            println!("{line}");
        }
        let first = [case.name.to_owned(), format!("{size} B")];
        self.table.add_row(first.into_iter().chain(columns));
        self.below.push(about);
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
