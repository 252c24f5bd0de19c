//! Backpressure of rings: messages of unreliable transports that find no room in a full one.
//!
//! They wait, as others do: a message that is never sent again is not lost because its receiver
//! is slower. But the datagrams of one queue pair go to many processes, and a process that is
//! stopped, or lies, does not hold up those to the others for ever. Once it has read nothing for
//! a while, messages to it are dropped, until it has.

use std::sync::Arc;

use crate::deferred_work::DeferredWork;
use crate::objects::pending::{Outcome, Requester, Wait};
use crate::objects::state::{Qp, Sq};

use super::pair::Pair;

/// How long a process may read nothing before messages to it are dropped. (Tests expire
/// it themselves.)
const TIMEOUT_NS: u64 = if cfg!(test) { 86_400_000_000_000 } else { 200_000_000 };

impl Qp {
    /// What becomes of a message for which there is no room in the ring to a process: it
    /// waits, or is dropped. The queue pair is among those that are called again when there
    /// is.
    pub(super) fn await_room(&self, requester: &mut Requester, pair: &Pair) -> Outcome {
        let mark = (pair.slot, pair.has_read());
        if requester.backpressure.come.take() == Some(mark) {
            pair.give_up(mark.1);
        }
        if pair.is_dead() || pair.was_given_up(mark.1) {
            return Outcome::Dropped;
        }
        if requester.backpressure.deadline.is_none() {
            let token = self.pd.context.device.arm(self.num, Some(TIMEOUT_NS));
            requester.backpressure.deadline = Some((token, mark));
        }
        Outcome::Blocked(Wait::Room, None)
    }

    /// There is room in a ring again that this queue pair has waited for. False if it cannot go
    /// on now.
    pub(super) fn go_on(self: &Arc<Qp>, deferred: &mut DeferredWork) -> bool {
        let Some(mut sq) = self.sq_unless_blocked() else { return false };
        sq.requester.waits.take_if(|(wait, _)| *wait == Wait::Room);
        self.run_pending(&mut sq, deferred, false);
        true
    }

    /// A deadline has come: if it is that of a full ring, the head tries once more. The send
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
        if sq.requester.waits.take_if(|(wait, _)| *wait == Wait::Room).is_some() {
            sq.requester.backpressure.come = Some(mark);
            self.run_pending(sq, deferred, false);
            sq.requester.backpressure.come = None;
        }
    }
}
