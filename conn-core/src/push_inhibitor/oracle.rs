//! The operations of a [`PushInhibitor`], and a naive model of it: the counts of now and of the
//! last push, and since when a push is inhibited.

use std::{vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on the counters of a write.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum PushInhibitorOp {
    /// A counter advances.
    Advance {
        /// Index of the counter, modulo their number.
        at: u8,
        /// By how much; 0 changes nothing.
        by: u32,
    },
    /// A counter is said to be lower than it is.
    Lower(u8),
    /// The program flushes.
    Urge,
    /// This number of nanoseconds pass, and the machine is asked.
    Look(u16),
    /// The write is posted, whether it is due or not.
    Push,
}

/// The machine and its model.
#[derive(Clone, Debug)]
pub struct CheckedPushInhibitor {
    machine: PushInhibitor<Vec<PushCounter>>,
    now: Vec<u64>,
    pushed: Vec<u64>,
    is_urged: bool,
    inhibited_since: Option<u64>,
    time_ns: u64,
}

impl CheckedPushInhibitor {
    /// Both, with `counters` at 0.
    pub fn new(rule: PushRule, counters: usize) -> Self {
        Self {
            machine: PushInhibitor::new(rule, vec![PushCounter::new(); counters]),
            now: vec![0; counters],
            pushed: vec![0; counters],
            is_urged: false,
            inhibited_since: None,
            time_ns: 0,
        }
    }

    /// Each counter: its count, and that of the last push.
    fn counters(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.now.iter().copied().zip(self.pushed.iter().copied())
    }

    fn is_pending(&self) -> bool {
        self.now != self.pushed
    }

    /// Reports whether the highest multiple of k that a counter has reached is beyond its last
    /// push.
    fn has_crossed(&self) -> bool {
        let k = u64::from(self.machine.rule().every.get());
        self.counters().any(|(now, pushed)| now - now % k > pushed)
    }

    fn advance(&mut self, at: u8, by: u32) {
        let at = usize::from(at) % self.now.len();
        self.now[at] += u64::from(by);
        self.machine.advance(at, self.now[at]);
    }

    fn lower(&mut self, at: u8) {
        let (at, before) = (usize::from(at) % self.now.len(), self.machine.clone());
        self.machine.advance(at, self.now[at].saturating_sub(1));
        assert_eq!(self.machine, before, "a lower count changed something");
    }

    fn look(&mut self, after_ns: u64) {
        self.time_ns += after_ns;
        let expected = if self.is_urged {
            Some(PushCause::Urged)
        } else if !self.is_pending() {
            None
        } else if self.has_crossed() {
            Some(PushCause::Crossed)
        } else {
            let since = *self.inhibited_since.get_or_insert(self.time_ns);
            let is_over = self.time_ns - since >= self.machine.rule().deadline_ns;
            is_over.then_some(PushCause::Forced)
        };
        assert_eq!(self.machine.due(self.time_ns), expected);
        assert_eq!(self.machine.due(self.time_ns), expected, "the answer stays");
    }

    fn push(&mut self) {
        self.machine.mark_pushed();
        self.pushed.clone_from(&self.now);
        (self.is_urged, self.inhibited_since) = (false, None);
    }
}

impl CheckedMachine for CheckedPushInhibitor {
    type Op = PushInhibitorOp;

    fn apply(&mut self, op: PushInhibitorOp) {
        match op {
            PushInhibitorOp::Advance { at, by } => self.advance(at, by),
            PushInhibitorOp::Lower(at) => self.lower(at),
            PushInhibitorOp::Urge => {
                self.is_urged = true;
                self.machine.urge();
            }
            PushInhibitorOp::Look(after_ns) => self.look(after_ns.into()),
            PushInhibitorOp::Push => self.push(),
        }
        assert!(self.machine.counts().eq(self.now.iter().copied()));
        let counters = self.machine.counters().iter().map(|c| (c.count(), c.pushed()));
        assert!(counters.eq(self.counters()));
        assert_eq!(self.machine.is_pending(), self.is_pending());
        let deadline = self.inhibited_since.map(|since| since + self.machine.rule().deadline_ns);
        assert_eq!(self.machine.wants_ns(), deadline);
    }
}
