//! Unreliable datagrams, the sending side.
//!
//! A datagram queue pair has no peer: each request brings its address, and what
//! the address leads to is looked up when the request is executed. It leads to a
//! queue pair of this device, to the members of a multicast group, or nowhere; the
//! datagram then is dropped, and the request completes all the same.

use std::sync::Arc;

use crate::engine::execution::{Execution, SqParts};
use crate::engine::multicast::DatagramReceivers;
use crate::engine::responder::{InboundRequest, ResponderSession};
use crate::memory::span::{RequestScratch, SpanBuf, Spans};
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::state::{Qp, Sq};
use crate::queues::address::DatagramAddress;
use crate::queues::outcome::{PeerReply, WaitCause, WqeOutcome};
use crate::queues::qp_state::QueuePairState;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, WqeRef};
use crate::reason::WcReason;

impl Qp {
    /// [`Qp::run_queue`] for datagrams.
    pub(crate) fn run_datagrams(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        while self.run_to_one_peer(sq, deferred, only_one) && !only_one {}
        self.flush_wire();
    }

    /// Executes requests from the head on that go to the same peer, or the first
    /// alone; returns true if there may be more to do. They share the locks of the receiving
    /// side: alternating between two peers costs more than one after the other.
    fn run_to_one_peer(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) -> bool {
        let Sq { requester, pending, peer, counters, scratch, attr, .. } = sq;
        let Some(first) = pending.front().and_then(|request| request.to.copied()) else {
            return false;
        };
        let is_on_wire = self.wire_to(&first).is_some();
        let is_group = first.is_group() && !is_on_wire;
        let group = is_group.then(|| self.pd.context.device.members(&first.gid));
        let mut receivers = match &group {
            Some(members) => DatagramReceivers::Group(members),
            // This thread may wait for room to send, and what receives there wants the lock.
            None if is_on_wire => DatagramReceivers::One(None),
            None => DatagramReceivers::One(self.find(peer, &first).map(ResponderSession::open)),
        };
        let mut execution = Execution::new();
        let mut parts = SqParts { requester, counters, scratch };
        let mut goes_on = true;
        while goes_on && let Some(request) = pending.front() {
            let Some(to) = request.to.filter(|to| to.is_same_peer(&first)) else { break };
            if self.state().flushes_sends() {
                self.flush_pending(pending, &mut execution);
                break;
            }
            if self.state() != QueuePairState::Rts || parts.requester.waits.is_some() {
                goes_on = false;
                break;
            }
            let to = (*to, to.qkey(attr.qkey));
            let execute = |parts: &mut SqParts<'_>, arrives: bool| {
                self.check_execution(request.wqe);
                let receivers = arrives.then_some(&mut receivers);
                self.execute_datagram(parts, receivers, &mut execution, &request, &to)
            };
            let fault = if self.has_faults { self.next_fault(request.wqe) } else { None };
            let outcome = match fault {
                Some(fault) => self.strike(&mut parts, fault, execute),
                None => self.send_unreliably(&mut parts, &request, Some(to), execute),
            };
            goes_on = self.settle(&mut parts, &mut execution, request.wqe, request.len(), outcome);
            if goes_on {
                pending.pop();
            }
            if only_one {
                break;
            }
        }
        deferred.append(execution.finish());
        goes_on
    }

    /// Executes one request: it is sent, or fails here. The receiver's outcome is not
    /// reported. Without `receivers` the message is lost on its way.
    fn execute_datagram<'a>(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        receivers: Option<&mut DatagramReceivers<'a>>,
        execution: &mut Execution<'a>,
        request: &WqeRef<'_>,
        to: &(DatagramAddress, u32),
    ) -> WqeOutcome {
        let SqParts { requester, scratch, .. } = parts;
        let RequestScratch { local, remote: room } = &mut **scratch;
        let local = match self.check_datagram(requester, request, &to.0, local) {
            Ok(local) => local,
            Err(reason) => return WqeOutcome::Failed(reason),
        };
        let local = local.as_slice();
        if self.is_foreign(&to.0) && receivers.is_some() {
            return self.send_remote_ud(requester, local, execution, request, &to.0, to.1);
        }
        if let Some(wire) = self.wire_to(&to.0).filter(|_| receivers.is_some()) {
            let writer = &mut execution.writer;
            return self.send_datagram(wire, requester, local, request, to, writer);
        }
        let is_group = to.0.is_group() && self.wire_to(&to.0).is_none();
        if is_group && !self.has_met_members(requester) {
            execution.deferred.push(WorkItem::MeetMembers(Arc::clone(self)));
            return WqeOutcome::Blocked(WaitCause::Meeting, None);
        }
        let from = (self.num, requester.psn);
        let message = InboundRequest::new(request.wqe, from, (local, request.len()), Some(to));
        let outcome = match receivers {
            None => WqeOutcome::Dropped,
            Some(DatagramReceivers::Group(members)) => {
                self.send_to_group(requester, members, &message, room, execution)
            }
            Some(DatagramReceivers::One(session)) => {
                let Execution { writer, deferred } = execution;
                let reply = session.as_mut().map(|s| s.deliver(&message, room, writer, deferred));
                if reply == Some(PeerReply::Done) { WqeOutcome::Done } else { WqeOutcome::Dropped }
            }
        };
        if !matches!(outcome, WqeOutcome::Blocked(..)) {
            requester.advance_psn(1);
        }
        outcome
    }

    /// Checks that a request can be sent, and returns its memory: it is a send, to an address of
    /// our domain, of at most one packet, with memory that may be read.
    fn check_datagram<'s>(
        &self,
        requester: &RequesterState,
        request: &'s WqeRef<'_>,
        to: &DatagramAddress,
        room: &'s mut SpanBuf,
    ) -> Result<Spans<'s>, WcReason> {
        let len = request.len();
        if request.wqe.op != SqOp::Send || to.pd != self.pd.id {
            return Err(WcReason::Operation);
        }
        if len > self.pd.context.device.mtu() {
            return Err(WcReason::TooLong);
        }
        self.local(requester, request, len, room)
    }

    /// The queue pair at an address, if there is one; `last` is where the previous
    /// datagram went.
    fn find<'a>(&self, last: &'a mut Option<Arc<Qp>>, to: &DatagramAddress) -> Option<&'a Arc<Qp>> {
        if to.gid != self.pd.context.device.gid() || self.is_foreign(to) {
            return None;
        }
        let known = |qp: &Arc<Qp>| qp.num == to.qpn && qp.state() != QueuePairState::Destroyed;
        if !last.as_ref().is_some_and(known) {
            *last = self.pd.context.device.qps.get(to.qpn);
        }
        last.as_ref()
    }

    /// The queue pair that a message goes to: the one at the address of a datagram, or
    /// else the peer.
    pub(crate) fn resolve<'a>(
        &self,
        sq: &'a mut Sq,
        to: Option<&DatagramAddress>,
    ) -> Option<&'a Arc<Qp>> {
        match to {
            Some(to) => self.find(&mut sq.peer, to),
            None => {
                self.resolve_peer(sq);
                sq.peer.as_ref()
            }
        }
    }
}
