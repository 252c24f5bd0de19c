//! A program whose findings decide the exit status: it runs as a child, and all of its processes count.
//!
//! They record what they report in a file without a name, which they find by the number of this
//! process (`soft_rnic::check::RECORD`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use host::sync::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use soft_rnic::check::{RECORD, STATUS, Tally};

use crate::outcome::Outcome;
use crate::signals;

/// What makes the command fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fails {
    WithFindings,
    WithNotes,
}

impl Fails {
    /// By the value of `--check`.
    pub(super) fn of(check: &str) -> Option<Fails> {
        match check {
            "fail" => Some(Fails::WithFindings),
            "strict" => Some(Fails::WithNotes),
            _ => None,
        }
    }

    /// Whether this is a failure, and why, in a line.
    fn judge(self, tally: Tally) -> (bool, Option<String>) {
        let Tally { checked, with_findings, with_notes } = tally;
        let of = |n: u64, what| format!("{n} of {checked} processes that opened a device: {what}");
        match self {
            _ if with_findings > 0 => (true, Some(of(with_findings, "findings"))),
            Fails::WithNotes if with_notes > 0 => (true, Some(of(with_notes, "notes"))),
            _ if checked == 0 => {
                let why = "no process opened a device: nothing was checked";
                (self == Fails::WithNotes, Some(why.into()))
            }
            _ => (false, None),
        }
    }
}

/// Runs the program to its end, and ends as it does, or with [`STATUS`].
pub(super) fn run(mut program: Command, fails: Fails) -> Outcome {
    let record = File::from(memfd_create("rdma-conn check", MemfdFlags::CLOEXEC)?);
    program.env(RECORD, format!("/proc/{}/fd/{}", std::process::id(), record.as_raw_fd()));
    let status = supervise(&mut program)?;
    let (is_failure, why) = fails.judge(Tally::read(record)?);
    if let Some(why) = why {
        remark!("rdma-conn soft: {why}");
    }
    std::process::exit(if is_failure { STATUS } else { shells(status) })
}

/// A status as a shell has it.
fn shells(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Signals that are passed on.
const PASSED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The program, from its start until it has ended; its number is its own meanwhile.
type Running = Arc<Mutex<Option<Pid>>>;

/// Starts the program, passes signals on to it, and waits for its end.
fn supervise(program: &mut Command) -> io::Result<ExitStatus> {
    let heard = PASSED.into_iter().filter(|signal| signals::is_heard(*signal));
    let signals = SignalsInfo::<WithRawSiginfo>::new(heard)?;
    let running = Running::default();
    // What comes before the program has started waits for it.
    let mut starting = running.lock();
    let passing = Arc::clone(&running);
    host::thread::spawn("signals", move || pass(signals, &passing))?;
    let mut child = program.spawn()?;
    *starting = Some(Pid::from_child(&child));
    drop(starting);
    wait(&mut child, &running)
}

/// Passes signals on. Those of the kernel are a terminal's, which the program gets as well.
fn pass(mut signals: SignalsInfo<WithRawSiginfo>, running: &Running) {
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

fn wait(child: &mut Child, running: &Running) -> io::Result<ExitStatus> {
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let program = Pid::from_child(child);
    while matches!(waitid(WaitId::Pid(program), ends), Err(Errno::INTR)) {}
    *running.lock() = None;
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_fail_and_notes_only_if_they_are_to() {
        let judge = |fails: Fails, counts: [u64; 3]| {
            let [checked, with_findings, with_notes] = counts;
            fails.judge(Tally { checked, with_findings, with_notes }).0
        };
        let of = |counts| [Fails::WithFindings, Fails::WithNotes].map(|fails| judge(fails, counts));
        assert_eq!(of([1, 0, 0]), [false, false]);
        assert_eq!(of([2, 0, 1]), [false, true]);
        assert_eq!(of([2, 1, 0]), [true, true]);
        assert_eq!(of([0, 0, 0]), [false, true]);
    }

    #[test]
    fn a_status_is_a_shells() {
        assert_eq!(shells(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shells(ExitStatus::from_raw(9)), 137);
    }
}
