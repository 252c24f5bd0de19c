//! The receiving end.

use super::Config;
use crate::headers::{Headers, Reth};
use crate::message::{IncomingMessage, fits_write, immediate, permits};
use crate::opcode::Transport;
use crate::psn::Psn;
use crate::request::MAX_MESSAGE;
use crate::responder::{Access, AccessError, Outcome, ReceiveDone, ReceiveFault, Refusal, Target};

/// The receiving end. See the [module](super).
// Invariant: while `message` is a SEND, `held` is its receive request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    config: Config,
    expected: Psn,
    message: IncomingMessage,
    /// The room of a receive request that was taken and has not completed.
    held: Option<u32>,
}

impl Receiver {
    /// A receiver that has received nothing.
    pub const fn new(config: Config) -> Self {
        Self { config, expected: config.first_psn, message: IncomingMessage::None, held: None }
    }

    /// Takes a packet, with its payload (without padding): it is [`Outcome::Accepted`], or
    /// dropped ([`Outcome::NotReady`] if there is no receive request, or memory that it needs is
    /// not there yet, else [`Outcome::Dropped`]), or the memory of its receive request is not
    /// accessible: [`Outcome::Failed`]. Then the queue pair fails.
    pub fn on_request<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Outcome {
        let opcode = headers.bth.opcode;
        if !opcode.is_request() || opcode.transport() != Some(Transport::Uc) {
            return Outcome::Dropped;
        }
        let is_next = headers.bth.psn == self.expected;
        self.expected = headers.bth.psn.wrapping_add(1);
        if opcode.starts_message() || !is_next {
            self.message = IncomingMessage::None;
        }
        let is_good =
            self.message.continues_with(opcode) && permits(opcode, payload.len(), self.config.mtu);
        let result = match is_good {
            true if opcode.is_send() => self.send(headers, payload, target),
            true => self.write(headers, payload, target),
            false => Err(Outcome::Dropped),
        };
        // What is left of a message that is dropped is dropped, too.
        result
            .inspect_err(|_| self.message = IncomingMessage::None)
            .err()
            .unwrap_or(Outcome::Accepted)
    }

    /// The room of the receive request that is held, or of a new one.
    fn take_receive<T: Target>(&mut self, target: &mut T) -> Result<u32, Outcome> {
        self.held = self.held.or_else(|| target.take_receive());
        self.held.ok_or(Outcome::NotReady)
    }

    fn send<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Result<(), Outcome> {
        let (capacity, received) = match self.message {
            IncomingMessage::Send { capacity, received } => (capacity, received),
            _ => (self.take_receive(target)?, 0),
        };
        let length = payload.len() as u32; // at most the MTU
        if length > capacity - received {
            let is_all = headers.bth.opcode.ends_message();
            target.note_short(capacity, received.saturating_add(length), is_all);
            return Err(Outcome::Dropped);
        }
        match target.place(received, payload) {
            Ok(()) => {}
            // The receive request serves the next message.
            Err(AccessError::NotPresent) => return Err(Outcome::NotReady),
            Err(AccessError::Refused(_)) => {
                target.fail_receive(ReceiveFault::Protection);
                self.held = None;
                return Err(Outcome::Failed(Refusal::Operation));
            }
        }
        let received = received + length;
        self.message = IncomingMessage::Send { capacity, received };
        if headers.bth.opcode.ends_message() {
            self.complete(headers, received, false, target);
        }
        Ok(())
    }

    fn write<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Result<(), Outcome> {
        let (reth, received) = match self.message {
            IncomingMessage::Write { reth, received } => (reth, received),
            _ => (headers.reth.ok_or(Outcome::Dropped)?, 0),
        };
        let (length, is_end) = (payload.len() as u32, headers.bth.opcode.ends_message());
        if reth.len > MAX_MESSAGE || !fits_write(reth.len - received, length, is_end) {
            return Err(Outcome::Dropped);
        }
        let Reth { va, rkey, len } = reth;
        if self.message == IncomingMessage::None && len > 0 {
            target.check(Access::Write, rkey, va, len).map_err(dropped)?;
        }
        if immediate(headers).is_some() {
            self.take_receive(target)?;
        }
        if length > 0 {
            target.write(rkey, va.wrapping_add(received.into()), payload).map_err(dropped)?;
        }
        self.message = IncomingMessage::Write { reth, received: received + length };
        if is_end {
            self.complete(headers, len, true, target);
        }
        Ok(())
    }

    /// The message has ended.
    fn complete<T: Target>(
        &mut self,
        headers: &Headers,
        length: u32,
        is_write: bool,
        target: &mut T,
    ) {
        self.message = IncomingMessage::None;
        let imm = immediate(headers);
        if is_write && imm.is_none() {
            return;
        }
        self.held = None;
        let is_solicited = headers.bth.solicited;
        target.complete_receive(ReceiveDone {
            length,
            imm,
            invalidated: None,
            is_solicited,
            is_write,
        });
    }
}

/// Returns the outcome of a WRITE to memory that cannot be written.
fn dropped(why: AccessError) -> Outcome {
    match why {
        AccessError::NotPresent => Outcome::NotReady,
        AccessError::Refused(_) => Outcome::Dropped,
    }
}
