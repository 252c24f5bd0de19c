//! The flags of `figures`.

use std::path::PathBuf;
use std::time::Duration;

use base::cli::{RoundsArgs, seconds};
use clap::{ArgGroup, Args as ClapArgs};

/// Flags of `figures`.
#[derive(ClapArgs, Debug, Clone)]
#[command(group = ArgGroup::new("what").args(["list", "print", "render", "compare", "model"]))]
pub struct FiguresArgs {
    /// Experiments, by the names that --list shows, or files of your own (.toml) [default: all of
    /// the command's]
    #[arg(value_name = "NAME|FILE", conflicts_with_all = ["render", "compare"])]
    pub(crate) experiments: Vec<String>,
    /// List the experiments, and check their files
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the files of the experiments, to copy and to change
    #[arg(long)]
    pub(crate) print: bool,
    /// Write the page of a saved report again: of its folder, or of its report.json
    #[arg(long, value_name = "REPORT", requires = "out")]
    pub(crate) render: Option<PathBuf>,
    /// Write a page that shows two reports in one
    #[arg(long, num_args = 2, value_names = ["A", "B"], requires = "out")]
    pub(crate) compare: Option<Vec<PathBuf>>,
    /// Measure nothing: print what the performance model of the thesis, with its parameters of this
    /// device, makes of the papers' figures; with --out, also a page with the predicted curves
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(crate::experiment::MODELS))]
    pub(crate) model: Option<String>,
    /// Folder to write to: report.json, report.csv and the page, index.html
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Measure in virtual time, a card's (--device soft0@card=connectx5,world), with the same code:
    /// nothing waits, and the same build gives the same numbers. A point takes a hundredth of the
    /// time. In a build with --features simulation
    #[arg(long, conflicts_with_all = ["list", "print", "render", "compare", "model"])]
    pub(crate) world: bool,
    /// Measure 4 points of an axis, once, for 100 ms each: about a minute for all experiments on
    /// soft0
    #[arg(long, conflicts_with_all = ["list", "print", "render", "compare", "model"])]
    pub(crate) quick: bool,
    /// Rounds of each point, in turn with those of the figure's other points [default: 3; with
    /// --quick 1]
    #[arg(long, value_name = "N", conflicts_with_all = ["list", "print", "render", "compare", "model"], value_parser = clap::value_parser!(u32).range(1..=i64::from(RoundsArgs::MOST)))]
    pub(crate) rounds: Option<u32>,
    /// Time that a round of a point takes, in seconds [default: 0.5; with --quick 0.1]
    #[arg(long, value_name = "S", conflicts_with_all = ["list", "print", "render", "compare", "model"], value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Continue the report of an interrupted command, in the same folder
    #[arg(long, requires = "out", conflicts_with_all = ["force", "list", "print", "render", "compare", "model"])]
    pub(crate) resume: bool,
    /// Write into a folder that has files already; those of the same names are replaced
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Evaluate what the experiments expect: exit status 1 if an expectation does not hold
    #[arg(long)]
    pub(crate) check: bool,
}

impl FiguresArgs {
    /// Rounds of each point.
    pub(crate) fn rounds(&self) -> u32 {
        // In virtual time they are equal.
        let one = self.quick || self.world;
        self.rounds.unwrap_or(if one { 1 } else { RoundsArgs::DEFAULT })
    }

    /// Returns the time that a round takes, in milliseconds.
    pub(crate) fn round_ms(&self) -> u64 {
        let default = Duration::from_millis(if self.quick { 100 } else { 500 });
        self.seconds.unwrap_or(default).as_millis().max(1) as u64
    }
}
