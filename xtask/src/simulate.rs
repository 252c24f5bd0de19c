//! Builds the program that runs worlds, and runs it.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace::{cargo, target_folder};

/// Seeds of one commit: its gate runs others than that of the commit before.
const SEEDS_OF_COMMIT: u64 = 1 << 40;

#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// Seeds to run
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// Begin with this seed, or with one that the last commit gives
    #[arg(long, value_name = "SEED|commit", default_value = "0")]
    from: String,
    /// As `cargo test --workspace` builds it: nothing is built once more, but worlds take three times as long
    #[arg(long)]
    as_tests: bool,
    /// Run all seeds twice, and fail if their traces differ
    #[arg(long)]
    twice: bool,
    /// Only this connection, as `send-recv`
    #[arg(long)]
    protocol: Option<String>,
    /// Only worlds with this device, as `near`
    #[arg(long, value_name = "DEVICE")]
    world: Option<String>,
    /// Plant a fault into the code
    #[arg(long, value_name = "FAULT")]
    plant: Option<String>,
    /// Play one case, as a failure printed it, and show all its events
    #[arg(long, value_name = "JSON")]
    case: Option<String>,
    /// Play the case of a seed, and show it and all its events
    #[arg(long, value_name = "SEED")]
    show: Option<String>,
    /// More options of the program, as `--max-steps 100000`
    #[arg(last = true)]
    rest: Vec<String>,
}

impl SimulateArgs {
    /// Options that the program has as well.
    fn passed_on(&self) -> impl Iterator<Item = &str> {
        let options = [
            ("--protocol", &self.protocol),
            ("--world", &self.world),
            ("--plant", &self.plant),
            ("--case", &self.case),
            ("--show", &self.show),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some([name, value.as_deref()?]));
        let twice = self.twice.then_some("--twice");
        given.flatten().chain(twice).chain(self.rest.iter().map(String::as_str))
    }
}

pub(crate) fn run(args: &SimulateArgs) -> Result<()> {
    let (seeds, as_tests) = (args.seeds, args.as_tests);
    let from = match args.from.as_str() {
        "commit" => seed_of_commit()?,
        seed => seed.parse().context("--from takes a number, or `commit`")?,
    };
    if args.case.is_none() && args.show.is_none() {
        println!("{seeds} seeds from {from}");
    }
    // Optimised, with every assertion.
    let (profile, what) =
        if as_tests { ("dev", "--workspace") } else { ("lane", "--package=worlds") };
    let build = ["build", "--quiet", "--profile", profile, what, "--bin", "worlds"];
    process::run(&mut cargo(&build))?;
    let mut worlds = Command::new(
        target_folder()?.join(if as_tests { "debug" } else { profile }).join("worlds"),
    );
    worlds.args(["--seeds", &seeds.to_string(), "--from", &from.to_string()]);
    worlds.args(args.passed_on());
    process::run(&mut worlds)
}

fn seed_of_commit() -> Result<u64> {
    let hash = process::printed(Command::new("git").args(["rev-parse", "HEAD"]));
    let hash = hash.context("`--from commit` needs a git checkout")?;
    let first = hash.get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Ok(first.context("a commit's hash")? % SEEDS_OF_COMMIT)
}
