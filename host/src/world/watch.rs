//! Addresses that a thread polls.

use core::ops::Range;

/// The addresses that a thread has polled since its last rest, and the news of a change at one of
/// them.
#[derive(Debug, Default)]
pub(super) struct WatchedAddresses {
    /// Words and queues, by their addresses.
    ranges: Vec<Range<usize>>,
    is_signalled: bool,
}

/// A thread that watches more addresses sleeps for the shortest time only, as one that watches
/// none.
const MOST: usize = 256;

impl WatchedAddresses {
    /// The thread polls `len` bytes from there on.
    pub(super) fn add(&mut self, from: usize, len: usize) {
        let range = from..from + len;
        if self.ranges.len() <= MOST && !self.ranges.contains(&range) {
            self.ranges.push(range);
        }
    }

    /// `len` bytes from there on change.
    pub(super) fn notify(&mut self, from: usize, len: usize) {
        let overlaps = |range: &Range<usize>| range.start < from + len && from < range.end;
        self.is_signalled |= self.ranges.iter().any(overlaps);
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.is_signalled
    }

    /// Reports whether the watch covers all that the thread has polled.
    pub(super) fn is_complete(&self) -> bool {
        (1..=MOST).contains(&self.ranges.len())
    }

    /// The thread looks anew.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.is_signalled = false;
    }
}

#[cfg(test)]
mod tests;
