//! The leading end of a ping-pong: sends, waits for the answers, measures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rdma_conn::device;
use rdma_conn::verbs_safe::{SendOp, SharedRegion};

use super::control::RawChannel;
use super::end::{End, Remote};
use super::flight::{Faults, Flight};
use super::memory::{self, Places, mark};
use super::plan::{Plan, immediate, rank_and_number};
use super::queues::{Arrival, Inbox, Outbox, Watch};
use crate::cli::{Op, RawTransport};
use crate::measure::{MEASURES, Payload};
use crate::signals;

/// Messages to send: first those of the warm-up, which are not measured, then the measured ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trips {
    pub(super) warm_up: u64,
    pub(super) measured: u64,
}

impl Trips {
    fn total(self) -> u64 {
        self.warm_up + self.measured
    }
}

/// Counts and times of the leading end.
#[derive(Debug)]
pub(super) struct Led {
    /// Latencies of each class of a ping-pong, in nanoseconds: of half a round trip, or of the
    /// whole operation (read).
    pub(super) classes: Vec<Histogram<u64>>,
    /// Time that the measured messages took together.
    pub(super) elapsed: Duration,
    /// Messages sent over each queue pair.
    pub(super) sent: Vec<u64>,
    pub(super) faults: Faults,
    /// Datagrams that were sent again, where the ends repair losses.
    pub(super) resent: Option<u64>,
}

impl Led {
    /// Messages that went one way, in this time.
    pub(super) fn one_way(elapsed: Duration) -> Led {
        let (classes, sent, faults) = (Vec::new(), Vec::new(), Faults::default());
        Led { classes, elapsed, sent, faults, resent: None }
    }
}

/// After so many messages in a row without an answer the other end counts as gone.
const MOST_LOST: u64 = 100;
/// Numbers before the awaited one that are tried for an answer that only its payload identifies.
const MOST_LATE: u64 = 16;

/// The leader's account of its messages.
struct Leader<'a> {
    plan: &'a Plan,
    lanes: Vec<Lane>,
    trips: Trips,
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
    now: Instant,
}

/// A message that was answered.
struct Trip {
    class: usize,
    left: Instant,
    back: Instant,
}

/// One queue pair.
struct Lane {
    size: u32,
    class: usize,
    flight: Flight,
    out: Payload,
    back: Payload,
}

impl Lane {
    fn new(plan: &Plan, rank: usize) -> Lane {
        let size = plan.size_of(rank);
        let back = Payload::new(size as usize, rank as u64);
        let mut out = back.clone();
        if plan.verify && plan.op != Op::Read {
            out.prepare();
        }
        Lane { size, class: plan.class_of(rank), flight: Flight::new(plan.unacked), out, back }
    }
}

/// The longest time that a histogram holds: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

impl<'a> Leader<'a> {
    fn new(plan: &'a Plan, trips: Trips) -> Result<Leader<'a>> {
        let now = host::time::now();
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Ok(Leader {
            plan,
            lanes: (0..plan.qps as usize).map(|rank| Lane::new(plan, rank)).collect(),
            trips,
            sent: 0,
            turn: 0,
            settled: 0,
            unanswered: 0,
            parts: if plan.op == Op::Read { 1 } else { 2 },
            classes: (0..plan.classes()).map(|_| histogram()).collect::<Result<_, _>>()?,
            trips_made: Vec::with_capacity(plan.unacked as usize),
            start: now,
            now,
        })
    }

    /// Returns the number of messages to send in all: after a signal, only those that were sent.
    #[inline]
    fn total(&self) -> u64 {
        let Trips { warm_up, .. } = self.trips;
        match signals::is_interrupted() {
            false => self.trips.total(),
            // Once the warm-up is over, there is a result.
            true if self.settled >= warm_up => self.sent.max(warm_up + 1),
            true => self.sent,
        }
    }

    #[inline]
    fn is_done(&self) -> bool {
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
    fn send(
        &mut self,
        outbox: &mut Outbox,
        mut stage: impl FnMut(&mut Outbox, usize, &mut Lane) -> Result<()>,
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
        if self.plan.op == Op::Read { Ok(()) } else { outbox.tidy() }
    }

    /// A message of a queue pair that had `left` then was answered.
    #[inline]
    fn answered(&mut self, rank: usize, left: Instant) {
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
    fn idle(
        &mut self,
        watch: &mut Watch,
        outbox: &mut Outbox,
        wire: &mut RawChannel,
    ) -> Result<()> {
        outbox.advance()?;
        let Some(now) = watch.idle()? else { return Ok(()) };
        Watch::listen(outbox, wire)?;
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

    fn finish(mut self) -> Led {
        self.account();
        let sent = self.lanes.iter().map(|lane| lane.flight.sent()).collect();
        let faults = self.lanes.iter().map(|lane| lane.flight.faults());
        let faults = faults.fold(Faults::default(), Faults::and);
        let elapsed = self.now.saturating_duration_since(self.start);
        Led { classes: self.classes, sent, faults, ..Led::one_way(elapsed) }
    }
}

/// Ping-pong of the plan's verb.
pub(super) fn lead(
    plan: &Plan,
    end: &mut End,
    wire: &mut RawChannel,
    trips: Trips,
    spin: bool,
) -> Result<Led> {
    let mut leader = Leader::new(plan, trips)?;
    let watch = Watch::new(spin);
    match plan.op {
        Op::Send | Op::WriteImm => by_messages(&mut leader, end, wire, watch)?,
        Op::Write => by_memory(&mut leader, end, wire, watch)?,
        Op::Read => by_reads(&mut leader, end, wire, watch)?,
    }
    Ok(leader.finish())
}

/// Answers complete receives.
fn by_messages(
    leader: &mut Leader<'_>,
    end: &mut End,
    wire: &mut RawChannel,
    mut watch: Watch,
) -> Result<()> {
    let plan = leader.plan;
    let End { outbox, inbox, memory, remote, sources } = end;
    let inbox: &mut Inbox = inbox.as_mut().context("no receives")?;
    let (mut scratch, places) = (vec![0; plan.largest() as usize], Places::new(plan));
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let number = lane.flight.sent();
            let op = message(plan, rank, number, lane.size, remote.as_ref())?;
            let size = lane.size as usize;
            outbox.stage(rank, op, false, |slot| {
                if plan.verify {
                    lane.out.fill(&mut slot[..size]);
                }
            })
        })?;
        let mut first = true;
        let arrived = inbox.poll(|arrival| {
            if std::mem::take(&mut first) {
                leader.now = host::time::now();
            }
            let Some(rank) = source(plan, &arrival, sources)? else { return Ok(()) };
            let lane = &mut leader.lanes[rank];
            let answer = match memory {
                None => Answer { bytes: arrival.bytes, imm: arrival.imm },
                Some(memory) => {
                    let length = written(lane.size, arrival.imm)?;
                    if plan.verify {
                        let at = places.at(rank, lane.flight.awaited());
                        memory.copy_out(at, &mut scratch[..length])?;
                    }
                    Answer { bytes: &scratch[..length], imm: arrival.imm }
                }
            };
            match answer.settle(plan, lane)? {
                Some(left) => leader.answered(rank, left),
                None => ensure!(!plan.is_reliable(), "an answer to nothing"),
            }
            Ok(())
        })?;
        if arrived > 0 {
            watch.progress();
            inbox.repost()?;
        } else {
            leader.idle(&mut watch, outbox, wire)?;
        }
    }
    Ok(())
}

/// An answer, with whatever tells which message it is to.
struct Answer<'a> {
    bytes: &'a [u8],
    imm: Option<u32>,
}

impl Answer<'_> {
    /// Settles the message that this answers. Returns when that was sent, or `None` if it no
    /// longer waits for an answer.
    #[inline]
    fn settle(&self, plan: &Plan, lane: &mut Lane) -> Result<Option<Instant>> {
        if plan.is_reliable() {
            if plan.verify {
                lane.back.check(self.bytes)?;
            }
            return Ok(lane.flight.arrive());
        }
        self.settle_unreliable(plan, lane)
    }

    fn settle_unreliable(&self, plan: &Plan, lane: &mut Lane) -> Result<Option<Instant>> {
        let awaited = lane.flight.awaited();
        let number = match plan.op {
            Op::Send => {
                let imm = self.imm.context("a message without its number")?;
                let number = lane.flight.number(rank_and_number(imm).1);
                let Some(number) = number else { return Ok(None) };
                if plan.verify {
                    lane.back.seek(number);
                    lane.back.check(self.bytes)?;
                }
                number
            }
            _ if !plan.verify => awaited,
            // The immediate is the length: the payload alone tells which one it is. One
            // that is none was written over while it was looked at.
            _ => {
                let numbers = (awaited.saturating_sub(MOST_LATE)..=awaited).rev();
                lane.back.identify(self.bytes, numbers).unwrap_or(u64::MAX)
            }
        };
        Ok(lane.flight.arrive_out_of_order(number))
    }
}

/// The request that carries message `number` of a queue pair.
#[inline]
pub(super) fn message(
    plan: &Plan,
    rank: usize,
    number: u64,
    len: u32,
    remote: Option<&Remote>,
) -> Result<SendOp> {
    Ok(match plan.op {
        Op::Send if plan.numbered() => SendOp::SendImm { len, imm: immediate(rank, number) },
        Op::Send => SendOp::Send { len },
        Op::WriteImm => {
            let remote = remote.context("the peer offers no memory")?.place(rank, number);
            SendOp::WriteImm { len, imm: len, remote }
        }
        Op::Write => {
            let remote = remote.context("the peer offers no memory")?.place(rank, number);
            SendOp::Write { len, remote }
        }
        Op::Read => {
            let remote = remote.context("the peer offers no memory")?.place(rank, number);
            SendOp::Read { len, remote }
        }
    })
}

/// The queue pair that a message is from: where the receive queue is shared, its
/// immediate says so. `None` if no peer of ours sent it, as may happen with datagrams.
#[inline]
pub(super) fn source(plan: &Plan, arrival: &Arrival<'_>, sources: &[u32]) -> Result<Option<usize>> {
    if !plan.srq && plan.is_reliable() {
        return Ok(Some(arrival.queue));
    }
    let rank = match arrival.imm {
        Some(imm) if plan.numbered() => rank_and_number(imm).0,
        _ if !plan.srq => arrival.queue,
        // The immediate is a length: the completion says which queue pair it is.
        _ => sources.iter().position(|n| *n == arrival.qp_num).unwrap_or(usize::MAX),
    };
    let known = sources.get(rank) == Some(&arrival.qp_num);
    ensure!(
        known || plan.transport == RawTransport::Ud,
        "a message of queue pair {} says that it is of rank {rank}",
        arrival.qp_num
    );
    Ok(known.then_some(rank))
}

/// The length of a WRITE with immediate, which the immediate carries.
#[inline]
pub(super) fn written(size: u32, imm: Option<u32>) -> Result<usize> {
    let length = imm.context("a WRITE without its immediate")?;
    ensure!(length == size, "a WRITE of {length} bytes where they have {size}");
    Ok(length as usize)
}

/// Answers appear in memory, which is polled.
fn by_memory(
    leader: &mut Leader<'_>,
    end: &mut End,
    wire: &mut RawChannel,
    mut watch: Watch,
) -> Result<()> {
    let plan = leader.plan;
    let End { outbox, memory, remote, .. } = end;
    let memory: &SharedRegion = memory.as_ref().context("no memory")?;
    let (mut scratch, places) = (vec![0; plan.largest() as usize], Places::new(plan));
    let looks = if plan.qps == 1 { watch.looks() } else { 1 };
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let number = lane.flight.sent();
            let op = message(plan, rank, number, lane.size, remote.as_ref())?;
            let size = lane.size as usize;
            outbox.stage(rank, op, false, |slot| {
                memory::wrap(&mut slot[..size], mark(number), |body| {
                    if plan.verify {
                        lane.out.fill(body);
                    }
                });
            })
        })?;
        let mut arrived = false;
        for rank in 0..leader.lanes.len() {
            while leader.lanes[rank].flight.is_waiting() {
                let lane = &mut leader.lanes[rank];
                let (number, size) = (lane.flight.awaited(), lane.size as usize);
                let at = places.at(rank, number);
                let Some(found) = memory::arrives(memory, at, size, looks)? else { break };
                leader.now = host::time::now();
                arrived = true;
                if plan.verify {
                    memory.copy_out(at, &mut scratch[..size])?;
                }
                memory::reset(memory, at, size)?;
                if found != mark(number) {
                    // An answer to a message that was given up.
                    ensure!(!plan.is_reliable(), "message {number} has the mark of another one");
                    lane.flight.arrive_out_of_order(u64::MAX);
                    continue;
                }
                if plan.verify {
                    lane.back.seek(number);
                    lane.back.check(memory::body(&scratch[..size]))?;
                }
                let left = lane.flight.arrive().context("an answer to nothing")?;
                leader.answered(rank, left);
            }
        }
        if arrived {
            watch.progress();
        } else {
            leader.idle(&mut watch, outbox, wire)?;
        }
    }
    Ok(())
}

/// The operations themselves are the answers.
fn by_reads(
    leader: &mut Leader<'_>,
    end: &mut End,
    wire: &mut RawChannel,
    mut watch: Watch,
) -> Result<()> {
    let plan = leader.plan;
    let End { outbox, remote, .. } = end;
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let op = message(plan, rank, lane.flight.sent(), lane.size, remote.as_ref())?;
            // What lands there is read when it has.
            outbox.stage_unfilled(rank, op, false)
        })?;
        let mut first = true;
        let completed = outbox.reap_with(|rank, queue, before| {
            if std::mem::take(&mut first) {
                leader.now = host::time::now();
            }
            for request in before + 1..=queue.retired_total() {
                let lane = &mut leader.lanes[rank];
                let left = lane.flight.arrive().context("a READ of nothing")?;
                leader.answered(rank, left);
                if plan.verify {
                    let lane = &mut leader.lanes[rank];
                    let landed = queue.landed(request).context("what was read is gone")?;
                    lane.back.seek((request - 1) % u64::from(plan.places()));
                    lane.back.check(landed)?;
                }
            }
            Ok(())
        })?;
        match completed {
            0 => leader.idle(&mut watch, outbox, wire)?,
            _ => watch.progress(),
        }
    }
    Ok(())
}
