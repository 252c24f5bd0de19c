//! Effects of a response.

use super::{CompletionStatus, RNR_RETRY_FOREVER, Received, Requester, SendSlot};
use crate::headers::{Bth, Headers, NakCode, Syndrome};
use crate::opcode::Opcode;
use crate::psn::Psn;
use crate::request::{Operation, WqeIndex};

impl<S: AsRef<[SendSlot]> + AsMut<[SendSlot]>> Requester<S> {
    /// Takes a response: an acknowledgement, a packet of the data of a READ, the value that an
    /// atomic has found, or a congestion notification. `length` is that of its payload, without
    /// padding.
    pub fn on_response(&mut self, headers: &Headers, length: u32, now_ns: u64) -> Received {
        let Bth { opcode, becn, .. } = headers.bth;
        if self.failure.is_some() {
            return Received::Ignored;
        }
        if opcode == Opcode::Cnp || becn && opcode.is_response() {
            self.on_congestion();
        }
        if opcode == Opcode::Cnp {
            return Received::Noted;
        }
        if !opcode.is_response() {
            return Received::Ignored;
        }
        let Some(position) = self.position(headers.bth.psn) else { return Received::Ignored };
        let syndrome = headers.aeth.map(|aeth| aeth.syndrome);
        match (headers.bth.opcode, syndrome) {
            (Opcode::RcAck, Some(syndrome)) => self.on_ack(position, syndrome, now_ns),
            (Opcode::RcAtomicAck, Some(Syndrome::Ack { .. })) => {
                let original = headers.atomic_ack.map_or(0, |ack| ack.original);
                self.on_atomic_ack(position, original, now_ns)
            }
            (opcode, None | Some(Syndrome::Ack { .. })) if opcode.is_read_response() => {
                self.on_read_response(position, opcode.ends_message(), length, now_ns)
            }
            _ => Received::Ignored,
        }
    }

    /// Returns the place of a response's bytes, if it brings some and is taken: request, offset and
    /// length. For a caller that looks at the memory first; nothing changes.
    pub fn landing(&self, headers: &Headers) -> Option<(WqeIndex, u32, u32)> {
        let opcode = headers.bth.opcode;
        if !opcode.is_read_response() && opcode != Opcode::RcAtomicAck {
            return None;
        }
        let position = self.position(headers.bth.psn)?;
        // What is before it and has a response has to be over.
        let mut index = self.oldest;
        let mut slot = self.slot(index);
        while slot.end <= position {
            if slot.request.kind.has_response() {
                return None;
            }
            index += 1;
            slot = self.slot(index);
        }
        match slot.request.kind {
            Operation::Read => {
                let (offset, length) = self.bytes(&slot, position, position + 1);
                Some((WqeIndex(index), offset, length))
            }
            kind if kind.is_atomic() => Some((WqeIndex(index), 0, 8)),
            _ => None,
        }
    }

    /// Packets of this requester met congestion. Without packets under way this has no effect.
    fn on_congestion(&mut self) {
        if self.unacked < self.sent {
            self.congestion.on_notification(self.unacked, self.sent, &mut self.window);
        }
    }

    /// The position that a response names, unless it was acknowledged before or never sent.
    fn position(&self, psn: Psn) -> Option<u64> {
        let ahead = u64::try_from(psn.since(Self::psn(self.unacked))).ok()?;
        Some(self.unacked + ahead).filter(|position| *position < self.sent)
    }

    fn on_ack(&mut self, position: u64, syndrome: Syndrome, now_ns: u64) -> Received {
        match syndrome {
            Syndrome::Ack { .. } => self.on_positive(position, now_ns),
            _ if !self.acknowledge(position, now_ns) => self.on_loss(now_ns),
            Syndrome::RnrNak { timer } => self.on_rnr(timer.ns(), now_ns),
            Syndrome::Nak(NakCode::PsnSequenceError) => self.on_loss(now_ns),
            Syndrome::Nak(code) => self.fail(match code {
                NakCode::InvalidRequest => CompletionStatus::RemoteInvalidRequest,
                NakCode::RemoteAccessError => CompletionStatus::RemoteAccess,
                NakCode::RemoteOperationalError => CompletionStatus::RemoteOperation,
                _ => CompletionStatus::BadResponse,
            }),
        }
        Received::Noted
    }

    fn on_positive(&mut self, position: u64, now_ns: u64) {
        let was_probe = self.recovery.probed == Some(position);
        if !self.acknowledge(position + 1, now_ns) {
            self.on_loss(now_ns);
        } else if was_probe && self.unacked < self.next {
            // The responder had received nothing beyond it: what was sent after it is lost.
            self.window.on_loss(self.unacked, self.sent, &self.recovery.round_trip);
            self.go_back(now_ns);
        }
    }

    /// All before `position` is acknowledged, up to the first READ or atomic: those are complete
    /// when their responses are here. Returns whether that is all, or a response is missing.
    fn acknowledge(&mut self, position: u64, now_ns: u64) -> bool {
        while self.unacked < position {
            let slot = self.slot(self.oldest);
            if slot.request.kind.has_response() {
                return false;
            }
            self.advance(&slot, slot.end.min(position), now_ns);
        }
        true
    }

    /// `unacked` moves on within the request `oldest`, or to its end.
    fn advance(&mut self, slot: &SendSlot, to: u64, now_ns: u64) {
        self.window.on_ack((to - self.unacked) as u32, &self.recovery.round_trip);
        self.unacked = to;
        self.congestion.on_progress(to, self.sent);
        self.oldest += u64::from(to == slot.end);
        if self.next < to {
            // It was to be sent again, and needs not be. No READ lies in between.
            (self.next, self.current) = (to, self.oldest);
        }
        self.on_progress(now_ns);
    }

    /// The request at `unacked` meets no receive request.
    fn on_rnr(&mut self, wait_ns: u64, now_ns: u64) {
        if self.recovery.rnr_until_ns.is_some() {
            return;
        }
        if self.config.rnr_retry != RNR_RETRY_FOREVER {
            match self.recovery.rnr_retries_left.checked_sub(1) {
                Some(left) => self.recovery.rnr_retries_left = left,
                None => return self.fail(CompletionStatus::RnrRetryExceeded),
            }
        }
        self.counts.rnr_naks += 1;
        // The peer is alive.
        self.recovery.retries_left = self.config.retry_cnt;
        self.go_back(now_ns);
        self.recovery.waits_since_ns = None;
        self.recovery.rnr_until_ns = Some(now_ns.saturating_add(wait_ns));
    }

    fn on_read_response(
        &mut self,
        position: u64,
        is_last: bool,
        length: u32,
        now_ns: u64,
    ) -> Received {
        if !self.acknowledge(position, now_ns) {
            self.on_loss(now_ns);
            return Received::Noted;
        }
        let (index, slot) = (self.oldest, self.slot(self.oldest));
        let end = self.span_end(&slot, position);
        if slot.request.kind == Operation::AtomicWrite && is_last {
            return self.on_atomic_write_response(&slot, length, now_ns);
        }
        if slot.request.kind != Operation::Read || is_last != (position + 1 == end) {
            self.fail(CompletionStatus::BadResponse);
            return Received::Noted;
        }
        let (offset, expected) = self.bytes(&slot, position, position + 1);
        if length != expected {
            self.fail(CompletionStatus::LocalLength);
            return Received::Noted;
        }
        self.finish_read(&slot, position + 1, end, now_ns);
        Received::Place { index: WqeIndex(index), offset, length }
    }

    /// An ATOMIC WRITE is answered as a READ of no bytes.
    fn on_atomic_write_response(&mut self, slot: &SendSlot, length: u32, now_ns: u64) -> Received {
        if length == 0 {
            self.finish_read(slot, slot.end, slot.end, now_ns);
        } else {
            self.fail(CompletionStatus::LocalLength);
        }
        Received::Noted
    }

    fn on_atomic_ack(&mut self, position: u64, value: u64, now_ns: u64) -> Received {
        if !self.acknowledge(position, now_ns) {
            self.on_loss(now_ns);
            return Received::Noted;
        }
        let (index, slot) = (self.oldest, self.slot(self.oldest));
        if !slot.request.kind.is_atomic() {
            self.fail(CompletionStatus::BadResponse);
            return Received::Noted;
        }
        self.finish_read(&slot, slot.end, slot.end, now_ns);
        Received::Original { index: WqeIndex(index), value }
    }

    /// The response before position `to` is here; the part that it belongs to ends at `end`.
    fn finish_read(&mut self, slot: &SendSlot, to: u64, end: u64, now_ns: u64) {
        if to == end && self.next >= end {
            self.reads -= 1;
        }
        self.advance(slot, to, now_ns);
    }
}
