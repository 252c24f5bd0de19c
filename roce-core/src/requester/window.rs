//! Limit of the packets that may be under way.

use super::round_trip::RttEstimator;

/// The largest window, in packets: a small part of the 2^24 sequence numbers, so that an old
/// acknowledgement is never taken for a new one.
pub const MAX_WINDOW: u32 = 1 << 16;

/// Packets that may be under way whether they wait in a queue or not: 256 KiB at the largest MTU,
/// so that both ends can work on batches.
const FEW: u32 = 64;

/// A window that halves when packets are lost. It grows by each packet that is acknowledged up to
/// a threshold, and beyond that by one for each eighth of a window, eight in a round trip. (At one
/// for each window, one lost packet of a hundred kept it at a third of what a round trip within one
/// machine holds.)
///
/// All that is under way behind a lost packet is sent for nothing. So what only waits in a queue is
/// not worth having where packets are lost: the threshold is the part of the window that finds no
/// queue, but at least a half and at most seven eighths of it, and where there is a queue it grows
/// by one in a round trip. As long as nothing is lost, the window is the largest, and a queue does
/// no harm.
// Invariant: 1 <= size <= max; threshold <= max; acked < step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CongestionWindow {
    size: u32,
    max: u32,
    /// Up to here it grows by each packet.
    threshold: u32,
    /// Packets that were acknowledged since it grew by one.
    acked: u32,
    /// Packets wait in a queue.
    has_queue: bool,
    /// The end of what was sent when it was halved: what was lost before is the same loss.
    recovery_end: u64,
}

impl CongestionWindow {
    pub(super) const fn new(max: u32) -> Self {
        Self { size: max, max, threshold: max, acked: 0, has_queue: false, recovery_end: 0 }
    }

    #[inline]
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// Packets before which the next one asks for an acknowledgement.
    #[inline]
    pub(super) const fn quarter(&self) -> u32 {
        let quarter = self.size / 4;
        if quarter == 0 { 1 } else { quarter }
    }

    /// Packets whose acknowledgement lets it grow by one, beyond the threshold.
    #[inline]
    const fn step(&self) -> u32 {
        let step = if self.has_queue { self.size } else { self.size / 8 };
        if step == 0 { 1 } else { step }
    }

    /// `packets` packets were acknowledged.
    #[inline]
    pub(super) fn on_ack(&mut self, packets: u32, round_trip: &RttEstimator) {
        if self.size < self.max {
            self.has_queue = self.size >= FEW && round_trip.without_queue(self.size) < self.size;
            self.grow(packets);
        }
    }

    fn grow(&mut self, packets: u32) {
        let fast = packets.min(self.threshold.saturating_sub(self.size));
        self.size += fast;
        self.acked += packets - fast;
        while self.acked >= self.step() && self.size < self.max {
            self.acked -= self.step();
            self.size += 1;
        }
        if self.size == self.max {
            self.acked = 0;
        }
    }

    /// The packet at position `unacked` was lost; `sent` is the end of what was sent.
    pub(super) fn on_loss(&mut self, unacked: u64, sent: u64, round_trip: &RttEstimator) {
        if unacked >= self.recovery_end {
            let fits = round_trip.without_queue(self.size).max(FEW);
            self.threshold = fits.min(self.size - self.size / 8);
            self.size = (self.size / 2).max(1);
            self.acked = 0;
            self.recovery_end = sent;
        }
    }

    /// The path is congested by `alpha` parts of `one`: the window becomes smaller by half of that,
    /// and grows slowly from there. Not after a loss among the same packets: it has been halved.
    pub(super) fn on_congestion(&mut self, unacked: u64, alpha: u32, one: u32) {
        if unacked >= self.recovery_end {
            let cut = (u64::from(self.size) * u64::from(alpha)).div_ceil(2 * u64::from(one));
            self.size = self.size.saturating_sub(cut as u32).max(1);
            self.threshold = self.threshold.min(self.size);
            self.acked = 0;
        }
    }
}
