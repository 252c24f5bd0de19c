//! The experiments that a command line names: the command's own, and files.

use std::path::Path;

use anyhow::Result;
use base::outcome::{as_usage, usage};

use crate::builtin;
use crate::experiment::Experiment;

/// Checks that the command takes the words of a run, of which the first is its own name; otherwise the
/// error is what its parser says.
pub type Parses = fn(&[&str]) -> Result<(), String>;

/// An experiment, and its name.
pub(super) struct NamedExperiment {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) experiment: Experiment,
}

/// The experiments that the command line names.
pub(super) fn experiments(asked: &[String], parses: Parses) -> Result<Vec<NamedExperiment>> {
    if asked.is_empty() {
        return builtin::ALL.iter().map(of_command).collect();
    }
    let all: Vec<NamedExperiment> =
        asked.iter().map(|name| find(name, parses)).collect::<Result<_>>()?;
    for (at, named) in all.iter().enumerate() {
        if all[..at].iter().any(|other| other.name == named.name) {
            let name = &named.name;
            return Err(usage(format!("{name}: two experiments have this name: rename a file")));
        }
    }
    Ok(all)
}

/// Checks that the command takes the words of all runs. (Each run itself checks what its flags mean
/// together.)
fn check_runs(name: &str, experiment: &Experiment, parses: Parses) -> Result<()> {
    for run in experiment.runs(false).chain(experiment.runs(true)) {
        let words = ["rdma-conn"].into_iter().chain(run.words.iter().map(String::as_str));
        if let Err(e) = parses(&words.collect::<Vec<_>>()) {
            let why = e.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Err(usage(format!("{name}: case {}, x = {}: {why}", run.case, run.x)));
        }
    }
    Ok(())
}

fn of_command(builtin: &builtin::Builtin) -> Result<NamedExperiment> {
    let (name, text) = (builtin.name.into(), builtin.text.into());
    Ok(NamedExperiment { name, text, experiment: builtin.experiment()? })
}

/// A built-in experiment, or a file.
fn find(name: &str, parses: Parses) -> Result<NamedExperiment> {
    if let Some(builtin) = builtin::named(name) {
        return of_command(builtin);
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        return Err(usage(format!(
            "{name}: no experiment: `rdma-conn figures --list` shows the names, and a file ends in .toml"
        )));
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    if !path.exists() {
        return Err(usage(format!(
            "{name}: no such file: `rdma-conn figures --print NAME > {name}` begins one"
        )));
    }
    let (text, experiment) = Experiment::read(path).map_err(|e| as_usage(format!("{e:#}")))?;
    check_runs(name, &experiment, parses)?;
    Ok(NamedExperiment { name: stem.unwrap_or_default(), text, experiment })
}
