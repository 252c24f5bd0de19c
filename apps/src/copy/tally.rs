//! How far a copy has come, for whoever looks on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::bench::bytes;

/// What has come of a copy to one receiver. Relaxed: these are numbers for people, and none says
/// anything of another.
#[derive(Debug, Default)]
pub(super) struct Tally {
    moved: AtomicU64,
    had: AtomicU64,
    entries: AtomicU64,
}

impl Tally {
    /// So many bytes more have gone over.
    pub(super) fn moves(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes more were there already.
    pub(super) fn has(&self, bytes: u64) {
        self.had.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One more entry is there.
    pub(super) fn done(&self) {
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn had(&self) -> u64 {
        self.had.load(Ordering::Relaxed)
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}

/// Tells of a tally now and then.
#[derive(Debug)]
pub(super) struct Onlooker<'a> {
    whom: String,
    tally: &'a Tally,
    /// What there is in all, where that is known: bytes and entries.
    whole: Option<(u64, u64)>,
    /// The bytes when it was told last.
    last: (u64, Instant),
}

impl<'a> Onlooker<'a> {
    pub(super) fn new(whom: String, tally: &'a Tally, whole: Option<(u64, u64)>) -> Onlooker<'a> {
        Onlooker { whom, tally, whole, last: (0, Instant::now()) }
    }

    /// A line of what has come since the last one.
    pub(super) fn line(&mut self) -> String {
        let (moved, had, entries) = (self.tally.moved(), self.tally.had(), self.tally.entries());
        let (before, then) = std::mem::replace(&mut self.last, (moved, Instant::now()));
        let seconds = self.last.1.duration_since(then).as_secs_f64().max(1e-9);
        let rate = bytes(((moved - before) as f64 / seconds) as u64);
        let there = bytes(moved + had);
        let whom = &self.whom;
        match self.whole {
            Some((all, count)) => {
                let all = bytes(all);
                format!("{whom}: {there} of {all}, {entries} of {count} entries, {rate}/s")
            }
            None => format!("{whom}: {there}, {entries} entries, {rate}/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_is_there_and_of_how_much() {
        let tally = Tally::default();
        let mut receiver = Onlooker::new("there".into(), &tally, None);
        assert_eq!(receiver.line(), "there: 0 B, 0 entries, 0 B/s");
        tally.moves(5);
        tally.has(20_000);
        tally.done();
        let mut sender = Onlooker::new("here".into(), &tally, Some((30_000, 3)));
        let line = sender.line();
        assert!(line.starts_with("here: 20.0 kB of 30.0 kB, 1 of 3 entries, "), "{line}");
        assert!(sender.line().ends_with(", 0 B/s"), "nothing has come since");
    }
}
