//! Results of experiments, with device, build and date: saved as JSON, and as CSV for spreadsheets.

mod gather;
mod samples;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use samples::RoundSamples;

use super::calibration::Calibration;
use super::experiment::Experiment;

/// The layout of the JSON. A reader refuses any other.
pub(crate) const FORMAT: u32 = 1;

/// The name of the JSON in the folder of a report.
pub(crate) const JSON: &str = "report.json";
/// The name of the CSV beside it.
pub(crate) const CSV: &str = "report.csv";

/// The longest JSON that is read.
const MOST_BYTES: u64 = 256 << 20;

/// Everything that was measured.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct FiguresReport {
    pub(crate) format: u32,
    pub(crate) manifest: Manifest,
    pub(crate) figures: Vec<Figure>,
}

/// The device, the machine, the build and the settings of a run.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub(crate) struct Manifest {
    pub(crate) device: String,
    pub(crate) processor: String,
    /// Cores that runs may use: points with more threads are shaded.
    pub(crate) cores: u32,
    /// Sockets, caches and hyper-threads of these cores, in words.
    pub(crate) topology: String,
    pub(crate) build: String,
    /// RFC 3339.
    pub(crate) date: String,
    /// The factor by which the device is slower than the card that it stands for, and the clock
    /// than the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slow: Option<f64>,
    /// The parameters of the performance model, measured before the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<Calibration>,
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    pub(crate) round_ms: u64,
    /// The command line.
    pub(crate) command: String,
}

impl Manifest {
    /// True of a device that takes a card's time: what papers have measured on cards compares with
    /// nothing else.
    pub(crate) fn takes_card_time(&self) -> bool {
        let is_software = ["soft", "roce", "rxe"].iter().any(|name| self.device.starts_with(name));
        !is_software || self.device.starts_with("soft0@card")
    }
}

/// An experiment and its results.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// The name of the experiment's file, without its ending.
    pub(crate) name: String,
    pub(crate) experiment: Experiment,
    /// Reason for which nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    /// One for each case, in their order.
    pub(crate) series: Vec<Series>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) predicted: Vec<Predicted>,
}

/// The points of a case.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) case: String,
    /// Reason for which points are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    /// By rising x.
    pub(crate) points: Vec<ReportPoint>,
}

/// The samples at one x.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct ReportPoint {
    pub(crate) x: u64,
    /// The command line that measures it.
    pub(crate) command: String,
    /// The rounds that were measured.
    #[serde(default)]
    pub(crate) rounds: u32,
    /// By key of the result.
    pub(crate) values: BTreeMap<String, RoundSamples>,
}

/// Prediction of a model, in the units of the axes.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) label: String,
    /// The case that it predicts, if it predicts one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) case: Option<String>,
    /// The key of the axis.
    pub(crate) y: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl FiguresReport {
    /// Reads a report: its JSON, or the folder that has it.
    pub(crate) fn read(path: &Path) -> Result<FiguresReport> {
        let file = if path.is_dir() { path.join(JSON) } else { path.to_owned() };
        if !file.exists() {
            bail!("{}: no report is there: name a folder that has {JSON}", path.display());
        }
        let text = super::text::read(&file, MOST_BYTES)?;
        let report = FiguresReport::from_json(&text);
        report.with_context(|| {
            format!("{}: no report of figures that this version reads", file.display())
        })
    }

    fn from_json(text: &str) -> Result<FiguresReport> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            bail!("its format is {format}, and this command reads {FORMAT}");
        }
        let report: FiguresReport = serde_json::from_str(text)?;
        for (at, figure) in report.figures.iter().enumerate() {
            if report.figures[..at].iter().any(|other| other.name == figure.name) {
                bail!("figure {} occurs twice", figure.name);
            }
            figure.check().with_context(|| format!("figure {}", figure.name))?;
        }
        Ok(report)
    }

    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// A line for each sample.
    pub(crate) fn csv(&self) -> Result<String> {
        let mut lines = csv::Writer::from_writer(Vec::new());
        lines.write_record(["figure", "case", "x", "key", "round", "value", "command"])?;
        for figure in &self.figures {
            for (series, point) in figure.points() {
                for (key, samples) in &point.values {
                    for (round, value) in samples.iter().enumerate() {
                        lines.write_record([
                            &figure.name,
                            &series.case,
                            &point.x.to_string(),
                            key,
                            &(round + 1).to_string(),
                            &value.to_string(),
                            &point.command,
                        ])?;
                    }
                }
            }
        }
        Ok(String::from_utf8(lines.into_inner()?)?)
    }

    /// Writes JSON and CSV into a folder, each atomically.
    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        replace(&folder.join(JSON), &self.json()?)?;
        replace(&folder.join(CSV), &self.csv()?)
    }

    /// The figure of this name.
    pub(crate) fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

/// Writes a file atomically: readers see the old text or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.with_context(|| path.display().to_string())
}

impl Figure {
    /// The points of the case of this name.
    pub(crate) fn series(&self, case: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.case == case)
    }

    /// All points, each with its case.
    pub(crate) fn points(&self) -> impl Iterator<Item = (&Series, &ReportPoint)> {
        self.series.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)))
    }

    /// Reports whether there is anything to show: points, or predictions.
    pub(crate) fn has_results(&self) -> bool {
        self.has_points() || self.predicted.iter().any(|curve| !curve.points.is_empty())
    }

    /// Reports whether anything was measured.
    pub(crate) fn has_points(&self) -> bool {
        self.points().next().is_some()
    }

    fn check(&self) -> Result<()> {
        if let Some(fault) = self.experiment.fault() {
            bail!("{fault}");
        }
        let cases = self.experiment.cases.iter().map(|case| &case.label);
        if !cases.eq(self.series.iter().map(|series| &series.case)) {
            bail!("its series differ from the cases");
        }
        let rises = |points: &[ReportPoint]| points.windows(2).all(|pair| pair[0].x < pair[1].x);
        if !self.series.iter().all(|series| rises(&series.points)) {
            bail!("its points are not in the order of x");
        }
        Ok(())
    }
}

impl ReportPoint {
    /// The median of the samples of a key.
    pub(crate) fn median(&self, key: &str) -> Option<f64> {
        Some(self.values.get(key)?.spread()?.median)
    }
}

impl Series {
    /// Returns the point that was measured at `x`.
    pub(crate) fn at(&self, x: u64) -> Option<&ReportPoint> {
        self.points.iter().find(|point| point.x == x)
    }
}

#[cfg(test)]
mod tests;
