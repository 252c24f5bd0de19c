//! Chores of the workspace. `cargo xtask --help` lists them.
#![forbid(unsafe_code)]

mod bindings;
mod bounds;
mod budgets;
mod check;
mod circles;
mod conformance;
mod count;
mod gate;
mod lanes;
mod namespaces;
mod pair;
mod process;
mod programs;
mod seam;
mod side_by_side;
mod simulate;
mod sized;
mod soak;
mod stress;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the rdma-conn workspace")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Regenerate verbs-sys/src/bindings.rs from the headers of rdma-core
    /// (Debian: libibverbs-dev, libclang-dev)
    Bindings {
        /// Compare with what is committed instead of writing; fail when it differs
        #[arg(long)]
        check: bool,
    },
    /// Run what most changes need, in minutes: formatting, clippy, circles of modules, what goes round `host`, sized
    /// allocations that cannot fail, bounds without a test, unit tests, the tests of the connections on soft0, doctests;
    /// and print the lines of code
    Check,
    /// Fail if modules or folders of a crate use each other in circles, and show them
    Circles,
    /// Run what every protocol promises on each device, and print the table
    Conformance {
        /// Also on the kernel's device, in the virtual machine
        #[arg(long)]
        rxe0: bool,
    },
    /// Run the gate and all that it leaves out, and print the time of each step
    Full(gate::StepChoice),
    /// Run the gate, and print the time of each step (`.ci/run` installs what it needs)
    Gate(gate::StepChoice),
    /// Run the integration tests on another device
    Lane(lanes::LaneArgs),
    /// Run programs over RoCE v2 between two network namespaces that this user makes, and print a
    /// table (Debian: iproute2, ibverbs-utils, perftest)
    Namespaces(namespaces::NamespacesArgs),
    /// Run verbs programs that are not written for it on soft0, through `rdma-conn soft`
    /// (Debian: ibverbs-utils, perftest, python3-pyverbs)
    Programs,
    /// Run every connection in simulated worlds, in virtual time, on all processors; a failure prints
    /// its seed, its last events, and a smaller case. `-- --help` lists all options
    Simulate(simulate::SimulateArgs),
    /// Run the seeded tests with many schedules of faults, optimised; a failure
    /// prints its seed
    Soak {
        /// Schedules of each seeded test
        #[arg(long, default_value_t = 100_000)]
        schedules: u64,
        /// Begin with this seed (as a failure printed it)
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the test programs that go by real time many times, beside two busy loops on each processor
    Stress(stress::StressArgs),
    /// Run a command in a virtual machine whose kernel has the software RoCE device rxe0,
    /// on what is built here
    Vm(vm::VmArgs),
}

fn main() -> ExitCode {
    run(Args::parse().chore).unwrap_or_else(|e| {
        eprintln!("error: {e:#}");
        ExitCode::FAILURE
    })
}

fn run(chore: Chore) -> Result<ExitCode> {
    match chore {
        Chore::Bindings { check } => bindings::run(check)?,
        Chore::Check => check::run()?,
        Chore::Circles => circles::run()?,
        Chore::Conformance { rxe0 } => conformance::run(rxe0)?,
        Chore::Full(choice) => gate::full(&choice)?,
        Chore::Gate(choice) => gate::gate(&choice)?,
        Chore::Lane(args) => return lanes::run(args),
        Chore::Namespaces(args) => namespaces::run(&args)?,
        Chore::Programs => programs::run()?,
        Chore::Simulate(args) => simulate::run(&args)?,
        Chore::Soak { schedules, seed } => soak::run(schedules, seed)?,
        Chore::Stress(args) => stress::run(&args)?,
        Chore::Vm(args) => return vm::run(args),
    }
    Ok(ExitCode::SUCCESS)
}
