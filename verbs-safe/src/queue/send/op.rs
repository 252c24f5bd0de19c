//! The operations of a send queue, and their encoding for the device.

use verbs_sys::{ibv_send_flags as flag, ibv_send_wr, ibv_wr_opcode as opcode};

use crate::region::shared::RemoteSpan;

/// A request to stage. One with bytes takes the next slot of the ring. SEND and WRITE send the
/// bytes that were written to [`SendQueue::next_slot`](crate::SendQueue::next_slot). READ and
/// atomics land there; [`SendQueue::landed`](crate::SendQueue::landed) returns the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// SEND: `len` bytes, to the peer's next receive buffer.
    Send {
        /// Bytes of the slot; with 0, no slot is used.
        len: u32,
    },
    /// SEND with an immediate.
    SendImm {
        /// Bytes of the slot; with 0, no slot is used.
        len: u32,
        /// The immediate, in host order.
        imm: u32,
    },
    /// RDMA WRITE of `len` bytes to the beginning of `remote`.
    Write {
        /// Bytes of the slot; with 0, no slot is used.
        len: u32,
        /// Remote span that is written to.
        remote: RemoteSpan,
    },
    /// RDMA WRITE with an immediate, which takes one of the peer's receives.
    WriteImm {
        /// Bytes of the slot; with 0, no slot is used.
        len: u32,
        /// The immediate, in host order.
        imm: u32,
        /// Remote span that is written to.
        remote: RemoteSpan,
    },
    /// RDMA READ of `len` bytes from the beginning of `remote`.
    Read {
        /// Bytes of the slot; with 0, no slot is used.
        len: u32,
        /// Remote span that is read from.
        remote: RemoteSpan,
    },
    /// FETCH_AND_ADD on 8 aligned bytes; the old value lands in the slot.
    FetchAdd {
        /// Remote span of the 8 bytes.
        remote: RemoteSpan,
        /// Number that is added.
        add: u64,
    },
    /// CMP_AND_SWP on 8 aligned bytes; the old value lands in the slot.
    CmpSwap {
        /// Remote span of the 8 bytes.
        remote: RemoteSpan,
        /// Value that is replaced; any other is kept.
        compare: u64,
        /// Value that replaces it.
        swap: u64,
    },
}

impl SendOp {
    #[inline]
    pub(super) fn len(&self) -> u32 {
        match *self {
            SendOp::Send { len }
            | SendOp::SendImm { len, .. }
            | SendOp::Write { len, .. }
            | SendOp::WriteImm { len, .. }
            | SendOp::Read { len, .. } => len,
            SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => 8,
        }
    }

    #[inline]
    pub(super) fn remote(&self) -> Option<&RemoteSpan> {
        match self {
            SendOp::Send { .. } | SendOp::SendImm { .. } => None,
            SendOp::Write { remote, .. }
            | SendOp::WriteImm { remote, .. }
            | SendOp::Read { remote, .. }
            | SendOp::FetchAdd { remote, .. }
            | SendOp::CmpSwap { remote, .. } => Some(remote),
        }
    }

    #[inline]
    pub(super) fn opcode(&self) -> opcode {
        match self {
            SendOp::Send { .. } => opcode::IBV_WR_SEND,
            SendOp::SendImm { .. } => opcode::IBV_WR_SEND_WITH_IMM,
            SendOp::Write { .. } => opcode::IBV_WR_RDMA_WRITE,
            SendOp::WriteImm { .. } => opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            SendOp::Read { .. } => opcode::IBV_WR_RDMA_READ,
            SendOp::FetchAdd { .. } => opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
            SendOp::CmpSwap { .. } => opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
        }
    }
}

/// Flags of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags {
    /// True if it completes visibly. Requests that do not are retired by a later one that does.
    pub signalled: bool,
    /// True if the peer's completion is solicited: it wakes a peer that waits for those.
    pub solicited: bool,
    /// True if it waits for all earlier READs and atomics.
    pub fence: bool,
}

impl SendFlags {
    #[inline]
    pub(super) fn to_raw(self) -> u32 {
        let bit = |on: bool, bit: flag| if on { bit.0 } else { 0 };
        bit(self.signalled, flag::IBV_SEND_SIGNALED)
            | bit(self.solicited, flag::IBV_SEND_SOLICITED)
            | bit(self.fence, flag::IBV_SEND_FENCE)
    }
}

/// Reports whether the device writes to the slot of such a request.
#[inline]
pub(super) fn lands(op: opcode) -> bool {
    use opcode as o;
    matches!(
        op,
        o::IBV_WR_RDMA_READ | o::IBV_WR_ATOMIC_FETCH_AND_ADD | o::IBV_WR_ATOMIC_CMP_AND_SWP
    )
}

/// Sets the fields that depend on the operation.
#[inline]
pub(super) fn fill(work: &mut ibv_send_wr, op: SendOp) {
    work.opcode = op.opcode();
    match op {
        SendOp::Send { .. } => {}
        SendOp::SendImm { imm, .. } => work.__bindgen_anon_1.imm_data = imm.to_be(),
        SendOp::Write { remote, .. } | SendOp::Read { remote, .. } => set_remote(work, remote),
        SendOp::WriteImm { imm, remote, .. } => {
            work.__bindgen_anon_1.imm_data = imm.to_be();
            set_remote(work, remote);
        }
        SendOp::FetchAdd { remote, add } => atomic(work, remote, add, 0),
        SendOp::CmpSwap { remote, compare, swap } => atomic(work, remote, compare, swap),
    }
}

#[inline]
fn set_remote(work: &mut ibv_send_wr, remote: RemoteSpan) {
    work.wr.rdma.remote_addr = remote.addr;
    work.wr.rdma.rkey = remote.rkey;
}

#[inline]
fn atomic(work: &mut ibv_send_wr, remote: RemoteSpan, compare_add: u64, swap: u64) {
    work.wr.atomic.remote_addr = remote.addr;
    work.wr.atomic.rkey = remote.rkey;
    work.wr.atomic.compare_add = compare_add;
    work.wr.atomic.swap = swap;
}
