//! The flags of `trace`.

use std::path::PathBuf;

use base::cli::refused;
use clap::Args as ClapArgs;

/// Flags of `trace`.
#[derive(ClapArgs, Debug, Clone)]
#[command(args = refused(&["device", "cpu", "gid_index"]))]
pub struct TraceArgs {
    /// Traces, each as `rdma-conn soft --trace FILE` has named it, or a file FILE.PID of it
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Print all requests of a queue, and not only the oldest 8 (--json prints all)
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the last N events of each process as well, of the 16384 that a trace keeps
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=soft_rnic::trace::LOG_RECORDS as i64))]
    pub(crate) events: u32,
}
