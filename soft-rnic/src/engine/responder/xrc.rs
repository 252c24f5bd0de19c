//! Requests over XRC at their destination: each names a shared receive queue of the domain that
//! the queue pair is in. It takes its receive request there, and the memory that it names is in
//! that queue's protection domain: the queue pair has none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::responder::delivery::{Begun, Delivery, Refusal};
use crate::objects::cq::CqWriter;
use crate::objects::state::{Srq, XrcSrq};
use crate::queues::outcome::Reply;
use crate::queues::wqe::Op;
use crate::reason::{Cause, Reason};

impl<'d> Delivery<'d, '_> {
    pub(super) fn carry_out_xrc(&mut self, srqn: u32) -> Reply {
        let op = self.message.wqe.op;
        let srq = match self.named(srqn) {
            Ok(srq) => srq,
            Err(refusal) => return self.reject(refusal),
        };
        let begun = match self.message.on_demand {
            false => self.begin_for(op, &srq),
            true => self.begin_on_demand(op, Some(&srq)),
        };
        match begun {
            Ok(begun) => {
                self.place(op, &begun);
                self.finish_for(&srq, &begun)
            }
            Err(refusal) => self.reject_for(&srq, refusal),
        }
    }

    /// Reply to a request that is refused whatever its data are; none if it is not.
    pub(super) fn judge_xrc(&mut self, srqn: u32) -> Option<Reply> {
        let srq = match self.named(srqn) {
            Ok(srq) => srq,
            Err(refusal) => return Some(self.reject(refusal)),
        };
        let refusal = self.begin_for(self.message.wqe.op, &srq).err()?;
        Some(self.reject_for(&srq, refusal))
    }

    /// The queue that the request names, if it is in this domain.
    fn named(&self, srqn: u32) -> Result<Arc<Srq>, Refusal> {
        if !self.is_expected() {
            return Err(Refusal::Unexpected);
        }
        let domain = self.peer.target.as_ref().map(|target| target.xrcd.domain.id);
        let is_ours = |xrc: &XrcSrq| Some(xrc.xrcd.domain.id) == domain;
        let found = self.peer.pd.context.device.xrc.find(srqn);
        found
            .filter(|srq| srq.xrc.as_ref().is_some_and(is_ours))
            .ok_or(Refusal::Denied(Reason::PeerQueue))
    }

    /// The checks of [`begin`](Self::begin), in the same order.
    pub(super) fn begin_for(&mut self, op: Op, srq: &Arc<Srq>) -> Result<Begun<'d>, Refusal> {
        if op == Op::Send {
            return Ok(Begun { wr_id: Some(self.take_from(srq, true)?), target: None });
        }
        let takes_receive = op == Op::Write && self.message.wqe.imm.is_some();
        if takes_receive && !srq.ring.is_ready(&mut srq.taker.lock().consumer) {
            return Err(Refusal::NotReady);
        }
        let target = self.target(op, srq.pd.id)?;
        let wr_id = if takes_receive { Some(self.take_from(srq, false)?) } else { None };
        Ok(Begun { wr_id, target })
    }

    /// Takes the oldest receive request out of the queue.
    pub(super) fn take_from(&mut self, srq: &Arc<Srq>, with_data: bool) -> Result<u64, Refusal> {
        let mut taker = srq.taker.lock();
        let request = srq.ring.front(&mut taker.consumer).ok_or(Refusal::NotReady)?;
        let (wr_id, fits) = self.fit(&request, with_data);
        if self.takes(fits, Some(srq))? {
            srq.ring.pop(&mut taker.consumer);
            if let Some(trace) = &srq.trace {
                trace.took(wr_id, 0);
            }
            self.check_taken(Some(srq));
            srq.check_limit(&mut taker);
        }
        fits.map_or_else(|unfit| Err(Refusal::Unfit { wr_id, unfit }), |()| Ok(wr_id))
    }

    fn finish_for(&mut self, srq: &Srq, begun: &Begun<'d>) -> Reply {
        if let Some(wr_id) = begun.wr_id {
            self.complete_at(srq, wr_id, None);
        }
        self.finish(&Begun { wr_id: None, target: begun.target })
    }

    fn reject_for(&mut self, srq: &Srq, refusal: Refusal) -> Reply {
        let Refusal::Unfit { wr_id, unfit: (ours, theirs) } = refusal else {
            return self.reject(refusal);
        };
        self.complete_at(srq, wr_id, Some(ours));
        self.refuse(theirs, None)
    }

    /// Completes a receive request at the queue's completion queue. Where that is dead, the queue
    /// pair goes with it, as one that uses a dead queue itself.
    pub(super) fn complete_at(&mut self, srq: &Srq, wr_id: u64, failure: Option<Reason>) {
        let Some(XrcSrq { cq, .. }) = &srq.xrc else { return };
        let completion = self.received(wr_id, failure);
        // The writer's queue may be this one, and never are two locked.
        self.writer.release();
        let mut writer = CqWriter::default();
        writer.push(cq, &completion, None, self.deferred);
        drop(writer);
        // Relaxed: a thread that misses it sees it at the next message.
        if cq.dead.load(Ordering::Relaxed) {
            self.peer.die(Cause::CQ, self.deferred);
        }
    }
}
