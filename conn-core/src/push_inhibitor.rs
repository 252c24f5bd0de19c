//! Push inhibition: counters are written to the peers when the write is worth it, or when a
//! deadline has passed.
//!
//! A row of counters (messages sent, messages received) goes to each peer by a write. A write for
//! every step is a write for every message: with n members and one sender, a multicast takes
//! (n-1)(n+2) of them. An issue of Derecho counts 10 for three members of its SMC, names no
//! formula, and proposes a batch size k, in the manner of Nagle's algorithm. This machine is that
//! proposal:
//!
//! - A push is due when a counter *crosses a multiple of k*. Counters that jump, as those of
//!   received messages do, cross it all the same.
//! - Any other push is *inhibited*. It arms a deadline (the issue proposes 150 µs), and is *forced*
//!   when that has passed, so that a lone message does not wait for ever.
//! - A flush *urges*: the next push is due at once.
//!
//! ```text
//!              advance                  advance, a multiple of k;
//!                                       urge; due, after the deadline
//!   clean ---------------> inhibited ----------------------------> due
//!     ^ |                                                          ^ |
//!     | `----------------------------------------------------------' |
//!     |              urge; advance, a multiple of k                  |
//!     `--------------------------------------------------------------'
//!                              mark_pushed
//! ```
//!
//! # The drive loop
//!
//! One machine has the counters that one write carries, in adjacent words.
//!
//! 1. When a counter moves, [`advance`](PushInhibitor::advance) it. When the program flushes,
//!    [`urge`](PushInhibitor::urge).
//! 2. Ask [`due`](PushInhibitor::due) with the time. It gives a [`PushCause`] when the write is
//!    due.
//! 3. Fill the write from [`counts`](PushInhibitor::counts), post it, and call
//!    [`mark_pushed`](PushInhibitor::mark_pushed). If the post is refused, do not call it: the push
//!    stays due.
//! 4. Go to step 1 when something has arrived, or at [`wants_ns`](PushInhibitor::wants_ns).
//!
//! **The contract: between reading the counts for a write and `mark_pushed`, do not advance.**
//!
//! The machine learns the time only from `due`, so a deadline begins with the first `due` that
//! finds an inhibited push.
//!
//! A [`Member`](crate::multicast::Member) of a multicast has two of these machines: one for the
//! counter of its own slots, one for its received counters.

use core::num::NonZeroU32;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// Rule by which pushes are inhibited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushRule {
    /// k: a push is due when a counter crosses a multiple of it. With 1, nothing is inhibited.
    pub every: NonZeroU32,
    /// Longest time that a push is inhibited, in nanoseconds.
    pub deadline_ns: u64,
}

/// Reason why a push is due: if there are several, the first in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushCause {
    /// [`urge`](PushInhibitor::urge) was called.
    Urged,
    /// A counter has crossed a multiple of k.
    Crossed,
    /// The deadline of an inhibited push has passed.
    Forced,
}

/// One counter: its value, and the value that the peers can see.
// Invariant: pushed <= count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushCounter {
    count: u64,
    pushed: u64,
}

impl PushCounter {
    /// A counter at 0, which the peers know: `[PushCounter::new(); N]` makes storage.
    pub const fn new() -> Self {
        Self { count: 0, pushed: 0 }
    }

    /// Current count.
    #[inline]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Count at the last push.
    #[inline]
    pub const fn pushed(&self) -> u64 {
        self.pushed
    }
}

/// The counters that one write carries, and whether the write is due. See the [module](self)
/// for its drive loop.
///
/// ```
/// use conn_core::push_inhibitor::{PushCause, PushCounter, PushInhibitor, PushRule};
/// use core::num::NonZeroU32;
///
/// let rule = PushRule { every: NonZeroU32::new(25).unwrap(), deadline_ns: 150_000 };
/// let mut received = PushInhibitor::new(rule, [PushCounter::new(); 2]);
/// received.advance(0, 24);
/// assert_eq!(received.due(1_000), None, "inhibited: 25 is not reached");
/// assert_eq!(received.wants_ns(), Some(151_000));
/// received.advance(1, 31);
/// assert_eq!(received.due(2_000), Some(PushCause::Crossed));
/// assert!(received.counts().eq([24, 31])); // what the write carries
/// received.mark_pushed();
/// received.advance(0, 25);
/// assert_eq!(received.due(3_000), Some(PushCause::Crossed), "the push at 24 changes no boundary");
/// ```
// Invariant: is_pending if and only if a counter has count > pushed; has_crossed if and only if
// one has a multiple of k in pushed + 1 ..= count; a deadline is armed only while is_pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushInhibitor<S = [PushCounter; 1]> {
    rule: PushRule,
    is_pending: bool,
    has_crossed: bool,
    is_urged: bool,
    deadline: Option<u64>,
    counters: S,
}

impl<S> PushInhibitor<S> {
    /// Over the counters in `storage`, all of them known to the peers: [`PushCounter::new`].
    pub const fn new(rule: PushRule, storage: S) -> Self {
        Self {
            rule,
            is_pending: false,
            has_crossed: false,
            is_urged: false,
            deadline: None,
            counters: storage,
        }
    }

    /// The rule.
    #[inline]
    pub const fn rule(&self) -> PushRule {
        self.rule
    }

    /// Reports whether a counter has moved since the last push.
    #[inline]
    pub const fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Time at which an inhibited push is forced, in nanoseconds: call [`due`](Self::due) then,
    /// even if no counter has moved.
    #[inline]
    pub const fn wants_ns(&self) -> Option<u64> {
        self.deadline
    }

    /// The next push is due at once, even if no counter has moved.
    #[inline]
    pub const fn urge(&mut self) {
        self.is_urged = true;
    }

    /// Returns the reason to post the write at the time `now_ns`, or `None`. Once due, it stays so
    /// until [`mark_pushed`](Self::mark_pushed).
    #[inline]
    pub fn due(&mut self, now_ns: u64) -> Option<PushCause> {
        if self.is_urged {
            return Some(PushCause::Urged);
        }
        if !self.is_pending {
            return None;
        }
        if self.has_crossed {
            return Some(PushCause::Crossed);
        }
        let deadline = now_ns.saturating_add(self.rule.deadline_ns);
        let is_over = now_ns >= *self.deadline.get_or_insert(deadline);
        is_over.then_some(PushCause::Forced)
    }
}

/// The counters.
impl<S: AsRef<[PushCounter]> + AsMut<[PushCounter]>> PushInhibitor<S> {
    /// The counters, in the order of the storage.
    #[inline]
    pub fn counters(&self) -> &[PushCounter] {
        self.counters.as_ref()
    }

    /// Counts that a write of all counters carries now.
    #[inline]
    pub fn counts(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.counters().iter().map(PushCounter::count)
    }

    /// Counter `at` has reached `count`, however far it has jumped. A count that is not higher
    /// than before changes nothing.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn advance(&mut self, at: usize, count: u64) {
        let counter = &mut self.counters.as_mut()[at];
        if count > counter.count {
            counter.count = count;
            self.is_pending = true;
            self.has_crossed |= crosses(counter.pushed, count, self.rule.every);
        }
    }

    /// A write with the counts of now was posted.
    #[inline]
    pub fn mark_pushed(&mut self) {
        self.counters.as_mut().iter_mut().for_each(|counter| counter.pushed = counter.count);
        (self.is_pending, self.has_crossed, self.is_urged) = (false, false, false);
        self.deadline = None;
    }
}

/// Reports whether counting from `before` to `now` crosses a multiple of `k`.
#[inline]
fn crosses(before: u64, now: u64, k: NonZeroU32) -> bool {
    let k = u64::from(k.get());
    // Most steps are small; the comparison saves a division.
    now - before >= k || now / k > before / k
}
