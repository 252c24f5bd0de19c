//! `cargo xtask vm interop`: soft0 over UDP with the kernel's soft-RoCE at the other end.

use std::process::ExitCode;

use anyhow::Result;

use super::guest::quoted;
use super::machine::Machine;
use crate::namespaces;

/// Builds what meets, and has the guest run it by a copy of this program.
pub(super) fn run(machine: &Machine, filter: Option<String>) -> Result<ExitCode> {
    let built = namespaces::build("lane")?.display().to_string();
    let words = ["namespaces".to_owned(), "--kernel".to_owned(), "--inside".to_owned(), built];
    let words: Vec<String> = words.into_iter().chain(filter).collect();
    let command = format!(
        "install -m 755 \"$RDMA_CONN_VM_SHARED/xtask\" /tmp/xtask && \
         modprobe -a veth ifb sch_ingress sch_netem cls_matchall act_mirred && /tmp/xtask {}",
        quoted(&words)
    );
    machine.run(command, &[("xtask", std::fs::read(std::env::current_exe()?)?)])
}
