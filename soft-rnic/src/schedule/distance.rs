//! Peers that are a round trip away: a device whose requests arrive, and are answered,
//! when a network would have carried them.
//!
//! ```text
//!   post --- half a round trip ---> arrives, is executed --- the other half ---> completes
//! ```
//!
//! What was posted stays in its queue until it is answered, and is marked
//! ([`Wqe::ahead`](crate::queues::wqe::Wqe)) once it has arrived, so that requests follow each other
//! without waiting for answers: but behind a fence, and where as many READs and atomics are
//! under way as the queue pair may have. What a READ brings lies in memory from the time of
//! its arrival on, which the application cannot know before its completion.
//!
//! A message of an unreliable transport is complete when it has arrived, or would have.
//!
//! Nothing happens on its own: a poll of any completion queue of the device lets every request
//! that is due arrive, or complete, in the order of these times. Where no thread polls, a
//! deadline of the timer does the same, somewhat later.

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::execution::{Execution, SqParts};
use crate::engine::responder::ResponderSession;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::device::DEVICES;
use crate::objects::state::{Device, ExecutionMode, Qp, Sq, Srq};
use crate::queues::outcome::WqeOutcome;
use crate::queues::qp_state::QueuePairState;
use crate::queues::wqe::WqeRef;
use crate::timing::card::{Card, CardLink, LinkLoad, transit};
use crate::timing::times::{CardLimits, DistanceState, TransitTimes};

/// Delay of the timer behind the next arrival: a poll is earlier, and a timer without delay would
/// occupy a processor that other threads use.
const TIMER_NS: u64 = 50_000;
/// The number of no queue pair, by which the timer asks for all of a device.
pub(crate) const ALL: u32 = 0;
/// The longest round trip.
const LONGEST: Duration = Duration::from_secs(10);

/// The name of a device like `soft0` whose queue pairs are a round trip from each other, in
/// whole nanoseconds, of at most ten seconds: from now on it is listed, and the same time
/// gives the same device.
///
/// It connects queue pairs of this process. The time is added to each request's,
/// half of it before it arrives and half before it is complete, and any number of requests
/// is under way at once; nothing else of a network is shown, neither its bandwidth nor what
/// it loses.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(soft_rnic::distant(Duration::from_micros(5)), "soft0@5us");
/// assert_eq!(soft_rnic::distant(Duration::from_nanos(1500)), "soft0@1500ns");
/// ```
pub fn distant(round_trip: Duration) -> String {
    let ns = round_trip.min(LONGEST).as_nanos() as u64;
    let name = match ns % 1000 {
        0 => format!("soft0@{}us", ns / 1000),
        _ => format!("soft0@{ns}ns"),
    };
    list(&name, 1 << 40 | ns, || DistanceState::new(ns, None));
    name
}

/// The name of a device within one process which takes the time that a card takes, times `slow`, from 1
/// to 1000, by the system's clock: from now on it is listed. `None` where there is no such card, or it would be faster.
///
/// The one card is `connectx5`, with the parameters that "Know Your Memory" (Fischer, 2021) has fitted
/// to measurements. A post, a poll that finds something and a post of receives return when a card's
/// would; requests and their bytes keep the card of either end busy, which is that of an opened context.
/// With `slow`, what takes longer here than on the card is in proportion to the rest again.
///
/// ```
/// assert_eq!(soft_rnic::card("connectx5", 4.0).as_deref(), Some("soft0@card=connectx5,slow=4"));
/// assert_eq!(soft_rnic::card("telepathy", 1.0), None);
/// ```
pub fn card(card: &str, slow: f64) -> Option<String> {
    // By the clock of this process, which may go as slowly.
    let by_clock = slow / host::time::slowness();
    let costs = Card::named(card, by_clock).filter(|_| (1.0..=1000.0).contains(&slow))?;
    let name = format!("soft0@card={card},slow={slow}");
    list(&name, 2 << 40 | slow.to_bits() >> 24, || DistanceState::new(0, Some(costs)));
    Some(name)
}

/// Lists a device of this name, unless it is listed. Numbers are far from those of simulations.
fn list(name: &str, ordinal: u64, make: impl FnOnce() -> DistanceState) {
    let mut devices = DEVICES.lock();
    if !devices.iter().any(|device| device.name() == name) {
        devices.push(Device::new(name, ordinal, ExecutionMode::Distant(make())));
    }
}

impl DistanceState {
    /// Has the timer look, if something is still to happen.
    fn set_timer(&self, device: &Arc<Device>) {
        // Relaxed: as in `set_next`; but a thread that has pushed sees its own push.
        let next = self.next.load(Ordering::Relaxed);
        // AcqRel: one thread sets the timer for a time, and sees what the one before it has pushed.
        if next < self.timed_for.fetch_min(next, Ordering::AcqRel) {
            // Where the timer has a processor of its own, it is on time, for threads that poll memory.
            let late = if host::has_own_processor() { 0 } else { TIMER_NS };
            device.arm(ALL, Some(next.saturating_sub(self.now()) + late));
        }
    }
}

/// A request was posted behind all others of a queue pair, whose send queue is locked.
pub(crate) fn posted(
    distance: &DistanceState,
    qp: &Qp,
    sq: &mut Sq,
    request: &WqeRef<'_>,
    at: u64,
) {
    qp.resolve_peer(sq);
    let Sq { requester, transit_times, peer, .. } = sq;
    let (half, wqe) = (distance.round_trip_ns / 2, request.wqe);
    let transit = |leaves: u64| match &distance.card {
        None => TransitTimes { arrival: leaves + half, answer: leaves + distance.round_trip_ns },
        Some(card) => {
            // A datagram's way in is free: it may go to any queue pair.
            let (near, free) = (&qp.pd.context.link, CardLink::default());
            let far = peer.as_ref().map_or(&free, |peer| &peer.pd.context.link);
            let (bytes, is_read) = (request.len(), wqe.op.is_response());
            let load = match wqe.inline {
                _ if is_read => LinkLoad::Answered(bytes),
                true => LinkLoad::Inline(bytes),
                false => LinkLoad::Fetched(bytes),
            };
            let (arrival, answer) = transit(card, (near, far), (at, leaves), load);
            let shared = peer.as_ref().and_then(|peer| peer.srq.as_ref());
            let is_shared = |srq: &&Arc<Srq>| srq.users.count() > 1;
            match shared.filter(is_shared).filter(|_| wqe.takes_receive()) {
                None => TransitTimes { arrival, answer },
                Some(srq) => {
                    let taken = card.receive_shared(&srq.turn, at, arrival, bytes);
                    TransitTimes { arrival: taken, answer: answer + (taken - arrival) }
                }
            }
        }
    };
    let limits = distance.card.as_ref().map_or(CardLimits::default(), CardLimits::for_card);
    let times = transit_times.get_or_insert_default().post(at, requester, wqe, limits, transit);
    distance.push(qp.num, times);
    distance.set_timer(&qp.pd.context.device);
}

/// The first step of a poll: everything that is due happens.
#[cold]
pub(crate) fn look(device: &Arc<Device>) {
    let Some(distance) = device.distance() else { return };
    // Relaxed: what is missed now is seen by the next poll.
    if distance.next.load(Ordering::Relaxed) <= distance.now() {
        step(device, distance);
    }
}

/// The step of the timer, for threads that do not poll.
#[cold]
pub(crate) fn timed(device: &Arc<Device>) {
    let Some(distance) = device.distance() else { return };
    // Not so where an earlier time was set in between, for which the timer was set again.
    if distance.timed_for.load(Ordering::Acquire) <= distance.now() {
        distance.timed_for.store(u64::MAX, Ordering::Release);
    }
    step(device, distance);
    distance.set_timer(device);
}

fn step(device: &Arc<Device>, distance: &DistanceState) {
    // The thread that holds the lock continues until nothing is due.
    let Some(_stepping) = distance.stepping.try_lock() else { return };
    while let Some((at, qpn)) = distance.pop_due(distance.now()) {
        let Some(qp) = device.qps.get(qpn) else { continue };
        let mut deferred = DeferredWork::default();
        qp.run_distant(&mut qp.sq.lock(), at, &mut deferred);
        deferred.run();
    }
}

impl Qp {
    /// Lets the requests of the queue that are due at `now` arrive, and complete. The
    /// send queue's lock is held.
    pub(crate) fn run_distant(self: &Arc<Qp>, sq: &mut Sq, now: u64, deferred: &mut DeferredWork) {
        if self.transport.is_reliable() {
            self.resolve_peer(sq);
            while self.take_arrived(sq, now, deferred) | self.answer(sq, now, deferred) {}
        } else {
            while self.drop_off(sq, now, deferred) {}
        }
        self.check_drained(sq);
        self.trace_progress(sq);
    }

    /// Executes the oldest message of an unreliable transport, if it has arrived; returns true if
    /// there was one.
    fn drop_off(self: &Arc<Qp>, sq: &mut Sq, now: u64, deferred: &mut DeferredWork) -> bool {
        let before = sq.pending.len();
        let is_due = self.next_arrival(sq).is_some_and(|(_, arrival)| arrival <= now);
        if is_due || self.state().flushes_sends() {
            self.run_arrived(sq, deferred, true);
        }
        sq.pending.len() < before
    }

    /// Completes what is answered, and in an error state all; returns true if there was anything.
    fn answer(self: &Arc<Qp>, sq: &mut Sq, now: u64, deferred: &mut DeferredWork) -> bool {
        let Sq { requester, pending, counters, scratch, transit_times, .. } = sq;
        let times = transit_times.get_or_insert_default();
        let (mut execution, mut done) = (Execution::new(), 0);
        let mut parts = SqParts { requester, counters, scratch };
        times.follow(pending);
        while let Some(request) = pending.front() {
            let is_answered = times.nth(0).is_some_and(|times| times.answer <= now);
            if self.state().flushes_sends() {
                let flushed = Some(self.flush_reason());
                self.complete(&mut execution, request.wqe, 0, flushed);
            } else if request.wqe.ahead && is_answered {
                let len = request.len();
                let outcome = times.outcome(request.wqe);
                self.settle(&mut parts, &mut execution, request.wqe, len, outcome);
            } else {
                break;
            }
            pending.pop();
            times.follow(pending);
            done += 1;
        }
        deferred.append(execution.finish());
        done > 0
    }

    /// Executes what has arrived, in order; returns true if there was anything.
    fn take_arrived(self: &Arc<Qp>, sq: &mut Sq, now: u64, deferred: &mut DeferredWork) -> bool {
        let mut done = false;
        while let Some((n, at)) = self.next_arrival(sq)
            && at <= now
            && self.take(sq, n, deferred)
        {
            done = true;
        }
        done
    }

    /// Executes the request behind `n` others; returns true if it has ended.
    fn take(self: &Arc<Qp>, sq: &mut Sq, n: u32, deferred: &mut DeferredWork) -> bool {
        let Sq { requester, pending, peer, counters, scratch, transit_times, .. } = sq;
        let Some(request) = pending.nth(n) else { return false };
        let (mut session, mut execution) =
            (peer.as_ref().map(ResponderSession::open), Execution::new());
        let before = (requester.started, requester.rnr_left);
        self.check_execution(request.wqe);
        if n > 0 {
            // What is left of them is the oldest one's.
            requester.rnr_left = requester.rnr_retry;
        }
        let outcome = match request.wqe.op.is_local() {
            true => self.execute_local(requester, &mut execution, request.wqe),
            false => self.execute_any(requester, &mut session, &mut execution, scratch, &request),
        };
        let is_over = !matches!(outcome, WqeOutcome::Blocked(..));
        if let (WqeOutcome::Failed(reason), Some(times)) = (outcome, transit_times) {
            times.refused = Some((request.wqe.position, reason));
        }
        if n > 0 {
            // Tried again, if need be, in its turn: when those before it are answered.
            (requester.started, requester.rnr_left) = before;
        } else if !is_over {
            let mut parts = SqParts { requester, counters, scratch };
            self.settle(&mut parts, &mut execution, request.wqe, 0, outcome);
        }
        deferred.append(execution.finish());
        drop(session);
        if is_over {
            pending.mark_ahead(n);
        }
        is_over
    }

    /// The oldest request that has not been executed, if it may be, and when it arrives.
    fn next_arrival(&self, sq: &mut Sq) -> Option<(u32, u64)> {
        let times = sq.transit_times.get_or_insert_default();
        times.follow(&sq.pending);
        let n = (0..sq.pending.len()).find(|n| !sq.pending.nth(*n).is_some_and(|r| r.wqe.ahead))?;
        let started = n == 0 && sq.requester.started;
        let may_run =
            self.state() == QueuePairState::Rts || self.state() == QueuePairState::Sqd && started;
        let wqe = sq.pending.nth(n)?.wqe;
        let is_response = |m| sq.pending.nth(m).is_some_and(|r| r.wqe.op.is_response());
        // What is carried out here waits for all before it.
        let is_held = wqe.fence && (0..n).any(is_response) || wqe.op.is_local() && n > 0;
        let may_run = may_run && !is_held && times.refused.is_none();
        let may_run = may_run && sq.requester.waits.is_none();
        may_run.then_some((n, times.nth(n)?.arrival))
    }
}

#[cfg(test)]
mod tests;
