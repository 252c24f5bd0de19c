//! Waiting for peers, whose writes interrupt nobody.

use std::time::{Duration, Instant};

use crate::wait::Nap;

/// Looks in vain before the processor is given to others.
const LOOKS: u32 = 64;
/// How long it is only given to whoever wants it, before it is given up for a time.
const YIELDING: Duration = Duration::from_micros(50);

/// A time in which nothing happens: at first the thread looks again at once, then it lets
/// others run, and then it sleeps, at last for a millisecond at a time.
#[derive(Debug, Default)]
pub(super) struct Lull {
    looks: u32,
    since: Option<Instant>,
    nap: Nap,
}

impl Lull {
    /// Nothing has happened, and nothing is to be done for `most`.
    pub(super) fn wait(&mut self, most: Duration) {
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS {
            return std::hint::spin_loop();
        }
        let now = Instant::now();
        if now - *self.since.get_or_insert(now) < YIELDING {
            return std::thread::yield_now();
        }
        self.nap.take(most);
    }

    /// Something has happened.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.looks > 0 {
            *self = Lull::default();
        }
    }
}
