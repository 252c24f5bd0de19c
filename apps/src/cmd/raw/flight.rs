//! Messages of one queue pair that wait for their answers, and the account of what an
//! unreliable transport does to them.

use std::time::{Duration, Instant};

use super::plan::NUMBER_BITS;

/// Messages in flight: the time at which each was sent, by its number modulo a power of two that
/// the window fits into. A division by another number would take time for every message.
///
/// Invariant: `settled <= sent <= settled + window`; below `settled` every message was
/// answered or given up, and one at `settled` is awaited, if any is.
#[derive(Debug)]
pub(super) struct Flight {
    left: Box<[Option<Instant>]>,
    window: u64,
    sent: u64,
    settled: u64,
    /// One more than the number of the newest answer.
    newest: u64,
    faults: FaultCounts,
}

/// Counts of what an unreliable transport has done to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FaultCounts {
    /// Messages without an answer in time.
    pub(super) lost: u64,
    /// Answers that were overtaken by a later one.
    pub(super) reordered: u64,
    /// Answers to messages that no longer wait for one: late, or repeated.
    pub(super) late: u64,
}

impl FaultCounts {
    pub(super) fn merge(self, more: FaultCounts) -> FaultCounts {
        FaultCounts {
            lost: self.lost + more.lost,
            reordered: self.reordered + more.reordered,
            late: self.late + more.late,
        }
    }
}

impl Flight {
    pub(super) fn new(window: u32) -> Flight {
        let left = vec![None; window.next_power_of_two() as usize].into();
        Flight {
            left,
            window: window.into(),
            sent: 0,
            settled: 0,
            newest: 0,
            faults: FaultCounts::default(),
        }
    }

    /// The number of the next message.
    #[inline]
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The number of the oldest message that is awaited, if any is.
    #[inline]
    pub(super) fn awaited(&self) -> u64 {
        self.settled
    }

    /// Reports whether an answer is awaited.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.settled < self.sent
    }

    /// Reports whether one more message may be sent.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.sent - self.settled < self.window
    }

    pub(super) fn faults(&self) -> FaultCounts {
        self.faults
    }

    #[inline]
    fn at(&self, number: u64) -> usize {
        number as usize & (self.left.len() - 1)
    }

    /// The next message leaves; there is room.
    #[inline]
    pub(super) fn depart(&mut self, now: Instant) {
        let at = self.at(self.sent);
        self.left[at] = Some(now);
        self.sent += 1;
    }

    /// The oldest message was answered, as over a reliable transport it is first; when it
    /// had left.
    #[inline]
    pub(super) fn arrive(&mut self) -> Option<Instant> {
        let at = self.at(self.settled);
        let left = self.left[at].take();
        self.settled += u64::from(left.is_some());
        self.newest = self.settled;
        left
    }

    /// The number of an answer, of which the low bits are known: the latest one that has
    /// been sent.
    #[inline]
    pub(super) fn number(&self, low: u32) -> Option<u64> {
        let behind = (self.sent as u32).wrapping_sub(low) & ((1 << NUMBER_BITS) - 1);
        if behind == 0 { None } else { self.sent.checked_sub(behind.into()) }
    }

    /// Message `number` was answered. Returns when it was sent, or `None` if it no longer waits for
    /// an answer.
    #[inline]
    pub(super) fn arrive_out_of_order(&mut self, number: u64) -> Option<Instant> {
        let at = self.at(number);
        let awaited = (self.settled..self.sent).contains(&number);
        let left = if awaited { self.left[at].take() } else { None };
        if left.is_none() {
            self.faults.late += 1;
            return None;
        }
        self.faults.reordered += u64::from(number < self.newest);
        self.newest = self.newest.max(number + 1);
        self.settle();
        left
    }

    /// Gives up those that have waited for longer than `patience`; returns their number.
    pub(super) fn give_up(&mut self, now: Instant, patience: Duration) -> u64 {
        let mut lost = 0;
        for number in self.settled..self.sent {
            let at = self.at(number);
            if self.left[at].is_some_and(|left| now.saturating_duration_since(left) > patience) {
                self.left[at] = None;
                lost += 1;
            }
        }
        self.faults.lost += lost;
        self.settle();
        lost
    }

    #[inline]
    fn settle(&mut self) {
        while self.settled < self.sent && self.left[self.at(self.settled)].is_none() {
            self.settled += 1;
        }
    }
}

/// Messages of a one-way stream that have arrived: the newest, and recent ones before it.
#[derive(Debug)]
pub(super) struct SeenWindow {
    /// One more than the newest number.
    next: u64,
    /// A bit for each of the last `SPAN` numbers before `next`: set if the message has arrived.
    recent: Box<[u64]>,
    /// Messages that arrived at least once.
    pub(super) unique: u64,
    pub(super) reordered: u64,
    pub(super) repeated: u64,
}

impl SeenWindow {
    /// Numbers that `recent` covers: a message from further back counts as repeated.
    const SPAN: u64 = 4096;

    pub(super) fn new() -> SeenWindow {
        let recent = vec![0; (Self::SPAN / 64) as usize].into();
        SeenWindow { next: 0, recent, unique: 0, reordered: 0, repeated: 0 }
    }

    /// The number that the low bits stand for: the nearest to the next expected one.
    #[inline]
    pub(super) fn number(&self, low: u32) -> u64 {
        let shift = 32 - NUMBER_BITS;
        let ahead = (low.wrapping_sub(self.next as u32) << shift) as i32 >> shift;
        self.next.saturating_add_signed(ahead.into())
    }

    /// Records that message `number` has arrived; returns true if it is the first time.
    #[inline]
    pub(super) fn see(&mut self, number: u64) -> bool {
        if number >= self.next {
            self.advance(number);
        } else if number + Self::SPAN < self.next || self.bit(number) {
            self.repeated += 1;
            return false;
        } else {
            self.reordered += 1;
        }
        self.set(number, true);
        self.unique += 1;
        true
    }

    fn advance(&mut self, number: u64) {
        if number - self.next >= Self::SPAN {
            self.recent.fill(0);
        } else {
            (self.next..number).for_each(|skipped| self.set(skipped, false));
        }
        self.next = number + 1;
    }

    #[inline]
    fn place(number: u64) -> (usize, u64) {
        ((number % Self::SPAN / 64) as usize, 1 << (number % 64))
    }

    #[inline]
    fn bit(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.recent[word] & bit != 0
    }

    #[inline]
    fn set(&mut self, number: u64, on: bool) {
        let (word, bit) = Self::place(number);
        self.recent[word] = if on { self.recent[word] | bit } else { self.recent[word] & !bit };
    }
}

#[cfg(test)]
mod tests;
