//! Requests that were executed before.

use super::slots::{Answer, Remembered};
use super::{Due, Outcome, Responder, ResponseSlot};
use crate::headers::{Headers, Reth};
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
