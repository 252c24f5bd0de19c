//! Invariants, for tests.

use super::{Requester, SendSlot};

impl<S: AsRef<[SendSlot]> + AsMut<[SendSlot]>> Requester<S> {
    /// Panics where an invariant is broken.
    pub fn assert_invariants(&self) {
        assert!(self.oldest <= self.current && self.current <= self.tail);
        assert!(self.reported <= self.oldest || self.failure.is_some());
        assert!(self.unacked <= self.next && self.next <= self.sent && self.sent <= self.posted);
        self.assert_holds(self.oldest, self.unacked);
        self.assert_holds(self.current, self.next);
        assert_eq!(self.reads, self.count_reads());
        assert!(self.reads <= self.config.max_rd_atomic.into());
        let window = self.window.size();
        assert!((1..=self.config.max_window).contains(&window));
        let most = u64::from(window.max(self.config.read_packets));
        // What was sent before a notification is not called back.
        let is_old = self.next <= self.congestion.cut_end();
        let most = if is_old { most.max(self.config.max_window.into()) } else { most };
        assert!(self.next - self.unacked <= most, "more is under way than the window");
        if self.failure.is_none() && self.unacked < self.next {
            let recovery = &self.recovery;
            assert!(recovery.waits_since_ns.is_some() || recovery.rnr_until_ns.is_some());
        }
    }

    fn assert_holds(&self, index: u64, position: u64) {
        if index == self.tail {
            assert_eq!(position, self.posted);
        } else {
            let slot = self.slot(index);
            assert!(slot.first <= position && position < slot.end);
        }
    }

    fn count_reads(&self) -> u32 {
        let (mut count, mut index, mut at) = (0, self.oldest, self.unacked);
        while at < self.next {
            let slot = self.slot(index);
            at = if slot.request.kind.has_response() {
                count += 1;
                self.span_end(&slot, at)
            } else {
                slot.end.min(self.next)
            };
            index += u64::from(at == slot.end);
        }
        count
    }
}
