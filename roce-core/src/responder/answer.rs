//! Packets that are sent to the requester.

use super::slots::{Remembered, RememberedAnswer};
use super::{
    AccessError, AckPosition, DueAnswer, ReceiveFault, Refusal, Responder, ResponseSlot, Target,
};
use crate::headers::{Aeth, AtomicAckEth, Bth, Headers, NakCode, Syndrome};
use crate::lengths::padding_of;
use crate::opcode::Opcode;
use crate::psn::Psn;
use crate::request::PacketPosition;

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its headers.
    pub headers: Headers,
    /// Bytes of its payload, those that [`Target::read`] was asked for.
    pub length: u32,
}

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> Responder<S> {
    /// The next packet to send, if there is one. If it has a payload, [`Target::read`] was called
    /// for it.
    pub fn next_response<T: Target>(&mut self, target: &mut T) -> Option<Response> {
        if let Some(answered) = self.slots.next_response() {
            match answered.answer {
                RememberedAnswer::Atomic { original } => {
                    return Some(self.atomic_ack(&answered, original));
                }
                RememberedAnswer::AtomicWrite => {
                    return Some(self.atomic_write_response(&answered));
                }
                RememberedAnswer::Read { rkey, va, until, .. } => {
                    if let Some(response) = self.read_response(&answered, (rkey, va, until), target)
                    {
                        return Some(response);
                    }
                }
            }
        }
        self.take_due().map(|headers| Response { headers, length: 0 })
    }

    /// A response to a READ; none if the memory is not accessible any more.
    fn read_response<T: Target>(
        &mut self,
        answered: &Remembered,
        (rkey, va, until): (u32, u64, u32),
        target: &mut T,
    ) -> Option<Response> {
        let position = answered.next;
        let offset = ((position - answered.first) * u64::from(self.config.mtu)) as u32;
        let length = until.saturating_sub(offset).min(self.config.mtu);
        if length > 0
            && let Err(error) = target.read(rkey, va.wrapping_add(offset.into()), length)
        {
            return match error {
                AccessError::NotPresent => Some(self.postpone_read(answered)),
                AccessError::Refused(refusal) => self.refuse_read(answered, refusal, target),
            };
        }
        let part =
            PacketPosition::from_ends(position == answered.start, position + 1 == answered.end);
        let mut headers = self.headers(read_response_opcode(part), position);
        headers.bth.pad = padding_of(length as usize);
        if part != PacketPosition::Middle {
            headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: answered.msn });
        }
        Some(Response { headers, length })
    }

    /// The memory of a READ is not there any more: the requester is to ask again, for the rest and
    /// for all behind it.
    fn postpone_read(&mut self, answered: &Remembered) -> Response {
        self.slots.abandon_all();
        if !self.has_failed {
            self.due = DueAnswer::Nothing;
        }
        let timer = self.config.min_rnr_timer;
        let headers = self.acknowledge(Syndrome::RnrNak { timer }, answered.next);
        Response { headers, length: 0 }
    }

    /// The memory of a READ is not accessible any more. If it was answered before, the requester
    /// may have all of it, and this be a late copy of its request: that alone is refused.
    fn refuse_read<T: Target>(
        &mut self,
        answered: &Remembered,
        refusal: Refusal,
        target: &mut T,
    ) -> Option<Response> {
        if answered.is_repeated {
            self.slots.abandon(answered.next);
            let headers = self.acknowledge(Syndrome::Nak(refusal.nak()), answered.next);
            return Some(Response { headers, length: 0 });
        }
        self.slots.clear();
        self.refuse(refusal, answered.next, ReceiveFault::Flushed, target);
        None
    }

    pub(super) fn atomic_ack(&self, answered: &Remembered, original: u64) -> Response {
        let mut headers = self.headers(Opcode::RcAtomicAck, answered.next);
        headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: answered.msn });
        headers.atomic_ack = Some(AtomicAckEth { original });
        Response { headers, length: 0 }
    }

    /// Returns the answer to an ATOMIC WRITE: a READ's response of no bytes.
    pub(super) fn atomic_write_response(&self, answered: &Remembered) -> Response {
        let mut headers = self.headers(Opcode::RcReadResponseOnly, answered.next);
        headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: answered.msn });
        Response { headers, length: 0 }
    }

    /// The acknowledgement or NAK that is due.
    fn take_due(&mut self) -> Option<Headers> {
        let (syndrome, position) = match self.due {
            DueAnswer::Nothing => return None,
            DueAnswer::Ack => {
                self.due = DueAnswer::Nothing;
                return Some(self.acknowledge_plain());
            }
            DueAnswer::SequenceNak => (Syndrome::Nak(NakCode::PsnSequenceError), self.expected),
            DueAnswer::RnrNak => {
                (Syndrome::RnrNak { timer: self.config.min_rnr_timer }, self.expected)
            }
            DueAnswer::Nak(refusal, position) => (Syndrome::Nak(refusal.nak()), position),
        };
        self.due = DueAnswer::Nothing;
        Some(self.acknowledge(syndrome, position))
    }

    /// Acknowledges what was executed.
    pub(super) fn acknowledge_plain(&self) -> Headers {
        let AckPosition { end, msn } = self.plain;
        let mut headers = self.headers(Opcode::RcAck, end.wrapping_sub(1));
        headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn });
        headers
    }

    pub(super) fn acknowledge(&self, syndrome: Syndrome, position: u64) -> Headers {
        let mut headers = self.headers(Opcode::RcAck, position);
        headers.aeth = Some(Aeth { syndrome, msn: self.msn });
        headers
    }

    fn headers(&self, opcode: Opcode, position: u64) -> Headers {
        let bth = Bth::new(opcode, self.config.dest_qpn, Psn::new(position as u32));
        Headers::new(Bth { pkey: self.config.pkey, ..bth })
    }
}

const fn read_response_opcode(part: PacketPosition) -> Opcode {
    match part {
        PacketPosition::First => Opcode::RcReadResponseFirst,
        PacketPosition::Middle => Opcode::RcReadResponseMiddle,
        PacketPosition::Last => Opcode::RcReadResponseLast,
        PacketPosition::Only => Opcode::RcReadResponseOnly,
    }
}
