//! Requests that a queue pair carries out itself: binding memory windows, and ending that.
//!
//! They take effect in the order of the send queue. Where the accesses under a key have to be over
//! first, the request waits at the head of the queue, with all that is behind it. No thread waits:
//! the timer looks again.
//!
//! ```text
//!   execute ──> the binding ends ──> Blocked(Settling)
//!      ▲                                  │ deferred, without a lock: `Device::try_settle`
//!      └──────────────────────────────────┤
//!                                         │ accesses of another process continue
//!                                       timer
//! ```
//!
//! The request does not fail, however long an access takes: every peer that can use the window is waited for,
//! as the peer is with any other request.

use std::sync::Arc;

use crate::engine::execution::Execution;
use crate::memory::mws::BindingEnd;
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::mw_table::{Asker, MwRefused};
use crate::objects::state::{Qp, Settling, Sq};
use crate::peers::process::serving::Serving;
use crate::queues::outcome::{WaitCause, WqeOutcome};
use crate::queues::qp_state::QpTransport;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, Wqe};
use crate::reason::WcReason;

/// Nanoseconds to the second look at accesses of other processes, and how often that is doubled.
const LOOK_NS: u64 = 50_000;
const DOUBLINGS: u32 = 8;

impl Qp {
    /// Carries a request out that goes to no peer. The send queue's lock is held.
    #[cold]
    pub(crate) fn execute_local(
        self: &Arc<Qp>,
        requester: &mut RequesterState,
        execution: &mut Execution<'_>,
        wqe: &Wqe,
    ) -> WqeOutcome {
        requester.started = true;
        let unsettled = match wqe.op {
            SqOp::BindMw => self.bind(requester, wqe),
            _ => self.end_binding(requester, wqe),
        };
        requester.ending = None;
        match (unsettled, wqe.op) {
            (Ok(None), _) => WqeOutcome::Done,
            (Ok(Some(ending)), _) => {
                requester.ending = Some(ending);
                execution.deferred.push(WorkItem::Settle(Arc::clone(self), ending));
                WqeOutcome::Blocked(WaitCause::Settling, None)
            }
            (Err(MwRefused), SqOp::BindMw) => WqeOutcome::Failed(WcReason::Bind),
            (Err(MwRefused), _) => WqeOutcome::Failed(WcReason::Invalidate),
        }
    }

    fn bind(&self, requester: &RequesterState, wqe: &Wqe) -> Result<Option<BindingEnd>, MwRefused> {
        let device = &self.pd.context.device;
        // An unreliable connection takes what any queue pair sends.
        let peer = if self.transport == QpTransport::Rc { requester.dest_qpn } else { 0 };
        let asker = Asker { qpn: self.num, pd: self.pd.id, peer };
        device.mrs.bind(&wqe.bind(), asker, device.peers.as_ref())
    }

    /// Ends a binding, or continues the wait for what this request has ended.
    fn end_binding(
        &self,
        requester: &RequesterState,
        wqe: &Wqe,
    ) -> Result<Option<BindingEnd>, MwRefused> {
        let device = &self.pd.context.device;
        let ending = match requester.ending {
            Some(ending) => ending,
            None => device.mrs.end_bound(wqe.rkey, self.num, device.peers.as_ref())?,
        };
        Ok((!device.mrs.is_settled(&ending)).then_some(ending))
    }

    /// Resumes a queue that waits for the end of accesses under the key of a window, if they
    /// are over. No lock of a queue may be held.
    pub(crate) fn settle_mws(self: &Arc<Qp>, ending: BindingEnd, deferred: &mut DeferredWork) {
        // A holder in a blocking section is at another request.
        let Some(mut sq) = self.sq_unless_blocked() else { return };
        // It may have been flushed since.
        let waits = matches!(sq.requester.waits, Some((WaitCause::Settling, _)));
        if !waits || sq.requester.ending != Some(ending) {
            return;
        }
        let device = &self.pd.context.device;
        let known = sq.settling.take().filter(|known| known.ending == ending);
        let (mut insiders, looks) = known.map_or((None, 0), |known| (known.insiders, known.looks));
        if !device.try_settle(&ending, &mut insiders) {
            let delay = LOOK_NS << looks.min(DOUBLINGS);
            let looks = looks.saturating_add(1);
            sq.settling = Some(Box::new(Settling { ending, insiders, looks }));
            sq.requester.waits = Some((WaitCause::Settling, device.arm(self.num, Some(delay))));
            return;
        }
        sq.requester.waits = None;
        if device.sim().is_none() {
            // Work behind this is for other queue pairs: what waits for another process's memory is
            // left to the last item. (On a faulty network it would get lost.)
            let is_kept = self.transport.is_reliable() || !device.network.is_faulty();
            let _serving = is_kept.then(Serving::begin);
            self.run_pending(&mut sq, deferred, false);
        }
    }
}

impl Sq {
    /// No request waits for the end of a binding.
    pub(crate) fn forget_ending(&mut self) {
        (self.requester.ending, self.settling) = (None, None);
    }
}
