//! Lines on standard error: findings and notes, and their sum at the end.

use std::io::Write;

use host::sync::Mutex;

use crate::cancellation::Uncancelled;
use crate::enums::{NamedEnum, named_enum};

use super::record::{RECORD, RecordFile, RecordMark};

/// Lines of a kind; those beyond are only counted.
pub(crate) const LINES: u64 = 16;

named_enum! {
    /// Kind of a report, with its name in the line that only counts its reports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ReportKind {
        ChangedBeforeExecution = "buffers changed before the execution",
        ChangedBeforeResend = "buffers changed before a packet was sent again",
        ChangedBeforePoll = "buffers changed before the completion was polled",
        WrittenWhilePosted = "receive buffers written to while posted",
        ChangedAfterArrival = "messages changed before their completion was polled",
        Deregistered = "buffers deregistered while posted",
        Unreadable = "buffers unmapped or protected while posted",
        Failed = "requests that failed by a mistake",
        Refused = "calls that were refused",
        CouldOverflow = "completion queues that could overflow",
        Overrun = "completion queues that have overrun",
        TooSmall = "receive buffers that were too small",
        Unacknowledged = "objects with events that were never acknowledged",
        // From here on notes.
        WindowEnded = "accesses by keys of windows that are no longer bound",
        Overlaps = "buffers that overlap",
        Unpolled = "objects with completions that were never polled",
        Unread = "objects with events that were never read",
        Leak = "kinds of objects that were never destroyed",
    }
}

const KINDS: usize = ReportKind::ALL.len();

impl ReportKind {
    /// Reports whether it is a mistake; otherwise it may be meant.
    pub(crate) fn is_finding(self) -> bool {
        (self as usize) < ReportKind::WindowEnded as usize
    }

    fn level(self) -> &'static str {
        if self.is_finding() { "finding" } else { "note" }
    }
}

/// Counts of the reports of each kind, and their record.
#[derive(Debug, Default)]
pub(crate) struct CheckReport {
    counts: Mutex<[u64; KINDS]>,
    record: RecordFile,
}

impl CheckReport {
    /// The report of a process, which is recorded there.
    pub(crate) fn new(record: RecordFile) -> CheckReport {
        let report = CheckReport { record, ..CheckReport::default() };
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        report.mark(RecordMark::Checked, name.trim_end());
        report
    }

    /// Tells the command that waits for the program.
    fn mark(&self, mark: RecordMark, text: &str) {
        if let Err(error) = self.record.mark(mark, text) {
            write(&format!("`rdma-conn soft` does not count this process: {RECORD}: {error}"));
        }
    }

    /// Writes a line, unless there were many of its kind.
    pub(crate) fn say(&self, kind: ReportKind, text: impl FnOnce() -> String) {
        let count = {
            let mut counts = self.counts.lock();
            counts[kind as usize] += 1;
            counts[kind as usize]
        };
        if count <= LINES {
            let text = text();
            self.mark(
                if kind.is_finding() { RecordMark::Finding } else { RecordMark::Note },
                &text,
            );
            write(&format!("{}: {text}", kind.level()));
        }
    }

    /// Writes how many there were; the numbers of findings and of notes.
    pub(crate) fn sum_up(&self) -> (u64, u64) {
        let counts = *self.counts.lock();
        for &kind in ReportKind::ALL {
            if let more @ 1.. = counts[kind as usize].saturating_sub(LINES) {
                write(&format!("{}: … and {more} more {}", kind.level(), kind.name()));
            }
        }
        let of = |findings| {
            let kinds = ReportKind::ALL.iter().filter(|kind| kind.is_finding() == findings);
            kinds.map(|kind| counts[*kind as usize]).sum()
        };
        let (findings, notes): (u64, u64) = (of(true), of(false));
        write(&format!("{}, {}", number(findings, "finding"), number(notes, "note")));
        (findings, notes)
    }
}

/// Formats a count with its noun.
pub(crate) fn number(n: u64, one: &str) -> String {
    match (n, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {one}s"),
    }
}

/// Writes one line, whole.
pub(crate) fn write(text: &str) {
    let _uncancelled = Uncancelled::new();
    let line = format!("rdma-conn check {}: {text}\n", std::process::id());
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests;
