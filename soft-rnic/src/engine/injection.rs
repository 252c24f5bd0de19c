//! Faults that strike a request before it leaves, as a plan ([`faults`](crate::faults)) has drawn
//! them, and those that a simulation draws.
//!
//! ```text
//!   oldest request ──> next_fault ──> none ──> it is sent, and never gets here again
//!        ▲                 └──> Delay, Rnr, Retry: Blocked ──┐   Loss: not sent
//!        └────────────── deadline, retries left ─────────────┘   Flush: Failed
//! ```
//!
//! So all faults of a plan strike before the peer takes any part in the request, and use up its
//! retries as those of a peer do.

use std::sync::Arc;

use verbs_sys::ibv_event_type;

use crate::engine::execution::{Execution, SqParts, rnr_nak};
use crate::engine::link::{SendAttempt, SqLink};
use crate::faults::queue::{Exposure, InjectedFault};
use crate::objects::state::{Device, Qp};
use crate::queues::outcome::{WaitCause, WqeOutcome};
use crate::queues::wqe::{Wqe, WqeRef};
use crate::reason::{Cause, WcReason};
use crate::timing::simulation::SimulationState;
use crate::timing::timer::response_timeout_ns;
use crate::trace::layout::wait;

/// Longest delay that a simulation injects.
const DELAY_NS: u64 = 100_000;
/// Code of the timer in injected RNR NAKs: 10 µs.
const RNR_CODE: u8 = 1;

impl Qp {
    /// The fault that strikes a request, before which all others were sent.
    #[cold]
    pub(crate) fn next_fault(&self, wqe: &Wqe) -> Option<InjectedFault> {
        let is_sent = !wqe.op.is_local();
        let exposure = Exposure {
            is_sent,
            is_reliable: self.transport.is_reliable(),
            takes_receive: is_sent && wqe.takes_receive(),
        };
        self.faults.as_ref()?.lock().next(wqe.position, exposure)
    }

    /// Has the next fault strike a request that is about to be sent over a link. None if there is
    /// none.
    #[cold]
    pub(crate) fn meet_fault<'a>(
        self: &'a Arc<Qp>,
        link: &mut impl SqLink<'a>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
    ) -> Option<SendAttempt> {
        let fault = self.next_fault(request.wqe)?;
        if link.sent() > 0 {
            // The retries are those of the oldest request.
            return Some(SendAttempt::Later);
        }
        Some(SendAttempt::Ended(self.strike(parts, fault, |parts, arrives| {
            link.advance_lossy(self, parts, request, execution, arrives)
        })))
    }

    /// A fault strikes the oldest request; `execute` has it checked, and lost on its way.
    #[cold]
    pub(crate) fn strike(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        fault: InjectedFault,
        mut execute: impl FnMut(&mut SqParts<'_>, bool) -> WqeOutcome,
    ) -> WqeOutcome {
        let mut delay_ns = 0;
        if let Some(faults) = &self.faults {
            let mut faults = faults.lock();
            faults.strike(fault);
            delay_ns = faults.delay_ns();
        }
        if fault == InjectedFault::Loss {
            let outcome = execute(parts, false);
            // One that waits has not been sent, and is lost when it is.
            parts.counters.faults += u64::from(!matches!(outcome, WqeOutcome::Blocked(..)));
            parts.counters.lost += u64::from(outcome == WqeOutcome::Dropped);
            return outcome;
        }
        parts.counters.faults += 1;
        match fault {
            InjectedFault::Delay => WqeOutcome::Blocked(WaitCause::Delay, Some(delay_ns)),
            InjectedFault::Rnr => unanswered(parts, true),
            InjectedFault::Retry => unanswered(parts, false),
            InjectedFault::Flush | InjectedFault::Loss => {
                if self.enter_error(Cause::request(WcReason::InjectedFlush)) {
                    self.raise(ibv_event_type::IBV_EVENT_QP_FATAL);
                }
                WqeOutcome::Failed(WcReason::InjectedFlush)
            }
        }
    }

    /// The reason of a failure, which a fault may have brought about.
    pub(crate) fn injected(&self, reason: WcReason) -> WcReason {
        let is_struck = || self.faults.as_ref().is_some_and(|faults| faults.lock().is_struck());
        match reason {
            WcReason::Rnr if is_struck() => WcReason::InjectedRnr,
            WcReason::NoResponse if is_struck() => WcReason::InjectedLoss,
            reason => reason,
        }
    }

    /// The reason that a trace gives for a wait.
    pub(crate) fn wait_reason(&self, wait: WaitCause) -> u32 {
        let is_struck = self.faults.as_ref().is_some_and(|faults| faults.lock().is_struck());
        match wait {
            WaitCause::Rnr if is_struck => wait::INJECTED_RNR,
            WaitCause::Response if is_struck => wait::INJECTED_LOSS,
            _ => wait.reason(),
        }
    }
}

/// Executes a request of a reliable connection, with the faults that a simulated device injects.
pub(crate) fn execute_faulty(
    sim: &SimulationState,
    device: &Device,
    parts: &mut SqParts<'_>,
    request: &WqeRef<'_>,
    execute: impl FnOnce(&mut SqParts<'_>) -> WqeOutcome,
) -> WqeOutcome {
    if let Some(outcome) = delay(device, parts) {
        return outcome;
    }
    let is_done = parts.requester.done || request.wqe.ahead;
    let has_key = request.wqe.op.remote_access() != 0 && !is_done;
    if has_key && sim.strikes(sim.faults.access_error) {
        parts.counters.faults += 1;
        return WqeOutcome::Failed(WcReason::PeerKey);
    }
    let is_refused = request.wqe.takes_receive() && !is_done && sim.strikes(sim.faults.rnr);
    if is_refused || sim.strikes(sim.faults.lost_response / 2.0) {
        parts.counters.faults += 1;
        return unanswered(parts, is_refused);
    }
    // A request that the responder has done already is only acknowledged again.
    let outcome = if is_done { WqeOutcome::Done } else { execute(parts) };
    if outcome == WqeOutcome::Done && sim.strikes(sim.faults.lost_response / 2.0) {
        parts.counters.faults += 1;
        parts.requester.done = true;
        return no_response(parts);
    }
    outcome
}

/// The delay of a request on a simulated device, if one strikes now.
pub(crate) fn delay(device: &Device, parts: &mut SqParts<'_>) -> Option<WqeOutcome> {
    let sim = device.sim()?;
    sim.strikes(sim.faults.delay).then(|| {
        parts.counters.faults += 1;
        WqeOutcome::Blocked(WaitCause::Delay, Some(1 + sim.below(DELAY_NS)))
    })
}

/// A request that a fault keeps from the responder, as if that was not ready or did not answer.
fn unanswered(parts: &mut SqParts<'_>, is_rnr: bool) -> WqeOutcome {
    parts.requester.started = true;
    if is_rnr { rnr_nak(parts.requester, RNR_CODE) } else { no_response(parts) }
}

fn no_response(parts: &SqParts<'_>) -> WqeOutcome {
    WqeOutcome::Blocked(WaitCause::Response, response_timeout_ns(parts.requester.timeout))
}
