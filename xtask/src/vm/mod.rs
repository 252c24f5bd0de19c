//! The virtual machine lane: a guest whose kernel has a software RoCE device, `rxe0`,
//! and which sees the file system of the host, so that what was built here runs there
//! on the real rdma-core.
//!
//! `cache` fetches what it takes, `guest` boots it and runs one command in it, `compare`
//! runs perftest and rdma-conn side by side in it.

mod cache;
mod compare;
mod guest;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use cache::Cache;
use guest::{Guest, Outcome};

/// What `cargo xtask vm` is given.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct VmArgs {
    #[command(subcommand)]
    chore: Option<Chore>,
    /// Seconds that the command may take, once the guest is up
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 4096)]
    memory: u32,
    /// Show the guest's console while it boots
    #[arg(long)]
    verbose: bool,
    /// The command and its arguments, as root, in this folder and with this environment;
    /// RDMA_CONN_DEVICE is rxe0 unless it is set
    #[arg(last = true)]
    command: Vec<String>,
}

/// What the lane does besides running a command.
#[derive(Subcommand)]
enum Chore {
    /// Measure rdma-conn and perftest side by side, and print the ratios
    Compare(compare::CompareArgs),
}

/// Runs the command in the guest; its status is the result.
pub(crate) fn run(args: &VmArgs) -> Result<ExitCode> {
    if let Some(Chore::Compare(args)) = &args.chore {
        return compare::run(args);
    }
    ensure!(!args.command.is_empty(), "give the command to run: cargo xtask vm -- COMMAND …");
    let guest = Guest {
        command: guest::quoted(&args.command),
        limit: Duration::from_secs(args.limit),
        memory_mib: args.memory,
        verbose: args.verbose,
    };
    let Outcome { status } = guest.run(&Cache::filled()?)?;
    Ok(ExitCode::from(status))
}
