//! Reports of a test to its runner (`cargo xtask vm test`), in the file that `RDMA_CONN_TALLY`
//! names: the device that it used, and the cases that it has left out there.
//!
//! A case that cannot be on a device is not left out: it is listed among the differences
//! of that device, and asserted to differ as listed.
#![allow(dead_code, unreachable_pub, reason = "each test crate uses a part of it")]

use std::fs::OpenOptions;
use std::io::Write;

/// The test runs on `device`.
pub fn took(device: &str) {
    tell(&format!("device {device}"));
}

/// The test leaves `case` out, and says why.
pub fn skipped(case: &str) {
    eprintln!("skipped: {case}");
    tell(&format!("skipped {case}"));
}

/// Reports whether no other process uses the device, so that its counters are the test's own.
pub fn is_alone() -> bool {
    std::env::var_os("RDMA_CONN_ALONE").is_some()
}

fn tell(line: &str) {
    let Some(path) = std::env::var_os("RDMA_CONN_TALLY") else { return };
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the tally");
    // One write a line: processes and threads of a test share the file.
    file.write_all(format!("{line}\n").as_bytes()).expect("the tally");
}
