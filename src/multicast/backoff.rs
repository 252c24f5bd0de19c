//! Waiting for peers: their writes wake no thread.

use std::time::{Duration, Instant};

use crate::wait::Deadline;

/// Looks that find nothing before the processor is given to others.
const LOOKS: u32 = 64;
/// Time for which the thread only yields, before it sleeps.
const YIELDING: Duration = Duration::from_micros(50);
/// The first sleep, and the longest.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// A time in which nothing happens: at first the thread looks again at once, then it lets
/// others run, and then it sleeps, in the end for a millisecond at a time.
#[derive(Debug)]
pub(super) struct IdleBackoff {
    looks: u32,
    since: Option<Instant>,
    sleep: Duration,
}

/// Next step of a thread that has nothing to do.
#[derive(Debug, PartialEq, Eq)]
enum BackoffStep {
    Yield,
    /// No longer than this.
    Sleep(Duration),
}

impl Default for IdleBackoff {
    fn default() -> IdleBackoff {
        IdleBackoff { looks: 0, since: None, sleep: SLEEPS.0 }
    }
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
        match self.step(host::time::now(), until) {
            BackoffStep::Yield => {
                host::thread::yield_now();
                None
            }
            BackoffStep::Sleep(most) => {
                let sleep = self.sleep.min(most);
                self.sleep = (2 * self.sleep).min(SLEEPS.1);
                Some(sleep)
            }
        }
    }

    /// As [`pause`](Self::pause), and sleeps.
    pub(super) fn wait(&mut self, until: Deadline) {
        self.pause(until).into_iter().for_each(host::time::sleep);
    }

    fn step(&mut self, now: Instant, until: Deadline) -> BackoffStep {
        let most = until.remaining(now);
        // A sleep of no time would return at once, without running another thread.
        if most.is_zero() || now - *self.since.get_or_insert(now) < YIELDING {
            return BackoffStep::Yield;
        }
        BackoffStep::Sleep(most)
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
