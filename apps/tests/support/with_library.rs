//! `rdma-conn soft`, with the library that the tests have built.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::process::{Child, Command, Output, Stdio};

#[path = "../../../soft-rnic/abi/tests/common/mod.rs"]
mod built;

pub(crate) use built::library;

pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    command.env("RDMA_CONN_SOFT_LIB", library()).args(words).stdin(Stdio::null());
    command
}

pub(crate) fn run(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

/// A process that does not outlive its test.
pub(crate) struct GuardedChild(pub(crate) Child);

impl Drop for GuardedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
