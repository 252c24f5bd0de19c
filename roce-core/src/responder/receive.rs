//! SENDs: messages into receive requests.

use super::accept::NotExecuted;
use super::{AccessError, ReceiveDone, ReceiveFault, Refusal, Responder, ResponseSlot, Target};
use crate::headers::Headers;
use crate::message::{IncomingMessage, immediate, invalidated};

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> Responder<S> {
    /// The expected packet of a SEND. Its length fits its opcode.
    pub(super) fn accept_send<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Result<u32, NotExecuted> {
        let (capacity, received) = match self.message {
            IncomingMessage::Send { capacity, received } => (capacity, received),
            _ => (self.take_receive(target)?, 0),
        };
        let (before, held) = (self.message, self.held.take());
        // Until the packet is executed, a fault is that of the message.
        self.message = IncomingMessage::Send { capacity, received };
        let length = payload.len() as u32; // at most the MTU
        if length > capacity - received {
            let is_all = headers.bth.opcode.ends_message();
            target.note_short(capacity, received.saturating_add(length), is_all);
            return Err(NotExecuted::Refused(Refusal::Invalid, ReceiveFault::Length));
        }
        target.place(received, payload).map_err(|error| match error {
            AccessError::NotPresent => {
                (self.message, self.held) = (before, held);
                NotExecuted::NotReady
            }
            AccessError::Refused(_) => {
                NotExecuted::Refused(Refusal::Operation, ReceiveFault::Protection)
            }
        })?;
        let received = received + length;
        self.message = IncomingMessage::Send { capacity, received };
        if headers.bth.opcode.ends_message() {
            self.end_send(headers, received, target)?;
        }
        Ok(1)
    }

    /// The room of the receive request that is held, or of a new one, which is held from now on.
    pub(super) fn take_receive<T: Target>(&mut self, target: &mut T) -> Result<u32, NotExecuted> {
        self.held = self.held.or_else(|| target.take_receive());
        self.held.ok_or(NotExecuted::NotReady)
    }

    fn end_send<T: Target>(
        &mut self,
        headers: &Headers,
        length: u32,
        target: &mut T,
    ) -> Result<(), NotExecuted> {
        let invalidated = invalidated(headers);
        if let Some(rkey) = invalidated {
            target
                .invalidate(rkey)
                .map_err(|refusal| NotExecuted::Refused(refusal, ReceiveFault::Invalidate))?;
        }
        target.complete_receive(ReceiveDone {
            length,
            imm: immediate(headers),
            invalidated,
            is_solicited: headers.bth.solicited,
            is_write: false,
        });
        self.complete_message();
        Ok(())
    }
}
