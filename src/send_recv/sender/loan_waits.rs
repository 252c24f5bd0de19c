//! History of the waits of a sender for loans.

use std::time::{Duration, Instant};

use crate::wait::WaitStrategy;

/// History of waits for loans. Where many senders share a pool, a loan comes when the others have
/// used theirs up: polling for it would take the processor from them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoanWaits {
    /// Consecutive waits, up to the last one, that were longer than `SHORT`.
    long: u32,
}

impl LoanWaits {
    /// Longest wait that an adaptive strategy spends polling.
    const SHORT: Duration = Duration::from_micros(50);
    /// Every 8th long wait polls, to notice that loans come soon again.
    const POLLED: u32 = 8;

    /// The strategy of the next wait, where the program asks for `asked`.
    pub(super) fn strategy(self, asked: WaitStrategy) -> WaitStrategy {
        let polls = self.long.is_multiple_of(Self::POLLED);
        match asked {
            WaitStrategy::Adaptive if !polls => WaitStrategy::Block,
            asked => asked,
        }
    }

    /// Records the wait that began at this time, once.
    pub(super) fn end(&mut self, since: &mut Option<Instant>) {
        if let Some(since) = since.take() {
            self.note(host::time::since(since));
        }
    }

    /// Records the length of a wait.
    fn note(&mut self, time: Duration) {
        self.long = if time > Self::SHORT { self.long.wrapping_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_that_come_late_are_slept_for_until_one_comes_soon() {
        const ADAPTIVE: WaitStrategy = WaitStrategy::Adaptive;
        let (late, soon) = (Duration::from_millis(1), Duration::from_micros(10));
        let mut waits = LoanWaits::default();
        assert_eq!(waits.strategy(ADAPTIVE), ADAPTIVE);
        let mut polled = 0;
        for _ in 0..4 * LoanWaits::POLLED {
            waits.note(late);
            polled += u32::from(waits.strategy(ADAPTIVE) == ADAPTIVE);
            assert_eq!(waits.strategy(WaitStrategy::Spin), WaitStrategy::Spin, "as asked for");
        }
        assert_eq!(polled, 4);
        waits.note(late);
        assert_eq!(waits.strategy(ADAPTIVE), WaitStrategy::Block);
        waits.note(soon);
        assert_eq!(waits.strategy(ADAPTIVE), ADAPTIVE);
    }
}
