//! Full rings, and messages of unreliable transports that find no room in them.
//!
//! They wait, as others do: what nobody repeats is not lost because its receiver is slower.
//! But the datagrams of one queue pair go to many processes, and one that is stopped, or lies,
//! does not hold up those to the others for ever. Once it has read nothing for a while, they
//! are dropped, until it has.

use std::sync::Arc;

use crate::after::After;
use crate::qp::Qp;
use crate::requester::Outcome;
use crate::sq::{Requester, Sq, Wait};

use super::pair::Pair;

/// For which a process may read nothing. (Tests let it come when they want.)
const LONGEST_NS: u64 = if cfg!(test) { 86_400_000_000_000 } else { 200_000_000 };

/// How far a process has read in the ring to it.
type Mark = (u32, u32);

/// What a requester knows of the full ring that it waits for.
#[derive(Debug, Default)]
pub(crate) struct Full {
    /// The deadline that is armed, and the mark then. It is not armed again for each wait:
    /// under load a ring is full thousands of times a second.
    deadline: Option<(u64, Mark)>,
    /// The mark of the deadline that has just come.
    come: Option<Mark>,
}

#[cfg(test)]
impl Full {
    /// The deadline that is armed.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline.map(|(token, _)| token)
    }
}

impl Qp {
    /// What becomes of a message for which there is no room in the ring to a process: it
    /// waits, or is dropped. The queue pair is among those that are called again when there
    /// is.
    pub(super) fn await_room(&self, requester: &mut Requester, pair: &Pair) -> Outcome {
        let mark = (pair.slot, pair.has_read());
        if requester.full.come.take() == Some(mark) {
            pair.give_up(mark.1);
        }
        if pair.is_dead() || pair.was_given_up(mark.1) {
            return Outcome::Dropped;
        }
        if requester.full.deadline.is_none() {
            let token = self.pd.context.device.arm(self.num, Some(LONGEST_NS));
            requester.full.deadline = Some((token, mark));
        }
        Outcome::Blocked(Wait::Room, None)
    }

    /// There is room in a ring again that this queue pair has waited for. False if it cannot go
    /// on now.
    pub(super) fn go_on(self: &Arc<Qp>, after: &mut After) -> bool {
        let Some(mut sq) = self.sq_unless_away() else { return false };
        sq.requester.waits.take_if(|(wait, _)| *wait == Wait::Room);
        self.run_pending(&mut sq, after, false);
        true
    }

    /// A deadline has come: if it is that of a full ring, the head tries once more. The send
    /// queue's lock is held.
    pub(crate) fn room_expired(self: &Arc<Qp>, sq: &mut Sq, token: u64, after: &mut After) {
        let full = &mut sq.requester.full;
        let Some((_, mark)) = full.deadline.take_if(|(armed, _)| *armed == token) else { return };
        if sq.requester.waits.take_if(|(wait, _)| *wait == Wait::Room).is_some() {
            sq.requester.full.come = Some(mark);
            self.run_pending(sq, after, false);
            sq.requester.full.come = None;
        }
    }
}
