//! Requests that a queue pair carries out itself: binding memory windows, and ending that.
//!
//! They take effect in the order of the send queue. Where the accesses under a key have to be over
//! first, the request waits at the head of the queue, with all that is behind it, and the wait is
//! done without any lock:
//!
//! ```text
//!   execute ──> the binding ends ──> Blocked(Settling)
//!      ▲                                  │ deferred: `Device::settle`
//!      └──────────────────────────────────┘
//! ```
//!
//! It is the wait of a deregistration, with the same bound: while a process is stopped in the
//! midst of an access, the request fails after some seconds.

use std::sync::Arc;

use parking_lot::Mutex;
use verbs_sys::ibv_wc_status;

use crate::deferred_work::{DeferredWork, WorkItem};
use crate::engine::execution::Execution;
use crate::fabric::process::serving::{Serving, serves};
use crate::objects::mw_table::{Asker, Refused};
use crate::objects::pending::{Outcome, Requester, Wait};
use crate::objects::qp::BLOCKED_RETRY_NS;
use crate::objects::state::Qp;
use crate::objects::wqe::{Op, Wqe};

impl Qp {
    /// Carries a request out that goes to no peer. The send queue's lock is held.
    #[cold]
    pub(crate) fn execute_local(
        self: &Arc<Qp>,
        requester: &mut Requester,
        execution: &mut Execution<'_>,
        wqe: &Wqe,
    ) -> Outcome {
        requester.started = true;
        let unsettled = match wqe.op {
            _ if requester.is_unsettled => Err(Refused),
            Op::BindMw => self.bind(wqe),
            _ => self.end_binding(requester, wqe),
        };
        if let Ok(Some(ended)) = unsettled {
            requester.ended = Some(ended);
            execution.deferred.push(WorkItem::Settle(Arc::clone(self), ended));
            return Outcome::Blocked(Wait::Settling, None);
        }
        requester.forget_mws();
        match (unsettled, wqe.op) {
            (Ok(_), _) => Outcome::Done,
            (Err(Refused), Op::BindMw) => Outcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR),
            (Err(Refused), _) => Outcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR),
        }
    }

    fn bind(&self, wqe: &Wqe) -> Result<Option<u64>, Refused> {
        let device = &self.pd.context.device;
        let asker = Asker { qpn: self.num, pd: self.pd.id };
        device.mrs.bind(&wqe.bind(), asker, device.peers.as_ref())
    }

    /// Ends a binding, or goes on with the wait for what this request has ended.
    fn end_binding(&self, requester: &Requester, wqe: &Wqe) -> Result<Option<u64>, Refused> {
        let device = &self.pd.context.device;
        let ended = match requester.ended {
            Some(ended) => ended,
            None => device.mrs.end_bound(wqe.rkey, self.num, device.peers.as_ref())?,
        };
        Ok((!device.mrs.is_settled(ended)).then_some(ended))
    }

    /// Waits for accesses under keys of windows, and goes on with the queue: by a thread that may
    /// wait for other processes.
    pub(crate) fn settle_mws(self: &Arc<Qp>, ended: u64, deferred: &mut DeferredWork) {
        let device = &self.pd.context.device;
        let Some(peers) = device.peers.as_ref().filter(|_| serves()) else {
            return self.settled(ended, deferred);
        };
        let (waiter, deferred) = (Arc::clone(self), Arc::new(Mutex::new(DeferredWork::default())));
        let left = Arc::clone(&deferred);
        let wait = move || waiter.settled(ended, &mut left.lock());
        let rest = move || {
            // What waits for another process is left to other threads.
            let _serving = Serving::begin();
            core::mem::take(&mut *deferred.lock()).run();
        };
        // It waits for any process, and is counted with this one's.
        let reservation = peers.workers.reserve(std::process::id().cast_signed());
        if !reservation.is_some_and(|it| it.run(wait, rest)) {
            self.settle_later();
        }
    }

    fn settled(self: &Arc<Qp>, ended: u64, deferred: &mut DeferredWork) {
        let device = &self.pd.context.device;
        let is_unsettled = device.settle().is_err();
        let mut sq = self.sq.lock();
        // It may have been flushed since.
        if !matches!(sq.requester.waits, Some((Wait::Settling, _)))
            || sq.requester.ended != Some(ended)
        {
            return;
        }
        sq.requester.waits = None;
        sq.requester.is_unsettled = is_unsettled;
        if device.sim().is_none() {
            self.run_pending(&mut sq, deferred, false);
        }
    }

    /// Without a thread: the timer tries again.
    fn settle_later(self: &Arc<Qp>) {
        let Some(mut sq) = self.sq_unless_blocked() else { return };
        let waits = &mut sq.requester.waits;
        if matches!(waits, Some((Wait::Settling, _))) {
            let token = self.pd.context.device.arm(self.num, Some(BLOCKED_RETRY_NS));
            *waits = Some((Wait::Delay, token));
        }
    }
}
