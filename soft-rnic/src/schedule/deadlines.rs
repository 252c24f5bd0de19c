//! The timer's thread, and the queue pairs that it resumes.

use core::cmp::Reverse;
use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::engine::execution::Execution;
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::state::{Device, Qp, Sq};
use crate::peers::process::serving::{BLOCKED_RETRY_NS, Serving};
use crate::queues::outcome::WaitCause;
use crate::reason::WcReason;
use crate::timing::timer::Timer;

impl Device {
    /// Arms a deadline `delay` nanoseconds from now, none for `None`; the token
    /// names it.
    #[cold]
    pub(crate) fn arm(self: &Arc<Device>, qpn: u32, delay: Option<u64>) -> u64 {
        // Relaxed: only has to be unique.
        let token = self.timer.tokens.fetch_add(1, Ordering::Relaxed);
        if let Some(delay) = delay {
            self.arm_again(qpn, token, delay);
        }
        token
    }

    /// Arms a deadline that has expired too early once more.
    #[cold]
    pub(crate) fn arm_again(self: &Arc<Device>, qpn: u32, token: u64, delay: u64) {
        let now = match self.sim() {
            Some(sim) => sim.now(),
            None => self.real_now(),
        };
        self.timer.deadlines.lock().push(Reverse((now + delay, token, qpn)));
        self.timer.changed.notify_one();
    }

    /// Nanoseconds since the device's timer was started; starts it if need be.
    fn real_now(self: &Arc<Device>) -> u64 {
        let epoch = self.timer.started.get_or_init(|| {
            let (device, timer) = (Arc::downgrade(self), Arc::clone(&self.timer));
            let epoch = host::time::now();
            // Without a thread the deadlines never expire, as with infinite timers.
            drop(host::thread::spawn("soft-rnic-timer", move || run(&device, &timer, epoch)));
            epoch
        });
        host::time::since(*epoch).as_nanos() as u64
    }

    /// Resumes the queue pair of this deadline, if it still waits for it.
    pub(crate) fn expire(self: &Arc<Device>, qpn: u32, token: u64) {
        if qpn == crate::schedule::distance::ALL {
            return crate::schedule::distance::timed(self);
        }
        if qpn == crate::objects::timed_events::EVENTS {
            return crate::objects::timed_events::raise(self, token);
        }
        crate::fabric::wire::progress::catch_up(self);
        let Some(qp) = self.qps.get(qpn) else { return };
        let mut deferred = DeferredWork::default();
        qp.expired(token, &mut deferred);
        deferred.run();
    }
}

impl Qp {
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
        if let (WaitCause::Settling, Some(ending)) = (wait, sq.requester.ending) {
            // It still waits meanwhile.
            return deferred.push(WorkItem::Settle(Arc::clone(self), ending));
        }
        sq.requester.waits = None;
        if wait == WaitCause::Response && !self.retry(&mut sq, deferred) {
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
        self.fail(&mut execution, &head, WcReason::NoResponse);
        sq.counters.requests += 1;
        sq.pending.pop();
        sq.requester.next_request();
        deferred.append(execution.finish());
        self.trace_progress(sq);
        false
    }
}

/// The timer's thread. It ends with the device, which it does not keep while it waits.
fn run(device: &Weak<Device>, timer: &Timer, epoch: Instant) {
    let _serving = Serving::begin();
    let mut deadlines = timer.deadlines.lock();
    // Relaxed: it is set under the lock.
    while !timer.is_over.load(Ordering::Relaxed) {
        let now = host::time::since(epoch).as_nanos() as u64;
        match deadlines.peek().map(|Reverse((at, _, _))| *at) {
            None => timer.changed.wait(&mut deadlines),
            Some(at) if at > now => {
                let time = host::time::until(epoch + Duration::from_nanos(at));
                timer.changed.wait_for(&mut deadlines, time);
            }
            Some(_) => {
                drop(deadlines);
                let due = timer.pop_due(now);
                if let Some((device, (qpn, token))) = device.upgrade().zip(due) {
                    device.expire(qpn, token);
                }
                deadlines = timer.deadlines.lock();
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let deadlines = self.timer.deadlines.lock();
        // Relaxed: under the lock.
        self.timer.is_over.store(true, Ordering::Relaxed);
        drop(deadlines);
        self.timer.changed.notify_all();
        if let Some(peers) = &self.peers {
            peers.end_threads();
        }
    }
}
