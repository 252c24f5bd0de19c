//! Chores of the workspace. `cargo xtask --help` lists them.
#![forbid(unsafe_code)]

mod bindings;

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
}

fn main() -> Result<()> {
    match Args::parse().chore {
        Chore::Bindings { check } => bindings::run(check),
    }
}
