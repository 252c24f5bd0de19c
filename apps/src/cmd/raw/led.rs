//! The work of the leading end, and its measurements.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::flight::FaultCounts;

/// Messages to send: first those of the warm-up, which are not measured, then the measured ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct TripCounts {
    pub(super) warm_up: u64,
    pub(super) measured: u64,
}

impl TripCounts {
    pub(super) fn total(self) -> u64 {
        self.warm_up + self.measured
    }
}

/// Counts and times of the leading end.
#[derive(Debug)]
pub(super) struct LedResult {
    /// Latencies of each class of a ping-pong, in nanoseconds: of half a round trip, or of the
    /// whole operation (read).
    pub(super) classes: Vec<Histogram<u64>>,
    /// Time that the measured messages took together.
    pub(super) elapsed: Duration,
    /// Messages sent over each queue pair.
    pub(super) sent: Vec<u64>,
    pub(super) faults: FaultCounts,
    /// Datagrams that were sent again, where the ends repair losses.
    pub(super) resent: Option<u64>,
}

impl LedResult {
    /// Messages that went one way, in this time.
    pub(super) fn one_way(elapsed: Duration) -> LedResult {
        let (classes, sent, faults) = (Vec::new(), Vec::new(), FaultCounts::default());
        LedResult { classes, elapsed, sent, faults, resent: None }
    }
}
