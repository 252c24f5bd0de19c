//! Faults that strike the requests of one send queue.

use std::sync::Arc;

use super::plan::{Plan, SeededPlan};
use super::tally::count;
use host::random::Random;

/// A fault that strikes a request. The number names it in the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Fault {
    /// It waits first.
    Delay = 1,
    /// Its queue pair goes to the error state.
    Flush,
    /// Its receiver is not ready.
    Rnr,
    /// It is lost, and no response comes.
    Retry,
    /// A message that no response is expected of is lost.
    Loss,
}

/// Properties of a request that determine the faults that it can meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exposure {
    /// It goes to a peer.
    pub(crate) is_sent: bool,
    pub(crate) is_reliable: bool,
    pub(crate) takes_receive: bool,
}

/// The faults of one send queue.
///
/// Requests come in the order of their numbers; one that was let go may come again, when it is sent
/// again. Then it meets no fault: all of its faults come before it is sent for the first time.
#[derive(Debug)]
pub(crate) struct QueueFaults {
    of: Arc<SeededPlan>,
    ordinal: u32,
    /// Requests that were posted before the queue pair was last reset.
    before: u32,
    /// The number of the newest request that was drawn for. Older ones were let go.
    newest: u32,
    /// That one is counted.
    is_counted: bool,
    /// It was struck.
    was_struck: bool,
    /// That one was let go, too.
    is_let_go: bool,
    is_delayed: bool,
    /// Times that it has been struck by a receiver that is not ready, and by a loss.
    rnrs: u32,
    losses: u32,
}

impl QueueFaults {
    pub(super) fn new(of: Arc<SeededPlan>, ordinal: u32) -> QueueFaults {
        QueueFaults {
            of,
            ordinal,
            before: 0,
            newest: 0,
            is_counted: false,
            was_struck: false,
            is_let_go: false,
            is_delayed: false,
            rnrs: 0,
            losses: 0,
        }
    }

    /// The fault that strikes the request at this position of the queue now; none if it goes on.
    /// Nothing counts until [`strike`](Self::strike) says that it did.
    pub(crate) fn next(&mut self, position: u32, exposure: Exposure) -> Option<Fault> {
        let number = self.before.wrapping_add(position).wrapping_sub(1);
        match number.wrapping_sub(self.newest).cast_signed() {
            ..0 => return None,
            0 => {}
            _ => self.begin(number),
        }
        if self.is_let_go {
            return None;
        }
        self.count(exposure);
        let fault = self.drawn(exposure);
        self.is_let_go = fault.is_none();
        fault
    }

    /// Counts the newest request, once.
    fn count(&mut self, exposure: Exposure) {
        if !core::mem::replace(&mut self.is_counted, true) {
            count(&self.of.tally.requests);
            if exposure.is_sent && !exposure.is_reliable {
                count(&self.of.tally.unreliable);
            }
        }
    }

    fn begin(&mut self, number: u32) {
        self.newest = number;
        (self.is_counted, self.was_struck) = (false, false);
        (self.is_let_go, self.is_delayed) = (false, false);
        (self.rnrs, self.losses) = (0, 0);
    }

    fn drawn(&self, exposure: Exposure) -> Option<Fault> {
        let plan: &Plan = &self.of.plan;
        let Exposure { is_sent, is_reliable, takes_receive } = exposure;
        let kinds = [
            (Fault::Delay, plan.delay, 0, !self.is_delayed),
            (Fault::Flush, plan.flush, 0, true),
            (Fault::Rnr, plan.rnr, self.rnrs, is_reliable && takes_receive),
            (Fault::Retry, plan.retry, self.losses, is_reliable && is_sent),
            (Fault::Loss, plan.loss, 0, !is_reliable && is_sent),
        ];
        let strikes = |(fault, probability, nth, is_exposed): &(Fault, f64, u32, bool)| {
            *is_exposed && self.draw(*fault, *nth).strikes(*probability)
        };
        kinds.iter().find(|kind| strikes(kind)).map(|kind| kind.0)
    }

    /// Returns the random numbers that decide about the `nth` fault of its kind on the newest
    /// request.
    fn draw(&self, fault: Fault, nth: u32) -> Random {
        let words = [self.ordinal.into(), self.newest.into(), fault as u64, nth.into()];
        let mix = |key: u64, word: u64| Random::new(key ^ word).next_u64();
        Random::new(words.into_iter().fold(self.of.seed, mix))
    }

    /// The fault has struck.
    pub(crate) fn strike(&mut self, fault: Fault) {
        if !core::mem::replace(&mut self.was_struck, true) {
            count(&self.of.tally.struck);
        }
        match fault {
            Fault::Delay => self.is_delayed = true,
            Fault::Rnr => self.rnrs += 1,
            Fault::Retry => self.losses += 1,
            Fault::Flush | Fault::Loss => {}
        }
    }

    /// The oldest request has failed: of its faults, unless it was let go.
    pub(crate) fn fail(&mut self) {
        if self.was_struck && !core::mem::replace(&mut self.is_let_go, true) {
            count(&self.of.tally.failed);
        }
    }

    /// Returns the time that a delayed request waits.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.of.plan.delay_ns
    }

    /// Reports whether the request that waits at the head, the newest one, waits because of a
    /// fault.
    pub(crate) fn is_struck(&self) -> bool {
        !self.is_let_go && self.rnrs + self.losses > 0
    }

    /// The queue pair is reset, after so many posts; the count of its requests goes on.
    pub(crate) fn reset(&mut self, posted: u32) {
        self.before = self.before.wrapping_add(posted);
        self.begin(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Exposure = Exposure { is_sent: true, is_reliable: true, takes_receive: true };

    fn queue(plan: &str, seed: u64, ordinal: u32) -> QueueFaults {
        let plan = plan.parse().unwrap();
        QueueFaults::new(Arc::new(SeededPlan::new(plan, seed)), ordinal)
    }

    /// All faults of the first `n` requests, each until it is let go or ends.
    fn all(queue: &mut QueueFaults, n: u32, exposure: Exposure) -> Vec<(u32, Fault)> {
        let mut struck = Vec::new();
        for position in 1..=n {
            // More than any draws for one request, where each try is drawn for anew.
            for _ in 0..64 {
                let Some(fault) = queue.next(position, exposure) else { break };
                struck.push((position, fault));
                queue.strike(fault);
                if matches!(fault, Fault::Flush | Fault::Loss) {
                    break;
                }
            }
        }
        struck
    }

    const PLAN: &str = "rnr=0.2,retry=0.2,delay=0.2:1us,flush=0.01";

    #[test]
    fn faults_follow_from_seed_ordinal_and_number() {
        let of = |seed, ordinal| all(&mut queue(PLAN, seed, ordinal), 300, SEND);
        assert_eq!(of(7, 1), of(7, 1));
        assert_ne!(of(7, 1), of(8, 1));
        assert_ne!(of(7, 1), of(7, 2));
        // The numbers of seeds and ordinals do not add up to the same faults.
        assert_ne!(of(7, 2), of(8, 1));
        let kinds = [Fault::Delay, Fault::Flush, Fault::Rnr, Fault::Retry];
        for kind in kinds {
            assert!(of(7, 1).iter().any(|(_, fault)| *fault == kind), "{kind:?}");
        }
    }

    /// Faults of one kind are not changed by another kind, nor by the other requests.
    #[test]
    fn kinds_and_requests_are_drawn_apart() {
        let only = |plan| {
            let all = all(&mut queue(plan, 7, 1), 500, SEND);
            all.into_iter().filter(|(_, fault)| *fault == Fault::Rnr).collect::<Vec<_>>()
        };
        assert_eq!(only("rnr=0.2"), only("rnr=0.2,retry=0.3,delay=0.1:1us"));
        let (mut every, mut second) = (queue("rnr=0.2", 7, 1), queue("rnr=0.2", 7, 1));
        for position in 1..500 {
            let fault = every.next(position, SEND);
            if position % 2 == 0 {
                assert_eq!(fault, second.next(position, SEND), "{position}");
            }
        }
    }

    #[test]
    fn probabilities_are_kept() {
        let mut queue = queue("rnr=0.1", 1, 1);
        let n = all(&mut queue, 100_000, SEND).len();
        // 1/9 for each: every try draws again. Five deviations.
        assert!((10_500..11_700).contains(&n), "{n}");
    }

    #[test]
    fn a_request_past_its_faults_meets_none_when_sent_again() {
        let mut queue = queue("rnr=0.5", 3, 1);
        let first = (1..).find(|position| queue.next(*position, SEND).is_some()).unwrap();
        assert!(first > 1 && !queue.is_struck());
        queue.strike(Fault::Rnr);
        assert!(queue.is_struck());
        for position in 1..first {
            assert_eq!(queue.next(position, SEND), None);
        }
        all(&mut queue, first, SEND);
        assert!(!queue.is_struck());
        assert_eq!(queue.next(first, SEND), None);
    }

    #[test]
    fn requests_meet_only_what_they_are_exposed_to() {
        let plan = "rnr=1,retry=1,loss=1";
        let write = Exposure { takes_receive: false, ..SEND };
        let datagram = Exposure { is_reliable: false, ..SEND };
        let local = Exposure { is_sent: false, ..write };
        assert_eq!(queue(plan, 1, 1).next(1, SEND), Some(Fault::Rnr));
        assert_eq!(queue(plan, 1, 1).next(1, write), Some(Fault::Retry));
        assert_eq!(queue(plan, 1, 1).next(1, datagram), Some(Fault::Loss));
        assert_eq!(queue(plan, 1, 1).next(1, local), None);
        assert_eq!(queue("flush=1", 1, 1).next(1, local), Some(Fault::Flush));
        // Once, and then it goes on.
        let mut queue = queue("delay=1us", 1, 1);
        assert_eq!(all(&mut queue, 2, local), [(1, Fault::Delay), (2, Fault::Delay)]);
    }

    /// A request counts once, however often it is struck; it has failed if it was not let go.
    #[test]
    fn what_is_struck_and_fails_is_counted() {
        let mut queue = queue("rnr=1,delay=1us", 1, 1);
        for _ in 0..3 {
            let fault = queue.next(1, SEND).unwrap();
            queue.strike(fault);
        }
        (0..2).for_each(|_| queue.fail());
        let local = Exposure { is_sent: false, takes_receive: false, ..SEND };
        all(&mut queue, 2, local);
        // It fails by itself.
        queue.fail();
        assert_eq!(queue.of.tally.line(false), "2 of 2 requests struck, 1 failed");
    }

    #[test]
    fn the_count_goes_on_over_a_reset() {
        let (mut through, mut reset) = (queue(PLAN, 9, 1), queue(PLAN, 9, 1));
        let expected = all(&mut through, 200, SEND);
        let mut found = all(&mut reset, 80, SEND);
        reset.reset(80);
        found.extend(all(&mut reset, 120, SEND).into_iter().map(|(n, fault)| (n + 80, fault)));
        assert_eq!(found, expected);
    }
}
