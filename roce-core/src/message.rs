//! The message that a responder is receiving, and which packet may be next.

use crate::headers::{Headers, Reth};
use crate::lengths;
use crate::opcode::{Opcode, PayloadRule};

/// The message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncomingMessage {
    /// None.
    None,
    /// A SEND into the receive request that was taken, which has room for `capacity` bytes.
    // Invariant: received <= capacity.
    Send { capacity: u32, received: u32 },
    /// A WRITE; the key was checked for its whole length.
    // Invariant: received < reth.len.
    Write { reth: Reth, received: u32 },
}

impl IncomingMessage {
    /// Reports whether a packet with this opcode may be the next one of the message, or begins one
    /// where there is none.
    pub(crate) fn continues_with(&self, opcode: Opcode) -> bool {
        let is_continued = !opcode.starts_message();
        match self {
            Self::None => !is_continued,
            Self::Send { .. } => is_continued && opcode.is_send(),
            Self::Write { .. } => is_continued && opcode.is_write(),
        }
    }
}

/// Reports whether the opcode permits a payload of `length` bytes with this path MTU.
pub(crate) fn permits(opcode: Opcode, length: usize, mtu: u32) -> bool {
    let mtu = mtu as usize;
    match opcode.payload_rule() {
        PayloadRule::Empty => length == 0,
        PayloadRule::UpToMtu => length <= mtu,
        PayloadRule::Rest => length > 0 && length <= mtu,
        PayloadRule::Mtu => length == mtu,
        PayloadRule::AtomicWrite => length == lengths::ATOMIC_WRITE,
    }
}

/// Reports whether a packet of `length` bytes may be the next one of a WRITE of which `left` bytes
/// are missing.
pub(crate) const fn fits_write(left: u32, length: u32, is_end: bool) -> bool {
    if is_end { length == left } else { length < left }
}

/// The immediate, if the opcode has one. (The headers of a packet that was parsed are those of its
/// opcode; a caller may make others.)
pub(crate) fn immediate(headers: &Headers) -> Option<u32> {
    headers.imm.filter(|_| headers.bth.opcode.has_imm()).map(|imm| imm.0)
}

/// The key to invalidate, if the opcode has one.
pub(crate) fn invalidated(headers: &Headers) -> Option<u32> {
    headers.ieth.filter(|_| headers.bth.opcode.has_ieth()).map(|ieth| ieth.rkey)
}
