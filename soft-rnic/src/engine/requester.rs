//! The requester: the one step function that executes a work request, and what
//! follows from how it ended.
//!
//! ```text
//!   post ──> execute ──> Done ─────────────> completion, if signalled
//!               ▲  │
//!               │  ├───> Failed(status) ───> completion, error state, flush
//!               │  │
//!        deadline  └───> Blocked(wait) ────> stays at the head, all behind it wait
//!               └─────────────┘
//! ```

use std::sync::Arc;

use verbs_sys::*;

use crate::engine::execution::{Execution, SqParts, packets, rnr_nak};
use crate::engine::injection::execute_faulty;
use crate::engine::link::{SendAttempt, SqLink};
use crate::limits;
use crate::memory::lists::{resolve, resolve_any, resolve_one};
use crate::memory::mr_table::LOCAL_WRITE;
use crate::memory::on_demand::bring;
use crate::memory::span::{MemSpan, STAGED, SpanBuf, Spans};
use crate::objects::cq::CqEntry;
use crate::objects::deferred_work::WorkItem;
use crate::objects::state::Qp;
use crate::queues::outcome::{PeerReply, WaitCause, WqeOutcome};
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QueuePairState;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{Wqe, WqeRef};
use crate::reason::{Cause, WcReason};
use crate::timing::timer::response_timeout_ns;

impl Qp {
    /// Judges a reply: returns the outcome of its request.
    #[inline]
    pub(crate) fn judge(
        &self,
        requester: &mut RequesterState,
        reply: PeerReply,
        len: u64,
    ) -> WqeOutcome {
        match reply {
            PeerReply::Done => {
                requester.advance_psn(packets(len, requester.mtu_shift));
                WqeOutcome::Done
            }
            _ if !self.transport.is_reliable() => judge_unreliable(requester, reply, len),
            PeerReply::Refused(reason) => WqeOutcome::Failed(reason),
            PeerReply::Silence | PeerReply::Again => {
                WqeOutcome::Blocked(WaitCause::Response, response_timeout_ns(requester.timeout))
            }
            PeerReply::Rnr(timer) => rnr_nak(requester, timer),
        }
    }

    /// The requester's own memory for a request, or the reason why it fails before anything is
    /// sent.
    #[inline(always)]
    pub(crate) fn local<'s>(
        &self,
        requester: &RequesterState,
        request: &'s WqeRef<'_>,
        len: u64,
        room: &'s mut SpanBuf,
    ) -> Result<Spans<'s>, WcReason> {
        self.local_unless(requester, request, len, room, |access, spans| {
            self.on_demand(request, access, len, spans)
        })
    }

    /// [`local`](Self::local). `rare` decides about memory that may be on demand.
    #[inline(always)]
    pub(crate) fn local_unless<'s, E: From<WcReason>>(
        &self,
        requester: &RequesterState,
        request: &'s WqeRef<'_>,
        len: u64,
        room: &'s mut SpanBuf,
        rare: impl FnOnce(u32, Spans<'s>) -> Result<Spans<'s>, E>,
    ) -> Result<Spans<'s>, E> {
        let wqe = request.wqe;
        if len > limits::MAX_MESSAGE || (wqe.op.is_atomic() && len != 8) {
            let is_too_long = len > limits::MAX_MESSAGE;
            return Err(if is_too_long { WcReason::TooLong } else { WcReason::AtomicLength }.into());
        }
        if wqe.op.is_response() && requester.max_rd_atomic == 0 {
            return Err(WcReason::NoReads.into());
        }
        let mut spans = room.start();
        if wqe.inline {
            inline_spans(request.sges, &mut spans);
            return Ok(spans);
        }
        let access = if wqe.op.is_response() { LOCAL_WRITE } else { 0 };
        let mrs = &self.pd.context.device.mrs;
        let found = match request.sges {
            [sge] => resolve_one(mrs, self.pd.id, *sge, len, access, &mut spans),
            list => resolve(mrs, self.pd.id, list.iter().copied(), len, access, &mut spans),
        };
        match found {
            Some(()) => Ok(spans),
            None => rare(access, spans),
        }
    }

    /// Memory some of which may have gone. Its pages are brought, so that few copies wait for a
    /// disk with the peer's memory, or its queue pair, in hand.
    #[cold]
    fn on_demand<'s>(
        &self,
        request: &WqeRef<'_>,
        access: u32,
        len: u64,
        mut spans: Spans<'s>,
    ) -> Result<Spans<'s>, WcReason> {
        let gone = WcReason::LocalGone;
        self.find_on_demand(request, access, len, &mut spans)?;
        let is_response = request.wqe.op.is_response();
        if !bring(spans.as_slice(), is_response) {
            return Err(gone);
        }
        if !is_response && len <= STAGED {
            spans.stage().map_err(|_gone| gone)?;
        }
        Ok(spans)
    }

    /// [`local`](Self::local) of a request that is under way: the pages of its memory were brought
    /// before.
    pub(crate) fn local_again<'s>(
        &self,
        requester: &RequesterState,
        request: &'s WqeRef<'_>,
        room: &'s mut SpanBuf,
    ) -> Result<Spans<'s>, WcReason> {
        let len = request.len();
        self.local_unless(requester, request, len, room, |access, mut spans| {
            self.find_on_demand(request, access, len, &mut spans).map(|()| spans)
        })
    }

    #[cold]
    pub(crate) fn find_on_demand(
        &self,
        request: &WqeRef<'_>,
        access: u32,
        len: u64,
        spans: &mut Spans<'_>,
    ) -> Result<(), WcReason> {
        let (mrs, list) = (&self.pd.context.device.mrs, request.sges.iter().copied());
        let found = resolve_any(mrs, self.pd.id, list, len, access, spans);
        found.ok_or_else(|| self.local_denial(request))
    }

    /// The reason why the memory of a request may not be accessed.
    #[cold]
    pub(crate) fn local_denial(&self, request: &WqeRef<'_>) -> WcReason {
        let access = if request.wqe.op.is_response() { LOCAL_WRITE } else { 0 };
        let mrs = &self.pd.context.device.mrs;
        mrs.denial_of(self.pd.id, request.sges, request.len(), access).1.local()
    }

    /// Continues after an execution: completes the request, or lets it wait. Returns true if the
    /// next request may be tried.
    #[inline(always)]
    pub(crate) fn settle<'a>(
        self: &'a Arc<Qp>,
        sq: &mut SqParts<'_>,
        execution: &mut Execution<'a>,
        wqe: &Wqe,
        len: u64,
        outcome: WqeOutcome,
    ) -> bool {
        match outcome {
            WqeOutcome::Done | WqeOutcome::Dropped => {
                sq.counters.requests += 1;
                sq.counters.dropped += u64::from(outcome == WqeOutcome::Dropped);
                sq.counters.bytes += len;
                sq.requester.next_request();
                if wqe.signaled {
                    self.complete(execution, wqe, len, None);
                }
                true
            }
            _ => self.settle_undone(sq, execution, wqe, outcome),
        }
    }

    #[cold]
    fn settle_undone<'a>(
        self: &'a Arc<Qp>,
        sq: &mut SqParts<'_>,
        execution: &mut Execution<'a>,
        wqe: &Wqe,
        outcome: WqeOutcome,
    ) -> bool {
        match outcome {
            WqeOutcome::Done | WqeOutcome::Dropped => true,
            WqeOutcome::Failed(reason) => {
                sq.counters.requests += 1;
                if reason.status() == ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR {
                    sq.counters.rnr_naks += 1;
                }
                if self.is_watched {
                    self.check_failed(wqe, self.injected(reason), sq.requester);
                }
                sq.requester.next_request();
                self.fail(execution, wqe, reason);
                true
            }
            WqeOutcome::Blocked(wait, delay) => {
                if wait == WaitCause::Rnr {
                    sq.counters.rnr_naks += 1;
                }
                let token = self.pd.context.device.arm(self.num, delay);
                sq.requester.waits = Some((wait, token));
                if let Some(trace) = self.trace() {
                    trace.waits(wqe.position, self.wait_reason(wait), wqe.wr_id);
                }
                false
            }
        }
    }

    /// A completion, with the fields that those of all requests have.
    #[inline(always)]
    pub(crate) fn completion(
        &self,
        wr_id: u64,
        failure: Option<WcReason>,
        opcode: ibv_wc_opcode,
        byte_len: u32,
    ) -> CqEntry {
        CqEntry {
            wr_id,
            failure,
            opcode,
            byte_len,
            imm: 0,
            flags: 0,
            qp_num: self.num,
            src_qp: 0,
            solicited: false,
        }
    }

    /// Completes a request of the send queue.
    #[inline]
    pub(crate) fn complete<'a>(
        self: &'a Arc<Qp>,
        execution: &mut Execution<'a>,
        wqe: &Wqe,
        len: u64,
        failure: Option<WcReason>,
    ) {
        let completion = self.completion(wqe.wr_id, failure, wqe.op.wc_opcode(), len as u32);
        let owner = Some((&**self, wqe.position));
        execution.writer.push(&self.send_cq, &completion, owner, &mut execution.deferred);
    }

    /// Completes a request in error; the queue pair goes to the error state, or its
    /// send queue does.
    #[cold]
    pub(crate) fn fail<'a>(
        self: &'a Arc<Qp>,
        execution: &mut Execution<'a>,
        wqe: &Wqe,
        reason: WcReason,
    ) {
        let reason = self.injected(reason);
        if let Some(faults) = &self.faults {
            faults.lock().fail();
        }
        self.complete(execution, wqe, 0, Some(reason));
        self.enter_send_error(Cause::request(reason));
        execution.deferred.push(WorkItem::Flush(Arc::clone(self)));
    }

    /// [`run_pending`](Self::run_pending) over a link.
    #[inline]
    pub(crate) fn run_over<'a>(
        self: &'a Arc<Qp>,
        link: &mut impl SqLink<'a>,
        parts: &mut SqParts<'_>,
        pending: &mut PendingWqes,
        execution: &mut Execution<'a>,
        only_one: bool,
    ) {
        while let Some(request) = pending.nth(link.sent()) {
            let state = self.state();
            if state.flushes_sends() {
                link.give_up(pending, execution);
                self.flush_pending(pending, execution);
                break;
            }
            let resumes =
                state == QueuePairState::Sqd && parts.requester.started && link.sent() == 0;
            if !(state == QueuePairState::Rts || resumes) || parts.requester.waits.is_some() {
                break;
            }
            match self.try_over(link, parts, &request, execution) {
                SendAttempt::Later => break,
                SendAttempt::Sent => link.count_sent(),
                SendAttempt::Ended(outcome) => {
                    if !self.settle(parts, execution, request.wqe, request.len(), outcome) {
                        break;
                    }
                    pending.pop();
                    if only_one {
                        break;
                    }
                }
            }
        }
    }

    fn try_over<'a>(
        self: &'a Arc<Qp>,
        link: &mut impl SqLink<'a>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
    ) -> SendAttempt {
        if self.has_faults
            && let Some(step) = self.meet_fault(link, parts, request, execution)
        {
            return step;
        }
        if request.wqe.op.is_local() {
            // It completes in its turn, and no network has a part in it.
            return match link.sent() {
                0 => {
                    SendAttempt::Ended(self.execute_local(parts.requester, execution, request.wqe))
                }
                _ => SendAttempt::Later,
            };
        }
        self.check_execution(request.wqe);
        let device = &self.pd.context.device;
        let is_lossy = || !self.transport.is_reliable() && device.network.is_faulty();
        if device.sim().is_none() && !is_lossy() {
            return link.advance(self, parts, request, execution);
        }
        let mut advance = |parts: &mut SqParts<'_>, arrives| {
            link.advance_lossy(self, parts, request, execution, arrives)
        };
        SendAttempt::Ended(match device.sim().filter(|_| self.transport.is_reliable()) {
            Some(sim) => execute_faulty(sim, device, parts, request, |parts| advance(parts, true)),
            None => self.send_unreliably(parts, request, None, advance),
        })
    }
}

/// Judges a reply to a requester that takes silence for success.
#[cold]
fn judge_unreliable(requester: &mut RequesterState, reply: PeerReply, len: u64) -> WqeOutcome {
    if let PeerReply::Refused(reason) = reply
        && reason.status() == ibv_wc_status::IBV_WC_LOC_PROT_ERR
    {
        // It is the requester's own memory, and no matter of the network's.
        return WqeOutcome::Failed(reason);
    }
    requester.advance_psn(packets(len, requester.mtu_shift));
    WqeOutcome::Dropped
}

/// Inline data lie where the entries say, in this process: they are the caller's until the
/// call that posts them returns, and lie in the send queue from then on.
#[inline]
fn inline_spans(sges: &[ibv_sge], spans: &mut Spans<'_>) {
    for sge in sges.iter().filter(|sge| sge.length > 0) {
        let ptr = core::ptr::with_exposed_provenance_mut(sge.addr as usize);
        // SAFETY: they stay as long as their request, from which the spans are borrowed.
        spans.push(unsafe { MemSpan::private(ptr, sge.length as usize) });
    }
}
