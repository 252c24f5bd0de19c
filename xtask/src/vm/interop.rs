//! `cargo xtask vm interop`: soft0 over UDP with the kernel's soft-RoCE at the other end.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use super::guest::quoted;
use super::machine::Machine;

/// What the guest runs, in its shared folder.
const SCRIPT: &str = include_str!("interop.sh");

/// Builds the library as the tests of the lane are built, and has Debian's programs meet in the guest.
pub(super) fn run(machine: &Machine) -> Result<ExitCode> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", "lane", "--package", "soft-rnic-abi"]);
    ensure!(cargo.status().context("starting cargo")?.success(), "the build failed");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| "target".into(), std::path::PathBuf::from);
    let library = std::path::absolute(target.join("lane/librdma_conn_soft.so"))?;
    ensure!(library.exists(), "{} is not there", library.display());
    let library = quoted(&[library.display().to_string()]);
    let command = format!("bash \"$RDMA_CONN_VM_SHARED/interop.sh\" {library}");
    machine.run(command, &[("interop.sh", SCRIPT.into())])
}
