//! `rdma-conn soft`: a verbs program that was not written for it runs on soft0.

mod program;
mod supervised;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use soft_rnic::faults::Plan;

use crate::cli::{Common, Soft};
use crate::outcome::{Failure, Outcome, usage};

/// Names the library, where it is not beside the executable.
const LIBRARY: &str = "RDMA_CONN_SOFT_LIB";
const FILE: &str = "librdma_conn_soft.so";
const PRELOAD: &str = "LD_PRELOAD";

/// Becomes the program: its exit status is that of the command, and signals come to it. With
/// `--check=fail` and `strict` it waits for the program instead.
pub(crate) fn run(common: &Common, options: &Soft) -> Outcome {
    if let Some(flag) = common.given().first() {
        return Err(usage(format!(
            "{flag}: soft only starts a program: leave {flag} out, or give it behind `--`"
        )));
    }
    let library = library()?;
    let Some((name, arguments)) = options.command.split_first() else {
        return Err(usage("soft: name a program: `rdma-conn soft -- COMMAND`"));
    };
    let trace = options.trace.as_deref().map(trace).transpose()?;
    let plan = options.faults.as_deref().map(plan).transpose()?;
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
    let outcome = match options.check.as_deref().and_then(supervised::Fails::of) {
        Some(fails) => supervised::run(program, fails),
        None => Err(program.exec().into()),
    };
    outcome.with_context(|| format!("cannot run {}", path.display()))
}

/// What the program's traces are called, wherever it goes.
fn trace(file: &Path) -> Result<PathBuf, Failure> {
    let file = std::path::absolute(file)
        .map_err(|e| usage(format!("--trace {}: {e}: name a file", file.display())))?;
    let folder = file.parent().unwrap_or(&file);
    if file.is_dir() || !folder.is_dir() {
        let advice = "name a file in a folder that is there";
        return Err(usage(format!("--trace {}: {advice}", file.display())));
    }
    Ok(file)
}

/// The faults that a text asks for.
fn plan(text: &str) -> Result<Plan, Failure> {
    text.parse().map_err(|e| usage(format!("--faults {text}: {e}")))
}

/// The text of a plan, with a seed that all processes of the program share. One that had to be drawn
/// is said, so that the same faults can be asked for again; where nothing is drawn, none is.
fn seeded((text, plan): (&str, &Plan)) -> String {
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

/// Where the library is.
fn library() -> Result<PathBuf, Failure> {
    let found = match std::env::var_os(LIBRARY) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name(FILE),
    };
    // The dynamic linker looks a relative name up in the folder where a program is started, and
    // takes spaces and colons for ends of names.
    let path = std::fs::canonicalize(&found).map_err(|e| {
        Failure::msg(format!(
            "{}: {e}: build the library (`cargo build --release --package soft-rnic-abi` in the \
             repository gives target/release/{FILE}), and put it beside rdma-conn or name it in {LIBRARY}",
            found.display()
        ))
    })?;
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::msg(format!(
            "{}: the dynamic linker preloads no file with a space or a colon in its path: name a \
             copy elsewhere in {LIBRARY}",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays() {
        let list = |already: Option<&str>| preload(Path::new("/a.so"), already.map(OsStr::new));
        assert_eq!(list(None), "/a.so");
        assert_eq!(list(Some("")), "/a.so");
        assert_eq!(list(Some("/b.so:/c.so")), "/a.so:/b.so:/c.so");
    }
}
