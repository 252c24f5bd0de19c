//! WRITEs, READs, atomics and ATOMIC WRITEs: memory that the requester names.

use super::accept::NotExecuted;
use super::slots::{Remembered, RememberedAnswer};
use super::{Access, AccessError, AtomicOp, ReceiveDone, Refusal, Responder, ResponseSlot, Target};
use crate::headers::{Headers, Reth};
use crate::lengths::ATOMIC_WRITE;
use crate::message::{IncomingMessage, fits_write, immediate};
use crate::opcode::Opcode;
use crate::request::{MAX_MESSAGE, packets};

/// Checks that all bytes that a request names are accessible. A request of no bytes needs no valid
/// key.
fn check<T: Target>(target: &mut T, access: Access, reth: &Reth) -> Result<(), AccessError> {
    if reth.len > MAX_MESSAGE {
        return Err(Refusal::Invalid.into());
    }
    if reth.len == 0 {
        return Ok(());
    }
    target.check(access, reth.rkey, reth.va, reth.len)
}

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> Responder<S> {
    /// The expected packet of a WRITE. Its length fits its opcode.
    pub(super) fn accept_write<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Result<u32, NotExecuted> {
        let (reth, received) = match self.message {
            IncomingMessage::Write { reth, received } => (reth, received),
            _ => (headers.reth.ok_or(Refusal::Invalid)?, 0),
        };
        let (length, is_end) = (payload.len() as u32, headers.bth.opcode.ends_message());
        if !fits_write(reth.len - received, length, is_end) {
            return Err(Refusal::Invalid.into());
        }
        if self.message == IncomingMessage::None {
            check(target, Access::Write, &reth)?;
        }
        let has_imm = immediate(headers).is_some();
        if has_imm {
            self.take_receive(target)?;
        }
        // If it is refused, the receive request fails that is held.
        self.write(target, &reth, received, payload)?;
        if is_end {
            self.end_write(headers, reth.len, target);
        } else {
            self.message = IncomingMessage::Write { reth, received: received + length };
        }
        Ok(1)
    }

    fn write<T: Target>(
        &self,
        target: &mut T,
        reth: &Reth,
        received: u32,
        payload: &[u8],
    ) -> Result<(), AccessError> {
        if payload.is_empty() {
            return Ok(());
        }
        target.write(reth.rkey, reth.va.wrapping_add(received.into()), payload)
    }

    fn end_write<T: Target>(&mut self, headers: &Headers, length: u32, target: &mut T) {
        if let Some(imm) = immediate(headers) {
            self.held = None;
            target.complete_receive(ReceiveDone {
                length,
                imm: Some(imm),
                invalidated: None,
                is_solicited: headers.bth.solicited,
                is_write: true,
            });
        }
        self.complete_message();
    }

    /// The expected request of a READ: it is answered later, packet by packet.
    pub(super) fn accept_read<T: Target>(
        &mut self,
        headers: &Headers,
        target: &mut T,
    ) -> Result<u32, NotExecuted> {
        let reth = headers.reth.ok_or(Refusal::Invalid)?;
        if !self.slots.has_room() {
            return Err(Refusal::Invalid.into());
        }
        check(target, Access::Read, &reth)?;
        let packets = packets(reth.len, self.config.mtu);
        let Reth { rkey, va, len } = reth;
        self.complete_message();
        let answer = RememberedAnswer::Read { rkey, va, length: len, until: len };
        self.slots.push(Remembered::new(self.expected, packets, answer, self.msn));
        Ok(packets)
    }

    /// The expected request of an atomic.
    pub(super) fn accept_atomic<T: Target>(
        &mut self,
        headers: &Headers,
        target: &mut T,
    ) -> Result<u32, NotExecuted> {
        let operands = headers.atomic.ok_or(Refusal::Invalid)?;
        if !self.slots.has_room() {
            return Err(Refusal::Invalid.into());
        }
        target.check(Access::Atomic, operands.rkey, operands.va, 8)?;
        if !operands.va.is_multiple_of(8) {
            return Err(Refusal::Invalid.into());
        }
        let op = match headers.bth.opcode {
            Opcode::RcCmpSwap => {
                AtomicOp::CmpSwap { compare: operands.compare, swap: operands.swap_add }
            }
            _ => AtomicOp::FetchAdd { add: operands.swap_add },
        };
        let original = target.atomic(operands.rkey, operands.va, op)?;
        self.complete_message();
        let answer = RememberedAnswer::Atomic { original };
        self.slots.push(Remembered::new(self.expected, 1, answer, self.msn));
        Ok(1)
    }

    /// The expected packet of an ATOMIC WRITE.
    pub(super) fn accept_atomic_write<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Result<u32, NotExecuted> {
        let Reth { rkey, va, len } = headers.reth.ok_or(Refusal::Invalid)?;
        let bytes: [u8; ATOMIC_WRITE] = payload.try_into().map_err(|_| Refusal::Invalid)?;
        if !self.slots.has_room() || len as usize != ATOMIC_WRITE {
            return Err(Refusal::Invalid.into());
        }
        target.check(Access::AtomicWrite, rkey, va, len)?;
        if !va.is_multiple_of(8) {
            return Err(Refusal::Invalid.into());
        }
        target.atomic_write(rkey, va, bytes)?;
        self.complete_message();
        self.slots.push(Remembered::new(self.expected, 1, RememberedAnswer::AtomicWrite, self.msn));
        Ok(1)
    }
}
