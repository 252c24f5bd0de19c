//! Progress of the receivers of a copy, and the waiting of some for others.
//!
//! A piece of a file is read once for all receivers that keep up with each other, and kept
//! until the last of them has got it. So a receiver that is ahead by all that is kept waits for
//! the others, but for each of them for a part of the time only. A receiver that is slow or dead
//! falls behind and reads for itself: the others no longer wait for it.

use std::time::{Duration, Instant};

/// Number of an entry, and of a piece in it.
pub(super) type At = (u32, u64);

/// The others wait for a receiver for at most one part in so many of the time.
const PART: u32 = 4;

/// Standing of a receiver among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Pieces are kept for it.
    KeepsUp,
    /// It reads for itself.
    Behind,
    Gone,
}

#[derive(Debug)]
struct Runner {
    standing: Standing,
    /// The piece that it has asked for last: it has got all those before.
    next: At,
    /// Time that the others still wait for it, as of `then`.
    patience: Duration,
    then: Instant,
}

/// All receivers, by their numbers.
#[derive(Debug)]
pub(super) struct Pace {
    runners: Vec<Runner>,
    /// The longest that the others wait for a receiver that makes no progress.
    longest: Duration,
}

/// A receiver's wait for others: from a time on, for no longer than the patience with any of them.
#[derive(Debug)]
pub(super) struct Wait {
    others: Vec<usize>,
    from: Instant,
    pub(super) most: Duration,
}

impl Pace {
    pub(super) fn new(longest: Duration) -> Pace {
        Pace { runners: Vec::new(), longest }
    }

    /// One more receiver, at the first piece; its number.
    pub(super) fn join(&mut self, now: Instant) -> usize {
        let (standing, patience) = (Standing::KeepsUp, self.longest);
        self.runners.push(Runner { standing, next: (0, 0), patience, then: now });
        self.runners.len() - 1
    }

    /// A receiver needs nothing more.
    pub(super) fn leave(&mut self, who: usize) {
        self.runners[who].standing = Standing::Gone;
        if self.first_needed().is_none() {
            // Those that are left are together again.
            let behind = self.runners.iter_mut().filter(|other| other.standing == Standing::Behind);
            behind.for_each(|other| other.standing = Standing::KeepsUp);
        }
    }

    /// A receiver asks for a piece; pieces are asked for in order.
    pub(super) fn asks_for(&mut self, who: usize, at: At) {
        self.runners[who].next = at;
    }

    /// A receiver gets what it asked for: it keeps up with the others if it was kept, or is
    /// not before what they need.
    pub(super) fn has_come_to(&mut self, who: usize, at: At, was_kept: bool) {
        if was_kept || self.first_needed().is_none_or(|first| at >= first) {
            self.runners[who].standing = Standing::KeepsUp;
        }
    }

    /// The first piece that a receiver that keeps up may need.
    pub(super) fn first_needed(&self) -> Option<At> {
        self.keeping_up().map(|(_, runner)| runner.next).min()
    }

    /// Reports whether a receiver other than `who` keeps up and may need this piece.
    pub(super) fn is_needed_beside(&self, who: usize, at: At) -> bool {
        self.keeping_up().any(|(number, runner)| number != who && runner.next <= at)
    }

    fn keeping_up(&self) -> impl Iterator<Item = (usize, &Runner)> {
        let runners = self.runners.iter().enumerate();
        runners.filter(|(_, runner)| runner.standing == Standing::KeepsUp)
    }

    /// The wait of `who` before it reads further ahead, for the others that need the oldest
    /// piece that is kept; `None` if there are none.
    pub(super) fn must_wait(&mut self, who: usize, oldest: At, now: Instant) -> Option<Wait> {
        let mut wait = Wait { others: Vec::new(), from: now, most: self.longest };
        for (number, other) in self.runners.iter_mut().enumerate() {
            if number == who || other.standing != Standing::KeepsUp || other.next > oldest {
                continue;
            }
            other.pass(now, now, self.longest);
            wait.others.push(number);
            wait.most = wait.most.min(other.patience);
        }
        (!wait.others.is_empty()).then_some(wait)
    }

    /// A wait is over, whether the others have gone on meanwhile or not. Those with whom there is
    /// no patience left have fallen behind.
    pub(super) fn has_waited(&mut self, wait: &Wait, now: Instant) {
        for number in &wait.others {
            let other = &mut self.runners[*number];
            other.pass(wait.from, now, self.longest);
            if other.patience.is_zero() && other.standing == Standing::KeepsUp {
                other.standing = Standing::Behind;
            }
        }
    }
}

impl Runner {
    /// Time has passed until `now`. From `from` on other receivers have waited for this one: that
    /// reduces the patience with it, once for all that wait. Time without a waiter adds to it.
    fn pass(&mut self, from: Instant, now: Instant, longest: Duration) {
        let from = from.max(self.then);
        let gained = from.duration_since(self.then) / PART;
        let waited = now.saturating_duration_since(from);
        self.patience = (self.patience + gained).min(longest).saturating_sub(waited);
        self.then = self.then.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(100);

    /// A pace of so many, and when it began.
    fn pace(runners: usize) -> (Pace, Instant) {
        let (mut pace, start) = (Pace::new(LONGEST), Instant::now());
        (0..runners).for_each(|number| assert_eq!(pace.join(start), number));
        (pace, start)
    }

    /// Waits for others for at most `most`, if `who` has to; returns the time that was waited.
    fn wait(pace: &mut Pace, who: usize, oldest: At, now: Instant, most: Duration) -> Duration {
        let Some(wait) = pace.must_wait(who, oldest, now) else { return Duration::ZERO };
        let waited = wait.most.min(most);
        pace.has_waited(&wait, now + waited);
        waited
    }

    #[test]
    fn a_stalled_receiver_falls_behind_after_the_longest_wait() {
        let (mut pace, start) = pace(3);
        pace.asks_for(0, (0, 9));
        pace.asks_for(1, (0, 5));
        assert_eq!(pace.first_needed(), Some((0, 0)));
        // Two that are ahead wait for the third, for the same time.
        let waits = [0, 1].map(|who| pace.must_wait(who, (0, 3), start).unwrap());
        for wait in waits {
            assert_eq!((&*wait.others, wait.most), (&[2][..], LONGEST));
            pace.has_waited(&wait, start + 30 * MS);
        }
        let now = start + 30 * MS;
        assert_eq!(wait(&mut pace, 0, (0, 3), now, LONGEST), 70 * MS);
        assert!(pace.must_wait(0, (0, 3), start + LONGEST + MS).is_none());
        assert_eq!(pace.first_needed(), Some((0, 5)), "nothing is kept for the third");
        assert!(!pace.is_needed_beside(1, (0, 7)) && pace.is_needed_beside(0, (0, 7)));
        pace.has_come_to(2, (0, 1), false);
        assert!(!pace.is_needed_beside(1, (0, 7)), "it is still behind");
        pace.has_come_to(2, (0, 6), false);
        assert!(pace.is_needed_beside(1, (0, 7)), "it has caught up");
    }

    /// However often a receiver is a little late, the others lose only a part of their time.
    #[test]
    fn a_slow_receiver_costs_others_a_part_of_their_time() {
        let (mut pace, start) = pace(2);
        let (mut now, mut waited, mut at) = (start, Duration::ZERO, 0);
        while now < start + 1000 * LONGEST {
            pace.asks_for(0, (0, at + 1));
            pace.asks_for(1, (0, at));
            pace.has_come_to(1, (0, at), true);
            let time = wait(&mut pace, 0, (0, at), now, 3 * MS);
            (waited, at) = (waited + time, at + 1);
            // It takes a while until there is something to wait for again.
            now += time + MS;
        }
        let bound = LONGEST + (now - start) / PART;
        assert!(waited <= bound && waited > bound / 2, "{waited:?} of {:?}", now - start);
    }

    #[test]
    fn a_receiver_that_leaves_needs_no_more_pieces() {
        let (mut pace, start) = pace(3);
        pace.asks_for(0, (1, 0));
        for number in [1, 2] {
            pace.asks_for(number, (0, number as u64));
        }
        wait(&mut pace, 0, (0, 5), start, LONGEST);
        assert!(pace.must_wait(0, (0, 5), start + LONGEST + MS).is_none());
        assert_eq!(pace.first_needed(), Some((1, 0)));
        pace.leave(0);
        assert_eq!(pace.first_needed(), Some((0, 1)));
        assert!(pace.is_needed_beside(2, (0, 2)), "one reads for both");
        pace.leave(1);
        pace.leave(2);
        assert_eq!(pace.first_needed(), None);
    }
}
