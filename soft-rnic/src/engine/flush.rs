//! Flushes: what waits in an erroneous queue pair ends with flush errors.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::engine::execution::Execution;
use crate::objects::cq::{CqEntry, CqWriter};
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QueuePairState;

impl Qp {
    /// Completes all that waits in an erroneous queue pair with flush errors, in
    /// order: the send queue's, then the receive queue's. Takes the locks.
    pub(crate) fn flush(self: &Arc<Qp>, deferred: &mut DeferredWork) {
        {
            // A holder in a blocking section sees the state when it is back.
            if let Some(mut sq) = self.sq_unless_blocked()
                && self.state().flushes_sends()
            {
                sq.requester.waits = None;
                self.flush_sends(&mut sq, deferred);
            }
        }
        self.flush_receives(deferred);
    }

    /// The send queue's part; its lock is held.
    pub(crate) fn flush_sends(self: &Arc<Qp>, sq: &mut Sq, deferred: &mut DeferredWork) {
        let mut execution = Execution::new();
        if let Some(remote) = &mut sq.remote {
            let _ = remote.reclaim(&sq.pending);
            remote.give_up();
        }
        if self.state() == QueuePairState::Err {
            // An unreliable connection may go on after SQE.
            sq.end_wire();
        }
        self.flush_pending(&mut sq.pending, &mut execution);
        sq.requester.next_request();
        sq.forget_ending();
        deferred.append(execution.finish());
        self.trace_progress(sq);
    }

    /// Completes what waits in the send queue, in order.
    pub(crate) fn flush_pending<'a>(
        self: &'a Arc<Qp>,
        pending: &mut PendingWqes,
        execution: &mut Execution<'a>,
    ) {
        while let Some(request) = pending.front() {
            self.complete(execution, request.wqe, 0, Some(self.flush_reason()));
            pending.pop();
        }
    }

    /// The receive queue's part. A shared queue is not flushed: an event says that
    /// this queue pair takes nothing more from it.
    pub(crate) fn flush_receives(self: &Arc<Qp>, deferred: &mut DeferredWork) {
        let mut responder = self.responder.lock();
        if self.state() != QueuePairState::Err {
            return;
        }
        // The message that was coming does not come any more.
        if let Some(taken) = responder.wire.as_mut().and_then(|wire| wire.taken.take()) {
            let mut writer = CqWriter::default();
            writer.push(&self.recv_cq, &self.flushed_receive(taken.wr_id), None, deferred);
        }
        if self.srq.is_some() {
            if !self.last_wqe_said.swap(true, Ordering::Relaxed) {
                self.raise(ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED);
            }
            return;
        }
        // The poster's lock orders this with a post: either we see its requests,
        // or it sees the state and flushes them itself.
        let _poster = self.rq.poster.lock();
        let mut writer = CqWriter::default();
        while let Some(request) = self.rq.front(&mut responder.consumer) {
            let completion = self.flushed_receive(request.wr_id());
            self.check_flushed();
            writer.push(&self.recv_cq, &completion, None, deferred);
            self.rq.pop(&mut responder.consumer);
        }
    }

    fn flushed_receive(&self, wr_id: u64) -> CqEntry {
        self.completion(wr_id, Some(self.flush_reason()), ibv_wc_opcode::IBV_WC_RECV, 0)
    }
}
