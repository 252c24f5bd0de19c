use std::collections::BTreeSet;
use std::path::Path;

use clap::Parser;

use super::*;
use crate::cli::Args;

#[test]
fn every_file_is_in_the_table_and_is_an_experiment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("figures");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<String> =
        files.map(|path| path.file_stem().unwrap().to_string_lossy().into()).collect();
    let known: BTreeSet<String> = ALL.iter().map(|builtin| builtin.name.to_owned()).collect();
    assert_eq!(files, known);
    for builtin in ALL {
        builtin.experiment().unwrap_or_else(|e| panic!("{e}"));
    }
}

/// A quick run has 4 points an axis, and a whole one has these among others.
#[test]
fn a_quick_run_has_four_of_the_values() {
    for builtin in ALL {
        let experiment = builtin.experiment().unwrap();
        let (all, few) = (experiment.xs(false), experiment.xs(true));
        assert_eq!(few.len(), 4, "{}", builtin.name);
        assert!(few.iter().all(|x| all.contains(x)), "{}", builtin.name);
    }
}

/// The parser of the command line takes every run.
#[test]
fn every_run_is_a_command_line() {
    for builtin in ALL {
        let experiment = builtin.experiment().unwrap();
        for run in experiment.runs(false) {
            let words = ["rdma-conn".to_owned()].into_iter().chain(run.words.iter().cloned());
            let parsed = Args::try_parse_from(words);
            parsed.unwrap_or_else(|e| panic!("{}: {:?}: {e}", builtin.name, run.words));
        }
    }
}
