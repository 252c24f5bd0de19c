//! The virtual machine lane: a guest whose kernel has a software RoCE device, `rxe0`,
//! and which sees the file system of the host, so that what was built here runs there
//! on the real rdma-core.
//!
//! `cache` fetches what it takes, `guest` boots it and runs one command in it, `machine` says
//! how that guest is, `tests` makes the list of tests on the host, `inside` runs them in the
//! guest, `interop` has the kernel's device meet soft0 over UDP, and `compare` runs perftest and
//! rdma-conn side by side in it.

mod cache;
pub(crate) mod compare;
mod guest;
mod inside;
mod interop;
mod machine;
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use machine::Machine;

/// What `cargo xtask vm` is given.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct VmArgs {
    #[command(flatten)]
    machine: Machine,
    #[command(subcommand)]
    what: Option<What>,
    /// The command and its arguments, as root, in this folder and with this environment;
    /// RDMA_CONN_DEVICE is rxe0 unless it is set
    #[arg(last = true)]
    command: Vec<String>,
}

/// What the lane does besides running a command.
#[derive(Subcommand)]
enum What {
    /// Build the integration tests, and run them on rxe0
    Test {
        /// Only this test program (the name of its file); may be given again
        #[arg(long)]
        test: Vec<String>,
        /// Only tests whose names hold this
        filter: Option<String>,
        #[command(flatten)]
        machine: Machine,
    },
    /// Have our command and Debian's programs on soft0 over UDP meet those on the kernel's device
    Interop {
        /// Only cases with this in their names; several texts are separated by |
        filter: Option<String>,
        /// Measure both devices instead, beside plain UDP and TCP (Debian: iperf3)
        #[arg(long)]
        speed: bool,
        #[command(flatten)]
        machine: Machine,
    },
    /// Measure rdma-conn and perftest side by side, and print the ratios
    Compare(compare::CompareArgs),
    /// What the guest runs
    #[command(hide = true)]
    Inside { plan: PathBuf },
}

/// Runs a plan by a copy of this program: the host may build another one meanwhile.
const RUN_PLAN: &str = "install -m 755 \"$RDMA_CONN_VM_SHARED/xtask\" /tmp/xtask && \
    /tmp/xtask vm inside \"$RDMA_CONN_VM_SHARED/plan\"";

/// Runs the command in the guest; its status is the result.
pub(crate) fn run(args: VmArgs) -> Result<ExitCode> {
    match args.what {
        None => {
            let given = !args.command.is_empty();
            ensure!(given, "give the command to run: cargo xtask vm -- COMMAND …");
            args.machine.run(guest::quoted(&args.command), &[])
        }
        Some(What::Test { test, filter, machine }) => {
            let plan = serde_json::to_vec(&tests::plan(&test, filter)?)?;
            let own = std::fs::read(std::env::current_exe()?)?;
            machine.run(RUN_PLAN.to_owned(), &[("plan", plan), ("xtask", own)])
        }
        Some(What::Interop { filter, speed, machine }) => interop::run(&machine, filter, speed),
        Some(What::Compare(args)) => compare::run(&args),
        Some(What::Inside { plan }) => inside::run(&plan),
    }
}
