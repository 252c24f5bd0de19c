//! A time limit on the agreement: a live member that withholds what the survivors wait for is cut
//! off like one that stands still.
//!
//! Every member knows which survivor holds up the others: one that does not show the same suspects,
//! one that does not acknowledge messages or repairs, or one that alone has turns that others lack,
//! and does not repair them. An honest member answers each of these within a few passes. When there
//! is no progress for as long as a health counter may stand still, the members waited for are
//! suspected. Each suspicion leaves one survivor less, so that the group ends for all honest
//! members.

use super::state::EndDistance;
use super::{Member, Members, Rank, Reason};

/// Parts of the missing turns: each one that arrives counts as progress, so that a member that
/// brings turns one by one has to be done in bounded time as well.
const PARTS: u64 = 16;

impl Member {
    /// Suspects the members waited for, when the agreement has stood still for too long.
    #[cold]
    pub(super) fn detect_stall(&mut self, now_ns: u64) {
        let distance = self.distance();
        let stall = &mut self.agreement.stall;
        if distance != stall.distance {
            (stall.distance, stall.since_ns) = (distance, now_ns);
        }
        let is_over = now_ns >= stall.since_ns.saturating_add(self.config.suspect_ns);
        if is_over && !self.order.is_finished() {
            self.waited_for().iter().for_each(|rank| self.suspect(rank, Reason::Withholds));
        }
    }

    fn distance(&mut self) -> EndDistance {
        let suspected = self.row.suspected;
        if !self.is_agreed() {
            return EndDistance { suspected, apart: self.apart(), parts: 0 };
        }
        let missing = self.missing();
        let first = &mut self.agreement.stall.first;
        let (_, most) = match *first {
            Some(known) if known.0 == suspected => known,
            _ => *first.insert((suspected, missing)),
        };
        let parts = missing.saturating_mul(PARTS).div_ceil(most.max(1));
        EndDistance { suspected, apart: Members::NONE, parts }
    }

    /// The members that do not show the same suspects.
    fn apart(&self) -> Members {
        let own = Members::NONE.with(self.config.rank);
        let is_wedged = self.row.wedged == self.row.suspected;
        let others = self.reachable().iter().filter(|rank| !self.agrees(*rank)).collect();
        if is_wedged { others } else { own.union(others) }
    }

    /// The survivors that have not received the stream of `of` up to its `end`.
    fn lacking(&self, of: Rank, end: u64) -> Members {
        self.survivors().iter().filter(|by| self.received(*by, of) < end).collect()
    }

    /// The senders with a known end of their stream, and these ends.
    fn ends(&self) -> impl Iterator<Item = (Rank, u64)> {
        self.config.senders.iter().filter_map(|of| Some((of, self.end_of(of)?)))
    }

    /// Turns that survivors lack.
    fn missing(&self) -> u64 {
        let lacks = |(of, end): (Rank, u64)| {
            let turns = self.survivors().iter().map(|by| self.received(by, of));
            turns.map(|turns| end.saturating_sub(turns)).sum::<u64>()
        };
        self.ends().map(lacks).sum()
    }

    /// The members that the survivors wait for.
    fn waited_for(&self) -> Members {
        let me = self.config.rank;
        let apart = self.apart();
        if apart.contains(me) {
            return Members::NONE;
        }
        if !apart.is_empty() {
            return apart;
        }
        let behind = self.ends().map(|(of, end)| {
            let lacking = self.lacking(of, end);
            // A finished member is not repaired.
            let is_repaired = !lacking.is_subset(self.agreement.gone);
            match is_repaired && self.row.suspected.contains(of) {
                true => self.holding_up(of),
                false => lacking,
            }
        });
        behind.fold(Members::NONE, Members::union).without(me)
    }

    /// The members that hold up the repair of the stream of `of`: those that have not taken the
    /// repairer's last repair, or else the repairer.
    fn holding_up(&self, of: Rank) -> Members {
        let Some(repairer) = self.repairer(of) else {
            // Only finished members claim to have these turns: no active member has them.
            let cut = self.cut(of);
            return self.survivors().iter().filter(|by| self.received(*by, of) >= cut).collect();
        };
        let is_own = repairer == self.config.rank;
        let shown = self.agreement.shown[repairer.index()];
        let behind = |(of, turns): (Rank, u64)| {
            self.active().iter().filter(|by| self.received(*by, of) < turns).collect()
        };
        match (if is_own { self.agreement.repairing } else { shown }).map(behind) {
            None | Some(Members::NONE) => Members::NONE.with(repairer),
            Some(behind) => behind,
        }
    }
}
