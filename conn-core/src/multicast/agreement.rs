//! Suspicion, and where the streams end when members have failed.

use super::row::{FINISHED, LEFT};
use super::{Lie, MAX_MEMBERS, Member, Members, Rank, Reason};

/// Suspicion.
impl Member {
    /// Writes to `rank` fail, for good.
    pub fn unreachable(&mut self, rank: Rank) {
        self.suspect(rank, Reason::Unreachable);
    }

    /// Suspects a member, so that the group fails. Records accepted from the suspect stay; nothing
    /// more is accepted. The same holds for repairs of an earlier suspect's stream: the new
    /// agreement decides on them again.
    #[cold]
    pub(super) fn suspect(&mut self, rank: Rank, reason: Reason) {
        // A finished member may leave, and is not suspected for it. Other reasons hold: a survivor
        // that did not see it finish may have suspected it, and all must name the same suspects; or
        // it broke the protocol.
        let is_going = matches!(reason, Reason::StandsStill | Reason::Unreachable | Reason::Left);
        let may_go = self.agreement.gone.contains(rank) && is_going;
        let is_known = self.row.suspected.contains(rank) || !self.config.all().contains(rank);
        if rank == self.config.rank || is_known || may_go {
            return;
        }
        // A finished member needs nothing of the others, and accuses none: those that continue do
        // not read its row any more, and would not agree with it.
        if self.order.is_finished() {
            self.agreement.gone = self.agreement.gone.with(rank);
            return;
        }
        self.row.suspected = self.row.suspected.with(rank);
        self.agreement.reasons[rank.index()] = Some(reason);
        self.agreement.unreported = self.agreement.unreported.with(rank);
        for of in self.row.suspected.iter() {
            let stream = &mut self.streams[of.index()];
            (stream.published, stream.copied) = (stream.accepted, stream.accepted);
        }
        self.agreement.repairing = None;
        self.agreement.repair_due = None;
        self.agreement.shown = [None; MAX_MEMBERS];
        self.pushing.control_due = true;
    }

    /// The control group of the row of `from` has changed.
    #[cold]
    pub(super) fn on_news(&mut self, from: Rank, now_ns: u64) {
        let row = &self.rows[from.index()];
        let goodbye = row.goodbye;
        let accused = row.suspected.union(row.wedged);
        if accused.contains(self.config.rank) {
            // A member that has left is among the suspects of the members that stay.
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
                self.agreement.heard_ns[from.index()] = now_ns;
                // An honest member finishes when every survivor has shown its final counters, which
                // then equal this member's.
                let differs =
                    |of: Rank| self.received(from, of) != self.streams[of.index()].received;
                if self.config.senders.iter().any(differs) {
                    self.suspect(from, Reason::Lied(Lie::Unfinished));
                }
            }
            LEFT => self.suspect(from, Reason::Left),
            _ => {}
        }
    }

    /// Suspects members with a health counter that stands still, with a row that never fits its
    /// checksums, or that finished without an end of their own stream.
    #[inline]
    pub(super) fn look_for_silence(&mut self, now_ns: u64) {
        for rank in self.reachable().iter() {
            let heard = self.agreement.heard_ns[rank.index()];
            let since = self.agreement.unfit_ns[rank.index()].map_or(heard, |at| at.min(heard));
            if now_ns >= since.saturating_add(self.config.suspect_ns) {
                self.suspect(rank, Reason::StandsStill);
            }
        }
        for rank in self.agreement.gone.minus(self.row.suspected).iter() {
            let heard = self.agreement.heard_ns[rank.index()];
            if self.owes_end(rank) && now_ns >= heard.saturating_add(self.config.suspect_ns) {
                self.suspect(rank, Reason::Lied(Lie::NoEnd));
            }
        }
    }

    /// Reports whether a member that has finished has not sent its stream up to an end. All that it
    /// wrote before its goodbye has arrived; the next pass accepts it.
    fn owes_end(&self, rank: Rank) -> bool {
        let stream = &self.streams[rank.index()];
        let has_failed = !self.row.suspected.is_empty();
        let is_whole = stream.ended || (has_failed && stream.accepted == stream.published);
        self.config.senders.contains(rank) && !is_whole
    }

    /// Reports whether `by` lacks turns of `of` that this member has.
    fn lacks(&self, by: Rank, of: Rank) -> bool {
        self.received(by, of) < self.streams[of.index()].received
    }

    /// Suspects finished members that lack messages: if no member has failed, an honest one has
    /// received all streams whole.
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

    /// Reports whether `rank` shows that it receives nothing more of the same suspects.
    pub(super) fn agrees(&self, rank: Rank) -> bool {
        let (row, suspected) = (&self.rows[rank.index()], self.row.suspected);
        row.wedged == suspected && row.suspected == suspected
    }

    /// Reports whether all survivors show that they receive nothing more of the same suspects.
    pub(super) fn is_agreed(&self) -> bool {
        let suspected = self.row.suspected;
        !suspected.is_empty()
            && self.row.wedged == suspected
            && self.reachable().iter().all(|rank| self.agrees(rank))
    }

    /// The most turns of `of` that any survivor has. Final when the survivors agree.
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
