//! Measurement of the round trip.

/// Time, in addition to a quarter, by which round trips may exceed the shortest without a queue:
/// both ends work on batches.
const NOISE_NS: u64 = 30_000;
/// Divisor of the part by which the estimate of the shortest round trip grows with each measured
/// one: the path may have changed. (Faster, and of two senders in one queue the second takes the
/// queue for the path.)
const FORGETS: u64 = 8_192;

/// The smoothed time of round trips, and the one that is being measured. Of a packet that was sent
/// twice, it is not known which one was answered: it is not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RttEstimator {
    smoothed_ns: Option<u64>,
    /// About the shortest of late, 0 before the first.
    shortest_ns: u64,
    /// A position, and when its packet was sent.
    sample: Option<(u64, u64)>,
}

impl RttEstimator {
    /// Returns the smoothed round trip, if one has been measured.
    #[inline]
    pub(super) const fn smoothed_ns(&self) -> Option<u64> {
        self.smoothed_ns
    }

    /// Returns how many of `packets` packets under way find no queue: as many as are acknowledged
    /// in a time that is little longer than the shortest round trip. All, if none was measured.
    pub(super) fn without_queue(&self, packets: u32) -> u32 {
        let Some(smoothed_ns) = self.smoothed_ns else { return packets };
        let short_ns = self.shortest_ns + self.shortest_ns / 4 + NOISE_NS;
        let fits = u64::from(packets) * short_ns / smoothed_ns.max(1);
        fits.min(packets.into()) as u32
    }

    /// A packet that asks for an answer is sent for the first time.
    #[inline]
    pub(super) fn on_send(&mut self, position: u64, now_ns: u64) {
        if self.sample.is_none() {
            self.sample = Some((position, now_ns));
        }
    }

    /// All before position `unacked` is acknowledged.
    #[inline]
    pub(super) fn on_progress(&mut self, unacked: u64, now_ns: u64) {
        let Some((position, sent_ns)) = self.sample else { return };
        if position < unacked {
            let took_ns = now_ns.saturating_sub(sent_ns);
            self.smoothed_ns = Some(match self.smoothed_ns {
                Some(before_ns) => before_ns - before_ns / 8 + took_ns / 8,
                None => took_ns,
            });
            self.shortest_ns = match self.shortest_ns {
                0 => took_ns,
                before_ns => took_ns.min(before_ns + before_ns.div_ceil(FORGETS)),
            };
            self.sample = None;
        }
    }

    /// Drops the sample: packets under way are sent again.
    pub(super) fn on_repeat(&mut self) {
        self.sample = None;
    }
}

#[cfg(test)]
mod tests;
