//! The leader's account of its messages, whatever answers them.

use std::time::Instant;

use anyhow::{Result, ensure};
use base::signals;
use hdrhistogram::Histogram;
use rdma_conn::device;

use super::super::control::RawChannel;
use super::super::flight::{FaultCounts, Flight};
use super::super::led::{LedResult, TripCounts};
use super::super::plan::RawPlan;
use super::super::queues::{IdleWatch, SendQueues};
use crate::cli::RawOp;
use crate::measure::{MEASURES, Payload};

/// After so many messages in a row without an answer the other end counts as gone.
const MOST_LOST: u64 = 100;
/// The longest time that a histogram holds: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// The leader's account of its messages.
pub(super) struct RawLeader<'a> {
    pub(super) plan: &'a RawPlan,
    pub(super) lanes: Vec<LedQp>,
    trips: TripCounts,
    sent: u64,
    /// The queue pair that the next message goes over.
    turn: usize,
    /// Messages that were answered, or given up.
    settled: u64,
    /// Messages given up since the last answer.
    unanswered: u64,
    /// Divisor of a measured time: 2 for half a round trip, 1 for a whole READ.
    parts: u64,
    classes: Vec<Histogram<u64>>,
    /// Those that are not recorded yet.
    trips_made: Vec<Trip>,
    start: Instant,
    /// The time, as it was when something arrived last.
    pub(super) now: Instant,
}

/// A message that was answered.
struct Trip {
    class: usize,
    left: Instant,
    back: Instant,
}

/// One queue pair.
pub(super) struct LedQp {
    pub(super) size: u32,
    class: usize,
    pub(super) flight: Flight,
    pub(super) out: Payload,
    pub(super) back: Payload,
}

impl LedQp {
    fn new(plan: &RawPlan, rank: usize) -> LedQp {
        let size = plan.size_of(rank);
        let back = Payload::new(size as usize, rank as u64);
        let mut out = back.clone();
        if plan.verify && plan.op != RawOp::Read {
            out.prepare();
        }
        LedQp { size, class: plan.class_of(rank), flight: Flight::new(plan.unacked), out, back }
    }
}

impl<'a> RawLeader<'a> {
    pub(super) fn new(plan: &'a RawPlan, trips: TripCounts) -> Result<RawLeader<'a>> {
        let now = host::time::now();
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Ok(RawLeader {
            plan,
            lanes: (0..plan.qps as usize).map(|rank| LedQp::new(plan, rank)).collect(),
            trips,
            sent: 0,
            turn: 0,
            settled: 0,
            unanswered: 0,
            parts: if plan.op == RawOp::Read { 1 } else { 2 },
            classes: (0..plan.classes()).map(|_| histogram()).collect::<Result<_, _>>()?,
            trips_made: Vec::with_capacity(plan.unacked as usize),
            start: now,
            now,
        })
    }

    /// Returns the number of messages to send in all: after a signal, only those that were sent.
    #[inline]
    fn total(&self) -> u64 {
        let TripCounts { warm_up, .. } = self.trips;
        match signals::is_interrupted() {
            false => self.trips.total(),
            // Once the warm-up is over, there is a result.
            true if self.settled >= warm_up => self.sent.max(warm_up + 1),
            true => self.sent,
        }
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.settled >= self.total()
    }

    /// The queue pair that the next message goes over; `None` while none may go.
    #[inline]
    fn next(&self) -> Option<usize> {
        let may =
            self.sent < self.total() && self.sent - self.settled < u64::from(self.plan.unacked);
        (may && self.lanes[self.turn].flight.has_room()).then_some(self.turn)
    }

    /// Sends what may be sent; `stage` stages the next message of a queue pair.
    #[inline]
    pub(super) fn send(
        &mut self,
        outbox: &mut SendQueues,
        mut stage: impl FnMut(&mut SendQueues, usize, &mut LedQp) -> Result<()>,
    ) -> Result<()> {
        while let Some(rank) = self.next() {
            let lane = &mut self.lanes[rank];
            stage(outbox, rank, lane)?;
            // Filling a payload takes time that is not the message's.
            let left = if self.plan.verify { host::time::now() } else { self.now };
            lane.flight.depart(left);
            self.sent += 1;
            self.turn = if rank + 1 == self.lanes.len() { 0 } else { rank + 1 };
            if outbox.staged(rank) >= self.plan.batch {
                outbox.post(rank)?;
            }
        }
        // A doorbell for less than a batch, where nothing else would come back.
        let alone = || self.sent - self.settled <= outbox.all_staged();
        if self.plan.batch > 1 && (self.sent >= self.total() || alone()) {
            outbox.post_all()?;
        }
        self.account();
        if self.plan.op == RawOp::Read { Ok(()) } else { outbox.tidy() }
    }

    /// A message of a queue pair that had `left` then was answered.
    #[inline]
    pub(super) fn answered(&mut self, rank: usize, left: Instant) {
        if self.settled >= self.trips.warm_up {
            self.trips_made.push(Trip { class: self.lanes[rank].class, left, back: self.now });
        }
        self.unanswered = 0;
        self.settle(1);
    }

    /// Records what was measured, while the next messages are on their way: if it did so before it
    /// sends them, their latency would include that time.
    #[inline]
    fn account(&mut self) {
        for Trip { class, left, back } in self.trips_made.drain(..) {
            let ns = back.saturating_duration_since(left).as_nanos() as u64 / self.parts;
            self.classes[class].saturating_record(ns);
        }
    }

    #[inline]
    fn settle(&mut self, count: u64) {
        let before = self.settled;
        self.settled += count;
        if before < self.trips.warm_up && self.settled >= self.trips.warm_up {
            self.start = self.now;
            tracing::info!("{MEASURES}");
        }
    }

    /// Nothing has come: lets others run, and looks after what takes long. Where the
    /// transport promises nothing, a message without an answer is lost, and the next one
    /// takes its place.
    #[inline]
    pub(super) fn idle(
        &mut self,
        watch: &mut IdleWatch,
        outbox: &mut SendQueues,
        wire: &mut RawChannel,
    ) -> Result<()> {
        outbox.advance()?;
        let Some(now) = watch.idle()? else { return Ok(()) };
        IdleWatch::listen(outbox, wire)?;
        if self.plan.is_reliable() {
            return Ok(());
        }
        let patience = self.plan.patience();
        let lost = self.lanes.iter_mut().map(|lane| lane.flight.give_up(now, patience)).sum();
        if lost > 0 {
            watch.progress();
            self.now = now;
            self.unanswered += lost;
            self.settle(lost);
        }
        // If the device has not found the peer, one lost message is enough.
        ensure!(lost == 0 || device::peer_not_found().is_none(), "the other end does not answer");
        ensure!(
            self.unanswered < MOST_LOST,
            "{} messages in a row were lost: the other end does not answer",
            self.unanswered
        );
        Ok(())
    }

    pub(super) fn finish(mut self) -> LedResult {
        self.account();
        let sent = self.lanes.iter().map(|lane| lane.flight.sent()).collect();
        let faults = self.lanes.iter().map(|lane| lane.flight.faults());
        let faults = faults.fold(FaultCounts::default(), FaultCounts::merge);
        let elapsed = self.now.saturating_duration_since(self.start);
        LedResult { classes: self.classes, sent, faults, ..LedResult::one_way(elapsed) }
    }
}
