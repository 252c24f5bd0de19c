//! How long a round trip takes.

/// The smoothed time of round trips, and the one that is being measured. Of a packet that was sent
/// twice, it is not known which one was answered: it is not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    /// A position, and when its packet was sent.
    sample: Option<(u64, u64)>,
}

impl RoundTrip {
    /// What has been measured, if anything has.
    #[inline]
    pub(super) const fn smoothed_ns(&self) -> Option<u64> {
        self.smoothed_ns
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
            self.sample = None;
        }
    }

    /// What is under way is sent again.
    pub(super) fn on_repeat(&mut self) {
        self.sample = None;
    }
}
