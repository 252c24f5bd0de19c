//! Sleeps that get longer.

use std::time::Duration;

/// Sleeps of a wait without events, from 20 µs to a millisecond.
#[derive(Debug)]
pub(crate) struct SleepBackoff(Duration);

impl SleepBackoff {
    pub(super) const LONGEST: Duration = Duration::from_millis(1);

    pub(crate) fn new() -> SleepBackoff {
        SleepBackoff(Duration::from_micros(20))
    }

    /// Sleeps, no longer than `most`; the next time for longer.
    pub(crate) fn wait(&mut self, most: Duration) {
        host::time::sleep(self.next().min(most));
    }

    /// Returns the time to sleep now, and makes the next one longer.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (2 * now).min(Self::LONGEST);
        now
    }
}

impl Default for SleepBackoff {
    fn default() -> SleepBackoff {
        SleepBackoff::new()
    }
}
