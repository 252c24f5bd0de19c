//! Progress of a copy, for reports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base::readable::{bytes, counted_as};

/// Progress of a copy to one receiver. Relaxed: these numbers are only displayed, and none implies
/// anything about another.
#[derive(Debug, Default)]
pub(super) struct CopyTally {
    moved: AtomicU64,
    present: AtomicU64,
    entries: AtomicU64,
    failed: AtomicU64,
    differing: AtomicU64,
}

impl CopyTally {
    /// Adds `bytes` to those that were transferred.
    pub(super) fn moves(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds `bytes` to those that the receiver had already.
    pub(super) fn add_present(&self, bytes: u64) {
        self.present.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One more entry is there.
    pub(super) fn done(&self) {
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// One more entry has failed.
    pub(super) fn fails(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// One more entry is there, and differs from the sender's.
    pub(super) fn differs(&self) {
        self.differing.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn differing(&self) -> u64 {
        self.differing.load(Ordering::Relaxed)
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn present(&self) -> u64 {
        self.present.load(Ordering::Relaxed)
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}

/// Number of entries that have ended at all receivers, of `all`.
pub(super) fn ended<'a>(tallies: impl Iterator<Item = &'a CopyTally>, all: u64) -> String {
    let ended: u64 = tallies.map(|tally| tally.entries() + tally.failed()).sum();
    format!("{ended} of {}", counted_as(all, "entry", "entries"))
}

/// Reports a tally now and then.
#[derive(Debug)]
pub(super) struct Onlooker<'a> {
    whom: String,
    tally: &'a CopyTally,
    /// Bytes and entries in all, if these are known.
    whole: Option<(u64, u64)>,
    /// The bytes at the last report, and its time.
    last: (u64, Instant),
}

impl<'a> Onlooker<'a> {
    pub(super) fn new(
        whom: String,
        tally: &'a CopyTally,
        whole: Option<(u64, u64)>,
    ) -> Onlooker<'a> {
        Onlooker { whom, tally, whole, last: (0, host::time::now()) }
    }

    /// A line about the progress since the last one.
    pub(super) fn line(&mut self) -> String {
        let (moved, had, entries) =
            (self.tally.moved(), self.tally.present(), self.tally.entries());
        let (before, then) = std::mem::replace(&mut self.last, (moved, host::time::now()));
        let seconds = self.last.1.duration_since(then).as_secs_f64().max(1e-9);
        let rate = bytes(((moved - before) as f64 / seconds) as u64);
        let there = bytes(moved + had);
        let whom = &self.whom;
        match self.whole {
            Some((all, count)) => {
                let all = bytes(all);
                let count = counted_as(count, "entry", "entries");
                format!("{whom}: {there} of {all}, {entries} of {count}, {rate}/s")
            }
            None => {
                let entries = counted_as(entries, "entry", "entries");
                format!("{whom}: {there}, {entries}, {rate}/s")
            }
        }
    }
}

#[cfg(test)]
mod tests;
