//! `cargo xtask vm interop`: soft0 over UDP with the kernel's soft-RoCE at the other end.

use std::process::ExitCode;

use anyhow::Result;

use super::guest::quoted;
use super::machine::Machine;
use super::tests::executables;
use crate::{conformance, namespaces};

/// Builds what meets, and has the guest run it by a copy of this program.
pub(super) fn run(machine: &Machine, filter: Option<String>, speed: bool) -> Result<ExitCode> {
    let built = namespaces::build(if speed { "release" } else { "lane" })?.display().to_string();
    let mut words = ["namespaces", "--kernel", "--inside", &built].map(str::to_owned).to_vec();
    if speed {
        words.push("--speed".to_owned());
    } else {
        for test in executables(&conformance::TARGETS)? {
            words.extend(["--test".to_owned(), test.display().to_string()]);
        }
    }
    words.extend(filter);
    let command = format!(
        "install -m 755 \"$RDMA_CONN_VM_SHARED/xtask\" /tmp/xtask && \
         modprobe -a veth ifb sch_ingress sch_netem cls_matchall act_mirred && /tmp/xtask {}",
        quoted(&words)
    );
    machine.run(command, &[("xtask", std::fs::read(std::env::current_exe()?)?)])
}
