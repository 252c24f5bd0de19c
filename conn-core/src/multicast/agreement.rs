//! Suspicion, and where the streams end when members have failed.

use super::repair::RepairHeader;
use super::row::{FINISHED, LEFT};
use super::standstill::Standstill;
use super::{Lie, MAX_MEMBERS, Member, Members, Rank, Reason};

/// What a member knows of failures.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    pub(super) reasons: [Option<Reason>; MAX_MEMBERS],
    /// When a member's health counter last moved.
    pub(super) heard_ns: [u64; MAX_MEMBERS],
    /// Since when a group of its row has not fitted its seal.
    pub(super) unfit_ns: [Option<u64>; MAX_MEMBERS],
    /// Who has said that it is finished, and is not looked at any more: its counters are
    /// complete.
    pub(super) gone: Members,
    pub(super) excluded_by: Option<Rank>,
    /// Suspects that have not been told: those that live learn from it that they are out.
    pub(super) untold: Members,
    /// The repair that is under way: of whom, and the turns that all have when it is done.
    pub(super) repairing: Option<(Rank, u64)>,
    pub(super) repair_due: Option<RepairHeader>,
    /// Repairs of each member that were taken.
    pub(super) repairs_taken: [u64; MAX_MEMBERS],
    /// Who last repaired a stream.
    pub(super) repairer: [Rank; MAX_MEMBERS],
    /// The last repair that each member has written for the same survivors: of whom, and the
    /// turns that all have when it is done.
    pub(super) shown: [Option<(Rank, u64)>; MAX_MEMBERS],
    pub(super) standstill: Standstill,
}

impl Agreement {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self {
            reasons: [None; MAX_MEMBERS],
            heard_ns: [now_ns; MAX_MEMBERS],
            unfit_ns: [None; MAX_MEMBERS],
            gone: Members::NONE,
            excluded_by: None,
            untold: Members::NONE,
            repairing: None,
            repair_due: None,
            repairs_taken: [0; MAX_MEMBERS],
            repairer: [Rank(0); MAX_MEMBERS],
            shown: [None; MAX_MEMBERS],
            standstill: Standstill::new(now_ns),
        }
    }
}

/// Suspicion.
impl Member {
    /// Writes to `rank` fail, for good.
    pub fn unreachable(&mut self, rank: Rank) {
        self.suspect(rank, Reason::Unreachable);
    }

    /// Begins or widens the failure of the group. What was accepted of the suspect stays;
    /// nothing more is. So does what an earlier suspect was being repaired with, which a new
    /// agreement decides on anew.
    #[cold]
    pub(super) fn suspect(&mut self, rank: Rank, reason: Reason) {
        // Who has finished may go. But another survivor may not have seen that it has, and
        // gone on without it: all have to name the same suspects. And it may have lied.
        let is_going = matches!(reason, Reason::StandsStill | Reason::Unreachable | Reason::Left);
        let may_go = self.agreement.gone.contains(rank) && is_going;
        let is_known = self.row.suspected.contains(rank) || !self.config.all().contains(rank);
        if rank == self.config.rank || is_known || may_go {
            return;
        }
        self.row.suspected = self.row.suspected.with(rank);
        self.agreement.reasons[rank.index()] = Some(reason);
        self.agreement.untold = self.agreement.untold.with(rank);
        for of in self.row.suspected.iter() {
            let stream = &mut self.streams[of.index()];
            (stream.published, stream.copied) = (stream.accepted, stream.accepted);
        }
        self.agreement.repairing = None;
        self.agreement.repair_due = None;
        self.agreement.shown = [None; MAX_MEMBERS];
        self.pushing.control_due = true;
    }

    /// The row of `from` says more than counters.
    #[cold]
    pub(super) fn on_news(&mut self, from: Rank) {
        let row = &self.rows[from.index()];
        let goodbye = row.goodbye;
        let accused = row.suspected.union(row.wedged);
        if accused.contains(self.config.rank) {
            // Who has left is among the suspects of those who stay.
            if self.pushing.goodbye == 0 {
                self.agreement.excluded_by = Some(from);
            }
            return;
        }
        for rank in accused.minus(self.row.suspected).iter() {
            self.suspect(rank, Reason::AccusedBy(from));
        }
        match goodbye {
            FINISHED => {
                self.agreement.gone = self.agreement.gone.with(from);
                // It has all that any survivor will ever have.
                if self.config.senders.iter().any(|of| self.lacks(from, of)) {
                    self.suspect(from, Reason::Lied(Lie::Unfinished));
                }
            }
            LEFT => self.suspect(from, Reason::Left),
            _ => {}
        }
    }

    /// Suspects whose health counter stands still, or who write what never fits its seal.
    #[inline]
    pub(super) fn look_for_silence(&mut self, now_ns: u64) {
        for rank in self.reachable().iter() {
            let heard = self.agreement.heard_ns[rank.index()];
            let since = self.agreement.unfit_ns[rank.index()].map_or(heard, |at| at.min(heard));
            if now_ns >= since.saturating_add(self.config.suspect_ns) {
                self.suspect(rank, Reason::StandsStill);
            }
        }
    }

    /// Whether `by` lacks turns of `of` that this member has.
    fn lacks(&self, by: Rank, of: Rank) -> bool {
        self.received(by, of) < self.streams[of.index()].received
    }

    /// Where nobody has failed, whoever has finished has received all streams whole.
    #[cold]
    pub(super) fn look_for_unfinished(&mut self) {
        let lying = |by: &Rank| self.config.senders.iter().any(|of| self.lacks(*by, of));
        let liars: Members = self.agreement.gone.iter().filter(lying).collect();
        liars.iter().for_each(|by| self.suspect(by, Reason::Lied(Lie::Unfinished)));
    }
}

/// The end.
impl Member {
    /// The survivors that are not finished.
    #[inline]
    pub(super) fn active(&self) -> Members {
        self.survivors().minus(self.agreement.gone)
    }

    #[inline]
    pub(super) fn survivors(&self) -> Members {
        self.config.all().minus(self.row.suspected)
    }

    /// Whether `rank` shows that it receives nothing more of the same suspects.
    pub(super) fn agrees(&self, rank: Rank) -> bool {
        let (row, suspected) = (&self.rows[rank.index()], self.row.suspected);
        row.wedged == suspected && row.suspected == suspected
    }

    /// Whether all survivors show that they receive nothing more of the same suspects.
    pub(super) fn is_agreed(&self) -> bool {
        let suspected = self.row.suspected;
        !suspected.is_empty()
            && self.row.wedged == suspected
            && self.reachable().iter().all(|rank| self.agrees(rank))
    }

    /// The turns of `of` that any survivor has. Final when they agree.
    pub(super) fn cut(&self, of: Rank) -> u64 {
        self.survivors().iter().map(|by| self.received(by, of)).max().unwrap_or(0)
    }

    /// The turns that the stream of `of` will ever have, if that is known.
    pub(super) fn end_of(&self, of: Rank) -> Option<u64> {
        let stream = &self.streams[of.index()];
        if stream.ended {
            return Some(stream.received);
        }
        if !self.is_agreed() {
            return None;
        }
        if self.row.suspected.contains(of) {
            return Some(self.cut(of));
        }
        (stream.accepted == stream.published).then_some(stream.received)
    }
}
