//! The command `rdma-conn`.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod devices;
mod outcome;
mod pingpong;
mod progress;
mod session;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use outcome::{Failure, Usage};

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(args.log_level())
        .without_time()
        .init();
    let result = match &args.command {
        Command::Devices => devices::run(&args.common),
        Command::Pingpong(options) => pingpong::run(&args.common, options),
        Command::Bench(options) => bench::run(&args.common, options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// One line that says what to do next; 2 for what the user can change on the
/// command line, 1 for the rest.
fn report(failure: &Failure) -> ExitCode {
    eprintln!("rdma-conn: {failure:#}");
    ExitCode::from(if failure.is::<Usage>() { 2 } else { 1 })
}
