//! Faults that strike the requests of one send queue.

use std::sync::Arc;

use super::plan::{FaultPlan, SeededPlan};
use super::tally::count;
use host::random::Random;

/// A fault that strikes a request. The number names it in the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum InjectedFault {
    /// It waits first.
    Delay = 1,
    /// Its queue pair goes to the error state.
    Flush,
    /// Its receiver is not ready.
    Rnr,
    /// It is lost, and no response arrives.
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
/// Requests pass in the order of their numbers; one that was let through may pass again, when it is
/// sent again. Then it meets no fault: all of its faults strike before it is sent for the first
/// time.
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

    /// The fault that strikes the request at this position of the queue now; none if it proceeds.
    /// Nothing counts until [`strike`](Self::strike) says that it did.
    pub(crate) fn next(&mut self, position: u32, exposure: Exposure) -> Option<InjectedFault> {
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

    fn drawn(&self, exposure: Exposure) -> Option<InjectedFault> {
        let plan: &FaultPlan = &self.of.plan;
        let Exposure { is_sent, is_reliable, takes_receive } = exposure;
        let kinds = [
            (InjectedFault::Delay, plan.delay, 0, !self.is_delayed),
            (InjectedFault::Flush, plan.flush, 0, true),
            (InjectedFault::Rnr, plan.rnr, self.rnrs, is_reliable && takes_receive),
            (InjectedFault::Retry, plan.retry, self.losses, is_reliable && is_sent),
            (InjectedFault::Loss, plan.loss, 0, !is_reliable && is_sent),
        ];
        let strikes = |(fault, probability, nth, is_exposed): &(InjectedFault, f64, u32, bool)| {
            *is_exposed && self.draw(*fault, *nth).strikes(*probability)
        };
        kinds.iter().find(|kind| strikes(kind)).map(|kind| kind.0)
    }

    /// Returns the random numbers that decide about the `nth` fault of its kind on the newest
    /// request.
    fn draw(&self, fault: InjectedFault, nth: u32) -> Random {
        let words = [self.ordinal.into(), self.newest.into(), fault as u64, nth.into()];
        let mix = |key: u64, word: u64| Random::new(key ^ word).next_u64();
        Random::new(words.into_iter().fold(self.of.seed, mix))
    }

    /// The fault has struck.
    pub(crate) fn strike(&mut self, fault: InjectedFault) {
        if !core::mem::replace(&mut self.was_struck, true) {
            count(&self.of.tally.struck);
        }
        match fault {
            InjectedFault::Delay => self.is_delayed = true,
            InjectedFault::Rnr => self.rnrs += 1,
            InjectedFault::Retry => self.losses += 1,
            InjectedFault::Flush | InjectedFault::Loss => {}
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

    /// The queue pair is reset, after `posted` posts; the count of its requests continues.
    pub(crate) fn reset(&mut self, posted: u32) {
        self.before = self.before.wrapping_add(posted);
        self.begin(self.before);
    }
}

#[cfg(test)]
mod tests;
