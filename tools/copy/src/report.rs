//! Reports of a copy: a line of a table, a sentence, or a JSON object.

use std::time::Duration;

use base::cli::CommonArgs;
use base::outcome::printable;
use base::readable::{bytes, counted_as};
use base::{pinning, remark};
use rdma_conn::device::Device;
use serde::Serialize;

use super::tally::CopyTally;
use super::wire::Finished;

/// One line of `--json`.
#[derive(Serialize)]
pub(super) struct CopyLine<'a> {
    protocol: &'static str,
    device: &'a str,
    /// The address of the other end.
    peer: String,
    entries: u64,
    /// Bytes that went over, and that were there already.
    bytes: u64,
    bytes_present: u64,
    seconds: f64,
    bytes_per_s: f64,
    /// Way in which the destination was written: `mapped` (READs have landed in it), `buffers`
    /// (written out of them), both, or nothing. At the sender: what the receiver says, or
    /// `unknown`.
    destination: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_mapped: Option<u64>,
    /// True if all of it is on the receiver's disk.
    synced: bool,
    /// At the receiver: why something was not mapped that is worth it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_mapped: Option<String>,
    failed: u64,
    /// Entries that failed, as far as they are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<NotCopied>,
    /// Entries that are there, and are not in all as they are at the sender; and why, as far as
    /// they are named.
    differing: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<NotCopied>,
    /// At the sender: entries that were not reached before an early end.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<u64>,
    /// At the sender: what is neither file, directory nor link.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    /// The processors that this end runs on, where they were listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    pub(super) ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// An entry that could not be copied, or not in all.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
pub(super) struct NotCopied {
    path: String,
    why: String,
}

/// Names the destination of these numbers of bytes: in the files themselves, and out of buffers.
fn destination(mapped: u64, buffered: u64) -> &'static str {
    match (mapped, buffered) {
        (0, 0) => "nothing",
        (_, 0) => "mapped",
        (0, _) => "buffers",
        _ => "mapped and buffers",
    }
}

/// The columns of the table, a row of which is printed for each receiver.
pub(super) const TABLE: [&str; 8] =
    ["receiver", "entries", "sent", "present", "destination", "rate", "failed", "missing"];

/// Number of failed entries that are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedFailures {
    /// The first [`NamedFailures::MOST`].
    Some,
    /// All (`-v`).
    All,
}

impl NamedFailures {
    const MOST: usize = 20;

    pub(super) fn from_args(common: &CommonArgs) -> NamedFailures {
        if common.verbose > 0 { NamedFailures::All } else { NamedFailures::Some }
    }

    /// Lists the failed entries for the JSON.
    pub(super) fn list<'a>(
        self,
        failed: impl Iterator<Item = (String, &'a str)>,
    ) -> Vec<NotCopied> {
        let most = if self == NamedFailures::All { usize::MAX } else { NamedFailures::MOST };
        let named = failed.map(|(path, why)| NotCopied { path, why: why.to_owned() });
        named.take(most).collect()
    }
}

/// Entries that something is to be said of, and what.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Vec<(String, String)>,
}

impl Noted {
    /// The most that are kept by name.
    pub(super) const MOST: usize = 1000;

    pub(super) fn add(&mut self, name: String, why: String) {
        self.count += 1;
        if self.first.len() < Noted::MOST {
            self.first.push((name, why));
        }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (String, &str)> {
        self.first.iter().map(|(name, why)| (name.clone(), &**why))
    }

    /// Says it of each.
    pub(super) fn complain(&self, prefix: &str, named: NamedFailures) {
        complain_of_each(prefix, self.each(), named, self.count - self.first.len() as u64);
    }
}

/// Advice after an interruption.
pub(super) const GOES_ON: &str = "the same command resumes the copy";

/// Names the failed entries, and counts those whose names were not kept (`forgotten`), which `-v`
/// prints when they fail. Failures inside of a directory that has failed are only counted.
pub(super) fn complain_of_each<'a>(
    whose: &str,
    failed: impl Iterator<Item = (String, &'a str)>,
    named: NamedFailures,
    forgotten: u64,
) {
    for line in complaints(failed, named, forgotten) {
        complain(format_args!("{whose}{line}"));
    }
}

fn complaints<'a>(
    failed: impl Iterator<Item = (String, &'a str)>,
    named: NamedFailures,
    forgotten: u64,
) -> Vec<String> {
    let (mut last, mut lines, mut below, mut others) = (None, Vec::new(), 0, forgotten);
    for (name, why) in failed {
        let is_below = |last: &String| name.starts_with(&format!("{last}/"));
        if last.as_ref().is_some_and(is_below) {
            below += 1;
        } else if named == NamedFailures::Some && lines.len() == NamedFailures::MOST {
            others += 1;
        } else {
            lines.push(format!("{name}: {why}"));
            last = Some(name);
        }
    }
    if below > 0 {
        lines.push(format!("and {below} more, in directories that have failed"));
    }
    if others > 0 {
        let where_told =
            if named == NamedFailures::All { "told above" } else { "of which -v tells" };
        lines.push(format!("and {others} more, {where_told}"));
    }
    lines
}

/// Reports a failure in one line; its text may be a peer's, so that it is made printable.
pub(super) fn complain(what: std::fmt::Arguments<'_>) {
    remark!("rdma-conn: {}", printable(&what.to_string()));
}

/// Result of one copy.
pub(super) struct CopySummary<'a> {
    pub(super) tally: &'a CopyTally,
    /// Way in which the destination was written, if that is known.
    pub(super) how: Option<Finished>,
}

pub(super) fn line<'a>(
    device: &'a Device,
    peer: String,
    counts: CopySummary<'_>,
    time: Duration,
    error: Option<String>,
) -> CopyLine<'a> {
    let seconds = time.as_secs_f64();
    let CopySummary { tally, how } = counts;
    let (failed, differing) = (tally.failed(), tally.differing());
    CopyLine {
        protocol: "direct-read",
        device: device.name(),
        peer,
        entries: tally.entries(),
        bytes: tally.moved(),
        bytes_present: tally.present(),
        seconds,
        bytes_per_s: tally.moved() as f64 / seconds.max(1e-9),
        destination: how.map_or("unknown", |how| destination(how.mapped, how.buffered)),
        bytes_mapped: how.map(|how| how.mapped),
        synced: how.is_some_and(|how| how.synced),
        not_mapped: None,
        failed,
        failures: Vec::new(),
        differing,
        differences: Vec::new(),
        missing: None,
        left_out: None,
        cpu: pinning::listed(),
        ok: error.is_none() && failed == 0 && differing == 0,
        error,
    }
}

impl CopyLine<'_> {
    /// Adds the numbers that only the sender knows: all entries, and paths that are left out.
    pub(super) fn count_at_sender(&mut self, all: u64, left_out: u64) {
        self.missing = Some(all.saturating_sub(self.entries + self.failed));
        self.left_out = Some(left_out).filter(|n| *n > 0);
        self.ok &= left_out == 0;
    }

    /// Row of the table for people, where there are `all` entries.
    pub(super) fn row(&self, all: u64) -> [String; 8] {
        let is_whole = self.error.is_none();
        let there = if is_whole { String::new() } else { format!(" of {all}") };
        [
            self.peer.clone(),
            format!("{}{there}", self.entries),
            bytes(self.bytes),
            bytes(self.bytes_present),
            self.destination.to_owned(),
            format!("{}/s", bytes(self.bytes_per_s as u64)),
            self.failed.to_string(),
            self.missing.unwrap_or(0).to_string(),
        ]
    }

    /// For people at the receiver.
    pub(super) fn says(&self) -> String {
        let CopyLine { peer, entries, destination, failed, differing, seconds, .. } = self;
        let (moved, had) = (bytes(self.bytes), bytes(self.bytes_present));
        let entries = counted_as(*entries, "entry", "entries");
        let early = if self.error.is_none() { "" } else { ", and no more" };
        let differ = match differing {
            0 => String::new(),
            n => format!(", {n} not as at the sender"),
        };
        format!(
            "{peer}: {entries}, {moved} read ({destination}) in {seconds:.1} s, \
             {had} present, {failed} failed{differ}{early}"
        )
    }
}

#[cfg(test)]
mod tests;
