//! Times at which the requests of a distant device arrive, and are answered.

use core::sync::atomic::{AtomicU64, Ordering};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use host::sync::Mutex;

use crate::lock::Lock;
use crate::queues::outcome::WqeOutcome;
use crate::queues::pending::PendingWqes;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::Wqe;
use crate::reason::WcReason;
use crate::timing::card::Card;

/// Additional state of a distant device.
#[derive(Debug)]
pub(crate) struct DistanceState {
    pub(crate) round_trip_ns: u64,
    /// Costs of its cards' operations; `None` if they cost nothing.
    pub(crate) card: Option<Card>,
    epoch: Instant,
    /// Times at which requests arrive or are answered, with the numbers of their queue pairs.
    events: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    /// Time of the first event.
    pub(crate) next: AtomicU64,
    /// One thread at a time handles the events, in their order.
    pub(crate) stepping: Lock<()>,
    /// Time of the event that the timer is set for; `u64::MAX` if it is not.
    pub(crate) timed_for: AtomicU64,
}

impl DistanceState {
    pub(crate) fn new(round_trip_ns: u64, card: Option<Card>) -> DistanceState {
        DistanceState {
            round_trip_ns,
            card,
            epoch: host::time::now(),
            events: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
            stepping: Lock::default(),
            timed_for: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        host::time::since(self.epoch).as_nanos() as u64
    }

    pub(crate) fn push(&self, qpn: u32, times: TransitTimes) {
        let mut events = self.events.lock();
        events.push(Reverse((times.arrival, qpn)));
        events.push(Reverse((times.answer, qpn)));
        self.set_next(&events);
    }

    pub(crate) fn pop_due(&self, now: u64) -> Option<(u64, u32)> {
        let mut events = self.events.lock();
        events.peek().filter(|Reverse((at, _))| *at <= now)?;
        let due = events.pop();
        self.set_next(&events);
        due.map(|Reverse(due)| due)
    }

    fn set_next(&self, events: &BinaryHeap<Reverse<(u64, u32)>>) {
        let first = events.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        // Relaxed: a hint for polls; what one misses the next one sees.
        self.next.store(first, Ordering::Relaxed);
    }
}

/// Times at which the requests of a queue arrive, and are answered.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Positions and times of the requests in the queue, oldest first.
    times: VecDeque<(u32, TransitTimes)>,
    /// The time from which the next one may leave.
    left: u64,
    /// Times at which the READs and atomics under way are answered.
    answers: VecDeque<u64>,
    /// The request that was refused when it arrived; it takes the send queue along when the
    /// answer is here, and nothing arrives behind it.
    pub(crate) refused: Option<(u32, WcReason)>,
}

/// Limits of a card for one queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardLimits {
    /// Nanoseconds from a request to the next one.
    between: u64,
    /// READs and atomics under way.
    reads: u32,
}

impl CardLimits {
    pub(crate) fn for_card(card: &Card) -> CardLimits {
        CardLimits { between: card.between_requests(), reads: card.reads() }
    }
}

impl Default for CardLimits {
    fn default() -> CardLimits {
        CardLimits { between: 0, reads: u32::MAX }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransitTimes {
    pub(crate) arrival: u64,
    pub(crate) answer: u64,
}

impl Times {
    /// A request that is posted at `at`; `transit` has the times of one that leaves then.
    pub(crate) fn post(
        &mut self,
        at: u64,
        requester: &RequesterState,
        wqe: &Wqe,
        limits: CardLimits,
        transit: impl FnOnce(u64) -> TransitTimes,
    ) -> TransitTimes {
        let transit = self.plan(at, requester, wqe, limits, transit);
        self.times.push_back((wqe.position, transit));
        transit
    }

    pub(crate) fn plan(
        &mut self,
        at: u64,
        requester: &RequesterState,
        wqe: &Wqe,
        limits: CardLimits,
        transit: impl FnOnce(u64) -> TransitTimes,
    ) -> TransitTimes {
        let mut leaves = self.left.max(at);
        if wqe.fence {
            leaves = leaves.max(self.answers.back().copied().unwrap_or(0));
        }
        if wqe.op.is_response() {
            let most = u32::from(requester.max_rd_atomic.max(1)).min(limits.reads) as usize;
            while self.answers.len() >= most {
                leaves = leaves.max(self.answers.pop_front().unwrap_or(0));
            }
        }
        self.left = leaves + limits.between;
        let transit = transit(leaves);
        if wqe.op.is_response() {
            self.answers.push_back(transit.answer);
        }
        transit
    }

    /// Forgets requests that have left the queue.
    pub(crate) fn follow(&mut self, pending: &PendingWqes) {
        let head = pending.front().map(|head| head.wqe.position);
        while self.times.front().is_some_and(|(position, _)| Some(*position) != head) {
            self.times.pop_front();
        }
    }

    /// Returns the answer to a request that has arrived.
    pub(crate) fn outcome(&self, wqe: &Wqe) -> WqeOutcome {
        match self.refused {
            Some((position, reason)) if position == wqe.position => WqeOutcome::Failed(reason),
            _ => WqeOutcome::Done,
        }
    }

    pub(crate) fn nth(&self, n: u32) -> Option<TransitTimes> {
        self.times.get(n as usize).map(|(_, transit)| *transit)
    }
}

#[cfg(test)]
mod tests;
