//! Replies, and the end of what had none when a process died.

use std::sync::Arc;

use crate::engine::execution::{Execution, SqParts};
use crate::engine::responder::place::land;
use crate::memory::span::MemSpan;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::wqe::{Wqe, WqeRef};
use crate::reason::WcReason;

use crate::peers::process::pair::ProcessPair;
use crate::peers::process::remote::RemotePeer;
use crate::peers::process::ring::ReplyEntry;

impl Qp {
    /// A reply has come. False if the queue pair cannot take it now.
    pub(crate) fn replied(
        self: &Arc<Qp>,
        from: u32,
        reply: &ReplyEntry,
        deferred: &mut DeferredWork,
    ) -> bool {
        let Some(mut guard) = self.sq_unless_blocked() else { return false };
        self.take_reply(&mut guard, from, reply, deferred);
        true
    }

    fn take_reply(
        self: &Arc<Qp>,
        guard: &mut Sq,
        from: u32,
        reply: &ReplyEntry,
        deferred: &mut DeferredWork,
    ) {
        let Sq { requester, pending, remote, counters, scratch, .. } = &mut *guard;
        let Some(remote) = remote.as_deref_mut() else { return };
        let first = remote.next.wrapping_sub(remote.sent);
        let nth = reply.number.wrapping_sub(first);
        // Ignore stale or forged replies.
        let stale = remote.slot != from || reply.incarnation != remote.incarnation;
        if stale || nth >= remote.sent || self.state().flushes_sends() {
            return;
        }
        let mut execution = Execution::new();
        let mut parts = SqParts { requester, counters, scratch };
        let (before, verdict) = match reply.verdict {
            PeerReply::Done => {
                remote.bound = remote.generation;
                (nth + 1, None)
            }
            // What was done before it has been said. So this is about something that was
            // sent before we went back, and behind what made us.
            _ if nth > 0 => return,
            verdict => (0, Some(verdict)),
        };
        for _ in 0..before {
            let Some(request) = pending.front() else { return };
            let (wqe, len) = (request.wqe, request.len());
            self.check_execution(wqe);
            remote.sent -= 1;
            let mut outcome = self.judge(parts.requester, PeerReply::Done, len);
            if wqe.op.is_atomic() && !self.land(&mut parts, &request, reply.value) {
                outcome = WqeOutcome::Failed(WcReason::LocalGone);
            }
            self.settle(&mut parts, &mut execution, wqe, len, outcome);
            pending.pop();
        }
        if let Some(verdict) = verdict
            && let Some(request) = pending.front()
        {
            let (wqe, len) = (request.wqe, request.len());
            self.answered(&mut parts, remote, verdict, wqe, len, &mut execution);
            // An unreliable transport takes any answer for success.
            let ends = !self.transport.is_reliable() || matches!(verdict, PeerReply::Refused(_));
            if ends || self.state().flushes_sends() {
                pending.pop();
            }
        }
        parts.requester.started |= remote.sent > 0;
        let goes_on = remote.sent < pending.len();
        deferred.append(execution.finish());
        // Mostly all was sent.
        if goes_on || guard.draining {
            self.run_queue(guard, deferred, false);
        }
        self.trace_progress(guard);
    }

    /// The head got another answer than that it is done.
    fn answered<'a>(
        self: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        remote: &mut RemotePeer,
        verdict: PeerReply,
        wqe: &Wqe,
        len: u64,
        execution: &mut Execution<'a>,
    ) {
        if self.transport.is_reliable() {
            remote.go_back();
        } else {
            remote.sent -= 1;
        }
        if verdict == PeerReply::Again && self.transport.is_reliable() {
            return;
        }
        let outcome = match self.judge(parts.requester, verdict, len) {
            // The other process has counted it.
            WqeOutcome::Dropped => WqeOutcome::Done,
            outcome => outcome,
        };
        self.settle(parts, execution, wqe, len, outcome);
    }

    /// Puts what an atomic has found where the request wants it. False if that has gone.
    fn land(&self, parts: &mut SqParts<'_>, request: &WqeRef<'_>, mut value: u64) -> bool {
        let room = &mut parts.scratch.local;
        let Ok(spans) = self.local(parts.requester, request, 8, room) else { return false };
        let value = MemSpan::from_words(core::slice::from_mut(&mut value));
        // SAFETY: `self.local` has just checked the list, and `parts` is of a send queue that is
        // locked; the program accesses the list atomically only; `value` is ours.
        unsafe { land(&spans, 0, value) }.is_ok()
    }

    /// A process has died: what was on its way there has failed.
    pub(crate) fn lose(self: &Arc<Qp>, pair: &Arc<ProcessPair>, deferred: &mut DeferredWork) {
        // A holder in a blocking section waits for no reply, and finds out when it is back.
        let Some(mut sq) = self.sq_unless_blocked() else { return };
        let Sq { remote, pending, .. } = &mut *sq;
        let Some(remote) = remote.as_deref_mut() else { return };
        if !remote.pair.as_ref().is_some_and(|known| Arc::ptr_eq(known, pair)) {
            return;
        }
        let _ = remote.reclaim(pending);
        remote.go_back();
        // Its memory is kept as long as it is mapped.
        remote.regions.clear();
        sq.requester.waits = None;
        self.run_pending(&mut sq, deferred, false);
    }
}
