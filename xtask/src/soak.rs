//! Long runs of the seeded tests.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// The tests that draw schedules of faults from a seed: package and test target.
const SEEDED: &[(&str, &str)] = &[("soft-rnic", "simulation"), ("rdma-conn", "simulation")];

/// Rounds of the test that kills processes.
const KILLS: &str = "200";

/// Variables that give the tests the number of schedules, and the first seed.
const SCHEDULES: &str = "RDMA_CONN_SCHEDULES";
const SEED: &str = "RDMA_CONN_SEED";

pub(crate) fn run(schedules: u64, seed: Option<u64>) -> Result<()> {
    for (package, target) in SEEDED {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--release", "--quiet", "--package", package, "--test", target]);
        cargo.args(["--", "--nocapture"]).env(SCHEDULES, schedules.to_string());
        if let Some(seed) = seed {
            cargo.env(SEED, seed.to_string());
        }
        let status = cargo.status().context("starting cargo")?;
        if !status.success() {
            bail!("{package}, {target}: a schedule failed; its seed is printed above");
        }
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--release", "--quiet", "--package", "soft-rnic", "--test", "kill"]);
    cargo.env("RDMA_CONN_KILLS", KILLS);
    if let Some(seed) = seed {
        cargo.env(SEED, seed.to_string());
    }
    if !cargo.status().context("starting cargo")?.success() {
        bail!("a process that was killed left its peer in trouble");
    }
    println!("soak: {schedules} schedules of each seeded test passed, and {KILLS} kills");
    Ok(())
}
