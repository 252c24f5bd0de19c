//! A work request of the send queue, as the device keeps it.

use verbs_sys::*;

use crate::limits;
use crate::memory::mr_table::{REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::queues::address::DatagramAddress;

/// The operations of a send queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqOp {
    #[default]
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    /// Stores 8 bytes at once.
    AtomicWrite,
    /// Binds a memory window; like the next, it is carried out by this queue pair itself.
    BindMw,
    /// Ends the binding of a memory window.
    LocalInv,
}

impl SqOp {
    /// Its name in texts for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SqOp::Send => "SEND",
            SqOp::Write => "WRITE",
            SqOp::Read => "READ",
            SqOp::CompareSwap => "CMP_SWP",
            SqOp::FetchAdd => "FETCH_ADD",
            SqOp::BindMw => "BIND_MW",
            SqOp::LocalInv => "LOCAL_INV",
            SqOp::AtomicWrite => "ATOMIC_WRITE",
        }
    }

    /// [`from_opcode`](Self::from_opcode) for what is about memory windows; a SEND has a key to be
    /// invalidated in the place of an immediate.
    pub(crate) fn from_mw_opcode(opcode: ibv_wr_opcode) -> Option<(SqOp, bool)> {
        Some(match opcode {
            ibv_wr_opcode::IBV_WR_SEND_WITH_INV => (SqOp::Send, true),
            ibv_wr_opcode::IBV_WR_BIND_MW => (SqOp::BindMw, false),
            ibv_wr_opcode::IBV_WR_LOCAL_INV => (SqOp::LocalInv, false),
            _ => return None,
        })
    }

    /// [`from_opcode`](Self::from_opcode) for what posts do not look for, but queue.
    pub(crate) fn from_rare_opcode(opcode: ibv_wr_opcode) -> Option<(SqOp, bool)> {
        match opcode {
            ibv_wr_opcode::IBV_WR_ATOMIC_WRITE => Some((SqOp::AtomicWrite, false)),
            _ => SqOp::from_mw_opcode(opcode),
        }
    }

    /// The operation of a work request's opcode, and whether it has an immediate.
    #[inline]
    pub(crate) fn from_opcode(opcode: ibv_wr_opcode) -> Option<(SqOp, bool)> {
        Some(match opcode {
            ibv_wr_opcode::IBV_WR_SEND => (SqOp::Send, false),
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => (SqOp::Send, true),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => (SqOp::Write, false),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => (SqOp::Write, true),
            ibv_wr_opcode::IBV_WR_RDMA_READ => (SqOp::Read, false),
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => (SqOp::CompareSwap, false),
            ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => (SqOp::FetchAdd, false),
            _ => return None,
        })
    }

    pub(crate) fn wc_opcode(self) -> ibv_wc_opcode {
        match self {
            SqOp::Send => ibv_wc_opcode::IBV_WC_SEND,
            SqOp::Write => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
            SqOp::Read => ibv_wc_opcode::IBV_WC_RDMA_READ,
            SqOp::CompareSwap => ibv_wc_opcode::IBV_WC_COMP_SWAP,
            SqOp::FetchAdd => ibv_wc_opcode::IBV_WC_FETCH_ADD,
            SqOp::AtomicWrite => ibv_wc_opcode::IBV_WC_ATOMIC_WRITE,
            SqOp::BindMw => ibv_wc_opcode::IBV_WC_BIND_MW,
            SqOp::LocalInv => ibv_wc_opcode::IBV_WC_LOCAL_INV,
        }
    }

    /// Reports whether it brings back what was there.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, SqOp::CompareSwap | SqOp::FetchAdd)
    }

    /// Reports whether it accesses one aligned word of 8 bytes, at once.
    #[inline(always)]
    pub(crate) fn is_word(self) -> bool {
        matches!(self, SqOp::CompareSwap | SqOp::FetchAdd | SqOp::AtomicWrite)
    }

    /// The access that an operation on a peer's memory needs there.
    #[inline(always)]
    pub(crate) fn remote_access(self) -> u32 {
        match self {
            SqOp::Send | SqOp::BindMw | SqOp::LocalInv => 0,
            SqOp::Write | SqOp::AtomicWrite => REMOTE_WRITE,
            SqOp::Read => REMOTE_READ,
            SqOp::CompareSwap | SqOp::FetchAdd => REMOTE_ATOMIC,
        }
    }

    /// Reports whether nothing of it goes to the peer.
    #[inline(always)]
    pub(crate) fn is_local(self) -> bool {
        matches!(self, SqOp::BindMw | SqOp::LocalInv)
    }

    /// Reads and atomics bring data back.
    pub(crate) fn is_response(self) -> bool {
        self == SqOp::Read || self.is_atomic()
    }
}

/// A send work request, free of the caller's pointers except for the data.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
    /// In network order, as the caller gave it; `None` for the plain operations. A key, if the
    /// request invalidates one.
    pub(crate) imm: Option<u32>,
    /// The send queue's position after this request.
    pub(crate) position: u32,
    pub(crate) op: SqOp,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    /// The data are the bytes at the addresses themselves; no key is needed.
    pub(crate) inline: bool,
    /// It waits for all reads and atomics before it.
    pub(crate) fence: bool,
    /// It is done already: in a simulation it has overtaken reads; at a distance its answer
    /// is on its way.
    pub(crate) ahead: bool,
    /// For a SEND: it invalidates the key in `imm` at the receiver.
    pub(crate) invalidates: bool,
    /// For a bind: the accesses that the window permits.
    pub(crate) access: u8,
}

impl Wqe {
    /// Takes over the fields of a request that was admitted.
    ///
    /// # Safety
    /// `wr` is valid for its opcode.
    #[inline(always)]
    pub(crate) unsafe fn new(
        wr: &ibv_send_wr,
        (op, has_imm): (SqOp, bool),
        sig_all: bool,
        position: u32,
    ) -> Wqe {
        let flag = |f: ibv_send_flags| wr.send_flags & f.0 != 0;
        // SAFETY: integers all, so every member of the unions can be read.
        let (imm, atomic, rdma) =
            unsafe { (wr.__bindgen_anon_1.imm_data, wr.wr.atomic, wr.wr.rdma) };
        let rkey = if op.is_atomic() { atomic.rkey } else { rdma.rkey };
        Wqe {
            wr_id: wr.wr_id,
            remote_addr: rdma.remote_addr,
            compare_add: atomic.compare_add,
            swap: atomic.swap,
            rkey,
            imm: has_imm.then_some(imm),
            position,
            op,
            signaled: sig_all || flag(ibv_send_flags::IBV_SEND_SIGNALED),
            solicited: flag(ibv_send_flags::IBV_SEND_SOLICITED),
            inline: flag(ibv_send_flags::IBV_SEND_INLINE),
            fence: flag(ibv_send_flags::IBV_SEND_FENCE),
            ahead: false,
            invalidates: false,
            access: 0,
        }
    }

    /// An atomic of a peer.
    pub(crate) fn atomic(op: SqOp, compare_add: u64, swap: u64) -> Wqe {
        Wqe { op, compare_add, swap, ..Wqe::default() }
    }

    /// Takes over the fields of a plain SEND ([`plain`]): [`new`](Self::new) reads more, and costs
    /// 13 instructions of 805.
    #[inline(always)]
    pub(crate) fn plain(wr: &ibv_send_wr, sig_all: bool, position: u32) -> Wqe {
        let flag = |f: ibv_send_flags| wr.send_flags & f.0 != 0;
        Wqe {
            wr_id: wr.wr_id,
            position,
            op: SqOp::Send,
            signaled: sig_all || flag(ibv_send_flags::IBV_SEND_SIGNALED),
            solicited: flag(ibv_send_flags::IBV_SEND_SOLICITED),
            inline: flag(ibv_send_flags::IBV_SEND_INLINE),
            fence: flag(ibv_send_flags::IBV_SEND_FENCE),
            ..Wqe::default()
        }
    }

    /// Reports whether it uses up a receive request of the peer.
    pub(crate) fn takes_receive(&self) -> bool {
        self.op == SqOp::Send || self.imm.is_some()
    }
}

/// True for a request of IP checksums (`IBV_SEND_IP_CSUM`), which no device here has.
#[inline(always)]
pub(crate) fn asks_for_checksums(request: &ibv_send_wr) -> bool {
    request.send_flags & ibv_send_flags::IBV_SEND_IP_CSUM.0 != 0
}

/// The piece of memory of a plain message: a SEND of at least one byte, and not of
/// so many that others should not wait for the copy.
///
/// # Safety
/// The request is valid.
#[inline(always)]
pub(crate) unsafe fn plain(request: &ibv_send_wr) -> Option<&ibv_sge> {
    let is_send = request.opcode == ibv_wr_opcode::IBV_WR_SEND && request.num_sge == 1;
    if !is_send || asks_for_checksums(request) {
        return None;
    }
    // SAFETY: NULL, or a list of one entry.
    let sge = unsafe { request.sg_list.as_ref() }?;
    (sge.length.wrapping_sub(1) < limits::LONG as u32 - 1).then_some(sge)
}

/// A request and its gather (or landing) list.
pub(crate) struct WqeRef<'a> {
    /// Reference to the request where it lies: what has just been written in small pieces is read
    /// in the same, or the processor waits until all stores before it are done, those to another's
    /// rings, too.
    pub(crate) wqe: &'a Wqe,
    pub(crate) sges: &'a [ibv_sge],
    /// Destination of a datagram, or the shared receive queue that a request over XRC names.
    pub(crate) to: Option<&'a DatagramAddress>,
}

impl WqeRef<'_> {
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        len_of(self.sges)
    }

    /// The shared receive queue that a request over XRC names.
    pub(crate) fn srqn(&self) -> u32 {
        self.to.map_or(0, |to| to.qpn)
    }
}

/// Bytes of a list.
#[inline]
pub(crate) fn len_of(sges: &[ibv_sge]) -> u64 {
    // Nearly all lists have one entry, and a sum of several begins with a vector's.
    match sges {
        [] => 0,
        [sge] => sge.length.into(),
        list => list.iter().map(|sge| u64::from(sge.length)).sum(),
    }
}
