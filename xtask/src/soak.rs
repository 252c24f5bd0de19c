//! Long runs of the seeded tests.

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::cargo;

/// Rounds of the test that kills processes.
const KILLS: u64 = 200;

/// Runs the tests that draw from a seed: optimised, with every assertion.
pub(crate) fn run(schedules: u64, seed: Option<u64>) -> Result<()> {
    let seeded =
        [("simulation", "RDMA_CONN_SCHEDULES", schedules), ("kill", "RDMA_CONN_KILLS", KILLS)];
    for (program, variable, number) in seeded {
        let mut cargo = cargo(&["test", "--workspace", "--profile", "lane", "--quiet", "--test"]);
        cargo.args([program, "--", "--nocapture"]).env(variable, number.to_string());
        cargo.envs(seed.map(|seed| ("RDMA_CONN_SEED", seed.to_string())));
        let ran = process::run(&mut cargo);
        ran.with_context(|| format!("{program}: a case failed; its seed is printed above"))?;
    }
    println!("soak: {schedules} schedules of each seeded test passed, and {KILLS} kills");
    Ok(())
}
