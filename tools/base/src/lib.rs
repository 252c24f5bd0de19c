//! Common parts of the commands of `rdma-conn`, whichever crate has them.
//!
//! | module | |
//! |---|---|
//! | [`cli`] | flags and values that several commands have |
//! | [`outcome`] | how commands end; what they print goes through [`say!`] and [`remark!`] |
//! | [`signals`] | a signal ends a command early |
//! | [`progress`] | what commands show meanwhile |
//! | [`pinning`] | processors of this process (`--cpu`) |
//! | [`table`], [`readable`], [`spread`] | results, as people read them |
//! | [`session`], [`frame`] | devices, the way to another end, and control messages |
//! | [`run`] | runs of this command, as processes of their own |
//!
//! A command of another crate has its flags as a type of clap's, and a function
//! `run(&CommonArgs, &Args) -> CommandResult`. It
//!
//! 1. refuses the flags of [`CommonArgs`](cli::CommonArgs) that it has no use for, with
//!    [`outcome::usage`];
//! 2. opens its device by [`session::open_device`];
//! 3. works, and looks for [`signals::interrupted`] where it could be long;
//! 4. prints results by [`say!`], and anything else by [`remark!`];
//! 5. returns how it ended. `main` of the command prints a failure as the last line.
//!
//! **Contract: what this crate knows of the process exists once in it**: whether the last line was
//! written, which signal has arrived, which processors were listed. So whatever prints, ends early or
//! pins threads goes through this crate.
#![forbid(unsafe_code)]
// It panics where standard error is closed: `remark!` does not.
#![deny(clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

#[macro_use]
pub mod outcome;

pub mod cli;
pub mod frame;
pub mod pinning;
pub mod progress;
pub mod readable;
pub mod run;
pub mod session;
pub mod signals;
pub mod spread;
pub mod table;
