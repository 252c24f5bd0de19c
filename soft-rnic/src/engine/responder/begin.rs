//! The checks of a request at its destination: whether it is expected, permitted, and has room.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::engine::responder::datagram::GRH_LEN;
use crate::engine::responder::delivery::{
    Begun, DeliveryRefusal, LATER, PayloadState, RequestDelivery, SENDER_LOST, Unfit,
};
use crate::limits;
use crate::memory::lists::{resolve, resolve_one};
use crate::memory::mr_table::{LOCAL_WRITE, ON_DEMAND};
use crate::memory::on_demand::OnDemandPiece;
use crate::memory::span::{Hold, MemSpan};
use crate::objects::misuse::NamedMemory;
use crate::objects::state::{Qp, ResponderState};
use crate::queues::qp_state::QpTransport;
use crate::queues::recv_ring::RecvRequest;
use crate::queues::wqe::{SqOp, Wqe};
use crate::reason::WcReason;

const TOO_LONG: Unfit = (WcReason::ReceiveShort, WcReason::PeerReceiveShort);
/// The key to be invalidated is not that of a window which is bound to this queue pair.
const NOT_BOUND: Unfit = (WcReason::ReceiveInvalidate, WcReason::PeerWindow);

/// Reports whether a queue pair takes a request of a connection, from this queue pair with this
/// PSN.
#[inline]
pub(super) fn expects(peer: &Qp, responder: &ResponderState, from_qpn: u32, psn: u32) -> bool {
    // An unreliable connection takes up with any message that begins, and its
    // packets do not name the queue pair that sent them.
    let this_one = (responder.dest_qpn == from_qpn && responder.psn == psn)
        || peer.transport == QpTransport::Uc;
    peer.state().receives() && this_one && responder.peer_is_here
}

/// Reports whether the target of an operation on a word is aligned for it.
#[inline(always)]
fn is_aligned(target: &MemSpan<'_>) -> bool {
    target.ptr().addr().is_multiple_of(8)
}

/// Reports whether a queue pair with these rights, and room for `dest_rd_atomic` responses, permits
/// an operation on `len` bytes of memory at `remote_addr`.
#[inline(always)]
pub(crate) fn permits(
    access: u32,
    dest_rd_atomic: u32,
    op: SqOp,
    (remote_addr, len): (u64, u64),
) -> bool {
    let responds = !op.is_response() || dest_rd_atomic > 0;
    let is_whole = !op.is_word() || (remote_addr.is_multiple_of(8) && len == 8);
    access & op.remote_access() != 0 && responds && is_whole
}

/// The reason why a queue pair does not [permit](permits) an operation.
#[cold]
pub(crate) fn why_not_permitted(
    access: u32,
    dest_rd_atomic: u32,
    op: SqOp,
    asked: (u64, u64),
) -> WcReason {
    match () {
        () if access & op.remote_access() == 0 => WcReason::PeerFlags,
        () if op.is_response() && dest_rd_atomic == 0 => WcReason::PeerReads,
        () if !permits(u32::MAX, 1, op, asked) => WcReason::PeerWord,
        () => WcReason::PeerInvalid,
    }
}

/// The memory that a request names by the key of an on-demand region, or of a memory window, if the
/// queue pair may access it so in a domain; and whether that may have gone.
#[cold]
#[inline(never)]
pub(crate) fn find_rare<'m>(
    qp: &Qp,
    hold: Hold<'m>,
    (op, pd): (SqOp, u32),
    (rkey, addr, len): (u32, u64, u64),
) -> Option<OnDemandPiece<'m>> {
    let (mrs, access) = (&qp.pd.context.device.mrs, op.remote_access());
    match mrs.check(hold, rkey, pd, addr, len, access | ON_DEMAND) {
        Some(span) => Some((span, true)),
        None => mrs.check_mw(hold, rkey, (pd, qp.num), (addr, len), access),
    }
}

impl<'d, const XRC: usize> RequestDelivery<'d, '_, XRC> {
    /// Checks the request, and takes the receive request that it uses up.
    #[inline(always)]
    pub(super) fn begin(&mut self, op: SqOp) -> Result<Begun<'d>, DeliveryRefusal> {
        if !self.is_expected() {
            return Err(DeliveryRefusal::Unexpected);
        }
        if let [None] = self.named[..] {
            return Err(DeliveryRefusal::Denied(WcReason::PeerQueue));
        }
        if op == SqOp::Send {
            return Ok(Begun { wr_id: Some(self.take_receive(true)?), target: None });
        }
        let takes_receive = op == SqOp::Write && self.message.wqe.imm.is_some();
        // Before the memory: a refusal does not use the receive request up.
        if takes_receive && !self.is_receive_ready() {
            return Err(DeliveryRefusal::NotReady);
        }
        let pd = self.named().map_or(self.peer.pd.id, |srq| srq.pd.id);
        let target = self.target(op, pd)?;
        let wr_id = if takes_receive { Some(self.take_receive(false)?) } else { None };
        Ok(Begun { wr_id, target })
    }

    #[inline(always)]
    fn is_expected(&self) -> bool {
        let message = self.message;
        match message.to {
            None => expects(self.peer, self.responder, message.from_qpn, message.psn),
            Some((_, qkey)) => self.expects_datagram(*qkey),
        }
    }

    fn expects_datagram(&self, qkey: u32) -> bool {
        let receives = self.peer.transport == QpTransport::Ud && self.peer.state().receives();
        if receives && self.responder.qkey != qkey {
            // Relaxed: a statistic.
            self.peer.pd.context.device.qkey_violations.fetch_add(1, Ordering::Relaxed);
        }
        receives && self.responder.qkey == qkey
    }

    /// Reports whether a receive request is posted.
    fn is_receive_ready(&mut self) -> bool {
        match self.srq() {
            None => self.peer.rq.is_ready(&mut self.responder.consumer),
            Some(srq) => srq.ring.is_ready(&mut srq.taker.lock().consumer),
        }
    }

    /// Takes the oldest receive request out of the queue; for a message with
    /// data its buffers are checked, and their pieces put into `room`. The slot is
    /// free before the completion is visible: an application that sees it may post again.
    #[inline(always)]
    pub(super) fn take_receive(&mut self, with_data: bool) -> Result<u64, DeliveryRefusal> {
        let peer: &Arc<Qp> = self.peer;
        match self.srq() {
            None => {
                let front = peer.rq.front(&mut self.responder.consumer);
                let request = front.ok_or(DeliveryRefusal::NotReady)?;
                let (wr_id, fits) = self.fit(&request, with_data);
                if self.takes(fits)? {
                    peer.rq.pop(&mut self.responder.consumer);
                    if peer.is_watched {
                        self.check_taken();
                    }
                }
                fits.map_or_else(
                    |unfit| Err(DeliveryRefusal::Unfit { wr_id, unfit }),
                    |()| Ok(wr_id),
                )
            }
            Some(srq) => {
                let mut taker = srq.taker.lock();
                let request =
                    srq.ring.front(&mut taker.consumer).ok_or(DeliveryRefusal::NotReady)?;
                let (wr_id, fits) = self.fit(&request, with_data);
                if self.takes(fits)? {
                    srq.ring.pop(&mut taker.consumer);
                    if let Some(trace) = srq.trace.as_ref().filter(|_| XRC > 0) {
                        trace.took(wr_id, 0);
                    }
                    if peer.is_watched {
                        self.check_taken();
                    }
                    srq.check_limit(&mut taker);
                }
                fits.map_or_else(
                    |unfit| Err(DeliveryRefusal::Unfit { wr_id, unfit }),
                    |()| Ok(wr_id),
                )
            }
        }
    }

    /// Reports whether a message takes its receive request away. On unreliable transports one that
    /// is too long leaves it to a shorter one, and is dropped itself (class D of the
    /// specification's responder errors).
    #[inline(always)]
    fn takes(&mut self, fits: Result<(), Unfit>) -> Result<bool, DeliveryRefusal> {
        match fits {
            Ok(()) if self.data == PayloadState::AtHand => Ok(true),
            Ok(()) => self.takes_rare(),
            Err(SENDER_LOST) => Err(DeliveryRefusal::Lost),
            Err(LATER) => Err(DeliveryRefusal::Later),
            Err(TOO_LONG) if !self.peer.transport.is_reliable() => Err(DeliveryRefusal::NotReady),
            Err(_) => Ok(true),
        }
    }

    /// Checks that the message fits into a receive request's buffers.
    #[inline(always)]
    fn fit(&mut self, request: &RecvRequest<'_>, with_data: bool) -> (u64, Result<(), Unfit>) {
        let (wr_id, len) = (request.wr_id(), self.len());
        if !with_data {
            return (wr_id, Ok(()));
        }
        if len > request.room() {
            self.check_short(request);
            return (wr_id, Err(TOO_LONG));
        }
        let (mrs, pd) = (&self.peer.pd.context.device.mrs, request.pd());
        let checked = if request.num_sge() == 1 {
            resolve_one(mrs, pd, request.sge(0), len, LOCAL_WRITE, &mut self.room)
        } else {
            let list = (0..request.num_sge()).map(|i| request.sge(i));
            resolve(mrs, pd, list, len, LOCAL_WRITE, &mut self.room)
        };
        let fits = match checked {
            Some(()) => Ok(()),
            None => self.fit_on_demand(request),
        };
        if self.message.wqe.invalidates {
            return (wr_id, self.fit_to_invalidate(fits));
        }
        (wr_id, fits)
    }

    #[cold]
    #[inline(never)]
    fn fit_to_invalidate(&self, fits: Result<(), Unfit>) -> Result<(), Unfit> {
        let key = self.message.wqe.imm.unwrap_or(0);
        let is_bound = self.peer.pd.context.device.mrs.is_bound_to(key, self.peer.num);
        fits?;
        if is_bound { Ok(()) } else { Err(NOT_BOUND) }
    }

    /// Bytes that the message takes up: a datagram's header, too.
    #[inline(always)]
    pub(super) fn len(&self) -> u64 {
        self.message.len + if self.message.to.is_some() { u64::from(GRH_LEN) } else { 0 }
    }

    /// The memory that the request names, if this domain may access it so. No key is needed for
    /// none.
    #[inline(always)]
    fn target(&mut self, op: SqOp, pd: u32) -> Result<Option<MemSpan<'d>>, DeliveryRefusal> {
        let wqe = self.message.wqe;
        let dest_rd_atomic = self.responder.max_dest_rd_atomic.into();
        let len = self.message.len;
        if !permits(self.responder.access, dest_rd_atomic, op, (wqe.remote_addr, len)) {
            let asked = (wqe.remote_addr, len);
            let reason = why_not_permitted(self.responder.access, dest_rd_atomic, op, asked);
            return Err(DeliveryRefusal::Denied(reason));
        }
        if len == 0 {
            return Ok(None);
        }
        let hold = self.room.hold();
        let (mrs, access) = (&self.peer.pd.context.device.mrs, op.remote_access());
        match mrs.check(hold, wqe.rkey, pd, wqe.remote_addr, len, access) {
            None => self.target_rare(op, pd, len),
            Some(target) if op.is_word() && !is_aligned(&target) => {
                Err(DeliveryRefusal::Denied(WcReason::PeerWord))
            }
            Some(target) => Ok(Some(target)),
        }
    }

    /// [`target`](Self::target) of a key that is no such region's: it may be that of an on-demand
    /// region, or of a memory window.
    #[cold]
    #[inline(never)]
    fn target_rare(
        &mut self,
        op: SqOp,
        pd: u32,
        len: u64,
    ) -> Result<Option<MemSpan<'d>>, DeliveryRefusal> {
        let (peer, Wqe { rkey, remote_addr: addr, .. }) = (self.peer, *self.message.wqe);
        let found = find_rare(peer, self.room.hold(), (op, pd), (rkey, addr, len));
        let found = found.ok_or_else(|| {
            let asked = NamedMemory { op, rkey, addr, len };
            DeliveryRefusal::Denied(peer.why_denied(self.message.from_qpn, pd, &asked))
        });
        match found? {
            (target, _) if op.is_word() && !is_aligned(&target) => {
                Err(DeliveryRefusal::Denied(WcReason::PeerWord))
            }
            (target, true) => self.reach_on_demand(op, target).map(|()| None),
            (target, false) => Ok(Some(target)),
        }
    }
}

const _: () = assert!(limits::MAX_MESSAGE <= u32::MAX as u64);
