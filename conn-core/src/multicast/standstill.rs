//! A clock on the agreement: who lives, and withholds what the survivors wait for, is cut off
//! like who stands still.
//!
//! What is waited for is known to all, and so is from whom: a survivor that does not show the
//! same suspects; one that does not acknowledge what it was sent or repaired with; or one that
//! alone has what others lack, and does not repair them. An honest member answers each of
//! these within a few passes. When nothing has come nearer for as long as a health counter may
//! stand still, whoever is waited for is suspected. Each suspicion leaves one survivor less, so
//! that all who are honest come to an end.

use super::{Member, Members, Rank, Reason};

/// Turns that are missing count as nearer when a part of so many has come: who brings one by
/// one is to be done in bounded time as well.
const PARTS: u64 = 16;

/// How near the end is. Of one set of suspects, only nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Distance {
    suspected: Members,
    /// Who does not agree.
    apart: Members,
    /// Parts of the turns that were missing when all had agreed.
    parts: u64,
}

/// Since when the end has been as near as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standstill {
    distance: Distance,
    since_ns: u64,
    /// With which suspects all have agreed, and how many turns were missing then.
    first: Option<(Members, u64)>,
}

impl Standstill {
    pub(super) const fn new(now_ns: u64) -> Self {
        let distance = Distance { suspected: Members::NONE, apart: Members::NONE, parts: 0 };
        Self { distance, since_ns: now_ns, first: None }
    }
}

impl Member {
    /// Suspects who is waited for, when the agreement has stood still for too long.
    #[cold]
    pub(super) fn look_for_standstill(&mut self, now_ns: u64) {
        let distance = self.distance();
        let standstill = &mut self.agreement.standstill;
        if distance != standstill.distance {
            (standstill.distance, standstill.since_ns) = (distance, now_ns);
        }
        let is_over = now_ns >= standstill.since_ns.saturating_add(self.config.suspect_ns);
        if is_over && !self.order.is_finished() {
            self.waited_for().iter().for_each(|rank| self.suspect(rank, Reason::Withholds));
        }
    }

    fn distance(&mut self) -> Distance {
        let suspected = self.row.suspected;
        if !self.is_agreed() {
            return Distance { suspected, apart: self.apart(), parts: 0 };
        }
        let missing = self.missing();
        let first = &mut self.agreement.standstill.first;
        let (_, most) = match *first {
            Some(known) if known.0 == suspected => known,
            _ => *first.insert((suspected, missing)),
        };
        let parts = missing.saturating_mul(PARTS).div_ceil(most.max(1));
        Distance { suspected, apart: Members::NONE, parts }
    }

    /// Who does not show the same suspects.
    fn apart(&self) -> Members {
        let own = Members::NONE.with(self.config.rank);
        let is_wedged = self.row.wedged == self.row.suspected;
        let others = self.reachable().iter().filter(|rank| !self.agrees(*rank)).collect();
        if is_wedged { others } else { own.union(others) }
    }

    /// Who has not received all of the stream of `of`.
    fn lacking(&self, of: Rank, end: u64) -> Members {
        self.survivors().iter().filter(|by| self.received(*by, of) < end).collect()
    }

    /// The streams whose ends are known, and these.
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

    /// For whom the survivors wait.
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
            // Who has finished is repaired with nothing.
            let is_repaired = !lacking.is_subset(self.agreement.gone);
            match is_repaired && self.row.suspected.contains(of) {
                true => self.holding_up(of),
                false => lacking,
            }
        });
        behind.fold(Members::NONE, Members::union).without(me)
    }

    /// Who holds up the repair of the stream of `of`: those who have not taken what its
    /// repairer has written last, or else the repairer.
    fn holding_up(&self, of: Rank) -> Members {
        let Some(repairer) = self.repairer(of) else {
            // Who has finished claims what nobody has who is still there.
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
