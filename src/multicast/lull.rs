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

/// What a thread does that has nothing to do.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Yield,
    /// No longer than this.
    Sleep(Duration),
}

impl Lull {
    /// Nothing has happened, and nothing is to be done before `until`, if that is known. (What
    /// is to be done and cannot be yet has its time behind it.)
    pub(super) fn wait(&mut self, until: Option<Instant>) {
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS {
            return std::hint::spin_loop(); // without a look at the clock
        }
        match self.step(Instant::now(), until) {
            Step::Yield => std::thread::yield_now(),
            Step::Sleep(most) => self.nap.take(most),
        }
    }

    fn step(&mut self, now: Instant, until: Option<Instant>) -> Step {
        let most = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
        // A sleep of no time would come back at once, and nobody else would have run.
        if most.is_zero() || now - *self.since.get_or_insert(now) < YIELDING {
            return Step::Yield;
        }
        Step::Sleep(most)
    }

    /// Something has happened.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.looks > 0 {
            *self = Lull::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_do_what_is_due_lets_others_run() {
        let (mut lull, began) = (Lull::default(), Instant::now());
        assert_eq!(lull.step(began, None), Step::Yield);
        let later = began + YIELDING;
        assert_eq!(lull.step(later, None), Step::Sleep(Duration::MAX));
        let soon = Duration::from_micros(3);
        assert_eq!(lull.step(later, Some(later + soon)), Step::Sleep(soon));
        assert_eq!(lull.step(later, Some(later)), Step::Yield);
        assert_eq!(lull.step(later, Some(began)), Step::Yield);
        (0..LOOKS).for_each(|_| lull.wait(None));
        lull.end();
        assert_eq!(lull.step(later, None), Step::Yield, "it begins anew");
    }
}
