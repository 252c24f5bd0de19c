//! Reports of a queue pair about itself, if its process is traced; and the faults that strike its
//! requests, if the process is to meet some.

use std::sync::Arc;

use host::sync::Mutex;

use roce_core::requester::RetryCounts;

use crate::faults::queue::QueueFaults;
use crate::objects::qp::QpParts;
use crate::objects::state::{Cq, Qp, Sq};
use crate::peers::wire::state::WireSq;
use crate::queues::outcome::WaitCause;
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::reason::Cause;
use crate::trace::queue::{QueueProperties, QueueTrace};

impl QpParts {
    /// The table of the queue pair that is made from this. A handle has none: what it stands for
    /// has.
    pub(crate) fn trace(&self, number: u32) -> Option<Arc<QueueTrace>> {
        let is_handle = self.target.as_ref().is_some_and(|target| target.opened.is_some());
        let tracer = self.pd.context.tracer.as_ref().filter(|_| !is_handle)?;
        let is_xrc = matches!(self.transport, QpTransport::XrcSend | QpTransport::XrcRecv);
        let number_of = |cq: &Cq| cq.trace.as_ref().map_or(0, |cq| cq.number);
        let shape = QueueProperties {
            number,
            transport: self.transport as u32,
            send_capacity: self.cap.max_send_wr,
            recv_capacity: if is_xrc { 0 } else { self.cap.max_recv_wr },
            send_cq: number_of(&self.send_cq),
            recv_cq: number_of(&self.recv_cq),
            srq: self.srq.as_ref().map_or(0, |srq| srq.num),
        };
        tracer.pair(&shape, self.srq.as_ref().and_then(|srq| srq.trace.clone()))
    }

    /// Faults that strike the requests of the queue pair that is made from this. A handle posts
    /// none.
    pub(crate) fn faults(&self) -> Option<Box<Mutex<QueueFaults>>> {
        let is_handle = self.target.as_ref().is_some_and(|target| target.opened.is_some());
        let injector = self.pd.context.injector.as_ref().filter(|_| !is_handle)?;
        injector.queue().map(|faults| Box::new(Mutex::new(faults)))
    }
}

impl Qp {
    /// Its table in the trace, if the process has one.
    #[inline]
    pub(crate) fn trace(&self) -> Option<&QueueTrace> {
        if self.is_watched { self.trace.as_deref() } else { None }
    }

    pub(crate) fn trace_state(&self, state: QueuePairState) {
        if let Some(trace) = self.trace() {
            trace.state(state as u8, self.cause().map_or(0, Cause::code));
        }
    }

    /// Traces that packets of the oldest request are to be sent again, if that is so since
    /// `before`. The send queue's lock is held.
    pub(crate) fn trace_retries(&self, sq: &mut Sq, before: RetryCounts) {
        let (Some(trace), Some(WireSq::Reliable(wire))) = (self.trace(), sq.wire.as_deref_mut())
        else {
            return;
        };
        let (Some(head), now) = (sq.pending.front(), wire.machine.counts()) else { return };
        let wait = match () {
            () if now.rnr_naks > before.rnr_naks => WaitCause::Rnr,
            () if now.retries > before.retries => WaitCause::Response,
            () => return,
        };
        wire.waits_at = Some(wire.machine.unacked_psn());
        trace.waits(head.wqe.position, wait.reason(), head.wqe.wr_id);
    }

    /// Traces that the queue pair is destroyed.
    pub(crate) fn trace_end(&self) {
        if let (Some(trace), Some(tracer)) = (self.trace(), &self.pd.context.tracer) {
            tracer.forget(trace);
        }
    }

    /// Traces how far the send queue is, whose lock is held.
    #[inline]
    pub(crate) fn trace_progress(&self, sq: &Sq) {
        if let Some(trace) = self.trace() {
            let executed = sq.requester.posted.wrapping_sub(sq.pending.len());
            let (sent, waits) = match (&sq.remote, sq.wire.as_deref()) {
                (_, Some(WireSq::Reliable(wire))) => wire.progress(),
                (Some(remote), _) => (remote.sent, false),
                (None, _) => (0, false),
            };
            trace.progress(executed, sent, waits || sq.requester.waits.is_some());
        }
    }
}
