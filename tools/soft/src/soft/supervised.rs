//! A program whose findings decide the exit status: it runs as a child, and all of its processes
//! count.
//!
//! They record what they report in a file without a name, which they find by the number of this
//! process (`soft_rnic::check::RECORD`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use base::outcome::CommandResult;
use base::{remark, signals};
use host::sync::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use soft_rnic::check::{CheckedProcess, RECORD, STATUS, read};

use super::report::{ProgramRun, ReportFile};

/// Condition that makes the command fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailCondition {
    Never,
    WithFindings,
    WithNotes,
}

impl FailCondition {
    /// By the value of `--check`.
    pub(super) fn from_flag(check: &str) -> FailCondition {
        match check {
            "fail" => FailCondition::WithFindings,
            "strict" => FailCondition::WithNotes,
            _ => FailCondition::Never,
        }
    }

    /// The reason if this is a failure.
    fn judge(self, all: &[CheckedProcess]) -> Option<String> {
        let with = |has: fn(&CheckedProcess) -> bool| all.iter().filter(|of| has(of)).count();
        let (findings, notes) =
            (with(|of| !of.findings.is_empty()), with(|of| !of.notes.is_empty()));
        let of = |n, what| format!("{n} of {} processes that opened a device: {what}", all.len());
        match self {
            FailCondition::Never => None,
            // Whatever the program says: a test that checks nothing is none.
            _ if all.is_empty() => Some("no process opened a device: nothing was checked".into()),
            _ if findings > 0 => Some(of(findings, "findings")),
            FailCondition::WithNotes if notes > 0 => Some(of(notes, "notes")),
            _ => None,
        }
    }
}

/// Runs the program to its end, and ends as it does, or with [`STATUS`].
pub(super) fn run(
    mut program: Command,
    words: &[String],
    (fails, report): (FailCondition, Option<&ReportFile>),
) -> CommandResult {
    let record = File::from(memfd_create("rdma-conn check", MemfdFlags::CLOEXEC)?);
    program.env(RECORD, format!("/proc/{}/fd/{}", std::process::id(), record.as_raw_fd()));
    let status = shells(supervise(&mut program)?);
    let processes = read(record)?;
    let why = fails.judge(&processes);
    if let Some(report) = report {
        report.write(&ProgramRun {
            command: words,
            program_status: status,
            failed: why.is_some(),
            why: why.as_deref(),
            counts_notes: fails == FailCondition::WithNotes,
            processes: &processes,
        })?;
    }
    if let Some(why) = &why {
        remark!("rdma-conn soft: {why}");
    }
    std::process::exit(if why.is_some() { STATUS } else { status })
}

/// A status as a shell has it.
fn shells(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Signals that are passed on.
const PASSED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The program, from its start until it has ended; its number is its own meanwhile.
type RunningProgram = Arc<Mutex<Option<Pid>>>;

/// Starts the program, passes signals on to it, and waits for its end.
fn supervise(program: &mut Command) -> io::Result<ExitStatus> {
    let heard = PASSED.into_iter().filter(|signal| signals::is_heard(*signal));
    let signals = SignalsInfo::<WithRawSiginfo>::new(heard)?;
    let running = RunningProgram::default();
    // A signal that arrives before the program has started waits for the start.
    let mut starting = running.lock();
    let passing = Arc::clone(&running);
    host::thread::spawn("signals", move || pass(signals, &passing))?;
    let mut child = program.spawn()?;
    *starting = Some(Pid::from_child(&child));
    drop(starting);
    wait(&mut child, &running)
}

/// Passes signals on. Those of the kernel are a terminal's, which the program gets as well.
fn pass(mut signals: SignalsInfo<WithRawSiginfo>, running: &RunningProgram) {
    for info in signals.forever() {
        let is_a_process = info.si_code <= 0;
        let Some(signal) = Signal::from_named_raw(info.si_signo).filter(|_| is_a_process) else {
            continue;
        };
        let running = running.lock();
        // It may have ended already, and get it all the same: nothing has waited for it.
        let _ = running.map(|program| kill_process(program, signal));
    }
}

#[expect(clippy::disallowed_methods, reason = "it waits for a process of the host")]
fn wait(child: &mut Child, running: &RunningProgram) -> io::Result<ExitStatus> {
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let program = Pid::from_child(child);
    while matches!(waitid(WaitId::Pid(program), ends), Err(Errno::INTR)) {}
    *running.lock() = None;
    child.wait()
}

#[cfg(test)]
mod tests;
