//! Check that a request packet is the expected one.

use super::{
    AccessError, AckPosition, DueAnswer, Outcome, PSN_WINDOW, ReceiveFault, Refusal, Responder,
    ResponseSlot, Target,
};
use crate::headers::Headers;
use crate::message::permits;
use crate::opcode::Transport;
use crate::psn::Psn;

/// Reason for which the expected packet is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotExecuted {
    /// There is no receive request, or memory is not there yet. Nothing of the packet is executed.
    NotReady,
    /// It is refused, and the receive request that its message has taken fails.
    Refused(Refusal, ReceiveFault),
}

impl From<Refusal> for NotExecuted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal, ReceiveFault::Flushed)
    }
}

impl From<AccessError> for NotExecuted {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NotPresent => Self::NotReady,
            AccessError::Refused(refusal) => refusal.into(),
        }
    }
}

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> Responder<S> {
    /// Takes a request packet, with its payload (without padding).
    pub fn on_request<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Outcome {
        let opcode = headers.bth.opcode;
        if self.has_failed || !opcode.is_request() || opcode.transport() != Some(Transport::Rc) {
            return Outcome::Dropped;
        }
        match headers.bth.psn.since(self.expected_psn()) {
            0 => self.on_expected(headers, payload, target),
            behind if behind < 0 => self.on_repeated(headers, behind.unsigned_abs().into()),
            ahead => self.on_gap(ahead.unsigned_abs()),
        }
    }

    /// Takes a request packet whose headers and payload do not fit its opcode, or whose opcode
    /// is unknown. Of such a packet only the number is known.
    pub fn on_malformed<T: Target>(&mut self, psn: Psn, target: &mut T) -> Outcome {
        if self.has_failed {
            return Outcome::Dropped;
        }
        match psn.since(self.expected_psn()) {
            0 => {
                self.refuse(Refusal::Invalid, self.expected, ReceiveFault::Flushed, target);
                Outcome::Failed(Refusal::Invalid)
            }
            ahead if ahead > 0 => self.on_gap(ahead.unsigned_abs()),
            _ => Outcome::Dropped,
        }
    }

    /// Handles a packet of `ahead` after the expected one. There is one NAK for a gap, however many
    /// packets arrive after it, and none for a number that no requester reaches.
    fn on_gap(&mut self, ahead: u32) -> Outcome {
        if !self.is_gap_reported && ahead <= PSN_WINDOW {
            self.is_gap_reported = true;
            self.due = DueAnswer::SequenceNak;
        }
        Outcome::OutOfSequence
    }

    fn on_expected<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Outcome {
        match self.execute(headers, payload, target) {
            Ok(packets) => {
                self.note_accepted(headers, packets);
                Outcome::Accepted
            }
            Err(NotExecuted::NotReady) => {
                self.is_gap_reported = true;
                self.due = DueAnswer::RnrNak;
                Outcome::NotReady
            }
            Err(NotExecuted::Refused(refusal, fault)) => {
                self.refuse(refusal, self.expected, fault, target);
                Outcome::Failed(refusal)
            }
        }
    }

    fn note_accepted(&mut self, headers: &Headers, packets: u32) {
        self.expected += u64::from(packets);
        self.is_gap_reported = false;
        let opcode = headers.bth.opcode;
        if opcode.has_response() {
            // Its response acknowledges all before it.
            self.due = DueAnswer::Nothing;
            return;
        }
        self.plain = AckPosition { end: self.expected, msn: self.msn };
        if headers.bth.ack_req || self.due != DueAnswer::Nothing {
            // A NAK that was not sent yet is obsolete.
            self.due = DueAnswer::Ack;
        }
    }

    /// Executes the expected packet, and returns how many sequence numbers it takes.
    fn execute<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Result<u32, NotExecuted> {
        let opcode = headers.bth.opcode;
        let is_permitted = permits(opcode, payload.len(), self.config.mtu);
        if !self.message.continues_with(opcode) || !is_permitted {
            return Err(Refusal::Invalid.into());
        }
        match opcode {
            opcode if opcode.is_send() => self.accept_send(headers, payload, target),
            opcode if opcode.is_write() => self.accept_write(headers, payload, target),
            opcode if opcode.is_read_request() => self.accept_read(headers, target),
            opcode if opcode.is_atomic() => self.accept_atomic(headers, target),
            opcode if opcode.is_atomic_write() => {
                self.accept_atomic_write(headers, payload, target)
            }
            _ => Err(Refusal::Invalid.into()),
        }
    }
}
