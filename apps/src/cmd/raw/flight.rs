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
    faults: Faults,
}

/// Counts of what an unreliable transport has done to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Faults {
    /// Messages without an answer in time.
    pub(super) lost: u64,
    /// Answers that were overtaken by a later one.
    pub(super) reordered: u64,
    /// Answers to messages that no longer wait for one: late, or repeated.
    pub(super) late: u64,
}

impl Faults {
    pub(super) fn and(self, more: Faults) -> Faults {
        Faults {
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
            faults: Faults::default(),
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

    pub(super) fn faults(&self) -> Faults {
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

    /// Gives up those that have waited for longer than `patience`; how many.
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
pub(super) struct Seen {
    /// One more than the newest number.
    next: u64,
    /// A bit for each of the last `SPAN` numbers before `next`: set if the message has arrived.
    recent: Box<[u64]>,
    /// Messages that came once at least.
    pub(super) unique: u64,
    pub(super) reordered: u64,
    pub(super) repeated: u64,
}

impl Seen {
    /// Numbers that `recent` covers: a message from further back counts as repeated.
    const SPAN: u64 = 4096;

    pub(super) fn new() -> Seen {
        let recent = vec![0; (Self::SPAN / 64) as usize].into();
        Seen { next: 0, recent, unique: 0, reordered: 0, repeated: 0 }
    }

    /// The number that the low bits stand for: the nearest to what comes next.
    #[inline]
    pub(super) fn number(&self, low: u32) -> u64 {
        let shift = 32 - NUMBER_BITS;
        let ahead = (low.wrapping_sub(self.next as u32) << shift) as i32 >> shift;
        self.next.saturating_add_signed(ahead.into())
    }

    /// Message `number` has come; whether for the first time.
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
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn flight(window: u32, sent: u64) -> (Flight, Instant) {
        let (mut flight, start) = (Flight::new(window), Instant::now());
        (0..sent).for_each(|i| flight.depart(start + TICK * i as u32));
        (flight, start)
    }

    #[test]
    fn a_reliable_transport_answers_the_oldest_first() {
        let (mut flight, start) = flight(4, 4);
        assert!(!flight.has_room());
        for i in 0..4 {
            assert_eq!(flight.arrive(), Some(start + TICK * i));
        }
        assert_eq!((flight.arrive(), flight.faults()), (None, Faults::default()));
        assert!(flight.has_room() && !flight.is_waiting());
    }

    #[test]
    fn an_answer_that_was_overtaken_is_counted_and_no_loss() {
        let (mut flight, start) = flight(4, 3);
        for number in [1, 0, 2] {
            let left = flight.arrive_out_of_order(number);
            assert_eq!(left, Some(start + TICK * number as u32));
        }
        assert_eq!(flight.faults(), Faults { reordered: 1, ..Faults::default() });
        assert_eq!(flight.awaited(), 3);
    }

    #[test]
    fn what_is_given_up_is_lost_and_its_answer_late() {
        let (mut flight, start) = flight(4, 4);
        assert!(flight.arrive_out_of_order(2).is_some());
        assert_eq!(flight.give_up(start + 5 * TICK, 3 * TICK), 2, "0 and 1 are old");
        assert_eq!(flight.awaited(), 3, "2 was answered");
        assert_eq!(flight.arrive_out_of_order(1), None);
        assert_eq!(flight.arrive_out_of_order(2), None, "a repetition");
        assert_eq!(flight.faults(), Faults { lost: 2, reordered: 0, late: 2 });
        assert!(flight.has_room() && flight.is_waiting());
    }

    #[test]
    fn numbers_are_known_by_their_low_bits() {
        let (mut flight, start) = flight(2, 0);
        assert_eq!(flight.number(0), None, "nothing has been sent");
        for sent in 0..(1 << NUMBER_BITS) + 3 {
            flight.depart(start);
            assert!(flight.arrive().is_some());
            if sent > (1 << NUMBER_BITS) - 3 {
                let low = sent as u32 & ((1 << NUMBER_BITS) - 1);
                assert_eq!(flight.number(low), Some(sent));
            }
        }
    }

    #[test]
    fn a_stream_with_every_fault_is_counted() {
        let mut seen = Seen::new();
        let fates: Vec<bool> = [0, 1, 3, 2, 3, 5].into_iter().map(|n| seen.see(n)).collect();
        assert_eq!(fates, [true, true, true, true, false, true]);
        assert_eq!((seen.unique, seen.reordered, seen.repeated), (5, 1, 1));
        // A gap that is longer than the memory of it.
        assert!(seen.see(100_000) && !seen.see(5) && !seen.see(100_000) && seen.see(99_999));
        assert_eq!((seen.unique, seen.reordered, seen.repeated), (7, 2, 3));
    }

    #[test]
    fn skipped_numbers_of_a_lap_ago_are_not_taken_for_seen() {
        let mut seen = Seen::new();
        (0..Seen::SPAN).for_each(|n| assert!(seen.see(n)));
        assert!(seen.see(Seen::SPAN + 70));
        assert!((0..70).all(|n| seen.see(Seen::SPAN + n)));
        assert_eq!((seen.reordered, seen.repeated), (70, 0));
    }

    #[test]
    fn the_nearest_number_is_meant() {
        let mut seen = Seen::new();
        assert_eq!((seen.number(0), seen.number(5)), (0, 5));
        let top = (1 << NUMBER_BITS) - 1;
        seen.see(u64::from(top));
        assert_eq!(seen.number(0), 1 << NUMBER_BITS);
        assert_eq!(seen.number(top), u64::from(top));
        assert_eq!(seen.number(2), (1 << NUMBER_BITS) + 2);
    }
}
