//! How many packets may be on their way.

/// The largest window, in packets: a small part of the 2^24 sequence numbers, so that an old
/// acknowledgement is never taken for a new one.
pub const MAX_WINDOW: u32 = 1 << 16;

/// A window that halves when packets are lost, and grows by one when a whole window has been
/// acknowledged: additive increase, multiplicative decrease.
// Invariant: 1 <= size <= max; acked < size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    size: u32,
    max: u32,
    /// Packets that were acknowledged since it grew.
    acked: u32,
    /// The end of what was sent when it was halved: what was lost before is the same loss.
    recovery_end: u64,
}

impl Window {
    pub(super) const fn new(max: u32) -> Self {
        Self { size: max, max, acked: 0, recovery_end: 0 }
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

    /// So many packets were acknowledged.
    #[inline]
    pub(super) fn on_ack(&mut self, packets: u32) {
        if self.size == self.max {
            return;
        }
        self.acked += packets;
        while self.acked >= self.size && self.size < self.max {
            self.acked -= self.size;
            self.size += 1;
        }
        if self.size == self.max {
            self.acked = 0;
        }
    }

    /// The packet at position `unacked` was lost; `sent` is the end of what was sent.
    pub(super) fn on_loss(&mut self, unacked: u64, sent: u64) {
        if unacked >= self.recovery_end {
            self.size = (self.size / 2).max(1);
            self.acked = 0;
            self.recovery_end = sent;
        }
    }
}
