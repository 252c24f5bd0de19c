//! State that the requests of one list share while they are executed.

use crate::memory::span::Scratch;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::queues::outcome::{Outcome, Wait};
use crate::queues::requester::Requester;
use crate::reason::Reason;
use crate::timing::timer::rnr_timer_ns;

/// State that the requests of one list share. (The [`Session`](crate::engine::responder::Session)
/// with the peer is apart, so that it stays in registers: read back from the stack it waited for
/// the stores of the message before, which halved the rate between two threads.)
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
    pub(crate) requester: &'a mut Requester,
    pub(crate) counters: &'a mut crate::counters::Counters,
    pub(crate) scratch: &'a mut Scratch,
}

/// Packets of a message, at least one.
#[inline]
pub(crate) fn packets(len: u64, mtu_shift: u32) -> u32 {
    (len.saturating_sub(1) >> mtu_shift) as u32 + 1
}

/// A receiver that was not ready: try again later, if retries are left (7 is for
/// ever).
#[cold]
pub(crate) fn rnr_nak(requester: &mut Requester, timer: u8) -> Outcome {
    const FOR_EVER: u8 = 7;
    if requester.rnr_retry != FOR_EVER {
        if requester.rnr_left == 0 {
            return Outcome::Failed(Reason::Rnr);
        }
        requester.rnr_left -= 1;
    }
    Outcome::Blocked(Wait::Rnr, Some(rnr_timer_ns(timer)))
}
