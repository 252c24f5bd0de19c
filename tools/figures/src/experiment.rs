//! An experiment: a TOML file that declares the axes, cases and expectations of a figure.
//!
//! ```toml
//! group = "Send/Receive"
//! title = "Bandwidth by message size"
//! about = "What unacknowledged messages and lists of work requests are worth."
//!
//! [x]
//! label = "Message size"
//! unit = "B"
//! scale = "log2"
//! values = "16..1M*4"            # a list, a range: 1,2,4..256
//! quick = "16,1k,64k,1M"         # of a run with --quick
//! # threads = { per_x = 2, fixed = 0 }   # threads that a run has: per_x * x + fixed
//!
//! [[y]]                          # a plot for each
//! key = "bytes_per_s"            # of the result, docs/json.md
//! label = "Bandwidth"
//! unit = "Gbit/s"
//! scale = "log10"
//!
//! [[case]]                       # a line for each
//! label = "batched"
//! run = "bench --preset batched --size {x}"   # {x}, or a multiple of it: {x*20}
//! # max_x = 4096                 # the largest x that it is run with
//!
//! [[paper]]
//! label = "ConnectX-5, batched"
//! source = "draft section Send/Receive, evaluation, Bandwidth"
//! y = "bytes_per_s"              # which plot; may be left out where there is one
//! points = [[16, 1.8]]           # in the unit of the axis
//! # level = 1.8                  # instead, where the text has no x
//!
//! [[expect]]
//! claim = "the batched version seems to be limited by the device only"  # the source's sentence
//! on = "soft0"                   # only devices with a name that begins so; "=soft0": soft0 alone
//! y = "bytes_per_s"              # which plot. All three may be left out
//! ratio = { of = "batched", to = "batched", x = 64, to_x = 16, at_least = 2 }
//!
//! [[expect]]
//! value = { case = "batched", x = 16, at_most = 1.8 }
//!
//! [[expect]]
//! monotone = { case = "batched", direction = "rising", tolerance_percent = 15 }
//!
//! [[expect]]                     # or from, to, or both instead of last
//! plateau = { case = "batched", last = 3, within_percent = 20 }
//!
//! [[expect]]
//! peak = { case = "batched", from = 16, to = 64, falls_to = 0.8 }
//!
//! [[expect]]
//! linear = { case = "batched", to = 64, within_percent = 20 }
//! ```

mod check;
mod parts;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use parts::{
    Axis, Expect, ExpectedShape, FigureCase, FlagNumber, Linear, MODELS, ModelCurve, Monotone,
    MonotoneDirection, Paper, Peak, Plateau, PointValue, Ratio, Scale, X, Y,
};

use super::location;

/// The most cases of an experiment: charts have this many colours and markers.
pub(crate) const MOST_CASES: usize = 8;

/// The longest file of an experiment that is read.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// Content of a figure, and the runs that measure it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// The section of a page.
    pub(crate) group: String,
    pub(crate) title: String,
    /// Subject of the figure, in a sentence or two.
    pub(crate) about: String,
    pub(crate) x: X,
    /// One chart for each.
    pub(crate) y: Vec<Y>,
    #[serde(rename = "case")]
    pub(crate) cases: Vec<FigureCase>,
    #[serde(rename = "paper", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) papers: Vec<Paper>,
    /// Curves that a model predicts.
    #[serde(rename = "curve", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curves: Vec<ModelCurve>,
    #[serde(rename = "expect", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expects: Vec<Expect>,
}

/// An error in an experiment file, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}")]
pub(crate) struct ExperimentError {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: String,
}

/// One run of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandRun<'a> {
    pub(crate) case: &'a str,
    pub(crate) x: u64,
    /// The subcommand, and its flags.
    pub(crate) words: Vec<String>,
}

impl Experiment {
    /// Reads an experiment from the text of the file called `file`.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Experiment, ExperimentError> {
        let wrong = |byte: usize, what: String| {
            let (line, column) = location::line_and_column(text, byte);
            // A parser's message may have several lines.
            let what = what.trim().replace('\n', ", ");
            ExperimentError { file: file.into(), line, column, what }
        };
        let read = toml::from_str::<Experiment>(text);
        let experiment =
            read.map_err(|e| wrong(e.span().map_or(0, |span| span.start), e.message().to_owned()))?;
        match experiment.check() {
            Ok(()) => Ok(experiment),
            Err(fault) => Err(wrong(location::find(text, &fault.path).start, fault.what)),
        }
    }

    /// Reads an experiment file. Returns its text, too.
    ///
    /// # Errors
    /// The file cannot be read, or is not an experiment.
    pub(crate) fn read(path: &Path) -> anyhow::Result<(String, Experiment)> {
        let name = path.display().to_string();
        let text = super::text::read(path, MOST_FILE_BYTES)?;
        let experiment = Experiment::parse(&name, &text)?;
        Ok((text, experiment))
    }

    /// The first inconsistency of an experiment that was read from a report.
    pub(super) fn fault(&self) -> Option<String> {
        self.check().err().map(|fault| fault.what)
    }

    /// The values of x, in rising order.
    pub(crate) fn xs(&self, quick: bool) -> &[u64] {
        match &self.x.quick {
            Some(few) if quick => few,
            _ => &self.x.values,
        }
    }

    /// The runs of one round: each case in turn at one x, then the next x.
    pub(crate) fn runs(&self, quick: bool) -> impl Iterator<Item = CommandRun<'_>> {
        self.xs(quick).iter().flat_map(|x| {
            let cases = self.cases.iter().filter(|case| case.covers(*x));
            cases.map(|case| CommandRun { case: &case.label, x: *x, words: case.run.words(*x) })
        })
    }

    /// The y axis for `key`; without a key, the first.
    pub(crate) fn axis(&self, key: Option<&str>) -> Option<&Y> {
        self.y.iter().find(|y| key.is_none_or(|key| y.key == key))
    }
}

#[cfg(test)]
mod tests;
