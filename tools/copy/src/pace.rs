//! Progress of the receivers of a copy, and the waiting of some for others.
//!
//! A piece of a file is read once for all receivers that keep up with each other, and kept
//! until the last of them has got it. So a receiver that is ahead by all that is kept waits for
//! the others, but for each of them for a part of the time only. A receiver that is slow or dead
//! falls behind and reads the file on its own: the others no longer wait for it.

use std::time::{Duration, Instant};

/// Number of an entry, and of a piece in it.
pub(super) type At = (u32, u64);

/// Reciprocal of the largest part of the time for which the others wait for a receiver.
const PART: u32 = 4;

/// Standing of a receiver among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Pieces are kept for it.
    KeepsUp,
    /// It reads the file on its own.
    Behind,
    Gone,
}

#[derive(Debug)]
struct PacedReceiver {
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
    runners: Vec<PacedReceiver>,
    /// The longest that the others wait for a receiver that makes no progress.
    longest: Duration,
}

/// A receiver's wait for others: from a time on, for no longer than the patience with any of them.
#[derive(Debug)]
pub(super) struct PaceWait {
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
        self.runners.push(PacedReceiver { standing, next: (0, 0), patience, then: now });
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

    fn keeping_up(&self) -> impl Iterator<Item = (usize, &PacedReceiver)> {
        let runners = self.runners.iter().enumerate();
        runners.filter(|(_, runner)| runner.standing == Standing::KeepsUp)
    }

    /// The wait of `who` before it reads further ahead, for the others that need the oldest
    /// piece that is kept; `None` if there are none.
    pub(super) fn must_wait(&mut self, who: usize, oldest: At, now: Instant) -> Option<PaceWait> {
        let mut wait = PaceWait { others: Vec::new(), from: now, most: self.longest };
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
    pub(super) fn has_waited(&mut self, wait: &PaceWait, now: Instant) {
        for number in &wait.others {
            let other = &mut self.runners[*number];
            other.pass(wait.from, now, self.longest);
            if other.patience.is_zero() && other.standing == Standing::KeepsUp {
                other.standing = Standing::Behind;
            }
        }
    }
}

impl PacedReceiver {
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
mod tests;
