//! Peers that are a round trip away: a device whose requests arrive, and are answered,
//! when a network would have carried them.
//!
//! ```text
//!   post --- half a round trip ---> arrives, is executed --- the other half ---> completes
//! ```
//!
//! What was posted stays in its queue until it is answered, and is marked
//! ([`Wqe::ahead`](crate::sq::Wqe)) once it has arrived, so that requests follow each other
//! without waiting for answers: but behind a fence, and where as many READs and atomics are
//! under way as the queue pair may have. What a READ brings lies in memory from the time of
//! its arrival on, which nobody can know before its completion.
//!
//! A message of an unreliable transport is complete when it has arrived, or would have.
//!
//! Nothing happens by itself: whoever polls any completion queue of the device lets all
//! arrive, and complete, whose time has come, in the order of these times; a deadline of the
//! timer does it, somewhat later, where nobody polls.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbs_sys::ibv_wc_status;

use crate::after::After;
use crate::device::{DEVICES, Device, Kind};
use crate::lock::Lock;
use crate::qp::{Qp, State};
use crate::requester::{Line, Outcome, SqParts};
use crate::responder::Session;
use crate::sq::{Pending, Requester, Sq, Wqe};

/// How much later the timer comes than who polls.
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
    let mut devices = DEVICES.lock();
    if !devices.iter().any(|device| device.distance().is_some_and(|d| d.round_trip_ns == ns)) {
        // Numbers far from those of simulations.
        devices.push(Device::new(&name, 1 << 40 | ns, Kind::Distant(Distance::new(ns))));
    }
    name
}

/// What a distant device has in addition.
#[derive(Debug)]
pub(crate) struct Distance {
    round_trip_ns: u64,
    epoch: Instant,
    /// When something arrives or is answered, and of which queue pair.
    events: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    /// When the first of them is.
    next: AtomicU64,
    /// One after the other, as they happen, whoever looks.
    stepping: Lock<()>,
    /// A deadline of the timer is set.
    is_timed: AtomicBool,
}

impl Distance {
    fn new(round_trip_ns: u64) -> Distance {
        Distance {
            round_trip_ns,
            epoch: Instant::now(),
            events: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
            stepping: Lock::default(),
            is_timed: AtomicBool::new(false),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn push(&self, qpn: u32, times: Transit) {
        let mut events = self.events.lock();
        events.push(Reverse((times.arrival, qpn)));
        events.push(Reverse((times.answer, qpn)));
        self.set_next(&events);
    }

    fn pop_due(&self, now: u64) -> Option<(u64, u32)> {
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

    /// Has the timer look, if there is something to come.
    fn set_timer(&self, device: &Arc<Device>) {
        // Relaxed: as in `set_next`; but who has pushed sees what he has pushed.
        let next = self.next.load(Ordering::Relaxed);
        if next != u64::MAX && !self.is_timed.swap(true, Ordering::AcqRel) {
            device.arm(ALL, Some(next.saturating_sub(self.now()) + TIMER_NS));
        }
    }
}

/// A request was posted behind all others of a queue pair, whose send queue is locked.
pub(crate) fn posted(distance: &Distance, qp: &Qp, sq: &mut Sq, wqe: &Wqe) {
    let Sq { requester, transit_times, .. } = sq;
    let times = transit_times.get_or_insert_default().post(distance, requester, wqe);
    distance.push(qp.num, times);
    distance.set_timer(&qp.pd.context.device);
}

/// As a poll, before it looks: all happens whose time has come.
#[cold]
pub(crate) fn look(device: &Arc<Device>) {
    let Some(distance) = device.distance() else { return };
    // Relaxed: what is missed now is seen by the next poll.
    if distance.next.load(Ordering::Relaxed) <= distance.now() {
        step(device, distance);
    }
}

/// The timer, for those who do not poll.
#[cold]
pub(crate) fn timed(device: &Arc<Device>) {
    let Some(distance) = device.distance() else { return };
    distance.is_timed.store(false, Ordering::Release);
    step(device, distance);
    distance.set_timer(device);
}

fn step(device: &Arc<Device>, distance: &Distance) {
    // Whoever is at it goes on until nothing is due.
    let Some(_stepping) = distance.stepping.try_lock() else { return };
    while let Some((at, qpn)) = distance.pop_due(distance.now()) {
        let Some(qp) = device.qps.get(qpn) else { continue };
        let mut after = After::default();
        qp.run_distant(&mut qp.sq.lock(), at, &mut after);
        after.run();
    }
}

/// When the requests of a queue arrive, and are answered.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Of the requests in the queue, oldest first: each its position.
    times: VecDeque<(u32, Transit)>,
    /// When the last one that was posted left.
    left: u64,
    /// When the READs and atomics under way are answered.
    answers: VecDeque<u64>,
    /// The request that was refused when it arrived; it takes the send queue along when the
    /// answer is here, and nothing arrives behind it.
    refused: Option<(u32, ibv_wc_status)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transit {
    arrival: u64,
    answer: u64,
}

impl Times {
    fn post(&mut self, distance: &Distance, requester: &Requester, wqe: &Wqe) -> Transit {
        let transit = self.plan(distance.now(), distance.round_trip_ns, requester, wqe);
        self.times.push_back((wqe.position, transit));
        transit
    }

    fn plan(&mut self, now: u64, round_trip: u64, requester: &Requester, wqe: &Wqe) -> Transit {
        let mut leaves = self.left.max(now);
        if wqe.fence {
            leaves = leaves.max(self.answers.back().copied().unwrap_or(0));
        }
        if wqe.op.is_response() {
            let most = usize::from(requester.max_rd_atomic.max(1));
            while self.answers.len() >= most {
                leaves = leaves.max(self.answers.pop_front().unwrap_or(0));
            }
            self.answers.push_back(leaves + round_trip);
        }
        self.left = leaves;
        Transit { arrival: leaves + round_trip / 2, answer: leaves + round_trip }
    }

    /// Forgets requests that have left the queue.
    fn follow(&mut self, pending: &Pending) {
        let head = pending.front().map(|head| head.wqe.position);
        while self.times.front().is_some_and(|(position, _)| Some(*position) != head) {
            self.times.pop_front();
        }
    }

    /// What is answered to a request that has arrived.
    fn outcome(&self, wqe: &Wqe) -> Outcome {
        match self.refused {
            Some((position, status)) if position == wqe.position => Outcome::Failed(status),
            _ => Outcome::Done,
        }
    }

    fn nth(&self, n: u32) -> Option<Transit> {
        self.times.get(n as usize).map(|(_, transit)| *transit)
    }
}

impl Qp {
    /// Lets the requests of the queue arrive, and complete, whose time has come at `now`. The
    /// send queue's lock is held.
    pub(crate) fn run_distant(self: &Arc<Qp>, sq: &mut Sq, now: u64, after: &mut After) {
        if self.transport.is_reliable() {
            self.resolve_peer(sq);
            while self.take_arrived(sq, now, after) | self.answer(sq, now, after) {}
        } else {
            while self.drop_off(sq, now, after) {}
        }
        self.check_drained(sq);
    }

    /// Sends the oldest message that nobody answers, if it has arrived; whether there was one.
    fn drop_off(self: &Arc<Qp>, sq: &mut Sq, now: u64, after: &mut After) -> bool {
        let before = sq.pending.len();
        let is_due = self.next_arrival(sq).is_some_and(|(_, arrival)| arrival <= now);
        if is_due || self.state().flushes_sends() {
            self.run_arrived(sq, after, true);
        }
        sq.pending.len() < before
    }

    /// Completes what is answered, and in an error state all; whether that was anything.
    fn answer(self: &Arc<Qp>, sq: &mut Sq, now: u64, after: &mut After) -> bool {
        let Sq { requester, pending, counters, scratch, transit_times, .. } = sq;
        let times = transit_times.get_or_insert_default();
        let (mut line, mut done) = (Line::new(), 0);
        let mut parts = SqParts { requester, counters, scratch };
        times.follow(pending);
        while let Some(request) = pending.front() {
            let is_answered = times.nth(0).is_some_and(|times| times.answer <= now);
            if self.state().flushes_sends() {
                self.complete(&mut line, request.wqe, 0, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
            } else if request.wqe.ahead && is_answered {
                let len = request.len();
                let outcome = times.outcome(request.wqe);
                self.settle(&mut parts, &mut line, request.wqe, len, outcome);
            } else {
                break;
            }
            pending.pop();
            times.follow(pending);
            done += 1;
        }
        after.append(line.finish());
        done > 0
    }

    /// Executes what has arrived, in order; whether that was anything.
    fn take_arrived(self: &Arc<Qp>, sq: &mut Sq, now: u64, after: &mut After) -> bool {
        let mut done = false;
        while let Some((n, at)) = self.next_arrival(sq)
            && at <= now
            && self.take(sq, n, after)
        {
            done = true;
        }
        done
    }

    /// Executes the request behind `n` others; whether that came to an end.
    fn take(self: &Arc<Qp>, sq: &mut Sq, n: u32, after: &mut After) -> bool {
        let Sq { requester, pending, peer, counters, scratch, transit_times, .. } = sq;
        let Some(request) = pending.nth(n) else { return false };
        let (mut session, mut line) = (peer.as_ref().map(Session::open), Line::new());
        let before = (requester.started, requester.rnr_left);
        if n > 0 {
            // What is left of them is the oldest one's.
            requester.rnr_left = requester.rnr_retry;
        }
        let outcome = self.execute(requester, &mut session, &mut line, scratch, &request);
        let is_over = !matches!(outcome, Outcome::Blocked(..));
        if let (Outcome::Failed(status), Some(times)) = (outcome, transit_times) {
            times.refused = Some((request.wqe.position, status));
        }
        if n > 0 {
            // Tried again, if need be, in its turn: when those before it are answered.
            (requester.started, requester.rnr_left) = before;
        } else if !is_over {
            let mut parts = SqParts { requester, counters, scratch };
            self.settle(&mut parts, &mut line, request.wqe, 0, outcome);
        }
        after.append(line.finish());
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
        let may_run = self.state() == State::Rts || self.state() == State::Sqd && started;
        let wqe = sq.pending.nth(n)?.wqe;
        let is_response = |m| sq.pending.nth(m).is_some_and(|r| r.wqe.op.is_response());
        let is_held = wqe.fence && (0..n).any(is_response);
        let may_run = may_run && !is_held && times.refused.is_none();
        let may_run = may_run && sq.requester.waits.is_none();
        may_run.then_some((n, times.nth(n)?.arrival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sq::Op;

    fn wqe(op: Op, fence: bool) -> Wqe {
        // SAFETY: zero is a valid value of every field of the ABI's request.
        let request: verbs_sys::ibv_send_wr = unsafe { core::mem::zeroed() };
        Wqe { op, fence, ..Wqe::plain(&request, false, 0) }
    }

    #[test]
    fn requests_follow_each_other_but_for_fences_and_limits() {
        let requester = Requester { max_rd_atomic: 2, ..Requester::default() };
        let mut times = Times::default();
        let mut plan = |now, op, fence| {
            let Transit { arrival, answer } = times.plan(now, 100, &requester, &wqe(op, fence));
            (arrival, answer)
        };
        assert_eq!(plan(10, Op::Read, false), (60, 110));
        assert_eq!(plan(20, Op::Write, false), (70, 120));
        assert_eq!(plan(30, Op::Read, false), (80, 130));
        // Two READs are under way: the third one leaves when the first is answered.
        assert_eq!(plan(40, Op::Read, false), (160, 210));
        assert_eq!(plan(50, Op::Send, false), (160, 210));
        // All before it are answered first.
        assert_eq!(plan(60, Op::Write, true), (260, 310));
        assert_eq!(plan(400, Op::Write, true), (450, 500));
    }

    #[test]
    fn the_same_distance_is_the_same_device() {
        let name = distant(Duration::from_micros(77));
        let count = || DEVICES.lock().iter().filter(|d| d.distance().is_some()).count();
        let before = count();
        assert_eq!((distant(Duration::from_micros(77)), count()), (name, before));
    }
}
