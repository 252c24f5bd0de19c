//! Requests that were executed before.

use super::slots::{Answer, Remembered};
use super::{Due, Outcome, Responder, ResponseSlot};
use crate::headers::{Headers, Reth, Syndrome};
use crate::opcode::Transport;
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
        } else if opcode.is_atomic() {
            self.repeat_atomic(position)
        } else {
            if self.due == Due::Nothing {
                self.due = Due::Ack;
            }
            true
        };
        if is_remembered { Outcome::Duplicate } else { Outcome::Dropped }
    }

    /// A READ is asked for again, from `position` on. It has to lie in what was asked for before.
    fn repeat_read(&mut self, position: u64, reth: &Reth) -> bool {
        let mtu = self.config.mtu;
        self.slots.repeat(position, |old| {
            let Answer::Read { rkey, va, length, .. } = old.answer else { return false };
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

    /// A request packet has come although the queue pair has ended. If it was executed before, it is
    /// acknowledged again, because the requester has not had the acknowledgement. Nothing is executed,
    /// and no READ is answered: its memory may have gone.
    pub fn answer_late(&self, headers: &Headers) -> Option<Headers> {
        let opcode = headers.bth.opcode;
        let is_request = opcode.is_request() && opcode.transport() == Some(Transport::Rc);
        let behind = headers.bth.psn.since(self.expected_psn());
        if self.has_failed || !is_request || opcode.is_read_request() || behind >= 0 {
            return None;
        }
        let behind = u64::from(behind.unsigned_abs());
        if behind > self.expected - u64::from(self.config.first_psn.get()) {
            return None;
        }
        if !opcode.is_atomic() {
            return Some(self.acknowledge(Syndrome::ACK, self.expected - 1));
        }
        let position = self.expected - behind;
        let answered = *self.slots.find(position)?;
        let Answer::Atomic { original } = answered.answer else { return None };
        let answered = Remembered { next: position, ..answered };
        Some(self.atomic_ack(&answered, original).headers)
    }

    fn repeat_atomic(&mut self, position: u64) -> bool {
        self.slots.repeat(position, |old| {
            if !matches!(old.answer, Answer::Atomic { .. }) {
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
    if let Answer::Read { until: asked, .. } = &mut old.answer {
        *asked = until;
    }
}
