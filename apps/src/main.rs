//! The command `rdma-conn`.
#![forbid(unsafe_code)]
// It panics where standard error is closed: `remark!` does not.
#![deny(clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod cli;
mod cmd;
mod limits;
mod measure;
mod protocol;
mod results;
mod scratch;
mod session;
mod settings;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use base::outcome::{self, CommandError, Usage};
use base::{pinning, remark, signals};
use clap::{CommandFactory, Parser};
use figures::calibrate;
use rdma_conn::device;
use soft::{doctor, roced, trace};
use tracing_subscriber::prelude::*;

use cli::{Args, Command, points, usage};
use cmd::{bench, devices, multicast, pingpong, pipe, sweep};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let points = match points::parse(&words, &Args::command()) {
        Ok(points) => points,
        Err(why) => return report(&outcome::usage(why)),
    };
    // Those of the first measurement, where there are several.
    let args = match &points {
        None => Args::try_parse_from(&words).map(|args| (args, Vec::new())),
        Some(points) => sweep::parse(points).and_then(|all| first(&words, all)),
    };
    let (args, all) = match args {
        Ok(args) => args,
        Err(e) => return refuse(&e, &words),
    };
    let wanted = match args.log_filter() {
        Ok(wanted) => wanted,
        Err(failure) => return report(&failure),
    };
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // It would be told on standard error, which is what has failed.
        .log_internal_errors(false)
        .without_time();
    tracing_subscriber::registry().with(log.with_filter(wanted)).init();
    if let Err(failure) = pinning::pin_process(args.common.cpu.as_ref()) {
        return report(&failure);
    }
    if let Some(points) = &points {
        return exit(early(|| sweep::run(points, &all)));
    }
    let common = args.common.clone();
    let timed = |measure: Box<dyn FnOnce() -> outcome::CommandResult + Send>| {
        early(|| session::card::in_its_time(&args.common, measure))
    };
    exit(match &args.command {
        Command::Devices => devices::run(&args.common),
        Command::Doctor(options) => early(|| doctor::run(&args.common, options)),
        Command::Pingpong(options) => {
            let options = options.clone();
            timed(Box::new(move || pingpong::run(&common, &options)))
        }
        Command::Bench(options) => {
            let options = options.clone();
            timed(Box::new(move || bench::run(&common, &options)))
        }
        Command::Pipe(options) => pipe::run(&args.common, options),
        Command::Multicast(options) => {
            let options = options.clone();
            timed(Box::new(move || multicast::run(&common, &options)))
        }
        Command::Copy(options) => copy::run(&args.common, options),
        Command::Calibrate => {
            session::card::in_its_time(&args.common, move || calibrate::run(&common))
        }
        Command::Figures(options) => early(|| figures::run(&args.common, options, parses)),
        Command::Soft(options) => soft::soft::run(&args.common, options),
        Command::Roced(options) => roced::run(&args.common, options),
        Command::Trace(options) => trace::run(&args.common, options),
        Command::Completions { shell } => completions(*shell, &args.common),
    })
}

/// The command line of the first measurement, and all of them.
fn first(words: &[OsString], all: Vec<Args>) -> Result<(Args, Vec<Args>), clap::Error> {
    match all.first() {
        Some(first) => Ok((first.clone(), all)),
        None => Args::try_parse_from(words).map(|args| (args, all)),
    }
}

fn exit(result: outcome::CommandResult) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// Measures; a signal ends that early, with the results so far.
fn early(measure: impl FnOnce() -> outcome::CommandResult) -> outcome::CommandResult {
    signals::end_early()?;
    measure()?;
    Ok(signals::go_on()?)
}

/// Checks that the words are a command line.
fn parses(words: &[&str]) -> Result<(), String> {
    Args::try_parse_from(words).map(drop).map_err(|e| e.to_string())
}

/// Prints the completion script of a shell.
fn completions(shell: clap_complete::Shell, common: &cli::CommonArgs) -> outcome::CommandResult {
    if let Some(flag) = common.given().first() {
        return Err(outcome::usage(format!(
            "{flag}: completions opens no device and measures nothing: leave {flag} out"
        )));
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "rdma-conn", &mut script);
    outcome::say_all(&script);
    Ok(())
}

/// Help and versions as they are; what is wrong with a command line in one line.
fn refuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    use clap::error::ErrorKind;
    let asked_for = !error.use_stderr();
    if asked_for || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // It fails where the stream is closed, and the text has no reader.
        let _ = error.print();
        return ExitCode::from(if asked_for { 0 } else { 2 });
    }
    let given: Vec<String> = words.iter().map(|word| word.to_string_lossy().into()).collect();
    remark!("rdma-conn: {} (see --help)", outcome::printable(&usage::line(error, &given)));
    ExitCode::from(2)
}

/// One line that says what to do next; 2 for what the user can change on the
/// command line, 1 for the rest.
fn report(failure: &CommandError) -> ExitCode {
    let found = || device::peer_not_found().or_else(device::peer_unreached);
    let is_known = failure.is::<Usage>() || failure.is::<doctor::TestsFailed>();
    let why = (!is_known).then(found).flatten();
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let line = outcome::printable(&format!("{failure:#}{why}"));
    outcome::last_remark(format_args!("rdma-conn: {line}"));
    let interrupted = failure.downcast_ref::<signals::Interrupted>();
    let status = match (failure.is::<Usage>(), interrupted) {
        (true, _) => 2,
        (false, Some(interrupted)) => interrupted.exit_status() as u8,
        (false, None) => 1,
    };
    ExitCode::from(status)
}
