//! The seam between the requester and the ways to a peer.

use std::sync::Arc;

use crate::engine::execution::{Execution, SqParts};
use crate::objects::state::Qp;
use crate::queues::outcome::WqeOutcome;
use crate::queues::pending::PendingWqes;
use crate::queues::wqe::WqeRef;

/// The result of an attempt to send a request.
pub(crate) enum SendAttempt {
    /// It waits for its reply.
    Sent,
    /// Nothing now: what goes before it has to be over, or there is no room.
    Later,
    Ended(WqeOutcome),
}

/// A send queue's hold on its peer, for a list of requests: what they share is taken once.
pub(crate) trait SqLink<'a> {
    /// Returns the number of requests, from the head of the queue on, that wait for their replies.
    fn sent(&self) -> u32 {
        0
    }

    /// One more does.
    fn count_sent(&mut self) {}

    /// Sends a request, or executes it. A link over which each request ends at once has
    /// [`advance_lossy`](Self::advance_lossy) alone.
    #[inline(always)]
    fn advance(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
    ) -> SendAttempt {
        SendAttempt::Ended(self.advance_lossy(qp, parts, request, execution, true))
    }

    /// Sends a request of an unreliable transport into a network that may have lost it already
    /// (then it does not arrive).
    fn advance_lossy(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
        arrives: bool,
    ) -> WqeOutcome;

    /// Gives up what was sent: its memory is the program's when this returns.
    fn give_up(&mut self, _: &PendingWqes, _: &mut Execution<'a>) {}
}
