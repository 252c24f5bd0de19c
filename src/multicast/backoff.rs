//! Waiting for peers: their writes wake no thread.

use std::time::{Duration, Instant};

use crate::wait::{Deadline, SleepBackoff};

/// Looks that find nothing before the processor is given to others.
const LOOKS: u32 = 64;
/// Time for which the thread only yields, before it sleeps.
const YIELDING: Duration = Duration::from_micros(50);

/// A time in which nothing happens: at first the thread looks again at once, then it lets
/// others run, and then it sleeps, in the end for a millisecond at a time.
#[derive(Debug, Default)]
pub(super) struct IdleBackoff {
    looks: u32,
    since: Option<Instant>,
    sleep: SleepBackoff,
}

impl IdleBackoff {
    /// Pauses until `until` at most, after a pass without news: spins or yields, or returns the
    /// time to sleep. (Blocked work is past its deadline.)
    pub(super) fn pause(&mut self, until: Deadline) -> Option<Duration> {
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS {
            host::thread::spin_loop(); // without a look at the clock
            return None;
        }
        let most = self.step(host::time::now(), until);
        if most.is_none() {
            host::thread::yield_now();
        }
        most.map(|most| self.sleep.next().min(most))
    }

    /// As [`pause`](Self::pause), and sleeps.
    pub(super) fn wait(&mut self, until: Deadline) {
        self.pause(until).into_iter().for_each(host::time::sleep);
    }

    /// Returns the longest time to sleep now; `None` if the thread yields instead.
    fn step(&mut self, now: Instant, until: Deadline) -> Option<Duration> {
        let most = until.remaining(now);
        // A sleep of no time would return at once, and no other thread would have run.
        let yields = most.is_zero() || now - *self.since.get_or_insert(now) < YIELDING;
        (!yields).then_some(most)
    }

    /// Something has happened.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.looks > 0 {
            *self = IdleBackoff::default();
        }
    }
}

#[cfg(test)]
mod tests;
