//! Backpressure of rings: messages of unreliable transports that find no room in a full one.
//!
//! They wait, as others do: a message that is never sent again is not lost because its receiver
//! is slower. But the datagrams of one queue pair go to many processes, and a process that is
//! stopped, or lies, does not hold up those to the others for ever. Once it has read nothing for
//! a while, messages to it are dropped, until it has.
//!
//! Messages to multicast groups go to processes that the program does not name, so that a process
//! which reads one now and then must not hold up each of them. They wait for a process only as long
//! as it *drains* the ring in time: to where those that wait are woken. So a process that does as
//! it likes has senders wait once for as many messages as fit into an eighth of the ring. Once it
//! has not drained it for a while, messages for which there is no room are dropped at once, until
//! it has.

use std::sync::Arc;

use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::queues::outcome::{WaitCause, WqeOutcome};
use crate::queues::requester::{ProgressMark, RequesterState, RingProgress};

use crate::peers::process::pair::ProcessPair;

/// Time in nanoseconds after which messages to a process are dropped if it reads nothing, or does
/// not drain its ring. (Tests expire it themselves.)
const TIMEOUT_NS: u64 = if cfg!(test) { 86_400_000_000_000 } else { 200_000_000 };

impl Qp {
    /// Lets a message wait if there is no room for it in the ring to a process, or drops it. The
    /// queue pair is among those that are called again when there is room. `done` is what the
    /// process has done so far.
    pub(super) fn await_room(
        &self,
        requester: &mut RequesterState,
        pair: &ProcessPair,
        done: RingProgress,
    ) -> WqeOutcome {
        if pair.is_dead() || pair.was_given_up(done) {
            return WqeOutcome::Dropped;
        }
        if requester.backpressure.deadline.is_none() {
            let token = self.pd.context.device.arm(self.num, Some(TIMEOUT_NS));
            requester.backpressure.deadline = Some((token, (pair.slot, done)));
        }
        WqeOutcome::Blocked(WaitCause::Room, None)
    }

    /// There is room in a ring again that this queue pair has waited for. False if it cannot go
    /// on now.
    pub(super) fn go_on(self: &Arc<Qp>, deferred: &mut DeferredWork) -> bool {
        let Some(mut sq) = self.sq_unless_blocked() else { return false };
        sq.requester.waits.take_if(|(wait, _)| *wait == WaitCause::Room);
        self.run_pending(&mut sq, deferred, false);
        true
    }

    /// A deadline has passed: if it is that of a full ring, the head tries once more. The send
    /// queue's lock is held.
    pub(crate) fn room_expired(
        self: &Arc<Qp>,
        sq: &mut Sq,
        token: u64,
        deferred: &mut DeferredWork,
    ) {
        let backpressure = &mut sq.requester.backpressure;
        let Some((_, mark)) = backpressure.deadline.take_if(|(armed, _)| *armed == token) else {
            return;
        };
        if sq.requester.waits.take_if(|(wait, _)| *wait == WaitCause::Room).is_some() {
            self.give_up_unless_done(mark);
            self.run_pending(sq, deferred, false);
        }
    }

    /// Gives a process up that has done no more than it had.
    fn give_up_unless_done(&self, (slot, done): ProgressMark) {
        let pair = self.pd.context.device.peers.as_ref().and_then(|peers| peers.pair(slot));
        if let Some(pair) = pair.filter(|pair| pair.stands_at(done)) {
            pair.give_up(done);
        }
    }
}
