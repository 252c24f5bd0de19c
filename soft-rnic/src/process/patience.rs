//! How long a datagram waits for a process that is there and does not answer: it is stopped,
//! or busy. Who waits is whoever posts, or whoever takes everybody's messages out of the
//! rings; so the next datagrams are dropped, until it is time to try again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For an answer.
const LONGEST: Duration = Duration::from_millis(200);
/// For which nobody waits again.
const PAUSE: Duration = Duration::from_secs(2);

/// Who has not answered.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Processes, and since when.
    in_vain: BTreeMap<i32, Instant>,
}

impl Patience {
    /// Until when an answer of a process is waited for.
    pub(super) fn until(&self, pid: i32, now: Instant) -> Instant {
        let rests = |since: &Instant| now.saturating_duration_since(*since) < PAUSE;
        if self.in_vain.get(&pid).is_some_and(rests) { now } else { now + LONGEST }
    }

    /// It has not answered by now.
    pub(super) fn is_over(&mut self, pid: i32, now: Instant) {
        self.in_vain.retain(|_, since| now.saturating_duration_since(*since) < PAUSE);
        self.in_vain.entry(pid).or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_answered_is_not_waited_for_again_for_a_while() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        assert_eq!(patience.until(7, start), start + LONGEST);
        let over = start + LONGEST;
        patience.is_over(7, over);
        for later in [over, over + PAUSE / 2] {
            assert_eq!(patience.until(7, later), later);
            assert_eq!(patience.until(8, later), later + LONGEST, "another one");
            // Datagrams that nobody waits for are no reason to wait later.
            patience.is_over(7, later);
        }
        let again = over + PAUSE;
        assert_eq!(patience.until(7, again), again + LONGEST);
        patience.is_over(7, again + LONGEST);
        assert_eq!(patience.until(7, again + PAUSE), again + PAUSE);
    }
}
