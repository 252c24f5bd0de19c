//! State that a member keeps of each part of its work: the parts themselves are in the modules of
//! these names.

use super::repair_header::RepairHeader;
use super::{Config, MAX_MEMBERS, Members, Rank, Reason};
use crate::push_inhibitor::{PushCounter, PushInhibitor};

/// Pushes that are due, and those that are inhibited.
// Invariant: counted <= written <= target <= accepted of the own stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushing {
    /// Bytes of the own ring up to which slots were written.
    pub(super) written: u64,
    /// Bytes up to which the slot counter was pushed.
    pub(super) counted: u64,
    /// Bytes up to which both are due.
    pub(super) target: u64,
    /// Turns of the own stream: whether its slots are due.
    pub(super) slots: PushInhibitor<[PushCounter; 1]>,
    /// Turns received of each member: whether their acknowledgement is due.
    pub(super) received: PushInhibitor<[PushCounter; MAX_MEMBERS]>,
    pub(super) received_due: bool,
    pub(super) whole_due: bool,
    pub(super) control_due: bool,
    /// The goodbye that goes out when all before it has.
    pub(super) goodbye: u64,
    /// True if the next slots ask for an acknowledgement at once.
    pub(super) flush_due: bool,
    /// Time at which the health counter was last pushed.
    pub(super) health_ns: u64,
}

impl Pushing {
    pub(super) const fn new(config: &Config, now_ns: u64) -> Self {
        let rule = config.push_rule();
        Self {
            written: 0,
            counted: 0,
            target: 0,
            slots: PushInhibitor::new(rule, [PushCounter::new(); 1]),
            received: PushInhibitor::new(rule, [PushCounter::new(); MAX_MEMBERS]),
            received_due: false,
            whole_due: false,
            control_due: false,
            goodbye: 0,
            flush_due: false,
            health_ns: now_ns,
        }
    }
}

/// The place in the total order: turn `round` of `rank` is next.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderPosition {
    pub(super) round: u64,
    pub(super) rank: Rank,
    /// Bytes of the last message handed out, while it lies at the front; else 0.
    pub(super) lent: u64,
    pub(super) is_finished: bool,
}

impl OrderPosition {
    pub(super) const fn new(config: &Config) -> Self {
        let rank = match config.senders.lowest() {
            Some(rank) => rank,
            None => Rank(0),
        };
        Self { round: 0, rank, lent: 0, is_finished: false }
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.is_finished
    }
}

/// Failures that are known to a member, and the agreement about them.
#[derive(Clone, Debug)]
pub(super) struct FailureAgreement {
    pub(super) reasons: [Option<Reason>; MAX_MEMBERS],
    /// Time at which a member's health counter last moved, or the member said that it has finished.
    pub(super) heard_ns: [u64; MAX_MEMBERS],
    /// Since when a group of its row has not fitted its checksum.
    pub(super) unfit_ns: [Option<u64>; MAX_MEMBERS],
    /// The members that have said that they are finished. Their rows are not looked at any
    /// more: their counters are complete.
    pub(super) gone: Members,
    pub(super) excluded_by: Option<Rank>,
    /// Suspects to which the suspicion was not written yet: those that live learn from it that
    /// they are excluded.
    pub(super) unreported: Members,
    /// The repair that is under way: the stream's sender, and the turns that all have when it
    /// is done.
    pub(super) repairing: Option<(Rank, u64)>,
    pub(super) repair_due: Option<RepairHeader>,
    /// Repairs of each member that were taken.
    pub(super) repairs_taken: [u64; MAX_MEMBERS],
    /// The member that last repaired each stream.
    pub(super) repairer: [Rank; MAX_MEMBERS],
    /// The last repair that each member has written for the same survivors: the stream's
    /// sender, and the turns that all have when it is done.
    pub(super) shown: [Option<(Rank, u64)>; MAX_MEMBERS],
    pub(super) stall: StallDetector,
}

impl FailureAgreement {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self {
            reasons: [None; MAX_MEMBERS],
            heard_ns: [now_ns; MAX_MEMBERS],
            unfit_ns: [None; MAX_MEMBERS],
            gone: Members::NONE,
            excluded_by: None,
            unreported: Members::NONE,
            repairing: None,
            repair_due: None,
            repairs_taken: [0; MAX_MEMBERS],
            repairer: [Rank(0); MAX_MEMBERS],
            shown: [None; MAX_MEMBERS],
            stall: StallDetector::new(now_ns),
        }
    }
}

/// Distance from the end. For one set of suspects, it only shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct EndDistance {
    pub(super) suspected: Members,
    /// The members that do not agree.
    pub(super) apart: Members,
    /// Parts of the turns that were missing when all had agreed.
    pub(super) parts: u64,
}

/// Distance to the end, and the time since when it has not decreased.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallDetector {
    pub(super) distance: EndDistance,
    pub(super) since_ns: u64,
    /// With which suspects all have agreed, and how many turns were missing then.
    pub(super) first: Option<(Members, u64)>,
}

impl StallDetector {
    pub(super) const fn new(now_ns: u64) -> Self {
        let distance = EndDistance { suspected: Members::NONE, apart: Members::NONE, parts: 0 };
        Self { distance, since_ns: now_ns, first: None }
    }
}
