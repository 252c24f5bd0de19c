//! The part that runs in the guest: every comparison, round after round.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cases::Comparison;
use super::commands::{CompareSetting, shown};
use super::perftest;
use super::report::{CompareReport, MeasuredComparison, Round};
use crate::pair::{self, FIRST_PORT};

/// Runs them all; returns true if none failed.
pub(super) fn run(
    comparisons: &[Comparison],
    rounds: u32,
    json: bool,
    ours: &Path,
) -> Result<bool> {
    let device = std::env::var("RDMA_CONN_DEVICE").unwrap_or_else(|_| "rxe0".to_owned());
    let setting = CompareSetting { device: &device, gid_index: gid_index(&device)?, ours };
    let mut report = CompareReport::new(json);
    for (at, comparison) in comparisons.iter().enumerate() {
        let Comparison { case, size, .. } = comparison;
        eprintln!("{} of {}: {}, {size} B", at + 1, comparisons.len(), case.name);
        report.add(comparison, setting.compare(comparison, rounds));
    }
    Ok(report.finish())
}

impl CompareSetting<'_> {
    /// Alternates: the program that runs first in one round runs second in the next one.
    fn compare(&self, comparison: &Comparison, rounds: u32) -> Result<MeasuredComparison> {
        let mut all = Vec::new();
        let mut note = None;
        let ours = || twice("rdma-conn", || self.ours(comparison));
        let mut theirs = || twice("perftest", || self.perftest(comparison, &mut note));
        for round in 0..rounds {
            // Fields are computed in the order in which they are written.
            all.push(match round % 2 {
                0 => Round { theirs: theirs()?, ours: ours()? },
                _ => Round { ours: ours()?, theirs: theirs()? },
            });
        }
        Ok(MeasuredComparison {
            comparison: *comparison,
            rounds: all,
            command: shown(&comparison.ours(self, FIRST_PORT).connector),
            perftest_command: shown(&comparison.perftest(self, FIRST_PORT).connector),
            note,
        })
    }

    fn perftest(&self, comparison: &Comparison, note: &mut Option<String>) -> Result<f64> {
        let port = pair::free_port()?;
        let output = pair::run(&comparison.perftest(self, port), port)?;
        if comparison.case.inline && perftest::inline_bytes(&output) < Some(comparison.size) {
            *note = Some("perftest does not send inline on this device as invoked here".to_owned());
        }
        positive(perftest::figure(comparison, &output)?)
    }

    fn ours(&self, comparison: &Comparison) -> Result<f64> {
        let port = pair::free_port()?;
        let output = pair::run(&comparison.ours(self, port), port)?;
        positive(our_figure(comparison, &output)?)
    }
}

/// A run of a program that gave no figure is made again, once: one in some hundreds does
/// not, on emulated processors, and would take the rounds of its case with it.
fn twice(program: &str, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    run().or_else(|why| {
        eprintln!("{program} runs again: {why:#}");
        run().with_context(|| program.to_owned())
    })
}

/// Whatever has a ratio.
fn positive(figure: f64) -> Result<f64> {
    ensure!(figure.is_finite() && figure > 0.0, "it measured {figure}");
    Ok(figure)
}

/// Nanoseconds, or messages a second, of what our command printed.
fn our_figure(comparison: &Comparison, output: &str) -> Result<f64> {
    let line: Value = serde_json::from_str(output.trim()).context("it printed no JSON")?;
    ensure!(line["size_bytes"] == comparison.size, "its result is about another size");
    let (inline, case) = (&line["inline"], &comparison.case);
    let is_told = case.connection.is_none();
    ensure!(!is_told || *inline == case.inline, "it was to be inline or not, and is {inline}");
    let [field, _] = case.kind.keys();
    line[field].as_f64().with_context(|| format!("its result has no {field}"))
}

/// The index of the device's IPv4-mapped GID of RoCE v2.
fn gid_index(device: &str) -> Result<u32> {
    let port = Path::new("/sys/class/infiniband").join(device).join("ports/1");
    let is_it = |index: &u32| {
        let read = |folder: &str| fs::read_to_string(port.join(folder).join(index.to_string()));
        let is_mapped =
            read("gids").is_ok_and(|gid| gid.starts_with("0000:0000:0000:0000:0000:ffff:"));
        is_mapped && read("gid_attrs/types").is_ok_and(|kind| kind.contains("v2"))
    };
    (0..64).find(is_it).with_context(|| format!("{device} has no IPv4-mapped GID"))
}

#[cfg(test)]
mod tests;
