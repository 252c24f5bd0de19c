//! Outcomes of requests, the replies that they follow from, and what a request waits for.

use crate::reason::WcReason;
use crate::trace::layout::wait;

/// Result of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WqeOutcome {
    Done,
    /// Done as far as the requester can know: an unreliable transport's message
    /// that no queue pair received.
    Dropped,
    Failed(WcReason),
    /// It cannot proceed now: the reason, and for how long (for ever, if `None`).
    Blocked(WaitCause, Option<u64>),
}

/// Reply to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerReply {
    Done,
    /// No receive request was posted; the timer's code.
    Rnr(u8),
    Refused(WcReason),
    /// No reply: no queue pair is there, or it does not expect this message.
    Silence,
    /// The requester may carry it out itself after all.
    Again,
}

/// Reason why the request at the head waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitCause {
    /// The responder had no receive request; try again.
    Rnr,
    /// No response arrived; try again, if retries are left.
    Response,
    /// A simulation delays it.
    Delay,
    /// The process that it is for has to be met first.
    Meeting,
    /// The ring to that process is full.
    Room,
    /// Accesses by the key of a window, whose binding has ended, have to be over first.
    Settling,
}

impl WaitCause {
    /// Its code in a trace.
    pub(crate) fn reason(self) -> u32 {
        match self {
            WaitCause::Rnr => wait::RNR,
            WaitCause::Response => wait::RESPONSE,
            WaitCause::Delay => wait::DELAY,
            WaitCause::Meeting => wait::MEETING,
            WaitCause::Room => wait::ROOM,
            WaitCause::Settling => wait::SETTLING,
        }
    }
}
