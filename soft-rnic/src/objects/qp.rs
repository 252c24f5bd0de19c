//! Queue pairs: their states, and how they end.

mod creation;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::in_arc::InArc;
use crate::objects::state::{Element, Qp, QueuedEvent, ResponderState, Sq};
use crate::queues::qp_state::QueuePairState;
use crate::queues::requester::RequesterState;
use crate::reason::{Cause, WcReason};

pub(crate) use creation::{Extras, QpParts, create, create_qp, enter};

impl Qp {
    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `qp` is NULL or a live queue pair of ours.
    #[inline]
    pub(crate) unsafe fn from_abi<'a>(qp: *mut ibv_qp) -> Result<InArc<'a, Qp>, Errno> {
        // SAFETY: `qp` is NULL or live (see # Safety), and every queue pair lives in an `Arc`.
        unsafe { InArc::new(qp.cast::<Qp>()) }.ok_or(errno::EINVAL)
    }

    pub(crate) fn as_abi(self: &Arc<Qp>) -> *mut ibv_qp {
        Arc::as_ptr(self).cast_mut().cast()
    }

    #[inline]
    pub(crate) fn state(&self) -> QueuePairState {
        // Acquire: what was set up before the state is seen with it.
        QueuePairState::ALL
            [usize::from(self.state.load(Ordering::Acquire)) % QueuePairState::ALL.len()]
    }

    /// Sets the state; both sides' locks are held.
    pub(crate) fn set_state(&self, state: QueuePairState) {
        if state == QueuePairState::Reset {
            self.last_wqe_said.store(false, Ordering::Relaxed);
        }
        match state {
            QueuePairState::Err => self.note_cause(Cause::PROGRAM),
            _ => self.cause.store(0, Ordering::Relaxed),
        }
        // Release: see `state`.
        self.state.store(state as u8, Ordering::Release);
        self.publish_state();
        self.trace_state(state);
        // SAFETY: both locks are held; callers only read it.
        unsafe { (*self.abi.get()).qp_base.state = state.abi() };
    }

    /// Enters the error state from one in which a queue pair works. False if it is
    /// not in one: then there is nothing to flush either.
    pub(crate) fn enter_error(&self, cause: Cause) -> bool {
        self.note_cause(cause);
        // AcqRel: see `state`.
        let entered = self
            .state
            .try_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                let works =
                    (QueuePairState::Init as u8..=QueuePairState::Sqe as u8).contains(&state);
                works.then_some(QueuePairState::Err as u8)
            })
            .is_ok();
        if entered {
            self.publish_state();
            self.trace_state(QueuePairState::Err);
        }
        entered
    }

    /// Notes why the queue pair is going to be in an error state, before it is: the first cause
    /// stays until a change to another state.
    fn note_cause(&self, cause: Cause) {
        // Relaxed, here and below: a number that guards no memory.
        let (none, order) = (0, Ordering::Relaxed);
        let _ = self.cause.compare_exchange(none, cause.code(), order, order);
    }

    /// The cause of its error state, if it is in one.
    pub(crate) fn cause(&self) -> Option<Cause> {
        Cause::from_code(self.cause.load(Ordering::Relaxed))
    }

    /// The reason of requests that are flushed.
    pub(crate) fn flush_reason(&self) -> WcReason {
        self.cause().unwrap_or(Cause::DEVICE).flush()
    }

    /// A request of the send queue has failed: the error state, or for an
    /// unreliable transport that of the send queue alone.
    pub(crate) fn enter_send_error(&self, cause: Cause) {
        if self.transport.is_reliable() {
            self.enter_error(cause);
            return;
        }
        self.note_cause(cause);
        // AcqRel: see `state`. Any other state is worse already.
        let entered = self.state.try_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            let sends = state == QueuePairState::Rts as u8 || state == QueuePairState::Sqd as u8;
            sends.then_some(QueuePairState::Sqe as u8)
        });
        if entered.is_ok() {
            self.trace_state(QueuePairState::Sqe);
        }
    }

    /// An asynchronous event of this queue pair.
    pub(crate) fn raise(self: &Arc<Qp>, event_type: ibv_event_type) {
        if let Some(target) = &self.target {
            return target.raise(event_type);
        }
        let event = QueuedEvent { element: Element::Qp(Arc::clone(self)), event_type };
        // The thread that raises it may hold no lock of a queue pair that is destroyed meanwhile.
        self.context.events.push_if(event, || self.state() != QueuePairState::Destroyed);
    }

    /// Goes to the error state for a reason of the device's own.
    pub(crate) fn die(self: &Arc<Qp>, cause: Cause, deferred: &mut DeferredWork) {
        if self.enter_error(cause) {
            self.raise(ibv_event_type::IBV_EVENT_QP_FATAL);
            deferred.push(WorkItem::Flush(Arc::clone(self)));
        }
    }

    /// Empties both queues and forgets the connection; completions that were not polled
    /// are removed, too. Both locks are held. The error, `EBUSY`, says that the peer's
    /// process is inside this one's memory, and does not leave.
    pub(crate) fn clear(&self, sq: &mut Sq, responder: &mut ResponderState) -> Result<(), Errno> {
        let parted = sq.part(self);
        let device = &self.pd.context.device;
        // Both locks are held: nothing of this process goes on under their keys.
        device.mrs.end_all_bound(self.num, device.peers.as_ref(), parted.is_ok());
        sq.pending.clear();
        sq.transit_times = None;
        if let Some(faults) = &self.faults {
            faults.lock().reset(sq.requester.posted);
        }
        sq.settling = None;
        sq.requester = RequesterState::default();
        sq.peer = None;
        sq.end_wire();
        responder.wire = None;
        // Relaxed: both locks are held.
        self.owes_response.store(false, Ordering::Relaxed);
        sq.draining = false;
        self.rq.clear(&mut self.rq.poster.lock(), &mut responder.consumer);
        self.send_cq.purge(self.num);
        self.recv_cq.purge(self.num);
        // Relaxed: no thread can post while the locks are held.
        self.freed.store(0, Ordering::Relaxed);
        if let Some(trace) = self.trace() {
            trace.clear();
        }
        self.check_cleared();
        parted
    }
}

impl Sq {
    /// It sends nothing over the network any more; what was counted stays.
    pub(crate) fn end_wire(&mut self) {
        if let Some(wire) = self.wire.take() {
            wire.add_counts(&mut self.counters);
        }
    }
}

impl Qp {
    pub(crate) fn detach(&self) {
        self.send_cq.detach(self);
        self.recv_cq.detach(self);
        if let Some(srq) = &self.srq {
            srq.users.leave();
        }
        self.pd.users.leave();
    }

    /// No message reaches it any more.
    pub(crate) fn leave(self: &Arc<Qp>) {
        let device = &self.pd.context.device;
        let counters = {
            // Both locks: no execution of ours, and none of the peer's, is under way;
            // later ones see the state.
            let mut sq = self.sq.lock();
            let mut responder = self.responder.lock();
            self.set_state(QueuePairState::Destroyed);
            self.depart(&mut responder);
            // A process that does not leave within seconds is stopped; it cannot be waited for.
            let _ = self.clear(&mut sq, &mut responder);
            core::mem::take(&mut sq.counters)
        };
        self.trace_end();
        *device.retired.lock() += counters;
        device.qps.remove(self.num);
        self.leave_groups();
        if let Some(peers) = &device.peers {
            peers.forget(self.num);
        }
    }
}
