//! `cargo xtask vm interop`: soft0 over UDP with the kernel's soft-RoCE at the other end.

use anyhow::Result;

use super::guest::{XTASK, quoted};
use crate::{conformance, lanes, namespaces};

/// Builds what meets; the command for the guest that runs it.
pub(super) fn command(filter: Option<String>, speed: bool) -> Result<String> {
    let built = namespaces::build(speed)?.display().to_string();
    let mut words = ["namespaces", "--kernel", "--inside", &built].map(str::to_owned).to_vec();
    if speed {
        words.push("--speed".to_owned());
    } else {
        let targets = conformance::TARGETS.map(str::to_owned);
        for test in lanes::build(&targets)?.values() {
            words.extend(["--test".to_owned(), test.display().to_string()]);
        }
    }
    words.extend(filter);
    Ok(format!(
        "modprobe -a veth ifb sch_ingress sch_netem cls_matchall act_mirred && {XTASK} {}",
        quoted(&words)
    ))
}
