//! Measurements that are runs of this command, each a process of its own: nothing of an earlier run
//! is left, and what a device cannot do ends one run.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::{Map, Value};

use crate::signals::{self, Interrupted};

/// A result: the JSON of one line.
pub type ResultJson = Map<String, Value>;

/// Outcome of a run.
#[derive(Debug)]
pub enum Ran {
    /// It has these results.
    Done(Vec<ResultJson>),
    /// It asks for what cannot be, here or with this device: the reason.
    Refused(String),
    /// It has failed.
    Failed(String),
    /// A signal has asked for an end; results so far.
    Interrupted(Vec<ResultJson>, Interrupted),
}

/// Runs this command with these words, and `--json`.
///
/// # Errors
/// The system cannot run it, or it printed what is no result.
#[expect(clippy::disallowed_methods, reason = "runs are processes of the host")]
pub fn once<W: AsRef<OsStr>>(words: &[W]) -> Result<Ran> {
    // This build, also where another one has taken its place on disk.
    let mut command = Command::new("/proc/self/exe");
    // In a process group of its own: it gets a terminal's signal from this process only, and once.
    command.args(words).arg("--json").stdin(Stdio::null()).process_group(0);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.context("cannot start a run")?;
    tracing::info!("a run has begun");
    let pid = Pid::from_raw(child.id() as i32).context("the process of a run has the number 0")?;
    signals::hand_on_to(pid);
    let said = said(&mut child);
    signals::stop_handing_on_to(pid);
    let status = child.wait()?;
    let (results, remarks) = said?;
    let parsed = results.lines().map(serde_json::from_str).collect::<Result<Vec<ResultJson>, _>>();
    let lines = parsed.context("a run printed what is no result")?;
    if let Some(interrupted) = signals::interrupted() {
        return Ok(Ran::Interrupted(lines, interrupted));
    }
    let last = remarks.lines().last().unwrap_or("it did not say why");
    let reason = last.strip_prefix("rdma-conn: ").unwrap_or(last).to_owned();
    Ok(match status.code() {
        Some(0) => Ran::Done(lines),
        Some(2) => Ran::Refused(reason),
        _ => Ran::Failed(reason),
    })
}

/// All that a run prints: results, and remarks.
fn said(child: &mut Child) -> Result<(String, String)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let remarks = move || {
        let mut all = String::new();
        for line in BufReader::new(stderr.context("no standard error of the run")?).lines() {
            let line = line?;
            tracing::info!("a run: {line}");
            all = all + &line + "\n";
        }
        Ok::<_, anyhow::Error>(all)
    };
    let remarks = host::thread::spawn("remarks", remarks)?;
    let mut results = String::new();
    stdout.context("no standard output of the run")?.read_to_string(&mut results)?;
    let remarks = remarks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok((results, remarks))
}
