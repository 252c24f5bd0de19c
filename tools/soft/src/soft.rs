//! `rdma-conn soft`: a verbs program that was not written for it runs on soft0.

mod library;
mod program;
mod report;
mod supervised;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use base::cli::CommonArgs;
use base::outcome::{CommandError, CommandResult, usage};
use soft_rnic::faults::FaultPlan;

use crate::cli::SoftArgs;

const PRELOAD: &str = "LD_PRELOAD";

/// Becomes the program: its exit status is that of the command, and it receives the signals. With
/// `--check=fail`, `strict` and `--report` it waits for the program instead.
pub fn run(common: &CommonArgs, options: &SoftArgs) -> CommandResult {
    if let Some(flag) = common.given().first() {
        return Err(usage(format!(
            "{flag}: soft only starts a program: leave {flag} out, or give it behind `--`"
        )));
    }
    let library = library::find()?;
    let Some((name, arguments)) = options.command.split_first() else {
        return Err(usage("soft: name a program: `rdma-conn soft -- COMMAND`"));
    };
    refuse_flags(options, name, arguments)?;
    let trace = options.trace.as_deref().map(trace).transpose()?;
    let plan = options.faults.as_deref().map(plan).transpose()?;
    let report = report::ReportFile::parse(&options.report)?;
    let path = program::find(name, std::env::var_os("PATH").as_deref())?;
    program::check(&path)?;
    let faults = options.faults.as_deref().zip(plan.as_ref()).map(seeded);
    let mut program = Command::new(&path);
    program
        .envs(trace.map(|file| (soft_rnic::trace::VARIABLE, file)))
        .envs(options.check.as_ref().map(|when| (soft_rnic::check::VARIABLE, when)))
        .envs(faults.map(|text| (soft_rnic::faults::VARIABLE, text)))
        .arg0(name)
        .args(arguments)
        .env(PRELOAD, preload(&library, std::env::var_os(PRELOAD).as_deref()));
    let outcome = match options.check.as_deref().map(supervised::FailCondition::from_flag) {
        Some(fails) if fails != supervised::FailCondition::Never || report.is_some() => {
            let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
            supervised::run(program, &words.collect::<Vec<_>>(), (fails, report.as_ref()))
        }
        _ => Err(program.exec().into()),
    };
    outcome.with_context(|| format!("cannot run {}", path.display()))
}

/// Refuses a name that is no program's, but a flag of this command that was written wrong.
fn refuse_flags(
    options: &SoftArgs,
    name: &OsStr,
    arguments: &[OsString],
) -> Result<(), CommandError> {
    let shown = name.to_string_lossy();
    if shown.starts_with('-') {
        return Err(usage(format!(
            "soft: there is no option {shown}: there are --trace, --check, --report and --faults, and behind \
             `--` follows the program (write ./{shown} if that is its name)"
        )));
    }
    let is_value = ["report", "fail", "strict"].contains(&&*shown);
    if options.check.is_some() && is_value && arguments.first().is_some_and(|word| word == "--") {
        return Err(usage(format!("--check {shown}: write --check={shown}")));
    }
    Ok(())
}

/// Returns the absolute name of the program's trace: it holds wherever the program goes.
fn trace(file: &Path) -> Result<PathBuf, CommandError> {
    report::file_in_a_folder("--trace", file)
}

/// The faults that a text asks for.
fn plan(text: &str) -> Result<FaultPlan, CommandError> {
    text.parse().map_err(|e| usage(format!("--faults {text}: {e}")))
}

/// The text of a plan, with a seed that all processes of the program share. One that had to be
/// drawn is said, so that the same faults can be asked for again; where nothing is drawn, none is.
fn seeded((text, plan): (&str, &FaultPlan)) -> String {
    if plan.seed().is_some() || !plan.draws() {
        return text.to_owned();
    }
    let seed = soft_rnic::faults::draw_seed();
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "rdma-conn soft: faults with seed {seed}");
    format!("{text},seed={seed}")
}

/// The library stands in front of what is preloaded already.
fn preload(library: &Path, already: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(already) = already.filter(|already| !already.is_empty()) {
        list.push(":");
        list.push(already);
    }
    list
}

#[cfg(test)]
mod tests;
