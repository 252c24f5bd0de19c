//! Effect of a congestion notification on the window.

use super::window::CongestionWindow;

/// All of a fraction.
const ONE: u32 = 1 << 16;
/// The weight of one period in the average: 1/16, as in DCTCP.
const WEIGHT: u32 = 16;

/// Congestion of the path, as DCTCP and DCQCN estimate it: `alpha` is the moving average of "a
/// notification arrived in this period", where a period is a window's round trip. A notification
/// makes the window smaller by half of `alpha`, once in a round trip.
// Invariant: alpha <= ONE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Congestion {
    /// In parts of [`ONE`]; at first all, so that the first notification halves the window.
    alpha: u32,
    /// A notification has arrived in this period.
    is_noted: bool,
    /// The period ends when all before this position is acknowledged.
    period_end: u64,
    /// Packets before this position were sent before the window was made smaller: a notification
    /// that they cause is of the same congestion.
    cut_end: u64,
}

impl Congestion {
    pub(super) const fn new() -> Self {
        Self { alpha: ONE, is_noted: false, period_end: 0, cut_end: 0 }
    }

    /// More than the window may be under way before this position.
    #[cfg(any(test, feature = "oracle"))]
    pub(super) const fn cut_end(&self) -> u64 {
        self.cut_end
    }

    /// A notification has arrived while the packets from `unacked` to `sent` are under way.
    pub(super) fn on_notification(
        &mut self,
        unacked: u64,
        sent: u64,
        window: &mut CongestionWindow,
    ) {
        if !core::mem::replace(&mut self.is_noted, true) {
            self.alpha += (ONE - self.alpha) / WEIGHT;
        }
        if unacked >= self.cut_end {
            self.cut_end = sent;
            window.on_congestion(unacked, self.alpha, ONE);
        }
    }

    /// All before `unacked` is acknowledged; packets up to `sent` were sent.
    #[inline]
    pub(super) fn on_progress(&mut self, unacked: u64, sent: u64) {
        if unacked >= self.period_end {
            if !core::mem::take(&mut self.is_noted) {
                self.alpha -= self.alpha / WEIGHT;
            }
            self.period_end = sent;
        }
    }
}
