//! The flags of `soft`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Soft {
    /// Keep what each process posts in a file of its own, FILE.PID, for `rdma-conn trace FILE`; a %p in
    /// FILE stands for the number of the process instead
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Report what the program does wrong with its buffers, queues and objects on standard error. With `fail` it
    /// ends with status 99 if there are findings, with `strict` if there are findings or notes
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "report",
        value_parser = ["report", "fail", "strict"]
    )]
    pub(crate) check: Option<String>,
    /// Let requests and the port fail, by probabilities drawn from a seed: rnr=P, retry=P, loss=P,
    /// flush=P, delay=P:TIME, event=NAME@TIME, seed=N, with commas in between
    #[arg(long, value_name = "FAULTS")]
    pub(crate) faults: Option<String>,
    /// Program to run, and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}
