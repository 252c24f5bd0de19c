//! The command `rdma-conn`.
#![forbid(unsafe_code)]
// It panics where standard error is closed: `remark!` does not.
#![deny(clippy::print_stderr)]

#[macro_use]
mod outcome;

mod args;
mod bench;
mod copy;
mod devices;
mod frame;
mod multicast;
mod note;
mod pingpong;
mod pipe;
mod progress;
mod protocol;
mod raw;
mod session;
mod signals;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use outcome::{Failure, Usage};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => return refuse(&e),
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(args.log_level())
        // It would be told on standard error, which is what has failed.
        .log_internal_errors(false)
        .without_time()
        .init();
    let result = match &args.command {
        Command::Devices => devices::run(&args.common),
        Command::Pingpong(options) => pingpong::run(&args.common, options),
        Command::Bench(options) => bench::run(&args.common, options),
        Command::Pipe(options) => pipe::run(&args.common, options),
        Command::Multicast(options) => multicast::run(&args.common, options),
        Command::Copy(options) => copy::run(&args.common, options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// Help and versions as they are; what is wrong with a command line in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let asked_for = !error.use_stderr();
    if asked_for || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Whoever has closed the stream does not read it.
        let _ = error.print();
        return ExitCode::from(if asked_for { 0 } else { 2 });
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:"));
    let said: Vec<&str> = lines.filter(|l| !l.is_empty() && !l.starts_with("For more")).collect();
    remark!("rdma-conn: {} (see --help)", said.join(" ").trim_start_matches("error: "));
    ExitCode::from(2)
}

/// One line that says what to do next; 2 for what the user can change on the
/// command line, 1 for the rest.
fn report(failure: &Failure) -> ExitCode {
    let unmet = rdma_conn::device::unmet_peer().filter(|_| !failure.is::<Usage>());
    let why = unmet.map(|why| format!(" ({why})")).unwrap_or_default();
    remark!("rdma-conn: {}", outcome::printable(&format!("{failure:#}{why}")));
    ExitCode::from(if failure.is::<Usage>() { 2 } else { 1 })
}
