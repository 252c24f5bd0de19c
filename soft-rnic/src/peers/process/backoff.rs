//! The wait of a datagram for a process that is there and does not answer: it is stopped, or busy.
//! The thread that waits is posting, or takes the messages of all processes out of the rings; so
//! the next datagrams are dropped, until it is time to try again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest time that a datagram waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Time after that in which no datagram waits for the process again.
const PAUSE: Duration = Duration::from_secs(2);

/// Processes that have not answered.
#[derive(Debug, Default)]
pub(crate) struct AnswerBackoff {
    /// Processes, and since when.
    unanswered: BTreeMap<i32, Instant>,
}

impl AnswerBackoff {
    /// Until when an answer of a process is waited for.
    pub(crate) fn until(&self, pid: i32, now: Instant) -> Instant {
        let rests = |since: &Instant| now.saturating_duration_since(*since) < PAUSE;
        if self.unanswered.get(&pid).is_some_and(rests) { now } else { now + TIMEOUT }
    }

    /// It has not answered by now.
    pub(crate) fn timed_out(&mut self, pid: i32, now: Instant) {
        self.unanswered.retain(|_, since| now.saturating_duration_since(*since) < PAUSE);
        self.unanswered.entry(pid).or_insert(now);
    }
}

#[cfg(test)]
mod tests;
