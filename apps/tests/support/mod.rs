//! Running the command, and looking at what it says.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

#[path = "../../../tests/support/tally.rs"]
pub mod tally;

pub mod modes;
pub mod processes;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The device of the environment, `soft0` by default.
pub fn device() -> String {
    std::env::var("RDMA_CONN_DEVICE").unwrap_or_else(|_| "soft0".into())
}

/// Runs the command on the device of the environment, `soft0` by default.
pub fn run(args: &[&str]) -> Output {
    let device = device();
    // A test may name another device itself.
    let named = args.iter().skip_while(|arg| **arg != "--device").nth(1);
    tally::took(named.unwrap_or(&&*device));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    if named.is_none() {
        command.args(["--device", &device]);
    }
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// It fails with `status`, one line on standard error, and nothing on standard output.
#[track_caller]
pub fn assert_refused(args: &[&str], status: i32, says: &str) {
    let output = run(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
    assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    assert!(error.starts_with("rdma-conn: "), "{args:?}: {error}");
    assert!(error.contains(says), "{args:?}: {error}");
}

/// It succeeds, and prints JSON objects, one a line, and nothing else.
#[track_caller]
pub fn json(args: &[&str]) -> Vec<Value> {
    let output = run(&[args, &["--json"]].concat());
    let error = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    let lines = text(&output.stdout).lines();
    let values: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    assert!(values.iter().all(Value::is_object), "{args:?}");
    values
}

#[track_caller]
pub fn one(args: &[&str]) -> Value {
    let mut values = json(args);
    assert_eq!(values.len(), 1, "{args:?}");
    values.remove(0)
}

/// A file of its own, removed in the end.
pub struct ScratchFile(pub PathBuf);

impl ScratchFile {
    pub fn new(name: &str, bytes: usize) -> ScratchFile {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
        std::fs::write(&path, content).unwrap();
        ScratchFile(path)
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
