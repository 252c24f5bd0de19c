//! The flags of `soft`.

use std::ffi::OsString;
use std::path::PathBuf;

use base::cli::refused;
use clap::Args as ClapArgs;

/// Flags of `soft`.
#[derive(ClapArgs, Debug, Clone)]
#[command(args = refused(&["device", "json", "cpu", "gid_index"]))]
pub struct SoftArgs {
    /// Keep what each process posts in a file of its own, FILE.PID, for `rdma-conn trace FILE`; a %p in
    /// FILE stands for the number of the process instead
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Report what the program does wrong with its buffers, queues and objects on standard error. With `fail`
    /// the command ends with status 99 if any process of the program has findings, with `strict` if any has
    /// findings or notes, and with both if none has opened the device
    ///
    /// A finding is a mistake: a buffer that is changed while it is posted, a completion queue that could overflow, a
    /// wrong key, a receive that is too small or missing, a transition without attributes that it needs. A note
    /// may be meant: objects that are never destroyed. For example, in a test of a program:
    /// `rdma-conn soft --check=fail -- make test`. The value follows behind `=`
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "report",
        value_parser = ["report", "fail", "strict"]
    )]
    pub(crate) check: Option<String>,
    /// Write what --check reports to a file as well, for a job of continuous integration: FORMAT is `junit` or
    /// `json`
    #[arg(long, value_names = ["FORMAT", "FILE"], num_args = 2, requires = "check")]
    pub(crate) report: Vec<OsString>,
    /// Let requests and the port of soft0 fail, by probabilities drawn from a seed: rnr=P, retry=P, loss=P,
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
