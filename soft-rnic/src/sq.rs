//! The send queue: requests that wait, and the state of the requester.

use core::ffi::c_int;
use std::sync::Arc;

use verbs_sys::*;

use crate::address::Address;
use crate::counters::Counters;
use crate::distance::Times;
use crate::errno;
use crate::network::Transit;
use crate::process::{Full, Remote};
use crate::qp::{Qp, Transport};
use crate::requester::Scratch;

/// The operations of a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
}

impl Op {
    /// The operation of a work request's opcode, and whether it has an immediate.
    #[inline]
    fn of(opcode: ibv_wr_opcode) -> Option<(Op, bool)> {
        Some(match opcode {
            ibv_wr_opcode::IBV_WR_SEND => (Op::Send, false),
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => (Op::Send, true),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => (Op::Write, false),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => (Op::Write, true),
            ibv_wr_opcode::IBV_WR_RDMA_READ => (Op::Read, false),
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => (Op::CompareSwap, false),
            ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => (Op::FetchAdd, false),
            _ => return None,
        })
    }

    pub(crate) fn wc_opcode(self) -> ibv_wc_opcode {
        match self {
            Op::Send => ibv_wc_opcode::IBV_WC_SEND,
            Op::Write => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
            Op::Read => ibv_wc_opcode::IBV_WC_RDMA_READ,
            Op::CompareSwap => ibv_wc_opcode::IBV_WC_COMP_SWAP,
            Op::FetchAdd => ibv_wc_opcode::IBV_WC_FETCH_ADD,
        }
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Op::CompareSwap | Op::FetchAdd)
    }

    /// Reads and atomics bring data back.
    pub(crate) fn is_response(self) -> bool {
        self == Op::Read || self.is_atomic()
    }
}

/// A send work request, free of the caller's pointers except for the data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
    /// In network order, as the caller gave it; `None` for the plain operations.
    pub(crate) imm: Option<u32>,
    /// The send queue's position after this request.
    pub(crate) position: u32,
    pub(crate) op: Op,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    /// The data are the bytes at the addresses themselves; no key is needed.
    pub(crate) inline: bool,
    /// It waits for all reads and atomics before it.
    pub(crate) fence: bool,
    /// It is done already: in a simulation it has overtaken reads; at a distance its answer
    /// is on its way.
    pub(crate) ahead: bool,
}

impl Wqe {
    /// What the request says, or `EINVAL` for an operation that the device does not have.
    ///
    /// # Safety
    /// `wr` is valid for its opcode.
    #[inline(always)]
    pub(crate) unsafe fn new(wr: &ibv_send_wr, sig_all: bool) -> Result<Wqe, c_int> {
        let Some((op, has_imm)) = Op::of(wr.opcode) else {
            return Err(errno::EINVAL);
        };
        let flag = |f: ibv_send_flags| wr.send_flags & f.0 != 0;
        let inline = flag(ibv_send_flags::IBV_SEND_INLINE);
        if inline && op.is_response() {
            return Err(errno::EINVAL);
        }
        // SAFETY: integers all, so every member of the unions can be read.
        let (imm, atomic, rdma) =
            unsafe { (wr.__bindgen_anon_1.imm_data, wr.wr.atomic, wr.wr.rdma) };
        let rkey = if op.is_atomic() { atomic.rkey } else { rdma.rkey };
        Ok(Wqe {
            wr_id: wr.wr_id,
            remote_addr: rdma.remote_addr,
            compare_add: atomic.compare_add,
            swap: atomic.swap,
            rkey,
            imm: has_imm.then_some(imm),
            position: 0,
            op,
            signaled: sig_all || flag(ibv_send_flags::IBV_SEND_SIGNALED),
            solicited: flag(ibv_send_flags::IBV_SEND_SOLICITED),
            inline,
            fence: flag(ibv_send_flags::IBV_SEND_FENCE),
            ahead: false,
        })
    }

    /// What a plain SEND says ([`plain`](crate::burst::plain)).
    #[inline(always)]
    pub(crate) fn plain(wr: &ibv_send_wr, sig_all: bool, position: u32) -> Wqe {
        let flag = |f: ibv_send_flags| wr.send_flags & f.0 != 0;
        Wqe {
            wr_id: wr.wr_id,
            remote_addr: 0,
            compare_add: 0,
            swap: 0,
            rkey: 0,
            imm: None,
            position,
            op: Op::Send,
            signaled: sig_all || flag(ibv_send_flags::IBV_SEND_SIGNALED),
            solicited: flag(ibv_send_flags::IBV_SEND_SOLICITED),
            inline: flag(ibv_send_flags::IBV_SEND_INLINE),
            fence: flag(ibv_send_flags::IBV_SEND_FENCE),
            ahead: false,
        }
    }

    /// Whether it uses up a receive request of the peer.
    pub(crate) fn takes_receive(&self) -> bool {
        self.op == Op::Send || self.imm.is_some()
    }
}

/// A request and its gather (or landing) list.
pub(crate) struct Request<'a> {
    /// Where it lies: what has just been written in small pieces is read in the same, or the
    /// processor waits until all stores before it are done, those to another's rings, too.
    pub(crate) wqe: &'a Wqe,
    pub(crate) sges: &'a [ibv_sge],
    /// Where a datagram goes; connected queue pairs know that.
    pub(crate) to: Option<&'a Address>,
}

impl Request<'_> {
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        // Nearly all lists have one entry, and a sum of several begins with a vector's.
        match self.sges {
            [] => 0,
            [sge] => sge.length.into(),
            list => list.iter().map(|sge| u64::from(sge.length)).sum(),
        }
    }
}

/// Requests that were posted and cannot go on, oldest first. A request that
/// executes at once never comes here.
///
/// The memory is there from the start, so that a post cannot fail for want of it:
/// slot `i` has `max_sge` entries of `sges` and `max_inline` bytes of `inline`.
#[derive(Debug)]
pub(crate) struct Pending {
    wqes: Vec<Option<Wqe>>,
    lens: Vec<u32>,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// Of datagrams only.
    to: Vec<Address>,
    max_sge: usize,
    max_inline: usize,
    head: u32,
    tail: u32,
}

impl Pending {
    /// `None` if there is no memory for the inline data, which may be a lot.
    pub(crate) fn new(cap: &ibv_qp_cap, transport: Transport) -> Option<Pending> {
        let (n, max_sge) = (cap.max_send_wr as usize, cap.max_send_sge as usize);
        let max_inline = cap.max_inline_data as usize;
        Some(Pending {
            wqes: vec![None; n],
            lens: vec![0; n],
            sges: vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; n * max_sge],
            inline: zeroes(n * max_inline)?,
            to: vec![Address::default(); if transport == Transport::Ud { n } else { 0 }],
            max_sge,
            max_inline,
            head: 0,
            tail: 0,
        })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    fn at(&self, position: u32) -> usize {
        position as usize & (self.wqes.len() - 1)
    }

    /// Appends a request; inline data are copied. There is room, because the send
    /// queue admits no more requests than there are slots.
    ///
    /// # Safety
    /// Inline data can be read, and are no longer than `max_inline`.
    #[inline]
    pub(crate) unsafe fn push(&mut self, request: &Request<'_>) {
        let at = self.at(self.tail);
        let mut n = request.sges.len();
        let sges = &mut self.sges[at * self.max_sge..][..n.max(1)];
        if request.wqe.inline {
            let data = &mut self.inline[at * self.max_inline..][..self.max_inline];
            let mut used = 0;
            for sge in request.sges {
                let len = sge.length as usize;
                let from = core::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
                // SAFETY: the caller's promise.
                unsafe { core::ptr::copy(from, data[used..used + len].as_mut_ptr(), len) };
                used += len;
            }
            let addr = data.as_mut_ptr().expose_provenance() as u64;
            sges[0] = ibv_sge { addr, length: used as u32, lkey: 0 };
            n = 1;
        } else {
            sges[..n].copy_from_slice(request.sges);
        }
        self.lens[at] = n as u32;
        if let (Some(place), Some(to)) = (self.to.get_mut(at), request.to) {
            *place = *to;
        }
        self.wqes[at] = Some(*request.wqe);
        self.tail = self.tail.wrapping_add(1);
    }

    /// [`push`](Self::push) of a request with one piece of at least one byte.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn push_one(&mut self, wqe: Wqe, sge: &ibv_sge) {
        let at = self.at(self.tail);
        let mut addr = sge.addr;
        if wqe.inline {
            let data = &mut self.inline[at * self.max_inline..][..self.max_inline];
            let from = core::ptr::with_exposed_provenance::<u8>(addr as usize);
            // SAFETY: the caller's promise.
            unsafe { crate::copy::owned(data.as_mut_ptr(), from, sge.length as usize) };
            addr = data.as_mut_ptr().expose_provenance() as u64;
        }
        self.sges[at * self.max_sge] = ibv_sge { addr, ..*sge };
        self.lens[at] = 1;
        self.wqes[at] = Some(wqe);
        self.tail = self.tail.wrapping_add(1);
    }

    /// The oldest request.
    #[inline]
    pub(crate) fn front(&self) -> Option<Request<'_>> {
        self.nth(0)
    }

    /// The request behind `n` others.
    #[inline(always)]
    pub(crate) fn nth(&self, n: u32) -> Option<Request<'_>> {
        if n >= self.len() {
            return None;
        }
        let at = self.at(self.head.wrapping_add(n));
        let sges = &self.sges[at * self.max_sge..][..self.lens[at] as usize];
        self.wqes[at].as_ref().map(|wqe| Request { wqe, sges, to: self.to.get(at) })
    }

    /// The request behind `n` others has overtaken them.
    pub(crate) fn mark_ahead(&mut self, n: u32) {
        let at = self.at(self.head.wrapping_add(n));
        if let Some(wqe) = &mut self.wqes[at] {
            wqe.ahead = true;
        }
    }

    pub(crate) fn pop(&mut self) {
        self.head = self.head.wrapping_add(1);
        if self.head == self.tail {
            // The first slots are still in a cache, unlike those that come next.
            (self.head, self.tail) = (0, 0);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }
}

/// So many zeroes, if there is memory for them; pages that nothing has touched cost nothing.
fn zeroes(len: usize) -> Option<Vec<u8>> {
    if len == 0 {
        return Some(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u8>(len).ok()?;
    // SAFETY: the layout has bytes; the memory is of the allocator of vectors, of that layout,
    // and all of it is written.
    unsafe {
        let bytes = std::alloc::alloc_zeroed(layout);
        (!bytes.is_null()).then(|| Vec::from_raw_parts(bytes, len, len))
    }
}

/// Why the request at the head waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The responder had no receive request; try again.
    Rnr,
    /// No response came; try again, if retries are left.
    Response,
    /// A simulation delays it.
    Delay,
    /// The process that it is for has to be met first.
    Meeting,
    /// The ring to that process is full.
    Room,
}

/// What a requester does by itself, apart from its queue.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Posted requests, as a position that wraps; a slot is free again when the
    /// queue pair's `freed` has passed it.
    pub(crate) posted: u32,
    /// PSN of the next request.
    pub(crate) psn: u32,
    pub(crate) dest_qpn: u32,
    /// The route leads to this device's own GID: nobody else is reached.
    pub(crate) reaches_us: bool,
    /// Log2 of the path MTU in bytes.
    pub(crate) mtu_shift: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// What is left of them for the request at the head.
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// The deadline that the head waits for; its name, so that a deadline of
    /// something that is over is not mistaken for it.
    pub(crate) waits: Option<(Wait, u64)>,
    /// Present once an unreliable queue pair has sent into a faulty network.
    pub(crate) transit: Option<Box<Transit>>,
    /// The head has been tried: it goes on even while the queue drains.
    pub(crate) started: bool,
    /// The responder has done the head already; only the response was lost.
    pub(crate) done: bool,
    /// The process that the head is for was looked for, and is not there.
    pub(crate) nobody_there: bool,
    /// Of a message that nobody repeats, while the ring that it is to go into is full.
    pub(crate) full: Full,
}

impl Requester {
    /// So many packets have gone out.
    #[inline]
    pub(crate) fn advance_psn(&mut self, packets: u32) {
        self.psn = self.psn.wrapping_add(packets) & 0x00ff_ffff;
    }

    /// The head is another request now.
    #[inline]
    pub(crate) fn next_request(&mut self) {
        self.retries_left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.started = false;
        self.done = false;
    }
}

/// The send queue of a queue pair, under its lock.
pub(crate) struct Sq {
    pub(crate) requester: Requester,
    pub(crate) pending: Pending,
    /// The queue pair at the other end, once it was looked up.
    pub(crate) peer: Option<Arc<Qp>>,
    /// Present if the other end is in another process.
    pub(crate) remote: Option<Box<Remote>>,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    /// The queue was told to drain, and has not said yet that it has.
    pub(crate) draining: bool,
    /// Present on a distant device, once something was posted.
    pub(crate) transit_times: Option<Box<Times>>,
    /// The attributes as they were set, for `ibv_query_qp`.
    pub(crate) attr: ibv_qp_attr,
}
