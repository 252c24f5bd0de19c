//! The flags of `figures`.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs};

#[derive(ClapArgs, Debug, Clone)]
#[command(group = ArgGroup::new("what").required(true).args(["list", "print", "render", "compare"]))]
pub(crate) struct Figures {
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
    /// Folder to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write into a folder that has files already; those of the same names are replaced
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Evaluate what the experiments expect: exit status 1 if an expectation does not hold
    #[arg(long)]
    pub(crate) check: bool,
}
