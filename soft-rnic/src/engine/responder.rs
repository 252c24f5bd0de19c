//! The responder: what a request does at the queue pair that it reaches.
//!
//! This is the boundary that a request crosses: [`ResponderSession`] is the requester's
//! hold on its peer for a list of requests, and everything goes through it:
//!
//! ```text
//!   begin ──> place ──> finish      a request
//!     └──> reject                   one that is not permitted, or not expected
//! ```
//!
//! `begin` has every check, and takes the receive request; `place` copies; `finish`
//! completes and moves the PSN on. Requests of this process and of others, in every
//! schedule, go this way. Runs of plain messages share what is looked up ([`run`]), and an
//! operation on another process's memory is carried out by its requester, with the same
//! rules ([`begin::permits`]) and the same copy ([`place::access`]).

pub(crate) mod begin;
mod checked;
pub(crate) mod datagram;
mod delivery;
mod finish;
pub(crate) mod on_demand;
pub(crate) mod place;
pub(crate) mod run;
mod xrc;

use std::sync::Arc;

use crate::lock::Guard;
use crate::memory::span::{MemSpan, SpanBuf};
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, ResponderState, Srq};
use crate::queues::outcome::PeerReply;
use crate::queues::wqe::SqOp;

pub(crate) use delivery::InboundRequest;
use delivery::{PayloadState, RequestDelivery};

/// A list's hold on its peer: the lock of the receiving side, and that of its
/// completion queue, taken once and kept.
pub(crate) struct ResponderSession<'a> {
    pub(crate) peer: &'a Arc<Qp>,
    pub(crate) responder: Guard<'a, ResponderState>,
}

impl<'a> ResponderSession<'a> {
    #[inline]
    pub(crate) fn open(peer: &'a Arc<Qp>) -> ResponderSession<'a> {
        ResponderSession { peer, responder: peer.responder.lock() }
    }

    /// Reports whether the peer takes a request from this queue pair with this PSN.
    #[inline]
    pub(crate) fn expects(&self, from_qpn: u32, psn: u32) -> bool {
        begin::expects(self.peer, &self.responder, from_qpn, psn)
    }

    /// Judges a message before its data are brought, which has some cost: an error is the reply to
    /// a message that is refused whatever they are. If it is not refused, nothing has changed, and
    /// the result is whether it may be placed in parts: no other sender fills or takes the receive
    /// request at the front, its buffer is not checked, and is not on demand. `srqn` is that of a
    /// message over XRC.
    #[cold]
    pub(crate) fn judge_unread(
        &mut self,
        message: &InboundRequest<'_>,
        srqn: Option<u32>,
        room: &mut SpanBuf,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> Result<bool, PeerReply> {
        let is_one_senders = self.peer.srq.is_none() && self.peer.transport.is_reliable();
        let takes_parts = srqn.is_none() && is_one_senders && self.peer.check().is_none();
        let (named, op) = (srqn.map(|srqn| self.named(srqn)), message.wqe.op);
        let judged = match &named {
            None => self.delivery([], message, room, writer, deferred).judge(op),
            Some(srq) => self.delivery([srq.as_ref()], message, room, writer, deferred).judge(op),
        };
        judged.map(|is_present| takes_parts && is_present)
    }

    /// Puts a part of a SEND, which begins at this offset of it, into the receive request at the
    /// front of the peer's own queue, and leaves that there. Returns which one it is, or the reply
    /// if the message is refused.
    #[cold]
    pub(crate) fn place_part(
        &mut self,
        message: &InboundRequest<'_>,
        (offset, part): (usize, MemSpan<'_>),
        room: &mut SpanBuf,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> Result<u32, PeerReply> {
        let receive = self.responder.consumer.position();
        let mut delivery = self.delivery([], message, room, writer, deferred);
        delivery.judge(SqOp::Send)?;
        delivery.place_part(offset, part);
        Ok(receive)
    }

    /// Carries one request over XRC out, which names this shared receive queue.
    #[cold]
    pub(crate) fn deliver_xrc(
        &mut self,
        message: &InboundRequest<'_>,
        srqn: u32,
        room: &mut SpanBuf,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> PeerReply {
        let srq = self.named(srqn);
        let mut delivery = self.delivery([srq.as_ref()], message, room, writer, deferred);
        match message.on_demand {
            false => delivery.carry_out(message.wqe.op),
            true => delivery.carry_out_on_demand(),
        }
    }

    /// Carries one request out.
    ///
    /// Not inlined: as a part of the post, it runs short of registers.
    #[inline(never)]
    pub(crate) fn deliver(
        &mut self,
        message: &InboundRequest<'_>,
        room: &mut SpanBuf,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> PeerReply {
        let mut delivery = self.delivery([], message, room, writer, deferred);
        if message.on_demand {
            return delivery.carry_out_on_demand();
        }
        // Code of its own for each operation: with the operation asked for at each step, a WRITE
        // takes 673 instructions (post to poll, 64 bytes, lists of 8) instead of 640.
        match message.wqe.op {
            SqOp::Send => delivery.carry_out(SqOp::Send),
            SqOp::Write => delivery.carry_out(SqOp::Write),
            SqOp::Read => delivery.carry_out(SqOp::Read),
            op @ (SqOp::CompareSwap | SqOp::FetchAdd | SqOp::AtomicWrite) => delivery.carry_out(op),
            // They go to no peer.
            SqOp::BindMw | SqOp::LocalInv => PeerReply::Silence,
        }
    }

    #[inline(always)]
    fn delivery<'d, const XRC: usize>(
        &'d mut self,
        named: [Option<&'d Arc<Srq>>; XRC],
        message: &'d InboundRequest<'d>,
        room: &'d mut SpanBuf,
        writer: &'d mut CqWriter<'a>,
        deferred: &'d mut DeferredWork,
    ) -> RequestDelivery<'d, 'a, XRC> {
        let (peer, responder, room) = (self.peer, &mut *self.responder, room.start());
        RequestDelivery {
            peer,
            named,
            responder,
            room,
            message,
            writer,
            deferred,
            data: PayloadState::AtHand,
        }
    }
}

impl<const XRC: usize> RequestDelivery<'_, '_, XRC> {
    /// Checks a message whose data are not there yet: returns whether its buffers are not on demand,
    /// or the reply if it is refused.
    fn judge(&mut self, op: SqOp) -> Result<bool, PeerReply> {
        self.data = PayloadState::Unread;
        match self.begin(op) {
            Ok(_) => Ok(!self.room.on_demand),
            Err(refusal) => Err(self.reject(refusal)),
        }
    }

    #[inline(always)]
    fn carry_out(&mut self, op: SqOp) -> PeerReply {
        let begun = match self.begin(op) {
            Ok(begun) => begun,
            Err(refusal) => return self.reject(refusal),
        };
        self.place(op, &begun);
        self.finish(op, &begun)
    }
}
