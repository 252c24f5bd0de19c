//! Datagrams: one packet a message, to any queue pair.
//!
//! The caller checks the Q_Key of what it receives, and places the 40 bytes that precede a datagram
//! in its buffer: offsets and lengths here are those behind them.

#[cfg(test)]
mod tests;

use crate::headers::{Bth, Deth, Headers, ImmDt};
use crate::lengths::padding_of;
use crate::message::immediate;
use crate::opcode::{Opcode, Transport};
use crate::psn::Psn;
use crate::request::{Outgoing, WqeIndex};
use crate::responder::{AccessError, Outcome, ReceiveDone, ReceiveFault, Refusal, Target};

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes of its payload.
    pub length: u32,
    /// The immediate, if it has one.
    pub imm: Option<u32>,
    /// The peer's completion is a solicited event.
    pub is_solicited: bool,
    /// The receiving queue pair.
    pub dest_qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// A datagram is longer than the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("length ({length}) must be at most the path MTU ({mtu} bytes)")]
pub struct TooLong {
    /// Its length.
    pub length: u32,
    /// The path MTU.
    pub mtu: u32,
}

/// The sending end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    mtu: u32,
    src_qpn: u32,
    pkey: u16,
    next: Psn,
}

impl Sender {
    /// The sender of queue pair `src_qpn`, whose first datagram has the number `first_psn`.
    pub const fn new(mtu: u32, src_qpn: u32, pkey: u16, first_psn: Psn) -> Self {
        Self { mtu, src_qpn, pkey, next: first_psn }
    }

    /// The packet of a datagram: the request is complete when it is sent.
    ///
    /// # Errors
    /// [`TooLong`], and nothing has changed.
    pub fn packet(&mut self, index: WqeIndex, datagram: Datagram) -> Result<Outgoing, TooLong> {
        let Datagram { length, imm, is_solicited, dest_qpn, qkey } = datagram;
        if length > self.mtu {
            return Err(TooLong { length, mtu: self.mtu });
        }
        let opcode = if imm.is_some() { Opcode::UdSendOnlyImm } else { Opcode::UdSendOnly };
        let mut headers = Headers::new(Bth {
            pkey: self.pkey,
            solicited: is_solicited,
            pad: padding_of(length as usize),
            ..Bth::new(opcode, dest_qpn, self.next)
        });
        headers.deth = Some(Deth { qkey, src_qpn: self.src_qpn });
        headers.imm = imm.map(ImmDt);
        self.next = self.next.wrapping_add(1);
        Ok(Outgoing { headers, index, offset: 0, length })
    }
}

/// The receiving end. A receive request that is too short for a datagram, or memory of which is not
/// there yet, serves the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// The room of a receive request that was taken and has not completed.
    held: Option<u32>,
}

impl Receiver {
    /// A receiver that has received nothing.
    pub const fn new() -> Self {
        Self { held: None }
    }

    /// Takes a datagram, with its payload (without padding): it is [`Outcome::Accepted`], or it
    /// is dropped ([`Outcome::NotReady`] if there is no receive request, else
    /// [`Outcome::Dropped`]), or the memory of its receive request is not accessible:
    /// [`Outcome::Failed`]. Then the queue pair fails.
    pub fn on_request<T: Target>(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        target: &mut T,
    ) -> Outcome {
        let opcode = headers.bth.opcode;
        if !opcode.is_request() || opcode.transport() != Some(Transport::Ud) {
            return Outcome::Dropped;
        }
        self.held = self.held.or_else(|| target.take_receive());
        let Some(room) = self.held else { return Outcome::NotReady };
        let Ok(length) = u32::try_from(payload.len()) else {
            return Outcome::Dropped;
        };
        if length > room {
            target.note_short(room, length, true);
            return Outcome::Dropped;
        }
        let placed = target.place(0, payload);
        if placed == Err(AccessError::NotPresent) {
            return Outcome::Dropped;
        }
        self.held = None;
        if placed.is_err() {
            target.fail_receive(ReceiveFault::Protection);
            return Outcome::Failed(Refusal::Operation);
        }
        target.complete_receive(ReceiveDone {
            length,
            imm: immediate(headers),
            invalidated: None,
            is_solicited: headers.bth.solicited,
            is_write: false,
        });
        Outcome::Accepted
    }
}
