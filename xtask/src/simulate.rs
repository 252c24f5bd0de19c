//! Builds the program that runs worlds, and runs it.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace::{cargo, target_folder};

/// Seeds of one commit: its gate runs others than that of the commit before.
const SEEDS_OF_COMMIT: u64 = 1 << 40;

pub(crate) fn run(seeds: u64, from: &str, as_tests: bool, rest: &[String]) -> Result<()> {
    let from = match from {
        "commit" => seed_of_commit()?,
        seed => seed.parse().context("--from takes a number, or `commit`")?,
    };
    println!("{seeds} seeds from {from}");
    // Optimised, with every assertion.
    let (profile, what) =
        if as_tests { ("dev", "--workspace") } else { ("lane", "--package=worlds") };
    let build = ["build", "--quiet", "--profile", profile, what, "--bin", "worlds"];
    process::run(&mut cargo(&build))?;
    let mut worlds = Command::new(
        target_folder()?.join(if as_tests { "debug" } else { profile }).join("worlds"),
    );
    worlds.args(["--seeds", &seeds.to_string(), "--from", &from.to_string()]).args(rest);
    process::run(&mut worlds)
}

fn seed_of_commit() -> Result<u64> {
    let hash = process::printed(Command::new("git").args(["rev-parse", "HEAD"]));
    let hash = hash.context("`--from commit` needs a git checkout")?;
    let first = hash.get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Ok(first.context("a commit's hash")? % SEEDS_OF_COMMIT)
}
