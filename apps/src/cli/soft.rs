//! The flags of `soft`.

use std::ffi::OsString;

use clap::Args as ClapArgs;

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Soft {
    /// Program to run, and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}
