//! History of the waits of a sender for loans.

use std::time::{Duration, Instant};

use crate::wait::WaitStrategy;

/// History of waits for loans. Where many senders share a pool, a loan comes when the others have
/// used theirs up: polling for it would take the processor from them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoanWaits {
    /// Consecutive waits, up to the last one, that were longer than `SHORT`.
    long: u32,
    /// Begin of the wait that lasts.
    since: Option<Instant>,
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

    /// A wait begins.
    pub(super) fn begin(&mut self) {
        self.since = Some(host::time::now());
    }

    /// Records the wait that lasts, if one does.
    pub(super) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.note(host::time::since(since));
        }
    }

    /// Records the length of a wait.
    fn note(&mut self, time: Duration) {
        self.long = if time > Self::SHORT { self.long.wrapping_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests;
