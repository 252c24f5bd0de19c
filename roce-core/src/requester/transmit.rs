//! Choice of the next packet.

use super::recovery::PROBE_FLOOR_NS;
use super::{Requester, SendSlot};
use crate::headers::{Bth, Headers};
use crate::request::{Operation, Outgoing, PacketPosition, WqeIndex, extend, rc_opcode};

/// Packets of unsignaled requests of which one asks for an acknowledgement.
const UNASKED: u32 = 64;

impl<S: AsRef<[SendSlot]> + AsMut<[SendSlot]>> Requester<S> {
    /// The next packet to send, if one may go now. It counts as sent.
    pub fn next_packet(&mut self, now_ns: u64) -> Option<Outgoing> {
        if self.failure.is_some() || self.recovery.rnr_until_ns.is_some() {
            return None;
        }
        if core::mem::take(&mut self.recovery.is_probe_due) {
            return Some(self.probe());
        }
        if self.current == self.tail {
            return None;
        }
        let (index, slot, position) = (self.current, self.slot(self.current), self.next);
        let end = self.span_end(&slot, position);
        if !self.may_send(&slot, end) {
            return None;
        }
        let asks = self.asks_for_ack(&slot, end, now_ns);
        let packet = self.packet(index, &slot, position, end, asks);
        self.note_sent(&slot, end, asks, now_ns);
        Some(packet)
    }

    /// Reports whether the window, the limit of READs and the fence let the packet at `next` go.
    fn may_send(&self, slot: &SendSlot, end: u64) -> bool {
        let is_alone = self.next == self.unacked;
        let fits = is_alone || end - self.unacked <= u64::from(self.window.size());
        let is_read = slot.request.kind.has_response();
        // One that was posted goes, even if no more may be posted.
        let has_slot = !is_read || self.reads < u32::from(self.config.max_rd_atomic.max(1));
        // All requests before it have been sent: those that read are among `reads`.
        let is_fenced = slot.request.is_fenced && self.next == slot.first;
        fits && has_slot && (!is_fenced || self.reads == 0)
    }

    /// The last packet of a request, one in each quarter of the window, and the one that fills it
    /// ask for an acknowledgement.
    fn asks_for_ack(&self, slot: &SendSlot, end: u64, now_ns: u64) -> bool {
        slot.request.kind.has_response()
            || (end == slot.end && self.end_asks(slot, now_ns))
            || self.unasked + 1 >= self.window.quarter()
            || end - self.unacked >= u64::from(self.window.size())
    }

    /// The program does not wait for the completion of an unsignaled request: of many in a short
    /// time, only some ask. (A probe finds out whether the others have arrived.)
    fn end_asks(&self, slot: &SendSlot, now_ns: u64) -> bool {
        let is_repeated = self.next < self.sent;
        let is_late = now_ns.saturating_sub(self.recovery.active_ns) >= PROBE_FLOOR_NS;
        slot.request.is_signaled || is_repeated || is_late || self.unasked + 1 >= UNASKED
    }

    fn note_sent(&mut self, slot: &SendSlot, end: u64, asks: bool, now_ns: u64) {
        if asks && self.next >= self.sent {
            self.recovery.round_trip.on_send(self.next, now_ns);
        }
        self.unasked = if asks { 0 } else { self.unasked + 1 };
        self.reads += u32::from(slot.request.kind.has_response());
        self.next = end;
        self.sent = self.sent.max(end);
        self.current += u64::from(end == slot.end);
        self.recovery.waits_since_ns.get_or_insert(now_ns);
        self.recovery.active_ns = now_ns;
    }

    /// The packet at `unacked` once more, alone.
    fn probe(&mut self) -> Outgoing {
        let (index, slot, position) = (self.oldest, self.slot(self.oldest), self.unacked);
        self.recovery.round_trip.on_repeat();
        self.recovery.probed = (!slot.request.kind.has_response()).then_some(position);
        let end = self.span_end(&slot, position);
        self.packet(index, &slot, position, end, true)
    }

    fn packet(
        &self,
        index: u64,
        slot: &SendSlot,
        position: u64,
        end: u64,
        asks_for_ack: bool,
    ) -> Outgoing {
        let (request, config) = (&slot.request, &self.config);
        let part = PacketPosition::from_ends(position == slot.first, end == slot.end);
        let bytes = self.bytes(slot, position, end);
        let opcode = rc_opcode(request.kind, part);
        let bth = Bth::new(opcode, config.dest_qpn, Self::psn(position));
        let mut headers = Headers::new(Bth { pkey: config.pkey, ack_req: asks_for_ack, ..bth });
        extend(&mut headers, request, part, bytes);
        let (offset, length) = bytes;
        let length = if request.kind == Operation::Read { 0 } else { length };
        Outgoing { headers, index: WqeIndex(index), offset, length }
    }
}
