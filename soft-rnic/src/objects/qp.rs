//! Queue pairs: their states, how their queues are flushed, and how they end.

mod creation;

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::Object;
use crate::engine::execution::Execution;
use crate::errno;
use crate::objects::cq::{Completion, CqWriter};
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::in_arc::InArc;
use crate::objects::pending::{Pending, Requester, Wait};
use crate::objects::qp_state::State;
use crate::objects::state::{AsyncEvent, Element, Qp, Responder, Sq};
use crate::reason::{Cause, Reason};

pub(crate) use creation::{Extras, Parts, create, create_qp, enter};

/// Nanoseconds to the next look at a send queue whose holder waits for another process's memory,
/// or for which there was no thread to wait.
pub(crate) const BLOCKED_RETRY_NS: u64 = 1_000_000;

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
    pub(crate) fn state(&self) -> State {
        // Acquire: what was set up before the state is seen with it.
        State::ALL[usize::from(self.state.load(Ordering::Acquire)) % State::ALL.len()]
    }

    /// Sets the state; both sides' locks are held.
    pub(crate) fn set_state(&self, state: State) {
        if state == State::Reset {
            self.last_wqe_said.store(false, Ordering::Relaxed);
        }
        match state {
            State::Err => self.note_cause(Cause::PROGRAM),
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
                let works = (State::Init as u8..=State::Sqe as u8).contains(&state);
                works.then_some(State::Err as u8)
            })
            .is_ok();
        if entered {
            self.publish_state();
            self.trace_state(State::Err);
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
        Cause::of(self.cause.load(Ordering::Relaxed))
    }

    /// The reason of requests that are flushed.
    pub(crate) fn flush_reason(&self) -> Reason {
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
            let sends = state == State::Rts as u8 || state == State::Sqd as u8;
            sends.then_some(State::Sqe as u8)
        });
        if entered.is_ok() {
            self.trace_state(State::Sqe);
        }
    }

    /// An asynchronous event of this queue pair.
    pub(crate) fn raise(self: &Arc<Qp>, event_type: ibv_event_type) {
        if let Some(target) = &self.target {
            return target.raise(event_type);
        }
        let event = AsyncEvent { element: Element::Qp(Arc::clone(self)), event_type };
        // The thread that raises it may hold no lock of a queue pair that is destroyed meanwhile.
        self.context.events.push_if(event, || self.state() != State::Destroyed);
    }

    /// Goes to the error state for a reason of the device's own.
    pub(crate) fn die(self: &Arc<Qp>, cause: Cause, deferred: &mut DeferredWork) {
        if self.enter_error(cause) {
            self.raise(ibv_event_type::IBV_EVENT_QP_FATAL);
            deferred.push(WorkItem::Flush(Arc::clone(self)));
        }
    }

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

    /// The deadline `token` has come: the head of the send queue is tried again, if
    /// that is what it waits for and it has retries left.
    pub(crate) fn expired(self: &Arc<Qp>, token: u64, deferred: &mut DeferredWork) {
        // Others have deadlines, too.
        let Some(mut sq) = self.sq_unless_blocked() else {
            return self.pd.context.device.arm_again(self.num, token, BLOCKED_RETRY_NS);
        };
        if self.wire_expired(&mut sq, token, deferred) {
            return;
        }
        self.late_expired(&mut sq, token, deferred);
        self.room_expired(&mut sq, token, deferred);
        let Some((wait, _)) = sq.requester.waits.filter(|(_, waits)| *waits == token) else {
            return;
        };
        if let (Wait::Settling, Some(ending)) = (wait, sq.requester.ending) {
            // It still waits meanwhile.
            return deferred.push(WorkItem::Settle(Arc::clone(self), ending));
        }
        sq.requester.waits = None;
        if wait == Wait::Response && !self.retry(&mut sq, deferred) {
            return;
        }
        if self.pd.context.device.sim().is_none() {
            self.run_pending(&mut sq, deferred, false);
        }
    }

    /// Uses up one retry; without any the head fails.
    fn retry(self: &Arc<Qp>, sq: &mut Sq, deferred: &mut DeferredWork) -> bool {
        if let Some(left) = sq.requester.retries_left.checked_sub(1) {
            sq.requester.retries_left = left;
            sq.counters.retries += 1;
            return true;
        }
        let Some(head) = sq.pending.front().map(|head| *head.wqe) else { return false };
        let mut execution = Execution::new();
        self.fail(&mut execution, &head, Reason::NoResponse);
        sq.counters.requests += 1;
        sq.pending.pop();
        sq.requester.next_request();
        deferred.append(execution.finish());
        self.trace_progress(sq);
        false
    }

    /// The send queue's part; its lock is held.
    pub(crate) fn flush_sends(self: &Arc<Qp>, sq: &mut Sq, deferred: &mut DeferredWork) {
        let mut execution = Execution::new();
        if let Some(remote) = &mut sq.remote {
            let _ = remote.reclaim(&sq.pending);
            remote.give_up();
        }
        if self.state() == State::Err {
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
        pending: &mut Pending,
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
        if self.state() != State::Err {
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

    fn flushed_receive(&self, wr_id: u64) -> Completion {
        Completion {
            wr_id,
            failure: Some(self.flush_reason()),
            opcode: ibv_wc_opcode::IBV_WC_RECV,
            byte_len: 0,
            imm: 0,
            flags: 0,
            qp_num: self.num,
            src_qp: 0,
            solicited: false,
        }
    }

    /// Empties both queues and forgets the connection; completions that were not polled
    /// are removed, too. Both locks are held. The error, `EBUSY`, says that the peer's
    /// process is inside this one's memory, and does not leave.
    pub(crate) fn clear(&self, sq: &mut Sq, responder: &mut Responder) -> Result<(), Errno> {
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
        sq.requester = Requester::default();
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
    fn end_wire(&mut self) {
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
            srq.users.fetch_sub(1, Ordering::Release);
        }
        self.pd.users.leave();
    }
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: NULL, or a queue pair that the caller gives back.
    errno::code(unsafe { destroy(qp) })
}

/// # Safety
/// That of the verb.
unsafe fn destroy(qp: *mut ibv_qp) -> Result<(), Errno> {
    // SAFETY: `ibv_destroy_qp` asks for a live `qp`, which the caller gives back.
    let object = unsafe { Qp::named(qp) }?.keep();
    if object.is_attached() {
        let (call, users) =
            ("ibv_destroy_qp", || vec!["a multicast group (ibv_detach_mcast)".into()]);
        object.context.check_in_use(errno::EBUSY, call, &format!("QP {:#x}", object.num), users);
        return Err(errno::EBUSY);
    }
    crate::fabric::wire::progress::settle(object.real());
    if object.target.is_some() {
        object.close();
    } else {
        object.leave();
    }
    let is_this = |other: &Arc<Qp>| Arc::ptr_eq(other, &object);
    let events = &object.context.events;
    events.remove(|e| matches!(&e.element, Element::Qp(qp) if is_this(qp)));
    object.async_acks.wait();
    match &object.target {
        // Its domain can be closed now.
        Some(target) => _ = target.xrcd.users.fetch_sub(1, Ordering::Release),
        None => {
            // SAFETY: it was destroyed under both of its locks, after which none looks at receive
            // requests; the caller uses it no more.
            unsafe { object.rq.give_back() };
            object.detach();
        }
    }
    object.pd.context.gone(Object::QueuePair, object.num.into());
    // SAFETY: takes back the reference of `create_qp`.
    unsafe { Arc::decrement_strong_count(qp.cast::<Qp>()) };
    Ok(())
}

impl Qp {
    /// No message reaches it any more.
    pub(crate) fn leave(self: &Arc<Qp>) {
        let device = &self.pd.context.device;
        let counters = {
            // Both locks: no execution of ours, and none of the peer's, is under way;
            // later ones see the state.
            let mut sq = self.sq.lock();
            let mut responder = self.responder.lock();
            self.set_state(State::Destroyed);
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
