//! The responder: what a request does at the queue pair that it reaches.
//!
//! This is the boundary that a request crosses: [`Session`] is the requester's
//! hold on its peer for a list of requests, and everything goes through it.

mod datagram;

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use verbs_sys::*;

use crate::after::{After, Todo};
use crate::cq::{Completion, CqWriter};
use crate::limits;
use crate::lock::Guard;
use crate::memory::{Copying, Span, Spans, copy_spans, land, resolve, resolve_one};
use crate::mr::{LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::qp::{Qp, State, Transport};
use crate::recv_ring::{Consumer, RecvRequest};
use crate::sq::{Op, Wqe};

/// Messages from this size on are copied without a lock that others may want.
pub(crate) const LONG: usize = 4_096;

/// The responder's side of a queue pair, under its lock.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) dest_qpn: u32,
    /// The peer's GID is this device's.
    pub(crate) peer_is_here: bool,
    /// The PSN expected next.
    pub(crate) psn: u32,
    pub(crate) access: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// Of datagrams: the key that they have to carry.
    pub(crate) qkey: u32,
    /// Changes whenever the queue pair is connected anew.
    pub(crate) generation: u32,
    /// The number of the next message from another process.
    pub(crate) number: u32,
    /// The receive queue's consuming side (unused with a shared one).
    pub(crate) consumer: Consumer,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    /// No receive request was posted; the timer's code.
    Rnr(u8),
    /// Refused: the status of the requester's completion.
    Refused(ibv_wc_status),
    /// Nobody there, or nobody who expects this.
    Silence,
}

/// A request on its way.
pub(crate) struct Message<'a> {
    pub(crate) wqe: &'a Wqe,
    pub(crate) from_qpn: u32,
    pub(crate) psn: u32,
    /// Packets of the request or of its response.
    pub(crate) packets: u32,
    pub(crate) len: u64,
    /// The requester's memory: source, or landing place of a response.
    pub(crate) local: &'a [Span],
    /// That memory may have gone.
    pub(crate) on_demand: bool,
}

/// A list's hold on its peer: the lock of the receiving side, and that of its
/// completion queue, taken once and kept.
pub(crate) struct Session<'a> {
    pub(crate) peer: &'a Arc<Qp>,
    pub(crate) responder: Guard<'a, Responder>,
}

impl<'a> Session<'a> {
    #[inline]
    pub(crate) fn open(peer: &'a Arc<Qp>) -> Session<'a> {
        Session { peer, responder: peer.responder.lock() }
    }

    /// Whether the peer takes a request from this queue pair with this PSN.
    #[inline]
    pub(crate) fn expects(&self, from_qpn: u32, psn: u32) -> bool {
        let responder = &*self.responder;
        // An unreliable connection takes up with any message that begins, and its
        // packets do not say which queue pair they come from.
        let this_one = (responder.dest_qpn == from_qpn && responder.psn == psn)
            || self.peer.transport == Transport::Uc;
        self.peer.state().receives() && this_one && responder.peer_is_here
    }

    /// Whether the next message from this queue pair will find no receive request.
    pub(crate) fn has_no_receive(&mut self, from_qpn: u32) -> bool {
        let expected =
            self.peer.transport == Transport::Ud || self.expects(from_qpn, self.responder.psn);
        expected && !is_receive_ready(self.peer, &mut self.responder)
    }

    /// Whether the next message would be dropped for its length.
    pub(crate) fn drops(&mut self, len: u64) -> bool {
        let peer = self.peer;
        let is_too_long = |request: RecvRequest<'_>| request.room() < len;
        !peer.transport.is_reliable()
            && match &peer.srq {
                None => peer.rq.front(&mut self.responder.consumer).is_some_and(is_too_long),
                Some(srq) => {
                    srq.ring.front(&mut srq.taker.lock().consumer).is_some_and(is_too_long)
                }
            }
    }

    /// Carries one request out.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        message: &Message<'_>,
        room: &mut Spans,
        writer: &mut CqWriter<'a>,
        after: &mut After,
    ) -> Reply {
        if !self.expects(message.from_qpn, message.psn) {
            return Reply::Silence;
        }
        let responder = &mut *self.responder;
        let mut delivery = Delivery { peer: self.peer, responder, room, message, writer, after };
        let reply = match (message.wqe.op, message.wqe.imm) {
            (Op::Send, _) => delivery.send(),
            (Op::Write, None) => delivery.write(),
            (Op::Write, Some(_)) => delivery.write_with_imm(),
            (Op::Read, _) => delivery.read(),
            (Op::CompareSwap | Op::FetchAdd, _) => delivery.atomic(),
        };
        if reply == Reply::Done {
            let psn = message.psn.wrapping_add(message.packets);
            self.responder.psn = psn & 0x00ff_ffff;
        }
        reply
    }
}

/// Whether a receive request is posted.
fn is_receive_ready(peer: &Qp, responder: &mut Responder) -> bool {
    match &peer.srq {
        None => peer.rq.is_ready(&mut responder.consumer),
        Some(srq) => srq.ring.is_ready(&mut srq.taker.lock().consumer),
    }
}

/// Whether a message fits; if not, the responder's status and the requester's.
type Fits = Result<(), (ibv_wc_status, ibv_wc_status)>;

const TOO_LONG: Fits =
    Err((ibv_wc_status::IBV_WC_LOC_LEN_ERR, ibv_wc_status::IBV_WC_REM_INV_REQ_ERR));

/// One request at its destination.
struct Delivery<'d, 'a> {
    peer: &'a Arc<Qp>,
    responder: &'d mut Responder,
    room: &'d mut Spans,
    message: &'d Message<'d>,
    writer: &'d mut CqWriter<'a>,
    after: &'d mut After,
}

impl<'a> Delivery<'_, 'a> {
    #[inline(always)]
    fn send(&mut self) -> Reply {
        let Some((wr_id, fits)) = self.take_receive(true) else {
            return Reply::Rnr(self.responder.min_rnr_timer);
        };
        match fits {
            Ok(()) => {
                self.release_for_long_copy();
                // SAFETY: both lists were checked; the buffers of sends and
                // receives are the device's while they are posted.
                unsafe {
                    copy_spans(self.room.as_slice(), self.message.local, Copying::Owned);
                }
                self.complete_receive(wr_id, ibv_wc_status::IBV_WC_SUCCESS, 0);
                Reply::Done
            }
            Err((ours, theirs)) => {
                self.complete_receive(wr_id, ours, 0);
                self.refuse(theirs, None)
            }
        }
    }

    /// Takes the oldest receive request out of the peer's queue; for a message with
    /// data its buffers are checked, and their pieces put into `room`. The slot is
    /// free before the completion is visible: who sees that may post again.
    #[inline(always)]
    fn take_receive(&mut self, with_data: bool) -> Option<(u64, Fits)> {
        let peer = self.peer;
        match &peer.srq {
            None => {
                let request = peer.rq.front(&mut self.responder.consumer)?;
                let fits = if with_data { self.fit(&request) } else { Ok(()) };
                if fits.is_err() && self.leaves(fits) {
                    return None;
                }
                peer.rq.pop(&mut self.responder.consumer);
                Some((request.wr_id(), fits))
            }
            Some(srq) => {
                let mut taker = srq.taker.lock();
                let request = srq.ring.front(&mut taker.consumer)?;
                let fits = if with_data { self.fit(&request) } else { Ok(()) };
                if fits.is_err() && self.leaves(fits) {
                    return None;
                }
                srq.ring.pop(&mut taker.consumer);
                srq.check_limit(&mut taker);
                Some((request.wr_id(), fits))
            }
        }
    }

    /// Whether a message that does not fit leaves the receive request to a shorter
    /// one, and is dropped itself: where nobody can be told (class D of the
    /// specification's responder errors).
    #[cold]
    fn leaves(&self, fits: Fits) -> bool {
        !self.peer.transport.is_reliable() && fits == TOO_LONG
    }

    /// Whether the message fits into a receive request's buffers; if not, the
    /// statuses of the responder's completion and of the requester's.
    #[inline(always)]
    fn fit(&mut self, request: &RecvRequest<'_>) -> Fits {
        let len = self.message.len;
        if len > request.room() {
            return TOO_LONG;
        }
        let pd = &self.peer.pd;
        let mrs = &pd.context.device.mrs;
        let checked = if request.num_sge() == 1 {
            resolve_one(mrs, pd.id, request.sge(0), len, LOCAL_WRITE, self.room)
        } else {
            let list = (0..request.num_sge()).map(|i| request.sge(i));
            resolve(mrs, pd.id, list, len, LOCAL_WRITE, self.room)
        };
        checked.ok_or((ibv_wc_status::IBV_WC_LOC_PROT_ERR, ibv_wc_status::IBV_WC_REM_OP_ERR))
    }

    /// Lets go of the completion queue before a copy that others should not wait
    /// for.
    #[inline]
    fn release_for_long_copy(&mut self) {
        if self.message.len as usize >= LONG {
            self.writer.release();
        }
    }

    /// Completes a receive request at the peer; `flags` are those that the message
    /// itself does not tell.
    #[inline(always)]
    fn complete_receive(&mut self, wr_id: u64, status: ibv_wc_status, flags: u32) {
        let wqe = self.message.wqe;
        let opcode = match wqe.op {
            Op::Write => ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
            _ => ibv_wc_opcode::IBV_WC_RECV,
        };
        let completion = Completion {
            wr_id,
            status,
            opcode,
            byte_len: self.message.len as u32,
            imm: wqe.imm.unwrap_or(0),
            flags: flags | if wqe.imm.is_some() { ibv_wc_flags::IBV_WC_WITH_IMM.0 } else { 0 },
            qp_num: self.peer.num,
            src_qp: self.message.from_qpn,
            solicited: wqe.solicited,
        };
        self.writer.push(&self.peer.recv_cq, &completion, None, self.after);
    }

    /// The responder cannot go on: it enters the error state, and the requester's
    /// completion has `status`. The event, if any, tells the responder why; where
    /// a receive request completed in error, that says it.
    #[cold]
    fn refuse(&mut self, status: ibv_wc_status, event: Option<ibv_event_type>) -> Reply {
        self.writer.release();
        if self.peer.enter_error() {
            if let Some(event) = event {
                self.peer.raise(event);
            }
            self.after.push(Todo::Flush(Arc::clone(self.peer)));
        }
        Reply::Refused(status)
    }

    #[cold]
    fn invalid_request(&mut self) -> Reply {
        let event = ibv_event_type::IBV_EVENT_QP_REQ_ERR;
        self.refuse_or_drop(ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, event)
    }

    #[cold]
    fn access_error(&mut self) -> Reply {
        let event = ibv_event_type::IBV_EVENT_QP_ACCESS_ERR;
        self.refuse_or_drop(ibv_wc_status::IBV_WC_REM_ACCESS_ERR, event)
    }

    /// The requester's fault: it is told, or where it cannot be, ignored.
    fn refuse_or_drop(&mut self, status: ibv_wc_status, event: ibv_event_type) -> Reply {
        if !self.peer.transport.is_reliable() {
            return Reply::Silence;
        }
        self.refuse(status, Some(event))
    }

    /// The memory that the request names, if it may be accessed so.
    #[inline]
    fn remote(&self, len: u64, access: u32) -> Option<*mut u8> {
        let wqe = self.message.wqe;
        let pd = &self.peer.pd;
        pd.context.device.mrs.check(wqe.rkey, pd.id, wqe.remote_addr, len, access)
    }

    /// Lays the data of a write down. No key is needed for none.
    #[inline]
    fn write(&mut self) -> Reply {
        if self.responder.access & REMOTE_WRITE == 0 {
            return self.invalid_request();
        }
        let len = self.message.len;
        if len == 0 {
            return Reply::Done;
        }
        let Some(to) = self.remote(len, REMOTE_WRITE) else {
            return self.access_error();
        };
        self.release_for_long_copy();
        let to = Span { ptr: to, len: len as usize };
        // SAFETY: both were checked; the program accesses them atomically only.
        unsafe { copy_spans(&[to], self.message.local, Copying::Shared) };
        Reply::Done
    }

    /// A write that also uses up a receive request. That there is one is known
    /// before anything is written: the way back is then one of the whole request.
    fn write_with_imm(&mut self) -> Reply {
        if !is_receive_ready(self.peer, self.responder) {
            return Reply::Rnr(self.responder.min_rnr_timer);
        }
        let reply = self.write();
        if reply != Reply::Done {
            return reply;
        }
        // Another queue pair may have taken the last one of a shared queue since:
        // then the write is repeated with the retry, as it is on a network.
        let Some((wr_id, _)) = self.take_receive(false) else {
            return Reply::Rnr(self.responder.min_rnr_timer);
        };
        self.complete_receive(wr_id, ibv_wc_status::IBV_WC_SUCCESS, 0);
        Reply::Done
    }

    fn read(&mut self) -> Reply {
        if self.responder.access & REMOTE_READ == 0 || self.responder.max_dest_rd_atomic == 0 {
            return self.invalid_request();
        }
        let len = self.message.len;
        if len == 0 {
            return Reply::Done;
        }
        let Some(from) = self.remote(len, REMOTE_READ) else {
            return self.access_error();
        };
        self.release_for_long_copy();
        let from = Span { ptr: from, len: len as usize };
        if self.message.on_demand {
            // SAFETY: as in `write`.
            let landed = unsafe { land(self.message.local, from) };
            return landed
                .map_or(Reply::Refused(ibv_wc_status::IBV_WC_LOC_PROT_ERR), |()| Reply::Done);
        }
        // SAFETY: as in `write`; a landing place may be polled, too.
        unsafe { copy_spans(self.message.local, &[from], Copying::Shared) };
        Reply::Done
    }

    fn atomic(&mut self) -> Reply {
        let wqe = self.message.wqe;
        let aligned = wqe.remote_addr.is_multiple_of(8);
        let enabled = self.responder.access & REMOTE_ATOMIC != 0;
        if !enabled || self.responder.max_dest_rd_atomic == 0 || !aligned {
            return self.invalid_request();
        }
        let Some(word) = self.remote(8, REMOTE_ATOMIC) else {
            return self.access_error();
        };
        if !word.addr().is_multiple_of(8) {
            return self.invalid_request();
        }
        // SAFETY: checked and aligned; the program accesses it atomically only.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        // AcqRel: an atomic is a synchronisation between whoever uses the word.
        let mut old = match wqe.op {
            Op::FetchAdd => word.fetch_add(wqe.compare_add, Ordering::AcqRel),
            _ => word
                .compare_exchange(wqe.compare_add, wqe.swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|seen| seen),
        };
        let old = Span { ptr: (&raw mut old).cast(), len: 8 };
        // SAFETY: as in `write`.
        unsafe { copy_spans(self.message.local, &[old], Copying::Shared) };
        Reply::Done
    }
}

impl State {
    /// Whether requests of the peer are answered.
    #[inline]
    fn receives(self) -> bool {
        matches!(self, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }
}

const _: () = assert!(limits::MAX_MESSAGE <= u32::MAX as u64);
