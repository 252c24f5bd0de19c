//! The virtual machine lane: a guest whose kernel has a software RoCE device, `rxe0`,
//! and which sees the file system of the host, so that what was built here runs there
//! on the real rdma-core.
//!
//! `cache` fetches what it takes, `guest` boots it and runs one command in it, `lanes` makes the
//! list of tests on the host and runs them in the guest, `interop` has the kernel's device meet
//! soft0 over UDP, and `compare` runs perftest and rdma-conn side by side in it.

mod cache;
mod compare;
mod guest;
mod interop;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use crate::lanes;
use guest::{GuestMachine, XTASK};

/// Arguments of `cargo xtask vm`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct VmArgs {
    #[command(flatten)]
    machine: GuestMachine,
    #[command(subcommand)]
    what: Option<VmTask>,
    /// The command and its arguments, as root, in this folder and with this environment;
    /// RDMA_CONN_DEVICE is rxe0 unless it is set
    #[arg(last = true)]
    command: Vec<String>,
}

/// Tasks of the lane besides running a command.
#[derive(Subcommand)]
enum VmTask {
    /// Build the integration tests, and run them on rxe0
    Test {
        #[command(flatten)]
        choice: lanes::TestChoice,
        #[command(flatten)]
        machine: GuestMachine,
    },
    /// Run the gate's part of `test`, `interop` and `compare` in one guest
    Gate {
        /// All of `test` and `interop` instead
        #[arg(long)]
        whole: bool,
        #[command(flatten)]
        machine: GuestMachine,
    },
    /// Have our command and Debian's programs on soft0 over UDP meet those on the kernel's device
    Interop {
        /// Only cases with this in their names; several texts are separated by |
        filter: Option<String>,
        /// Measure both devices instead, beside plain UDP and TCP (Debian: iperf3)
        #[arg(long)]
        speed: bool,
        #[command(flatten)]
        machine: GuestMachine,
    },
    /// Measure rdma-conn and perftest side by side, and print the ratios
    Compare(compare::CompareArgs),
    /// Run the programs of a plan, in the guest
    #[command(hide = true)]
    Inside { plan: PathBuf },
}

/// Cases of `interop` in the gate: ping-pongs of every service, either end listening, also where
/// packets are lost.
const INTEROP_IN_GATE: &str = "pingpong";

/// Runs the command in the guest; its status is the result.
pub(crate) fn run(args: VmArgs) -> Result<ExitCode> {
    match args.what {
        None => {
            let given = !args.command.is_empty();
            ensure!(given, "give the command to run: cargo xtask vm -- COMMAND …");
            args.machine.run(&guest::quoted(&args.command), &[])
        }
        Some(VmTask::Test { choice, machine }) => tests(&machine, choice, &[]),
        Some(VmTask::Gate { whole: false, machine }) => {
            let interop = interop::command(Some(INTEROP_IN_GATE.to_owned()), false)?;
            let others = [compare::quick()?, interop];
            tests(&machine, lanes::TestChoice::of_gate(), &others)
        }
        Some(VmTask::Gate { whole: true, machine }) => {
            tests(&machine, lanes::TestChoice::all(), &[interop::command(None, false)?])
        }
        Some(VmTask::Interop { filter, speed, machine }) => {
            with_xtask(&machine, &[interop::command(filter, speed)?], vec![])
        }
        Some(VmTask::Compare(args)) => compare::run(&args),
        Some(VmTask::Inside { plan }) => {
            let plan = std::fs::read(&plan).with_context(|| plan.display().to_string())?;
            lanes::runner::run(&serde_json::from_slice(&plan)?, 1)
        }
    }
}

/// Runs the lane rxe0, and then other commands, in one guest.
fn tests(machine: &GuestMachine, choice: lanes::TestChoice, others: &[String]) -> Result<ExitCode> {
    let plan = serde_json::to_vec(&lanes::plan(&lanes::RXE0, choice)?)?;
    let inside = format!("{XTASK} vm inside \"$RDMA_CONN_VM_SHARED/plan\"");
    with_xtask(machine, &[&[inside], others].concat(), vec![("plan", plan)])
}

/// Runs commands that begin with [`XTASK`]; all of them, even if one fails.
fn with_xtask(
    machine: &GuestMachine,
    commands: &[String],
    mut files: Vec<(&str, Vec<u8>)>,
) -> Result<ExitCode> {
    files.push(("xtask", std::fs::read(std::env::current_exe()?)?));
    let mut script = format!("install -m 755 \"$RDMA_CONN_VM_SHARED/xtask\" {XTASK}; status=0");
    for command in commands {
        script += &format!("; {{ {command}; }} || status=1");
    }
    machine.run(&format!("{script}; exit $status"), &files)
}
