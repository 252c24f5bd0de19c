//! Free pieces of a file.

use std::collections::{BTreeMap, BTreeSet};

/// The free extents below the end of a file. No two of them touch: a freed extent is merged with
/// its neighbours. All lengths are of whole pages; the code does not depend on the page size.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// Start and length.
    free: BTreeMap<u64, u64>,
    /// The same by length, and then by start.
    by_len: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Extents {
    /// The end of the last extent that was ever taken.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the position for `len` bytes: in the shortest free extent that has room, the first
    /// one of several; else at the end, from the beginning of the last free extent if it reaches
    /// the end. `None` if the position overflows.
    pub(super) fn place(&self, len: u64) -> Option<u64> {
        let fitting = self.by_len.range((len, 0)..).next().map(|(_, start)| *start);
        let last = self.free.last_key_value().filter(|(start, len)| *start + *len == self.end);
        let at = fitting.or_else(|| last.map(|(start, _)| *start)).unwrap_or(self.end);
        at.checked_add(len).map(|_| at)
    }

    /// Takes `len` bytes at `at`, the result of [`place`](Self::place).
    pub(super) fn take(&mut self, at: u64, len: u64) {
        if let Some(free) = self.remove(at) {
            self.insert(at + len, free.saturating_sub(len));
        }
        self.end = self.end.max(at + len);
    }

    /// Gives a piece back that was taken.
    pub(super) fn give(&mut self, at: u64, len: u64) {
        let before = self.free.range(..at).next_back().map(|(start, len)| (*start, *len));
        let before = before.filter(|(start, len)| start + len == at);
        let (start, mut joined) = before.map_or((at, len), |(start, free)| (start, free + len));
        if before.is_some() {
            self.remove(start);
        }
        if let Some(behind) = self.remove(at + len) {
            joined += behind;
        }
        self.insert(start, joined);
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let len = self.free.remove(&start)?;
        self.by_len.remove(&(len, start));
        Some(len)
    }

    fn insert(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.free.insert(start, len);
            self.by_len.insert((len, start));
        }
    }
}

#[cfg(test)]
mod tests;
