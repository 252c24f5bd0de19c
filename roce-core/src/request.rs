//! Requests that a program posts to its send queue, and their division into packets.

use crate::headers::{AtomicEth, Headers, Ieth, ImmDt, Reth};
use crate::lengths::padding_of;
use crate::opcode::Opcode;

/// The most bytes of a message: the specification's bound for reliable and unreliable connections.
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Position of a request in its send queue: requests are counted from 0 in the order of their
/// posts, and the count does not wrap. Of a queue of n entries, this is entry `index % n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WqeIndex(pub u64);

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message into a receive request of the peer.
    Send,
    /// The same with immediate.
    SendImm(u32),
    /// The same, and the peer invalidates a key of its own.
    SendInv(u32),
    /// Bytes to the peer's memory.
    Write,
    /// The same, and a receive request of the peer completes.
    WriteImm(u32),
    /// Bytes from the peer's memory.
    Read,
    /// Compare and swap of eight bytes of the peer's memory.
    CmpSwap {
        /// Value that the memory has to hold.
        compare: u64,
        /// Value that is stored then.
        swap: u64,
    },
    /// Fetch and add of eight bytes of the peer's memory.
    FetchAdd {
        /// Value that is added.
        add: u64,
    },
    /// Eight bytes, which are stored in the peer's memory at once.
    AtomicWrite,
}

impl Operation {
    /// Compare and swap, or fetch and add.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap { .. } | Self::FetchAdd { .. })
    }

    /// It is answered by a response of its own, and not by an acknowledgement that may cover
    /// several requests.
    #[inline]
    pub const fn has_response(self) -> bool {
        matches!(self, Self::Read | Self::AtomicWrite) || self.is_atomic()
    }

    /// It takes a receive request of the peer.
    #[inline]
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm(_) | Self::SendInv(_) | Self::WriteImm(_))
    }

    /// Its packets have addresses of the peer's memory.
    const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm(_))
    }
}

/// A request, as far as the protocol has to know it: where the bytes are is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub kind: Operation,
    /// Bytes to send, write or read. Of an atomic, it is not used; of an ATOMIC WRITE, it is 8.
    pub length: u32,
    /// Address at which the peer's memory begins; not used by SENDs.
    pub remote_addr: u64,
    /// The key of the peer's memory; not used by SENDs.
    pub rkey: u32,
    /// Its completion is awaited. The completions of others are only known with those of later
    /// ones.
    pub is_signaled: bool,
    /// The peer's completion is a solicited event.
    pub is_solicited: bool,
    /// It begins when all READs and atomics before it are complete.
    pub is_fenced: bool,
}

impl Request {
    /// A request whose completion is awaited, for memory of the peer.
    pub const fn new(kind: Operation, length: u32, remote_addr: u64, rkey: u32) -> Self {
        let (is_signaled, is_solicited, is_fenced) = (true, false, false);
        Self { kind, length, remote_addr, rkey, is_signaled, is_solicited, is_fenced }
    }

    /// Returns the number of packet sequence numbers that it takes.
    #[inline]
    pub const fn packets(&self, mtu: u32) -> u32 {
        if self.kind.is_atomic() { 1 } else { packets(self.length, mtu) }
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its headers.
    pub headers: Headers,
    /// The request that it is of.
    pub index: WqeIndex,
    /// Offset of its payload in the bytes of that request.
    pub offset: u32,
    /// Bytes of its payload, without padding.
    pub length: u32,
}

/// Returns the number of packets that carry `length` bytes: one, if `length` is 0.
#[inline]
pub const fn packets(length: u32, mtu: u32) -> u32 {
    if length == 0 { 1 } else { length.div_ceil(mtu) }
}

/// Position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketPosition {
    First,
    Middle,
    Last,
    Only,
}

impl PacketPosition {
    #[inline]
    pub(crate) const fn from_ends(is_first: bool, is_last: bool) -> Self {
        match (is_first, is_last) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    #[inline]
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    #[inline]
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The opcode of a packet of a reliable connection.
pub(crate) const fn rc_opcode(kind: Operation, part: PacketPosition) -> Opcode {
    match (kind, part) {
        (Operation::Read, _) => Opcode::RcReadRequest,
        (Operation::CmpSwap { .. }, _) => Opcode::RcCmpSwap,
        (Operation::FetchAdd { .. }, _) => Opcode::RcFetchAdd,
        (Operation::AtomicWrite, _) => Opcode::RcAtomicWrite,
        (Operation::Write | Operation::WriteImm(_), PacketPosition::First) => Opcode::RcWriteFirst,
        (Operation::Write | Operation::WriteImm(_), PacketPosition::Middle) => {
            Opcode::RcWriteMiddle
        }
        (Operation::Write, PacketPosition::Last) => Opcode::RcWriteLast,
        (Operation::Write, PacketPosition::Only) => Opcode::RcWriteOnly,
        (Operation::WriteImm(_), PacketPosition::Last) => Opcode::RcWriteLastImm,
        (Operation::WriteImm(_), PacketPosition::Only) => Opcode::RcWriteOnlyImm,
        (_, PacketPosition::First) => Opcode::RcSendFirst,
        (_, PacketPosition::Middle) => Opcode::RcSendMiddle,
        (Operation::Send, PacketPosition::Last) => Opcode::RcSendLast,
        (Operation::Send, PacketPosition::Only) => Opcode::RcSendOnly,
        (Operation::SendImm(_), PacketPosition::Last) => Opcode::RcSendLastImm,
        (Operation::SendImm(_), PacketPosition::Only) => Opcode::RcSendOnlyImm,
        (Operation::SendInv(_), PacketPosition::Last) => Opcode::RcSendLastInv,
        (Operation::SendInv(_), PacketPosition::Only) => Opcode::RcSendOnlyInv,
    }
}

/// The headers behind the base transport header of a packet of `request`, into `headers`. `offset`
/// and `length` are those of the bytes that it carries, or asks for.
pub(crate) fn extend(
    headers: &mut Headers,
    request: &Request,
    part: PacketPosition,
    (offset, length): (u32, u32),
) {
    let va = request.remote_addr.wrapping_add(offset.into());
    let rkey = request.rkey;
    match request.kind {
        Operation::Read | Operation::AtomicWrite => {
            headers.reth = Some(Reth { va, rkey, len: length })
        }
        Operation::CmpSwap { compare, swap } => {
            headers.atomic = Some(AtomicEth { va, rkey, swap_add: swap, compare });
        }
        Operation::FetchAdd { add } => {
            headers.atomic = Some(AtomicEth { va, rkey, swap_add: add, compare: 0 });
        }
        kind => {
            if kind.is_write() && part.begins() {
                headers.reth = Some(Reth { va, rkey, len: request.length });
            }
            if part.ends() {
                set_last_headers(headers, request);
            }
            headers.bth.pad = padding_of(length as usize);
        }
    }
}

/// Sets the headers and fields that only the last packet of a message has.
fn set_last_headers(headers: &mut Headers, request: &Request) {
    match request.kind {
        Operation::SendImm(imm) | Operation::WriteImm(imm) => headers.imm = Some(ImmDt(imm)),
        Operation::SendInv(rkey) => headers.ieth = Some(Ieth { rkey }),
        _ => {}
    }
    headers.bth.solicited = request.is_solicited && request.kind.takes_receive();
}

/// The opcode of a packet of an unreliable connection, which has SENDs and WRITEs only.
pub(crate) fn uc_opcode(kind: Operation, part: PacketPosition) -> Option<Opcode> {
    match kind {
        Operation::Send | Operation::SendImm(_) | Operation::Write | Operation::WriteImm(_) => {
            // The upper three bits name the transport, and the others mean the same.
            Opcode::from_u8(rc_opcode(kind, part).to_u8() | 0x20)
        }
        _ => None,
    }
}
