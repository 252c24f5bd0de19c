//! Repetition of packets.

use super::{CompletionStatus, Requester, SendSlot};

/// The unit of timeouts: 4.096 µs.
const TIMEOUT_UNIT_NS: u64 = 4096;
/// A probe does not go sooner than this after the last packet: a peer that is about to answer may
/// wait for a processor.
pub(super) const PROBE_FLOOR_NS: u64 = 50_000;
/// Assumed round trip to a peer that has reported a loss, until one has been measured. (Where much
/// is lost, none may ever be: packets that are sent again are not measured.)
const FIRST_ROUND_TRIP_NS: u64 = 1_000_000;
/// Number of times that the time until a probe doubles.
const PROBE_DOUBLINGS: u8 = 10;

impl<S: AsRef<[SendSlot]> + AsMut<[SendSlot]>> Requester<S> {
    /// Returns the time at which [`on_timer`](Self::on_timer) is to be called, if at all. It
    /// changes with each call.
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.failure.is_some() {
            return None;
        }
        if self.recovery.rnr_until_ns.is_some() {
            return self.recovery.rnr_until_ns;
        }
        [self.timeout_ns(), self.probe_ns()].into_iter().flatten().min()
    }

    /// Does what is due at `now_ns`: packets may be sent again, or a request may fail.
    pub fn on_timer(&mut self, now_ns: u64) {
        let is_past = |deadline_ns: Option<u64>| deadline_ns.is_some_and(|due| due <= now_ns);
        if self.failure.is_some() {
            return;
        }
        if self.recovery.rnr_until_ns.is_some() {
            if is_past(self.recovery.rnr_until_ns) {
                self.recovery.rnr_until_ns = None;
            }
        } else if is_past(self.timeout_ns()) {
            // A NAK may be the answer to what is sent now.
            self.recovery.nak_at = None;
            self.retry(now_ns);
        } else if is_past(self.probe_ns()) {
            self.recovery.is_probe_due = true;
            self.recovery.probes = self.recovery.probes.saturating_add(1);
            self.recovery.active_ns = now_ns;
        }
    }

    /// Returns the time at which the packet at `unacked` is given up.
    fn timeout_ns(&self) -> Option<u64> {
        let since_ns = self.recovery.waits_since_ns.filter(|_| self.config.timeout > 0)?;
        Some(since_ns.saturating_add(TIMEOUT_UNIT_NS << self.config.timeout))
    }

    /// Returns the time at which a probe is sent: after two round trips, if packets are under way.
    fn probe_ns(&self) -> Option<u64> {
        let recovery = &self.recovery;
        let unmeasured = recovery.nak_at.map(|_| FIRST_ROUND_TRIP_NS);
        let round_trip_ns = recovery.round_trip.smoothed_ns().or(unmeasured)?;
        if self.unacked == self.next || recovery.waits_since_ns.is_none() {
            return None;
        }
        let wait_ns = round_trip_ns.saturating_mul(2).max(PROBE_FLOOR_NS);
        let wait_ns = wait_ns.saturating_mul(1 << recovery.probes.min(PROBE_DOUBLINGS));
        Some(recovery.active_ns.saturating_add(wait_ns))
    }

    /// The packet at `unacked`, or its response, is lost: a NAK says so, or implies it.
    pub(super) fn on_loss(&mut self, now_ns: u64) {
        let is_copy = self.recovery.nak_at == Some(self.unacked);
        // After the time of an RNR NAK, all is sent again anyway.
        if is_copy || self.recovery.rnr_until_ns.is_some() {
            return;
        }
        self.retry(now_ns);
        self.recovery.nak_at = Some(self.unacked);
    }

    fn retry(&mut self, now_ns: u64) {
        match self.recovery.retries_left.checked_sub(1) {
            Some(left) => self.recovery.retries_left = left,
            None => return self.fail(CompletionStatus::RetryExceeded),
        }
        self.counts.retries += 1;
        self.window.on_loss(self.unacked, self.sent, &self.recovery.round_trip);
        self.go_back(now_ns);
    }

    /// All from `unacked` on is to be sent again.
    pub(super) fn go_back(&mut self, now_ns: u64) {
        (self.next, self.current, self.reads, self.unasked) = (self.unacked, self.oldest, 0, 0);
        let recovery = &mut self.recovery;
        recovery.round_trip.on_repeat();
        (recovery.is_probe_due, recovery.probed) = (false, None);
        recovery.waits_since_ns = Some(now_ns);
        recovery.active_ns = now_ns;
    }

    /// `unacked` has moved on.
    pub(super) fn on_progress(&mut self, now_ns: u64) {
        let recovery = &mut self.recovery;
        recovery.round_trip.on_progress(self.unacked, now_ns);
        recovery.retries_left = self.config.retry_cnt;
        recovery.rnr_retries_left = self.config.rnr_retry;
        recovery.waits_since_ns = (self.unacked < self.sent).then_some(now_ns);
        recovery.active_ns = now_ns;
        recovery.rnr_until_ns = None;
        (recovery.is_probe_due, recovery.probed, recovery.probes) = (false, None, 0);
    }
}
