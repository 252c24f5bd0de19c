//! The end of a request at its destination: its completion there, and the reply.

use std::sync::Arc;

use verbs_sys::*;

use crate::engine::responder::delivery::{Begun, DeliveryRefusal, RequestDelivery};
use crate::objects::cq::CqEntry;
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::mw_table::MwRefused;
use crate::objects::state::Qp;
use crate::queues::outcome::PeerReply;
use crate::queues::wqe::SqOp;
use crate::reason::{Cause, WcReason};

impl Qp {
    /// Ends the binding of the window with this key, for the peer. No access is under way under it:
    /// only the peer may use it, in the order of its requests, and all that it does in this
    /// process holds this end's lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn invalidate(&self, key: u32) -> Result<(), MwRefused> {
        let device = &self.pd.context.device;
        let ending = device.mrs.end_bound(key, self.num, device.peers.as_ref())?;
        device.mrs.set_settled(&ending);
        Ok(())
    }

    /// The responder cannot continue: it enters the error state, and the requester's
    /// completion has `reason`. The event, if any, tells the responder why; where
    /// a receive request completed in error, that says it.
    pub(crate) fn refuse(
        self: &Arc<Qp>,
        reason: WcReason,
        event: Option<ibv_event_type>,
        deferred: &mut DeferredWork,
    ) {
        if self.enter_error(Cause::peer(reason)) {
            if let Some(event) = event {
                self.raise(event);
            }
            deferred.push(WorkItem::Flush(Arc::clone(self)));
        }
    }
}

impl<const XRC: usize> RequestDelivery<'_, '_, XRC> {
    /// The request is done.
    #[inline(always)]
    pub(super) fn finish(&mut self, op: SqOp, begun: &Begun<'_>) -> PeerReply {
        if op == SqOp::Send && self.message.wqe.invalidates {
            // If it fails, this end has invalidated it itself since the check.
            let _ = self.peer.invalidate(self.message.wqe.imm.unwrap_or(0));
        }
        if let Some(wr_id) = begun.wr_id {
            self.complete_receive(wr_id, None);
        }
        // Datagrams have no order.
        if self.message.to.is_none() {
            let psn = self.message.psn.wrapping_add(self.message.packets);
            self.responder.psn = psn & 0x00ff_ffff;
        }
        PeerReply::Done
    }

    /// Refuses a request that may not proceed.
    #[cold]
    pub(super) fn reject(&mut self, refusal: DeliveryRefusal) -> PeerReply {
        let is_reliable = self.peer.transport.is_reliable();
        let reason = match refusal {
            // (A later request has no reply yet: its sender gets none for this one.)
            DeliveryRefusal::Unexpected | DeliveryRefusal::Later => return PeerReply::Silence,
            DeliveryRefusal::Lost => return PeerReply::Refused(WcReason::LocalGone),
            DeliveryRefusal::NotReady if !is_reliable => return PeerReply::Silence,
            DeliveryRefusal::NotReady => return PeerReply::Rnr(self.responder.min_rnr_timer),
            DeliveryRefusal::Unfit { wr_id, unfit: (ours, theirs) } => {
                self.complete_receive(wr_id, Some(ours));
                return self.refuse(theirs, None);
            }
            DeliveryRefusal::Denied(reason) => reason,
        };
        // The requester's error: an unreliable transport has no replies.
        if !is_reliable {
            return PeerReply::Silence;
        }
        let event = match reason.status() {
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => ibv_event_type::IBV_EVENT_QP_ACCESS_ERR,
            _ => ibv_event_type::IBV_EVENT_QP_REQ_ERR,
        };
        self.refuse(reason, Some(event))
    }

    fn refuse(&mut self, reason: WcReason, event: Option<ibv_event_type>) -> PeerReply {
        self.writer.release();
        self.peer.refuse(reason, event, self.deferred);
        PeerReply::Refused(reason)
    }

    /// Completes a receive request.
    #[inline(always)]
    fn complete_receive(&mut self, wr_id: u64, failure: Option<WcReason>) {
        let completion = self.received(wr_id, failure);
        match self.named() {
            None => self.writer.push(&self.peer.recv_cq, &completion, None, self.deferred),
            Some(srq) => self.complete_at(srq, &completion),
        }
    }

    /// The completion of a receive request.
    #[inline(always)]
    fn received(&self, wr_id: u64, failure: Option<WcReason>) -> CqEntry {
        if self.peer.is_watched {
            self.check_arrived(failure.is_none());
        }
        let wqe = self.message.wqe;
        let opcode = match wqe.op {
            SqOp::Write => ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
            _ => ibv_wc_opcode::IBV_WC_RECV,
        };
        let flag = |is: bool, flag: ibv_wc_flags| if is { flag.0 } else { 0 };
        let with = match wqe.invalidates {
            false => ibv_wc_flags::IBV_WC_WITH_IMM,
            true => ibv_wc_flags::IBV_WC_WITH_INV,
        };
        let has_grh = self.message.to.is_some() && failure.is_none();
        CqEntry {
            imm: wqe.imm.unwrap_or(0),
            flags: flag(wqe.imm.is_some(), with) | flag(has_grh, ibv_wc_flags::IBV_WC_GRH),
            src_qp: self.message.from_qpn,
            solicited: wqe.solicited,
            ..self.peer.completion(wr_id, failure, opcode, self.len() as u32)
        }
    }
}
