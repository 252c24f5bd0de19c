//! Requests that were executed before.

use super::slots::{Remembered, RememberedAnswer};
use super::{DueAnswer, Outcome, PSN_WINDOW, Responder, ResponseSlot};
use crate::headers::{Headers, Reth};
use crate::opcode::{Opcode, Transport};
use crate::request::packets;

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> Responder<S> {
    /// A request of `behind` packets before the expected one.
    pub(super) fn on_repeated(&mut self, headers: &Headers, behind: u64) -> Outcome {
        let opcode = headers.bth.opcode;
        if behind > self.expected - u64::from(self.config.first_psn.get()) {
            // It precedes the first packet of this connection.
            return Outcome::Dropped;
        }
        let position = self.expected - behind;
        let is_remembered = if opcode.is_read_request() {
            let reth = headers.reth;
            reth.is_some_and(|reth| self.repeat_read(position, &reth))
        } else if opcode.has_response() {
            self.repeat_atomic(position, opcode)
        } else if behind <= PSN_WINDOW.into() {
            if self.due == DueAnswer::Nothing {
                self.due = DueAnswer::Ack;
            }
            true
        } else {
            false
        };
        if is_remembered { Outcome::Duplicate } else { Outcome::Dropped }
    }

    /// A READ is asked for again, from `position` on. It has to lie in what was asked for before.
    fn repeat_read(&mut self, position: u64, reth: &Reth) -> bool {
        let mtu = self.config.mtu;
        self.slots.repeat(position, |old| {
            let RememberedAnswer::Read { rkey, va, length, .. } = old.answer else { return false };
            let offset = (position - old.first) * u64::from(mtu);
            let until = offset + u64::from(reth.len);
            let is_same = reth.rkey == rkey && reth.va == va.wrapping_add(offset);
            if !is_same || until > length.into() {
                return false;
            }
            let until = until as u32;
            let end = position + u64::from(packets(reth.len, mtu));
            repeat_from(old, position, end, until);
            true
        })
    }

    /// READs that may be asked for again: key, address, and bytes of each.
    pub fn answered_reads(&self) -> impl Iterator<Item = (u32, u64, u32)> {
        self.slots.all().filter_map(|old| match old.answer {
            RememberedAnswer::Read { rkey, va, length, .. } => Some((rkey, va, length)),
            RememberedAnswer::Atomic { .. } | RememberedAnswer::AtomicWrite => None,
        })
    }

    /// Reports whether a packet repeats what was executed before.
    pub fn is_repetition(&self, headers: &Headers) -> bool {
        let behind = headers.bth.psn.since(self.expected_psn());
        let all = self.expected - u64::from(self.config.first_psn.get());
        behind < 0 && u64::from(behind.unsigned_abs()) <= all
    }

    /// Answers a request packet that arrived after the queue pair has ended. If it was executed
    /// before, it is acknowledged again, because the requester has not had the acknowledgement.
    /// Nothing is executed. READs are the caller's: their memory may have gone.
    pub fn answer_late(&self, headers: &Headers) -> Option<Headers> {
        let opcode = headers.bth.opcode;
        let is_request = opcode.is_request() && opcode.transport() == Some(Transport::Rc);
        let is_again = is_request && self.is_repetition(headers);
        if self.has_failed || opcode.is_read_request() || !is_again {
            return None;
        }
        let behind = self.expected_psn().since(headers.bth.psn).unsigned_abs();
        if !opcode.has_response() {
            return (behind <= PSN_WINDOW).then(|| self.acknowledge_plain());
        }
        let position = self.expected - u64::from(behind);
        let answered = *self.slots.find(position)?;
        let again = Remembered { next: position, ..answered };
        let response = match answered.answer {
            _ if !answered.answer.answers(opcode) => return None,
            RememberedAnswer::Read { .. } => return None,
            RememberedAnswer::Atomic { original } => self.atomic_ack(&again, original),
            RememberedAnswer::AtomicWrite => self.atomic_write_response(&again),
        };
        Some(response.headers)
    }

    /// An atomic, or an ATOMIC WRITE.
    fn repeat_atomic(&mut self, position: u64, opcode: Opcode) -> bool {
        self.slots.repeat(position, |old| {
            if !old.answer.answers(opcode) {
                return false;
            }
            (old.start, old.next, old.end) = (position, position, position + 1);
            old.is_repeated = true;
            true
        })
    }
}

/// Responses from `position` to `end` are due, unless they are about to be sent anyway.
fn repeat_from(old: &mut Remembered, position: u64, end: u64, until: u32) {
    if old.is_pending() && old.next <= position && end <= old.end {
        return;
    }
    old.is_repeated |= !old.is_pending();
    (old.start, old.next, old.end) = (position, position, end);
    if let RememberedAnswer::Read { until: asked, .. } = &mut old.answer {
        *asked = until;
    }
}
