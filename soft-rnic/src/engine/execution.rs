//! State that the requests of one list share while they are executed.

use crate::memory::span::RequestScratch;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::queues::outcome::{WaitCause, WqeOutcome};
use crate::queues::requester::RequesterState;
use crate::reason::WcReason;
use crate::timing::timer::rnr_timer_ns;

/// State that the requests of one list share. (The
/// [`ResponderSession`](crate::engine::responder::ResponderSession) with the peer is apart, so that
/// it stays in registers: read back from the stack it waited for the stores of the message before,
/// which halved the rate between two threads.)
pub(crate) struct Execution<'a> {
    pub(crate) writer: CqWriter<'a>,
    pub(crate) deferred: DeferredWork,
}

impl Execution<'_> {
    pub(crate) fn new() -> Self {
        Execution { writer: CqWriter::default(), deferred: DeferredWork::default() }
    }

    /// Lets go of the locks; what is left to do is the caller's.
    #[inline]
    pub(crate) fn finish(mut self) -> DeferredWork {
        core::mem::take(&mut self.deferred)
    }
}

/// The parts of a send queue that an execution changes, apart from its requests.
pub(crate) struct SqParts<'a> {
    pub(crate) requester: &'a mut RequesterState,
    pub(crate) counters: &'a mut crate::counters::Counters,
    pub(crate) scratch: &'a mut RequestScratch,
}

/// Packets of a message, at least one.
#[inline]
pub(crate) fn packets(len: u64, mtu_shift: u32) -> u32 {
    (len.saturating_sub(1) >> mtu_shift) as u32 + 1
}

/// A receiver that was not ready: try again later, if retries are left (7 is for
/// ever).
#[cold]
pub(crate) fn rnr_nak(requester: &mut RequesterState, timer: u8) -> WqeOutcome {
    const FOR_EVER: u8 = 7;
    if requester.rnr_retry != FOR_EVER {
        if requester.rnr_left == 0 {
            return WqeOutcome::Failed(WcReason::Rnr);
        }
        requester.rnr_left -= 1;
    }
    WqeOutcome::Blocked(WaitCause::Rnr, Some(rnr_timer_ns(timer)))
}
