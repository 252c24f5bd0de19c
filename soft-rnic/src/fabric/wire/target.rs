//! The objects that requests of a peer act on: receive requests, regions and windows.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use roce_core::responder::{
    Access, AccessError, AtomicOp, ReceiveDone, ReceiveFault, Refusal, Target,
};
use verbs_sys::*;

use crate::engine::responder::begin::{find_rare, permits, why_not_permitted};
use crate::engine::responder::datagram::{GRH_LEN, GrhBytes};
use crate::engine::responder::on_demand::change;
use crate::engine::responder::place;
use crate::engine::responder::place::behind;
use crate::limits;
use crate::memory::lists::{resolve, resolve_any};
use crate::memory::mr_table::LOCAL_WRITE;
use crate::memory::on_demand;
use crate::memory::on_demand::{OnDemandPiece, bring};
use crate::memory::paging::Presence;
use crate::memory::span::{
    BufferOwnership, MemSpan, SpanBuf, copy_pieces, copy_spans, copy_with_header,
};
use crate::objects::cq::{CqEntry, CqWriter};
use crate::objects::deferred_work::DeferredWork;
use crate::objects::misuse::NamedMemory;
use crate::objects::state::Qp;
use crate::peers::wire::state::{KeptReads, TakenReceive};
use crate::queues::recv_ring::{RecvConsumer, RecvRequest};
use crate::queues::wqe::{SqOp, Wqe};
use crate::reason::WcReason;

use super::paging::{LOOKED_AT, Paging};
use super::requests::span_of;

/// A queue pair as its responder acts on it; the lock of the receiving side is held.
pub(super) struct QpTarget<'h, 'a> {
    pub(super) qp: &'a Arc<Qp>,
    /// The access that its attributes permit, and the number of READs and atomics at once.
    pub(super) rights: (u32, u32),
    pub(super) dest_qpn: u32,
    pub(super) qkey: u32,
    pub(super) consumer: &'h mut RecvConsumer,
    pub(super) taken: &'h mut Option<TakenReceive>,
    pub(super) kept: &'h mut KeptReads,
    pub(super) room: &'h mut SpanBuf,
    pub(super) writer: CqWriter<'a>,
    pub(super) deferred: &'h mut DeferredWork,
    /// The payload of the next response.
    pub(super) payload: &'h mut Vec<u8>,
    pub(super) paging: Paging<'h>,
    /// The queue pair that has sent a datagram, and the header in front of it.
    pub(super) datagram: Option<(u32, GrhBytes)>,
    /// The reason if a request was refused.
    pub(super) denied: Option<WcReason>,
}

/// The memory that a request names, if it may access it so, and whether that may have gone.
fn find<'s>(
    qp: &Qp,
    room: &'s SpanBuf,
    op: SqOp,
    (rkey, va, len): (u32, u64, u64),
) -> Result<OnDemandPiece<'s>, Refusal> {
    let (mrs, pd) = (&qp.pd.context.device.mrs, qp.pd.id);
    match mrs.check(room.hold(), rkey, pd, va, len, op.remote_access()) {
        Some(span) => Ok((span, false)),
        None => find_rare(qp, room.hold(), (op, pd), (rkey, va, len)).ok_or(Refusal::Access),
    }
}

/// Turns the presence of pages into the result of an access.
fn judge(presence: Presence) -> Result<(), AccessError> {
    match presence {
        Presence::There => Ok(()),
        Presence::Gone => Err(Refusal::Access.into()),
        Presence::Unknown => Err(AccessError::NotPresent),
    }
}

/// Copies between memory of ours and what a request names.
///
/// # Safety
/// What the request names was checked, under a lock that deregistration waits for; programs access
/// it atomically only.
unsafe fn copy(may_be_gone: bool, to: MemSpan<'_>, from: MemSpan<'_>) -> Result<(), Refusal> {
    // SAFETY: the memory that the request names was checked under a lock that deregistration waits
    // for, and programs access it atomically only: this function's contract (see # Safety).
    unsafe {
        match may_be_gone {
            true => on_demand::copy(&[to], core::iter::once(from)).map_err(|_gone| Refusal::Access),
            false => {
                copy_spans(&[to], &[from], BufferOwnership::Shared);
                Ok(())
            }
        }
    }
}

impl QpTarget<'_, '_> {
    /// [`place`](Target::place) where buffers may have gone, of which the message ends at `end`.
    #[cold]
    fn place_on_demand(
        &mut self,
        (offset, end): (u32, u64),
        payload: &[u8],
    ) -> Result<(), AccessError> {
        let Some(taken) = &*self.taken else { return Err(Refusal::Access.into()) };
        let (mrs, pd) = (&self.qp.pd.context.device.mrs, taken.pd);
        let mut spans = self.room.start();
        let list = taken.sges.iter().copied();
        if resolve_any(mrs, pd, list, end, LOCAL_WRITE, &mut spans).is_none() {
            self.denied = Some(self.qp.check_buffer(taken.wr_id, (&taken.sges, end), pd));
            return Err(Refusal::Access.into());
        }
        let to: Vec<MemSpan<'_>> = behind(spans.as_slice(), offset as usize).collect();
        let presence = self.paging.look(&to, true);
        if presence == Presence::Gone {
            self.denied = Some(self.qp.check_buffer(taken.wr_id, (&taken.sges, end), pd));
        }
        judge(presence)?;
        let header = self.datagram.as_mut().map(|(_, header)| MemSpan::from_slice(header));
        let from = header.into_iter().chain(core::iter::once(span_of(payload)));
        // SAFETY: the list was checked; the buffers are the device's until they complete.
        Ok(unsafe { on_demand::copy(&to, from) }.map_err(|_gone| Refusal::Access)?)
    }

    /// Bytes in front of the payload.
    pub(super) fn before(&self) -> u32 {
        if self.datagram.is_some() { GRH_LEN } else { 0 }
    }

    /// The queue pair that requests are from.
    pub(super) fn source(&self) -> u32 {
        self.datagram.map_or(self.dest_qpn, |(from, _)| from)
    }

    fn complete(&mut self, wr_id: u64, failure: Option<WcReason>, done: &ReceiveDone) {
        let flag = |is: bool, flag: ibv_wc_flags| if is { flag.0 } else { 0 };
        let is_success = failure.is_none();
        let opcode = match done.is_write {
            true => ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
            false => ibv_wc_opcode::IBV_WC_RECV,
        };
        let completion = CqEntry {
            imm: done.imm.map_or(done.invalidated.unwrap_or(0), u32::to_be),
            flags: flag(done.imm.is_some(), ibv_wc_flags::IBV_WC_WITH_IMM)
                | flag(done.invalidated.is_some(), ibv_wc_flags::IBV_WC_WITH_INV)
                | flag(self.datagram.is_some() && is_success, ibv_wc_flags::IBV_WC_GRH),
            src_qp: self.source(),
            solicited: done.is_solicited,
            ..self.qp.completion(wr_id, failure, opcode, done.length + self.before())
        };
        if self.qp.is_watched {
            self.check_arrived(is_success, done);
        }
        self.writer.push(&self.qp.recv_cq, &completion, None, self.deferred);
    }

    /// Returns the part of a receive request that is kept, and its room behind what precedes the
    /// payload; `None` if it has no room for that: it stays.
    fn keep(&self, request: &RecvRequest<'_>, before: u32) -> Option<(TakenReceive, u32)> {
        let kept = keep(request, before);
        if kept.is_none() && self.qp.is_watched {
            self.check_short(request.wr_id(), (request.room(), before.into()), false);
        }
        kept
    }
}

/// Returns the part of a receive request that is kept, and its room behind the first `before`
/// bytes.
fn keep(request: &RecvRequest<'_>, before: u32) -> Option<(TakenReceive, u32)> {
    let room = (request.room().min(limits::MAX_MESSAGE) as u32).checked_sub(before)?;
    let sges = (0..request.num_sge()).map(|i| request.sge(i)).collect();
    Some((TakenReceive { wr_id: request.wr_id(), pd: request.pd(), sges }, room))
}

fn op_of(access: Access) -> SqOp {
    match access {
        Access::Read => SqOp::Read,
        Access::Write => SqOp::Write,
        Access::Atomic => SqOp::FetchAdd,
        Access::AtomicWrite => SqOp::AtomicWrite,
    }
}

impl Target for QpTarget<'_, '_> {
    fn take_receive(&mut self) -> Option<u32> {
        let before = self.before();
        let (taken, room) = match &self.qp.srq {
            None => {
                let request = self.qp.rq.front(self.consumer)?;
                let kept = self.keep(&request, before)?;
                self.qp.rq.pop(self.consumer);
                if self.qp.is_watched {
                    self.check_taken();
                }
                kept
            }
            Some(srq) => {
                let mut taker = srq.taker.lock();
                let request = srq.ring.front(&mut taker.consumer)?;
                let kept = self.keep(&request, before)?;
                srq.ring.pop(&mut taker.consumer);
                if self.qp.is_watched {
                    self.check_taken();
                }
                srq.check_limit(&mut taker);
                kept
            }
        };
        *self.taken = Some(taken);
        Some(room)
    }

    fn note_short(&mut self, room: u32, needs: u32, is_all: bool) {
        let Some(taken) = self.taken.as_ref().filter(|_| self.qp.is_watched) else { return };
        let [room, needs] = [room, needs].map(|n| u64::from(n) + u64::from(self.before()));
        self.check_short(taken.wr_id, (room, needs), is_all);
    }

    fn place(&mut self, offset: u32, payload: &[u8]) -> Result<(), AccessError> {
        if self.qp.is_watched && offset == 0 {
            self.check_filled();
        }
        let Some(taken) = &*self.taken else { return Err(Refusal::Access.into()) };
        let (mrs, pd) = (&self.qp.pd.context.device.mrs, taken.pd);
        let before = self.before();
        let end = u64::from(before) + u64::from(offset) + payload.len() as u64;
        let mut spans = self.room.start();
        let list = taken.sges.iter().copied();
        if resolve(mrs, pd, list, end, LOCAL_WRITE, &mut spans).is_none() {
            return self.place_on_demand((offset, end), payload);
        }
        let payload = span_of(payload);
        // SAFETY: the list was checked; the buffers are the device's until they complete.
        unsafe {
            match &mut self.datagram {
                Some((_, header)) => {
                    copy_with_header(spans.as_slice(), MemSpan::from_slice(header), &[payload]);
                }
                None => {
                    let to = behind(spans.as_slice(), offset as usize);
                    copy_pieces(to, core::iter::once(payload), BufferOwnership::Owned);
                }
            }
        }
        Ok(())
    }

    fn complete_receive(&mut self, done: ReceiveDone) {
        if let Some(taken) = self.taken.take() {
            self.complete(taken.wr_id, None, &done);
        }
    }

    fn fail_receive(&mut self, fault: ReceiveFault) {
        let reason = match fault {
            ReceiveFault::Length => {
                self.denied = Some(WcReason::PeerReceiveShort);
                WcReason::ReceiveShort
            }
            ReceiveFault::Protection => self.denied.unwrap_or(WcReason::LocalGone),
            ReceiveFault::Invalidate => {
                self.denied = Some(WcReason::PeerWindow);
                WcReason::ReceiveInvalidate
            }
            // The request that has taken it was refused.
            ReceiveFault::Flushed => WcReason::FlushedByPeer,
        };
        if let Some(taken) = self.taken.take() {
            self.complete(taken.wr_id, Some(reason), &ReceiveDone::default());
        }
    }

    fn check(
        &mut self,
        access: Access,
        rkey: u32,
        va: u64,
        length: u32,
    ) -> Result<(), AccessError> {
        let (op, len) = (op_of(access), u64::from(length));
        let ((rights, reads), asked) = (self.rights, (va, len));
        if len > limits::MAX_MESSAGE || !permits(rights, reads, op, asked) {
            self.denied = Some(why_not_permitted(rights, reads, op, asked));
            return Err(Refusal::Invalid.into());
        }
        let found = find(self.qp, self.room, op, (rkey, va, len));
        if found.is_err() {
            let asked = NamedMemory { op, rkey, addr: va, len };
            self.denied = Some(self.qp.why_denied(self.dest_qpn, self.qp.pd.id, &asked));
        }
        let (span, may_be_gone) = found?;
        if op.is_word() && !span.ptr().addr().is_multiple_of(8) {
            self.denied = Some(WcReason::PeerWord);
            return Err(Refusal::Invalid.into());
        }
        if may_be_gone {
            let is_written = op != SqOp::Read;
            judge(self.paging.look(&[span], is_written))?;
            // Pages that are there may not permit the access: nothing is changed then.
            if span.len() <= LOOKED_AT && !bring(&[span], is_written) {
                return Err(Refusal::Access.into());
            }
        }
        Ok(())
    }

    fn write(&mut self, rkey: u32, va: u64, payload: &[u8]) -> Result<(), AccessError> {
        let asked = (rkey, va, payload.len() as u64);
        let (to, may_be_gone) = find(self.qp, self.room, SqOp::Write, asked)?;
        if may_be_gone {
            judge(self.paging.look(&[to], true))?;
        }
        // SAFETY: `find` has just checked it, under `RoceWire::rx`, for which `quiesce` waits;
        // programs access it atomically only.
        Ok(unsafe { copy(may_be_gone, to, span_of(payload)) }?)
    }

    fn read(&mut self, rkey: u32, va: u64, length: u32) -> Result<(), AccessError> {
        let mut payload = core::mem::take(self.payload);
        // Bounded: by the MTU, 4 KiB.
        payload.resize(length as usize, 0);
        let from = find(self.qp, self.room, SqOp::Read, (rkey, va, length.into()));
        let read = from.map_err(AccessError::from).and_then(|(from, may_be_gone)| {
            if may_be_gone {
                judge(self.paging.look(&[from], false))?;
            }
            // SAFETY: `find` has just checked it, under `RoceWire::rx`, or under the send queue's
            // lock where an answer is sent later: `quiesce` waits for both. Programs access it
            // atomically only.
            Ok(unsafe { copy(may_be_gone, MemSpan::from_slice(&mut payload), from) }?)
        });
        // A READ that is new was checked when it arrived: this is one that is asked for again.
        let read = match (read, self.kept.find(rkey, va, length)) {
            (Err(_), Some(before)) => {
                payload.copy_from_slice(before);
                Ok(())
            }
            (read, _) => read,
        };
        if read.is_ok() {
            self.kept.keep(rkey, va, &payload);
        }
        *self.payload = payload;
        read
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let word = find(self.qp, self.room, SqOp::FetchAdd, (rkey, va, 8))?;
        let (kind, compare_add, swap) = match op {
            AtomicOp::CmpSwap { compare, swap } => (SqOp::CompareSwap, compare, swap),
            AtomicOp::FetchAdd { add } => (SqOp::FetchAdd, add, 0),
        };
        let wqe = Wqe::atomic(kind, compare_add, swap);
        // SAFETY: `find` has just checked eight bytes at a multiple of eight, under `RoceWire::rx`, for
        // which `quiesce` waits; programs access them atomically only.
        let was = unsafe { change(word, |word| place::exchange(word, &wqe)) };
        Ok(was.map_err(|_gone| Refusal::Access)?)
    }

    fn atomic_write(&mut self, rkey: u32, va: u64, bytes: [u8; 8]) -> Result<(), AccessError> {
        let word = find(self.qp, self.room, SqOp::AtomicWrite, (rkey, va, 8))?;
        // AcqRel: a reader that sees the word sees what was written before it.
        let store = |word: &AtomicU64| word.swap(u64::from_ne_bytes(bytes), Ordering::AcqRel);
        // SAFETY: `find` has just checked eight bytes at a multiple of eight, under `RoceWire::rx`, for
        // which `quiesce` waits; programs access them atomically only.
        let was = unsafe { change(word, store) };
        Ok(was.map(drop).map_err(|_gone| Refusal::Access)?)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), Refusal> {
        self.qp.invalidate(rkey).map_err(|_unbound| Refusal::Access)
    }
}
