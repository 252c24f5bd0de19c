use std::collections::BTreeSet;
use std::path::Path;

use super::*;

#[test]
fn every_file_is_in_the_table_and_is_an_experiment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
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
