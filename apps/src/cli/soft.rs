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
    /// Program to run, and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}
