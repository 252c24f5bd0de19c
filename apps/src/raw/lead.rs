//! The leading end of a ping-pong: sends, waits for the answers, measures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rdma_conn::verbs_safe::{SendOp, SharedRegion};

use super::end::End;
use super::memory::{self, mark};
use super::plan::Plan;
use super::queues::{Inbox, Outbox, Watch};
use super::wire::Wire;
use crate::args::Op;
use crate::verify::Payload;

/// How many messages: first those that nobody measures, then those that count.
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

/// What was measured.
#[derive(Debug)]
pub(super) struct Latencies {
    /// Of each class: nanoseconds of half a round trip, or of the whole operation (read).
    pub(super) classes: Vec<Histogram<u64>>,
    /// How long the measured trips took together.
    pub(super) elapsed: Duration,
    /// Messages sent over each queue pair.
    pub(super) sent: Vec<u64>,
}

/// The leader's account of its messages.
struct Leader<'a> {
    plan: &'a Plan,
    lanes: Vec<Lane>,
    trips: Trips,
    sent: u64,
    answered: u64,
    /// How many of a round trip's parts are measured: two, or the whole.
    parts: u64,
    classes: Vec<Histogram<u64>>,
    start: Instant,
    /// The time, as it was when something arrived last.
    now: Instant,
}

/// One queue pair.
///
/// Invariant: `answered <= sent <= answered + unacked`; answers come in order.
struct Lane {
    size: u32,
    class: usize,
    sent: u64,
    answered: u64,
    /// When each message in flight left; by number, modulo their length.
    left: Box<[Instant]>,
    out: Payload,
    back: Payload,
}

impl Lane {
    fn new(plan: &Plan, rank: usize, now: Instant) -> Lane {
        let size = plan.size_of(rank);
        let payload = Payload::new(size as usize, rank as u64);
        Lane {
            size,
            class: plan.class_of(rank),
            sent: 0,
            answered: 0,
            left: vec![now; plan.unacked as usize].into(),
            out: payload.clone(),
            back: payload,
        }
    }
}

/// The longest time that a histogram holds: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

impl<'a> Leader<'a> {
    fn new(plan: &'a Plan, trips: Trips) -> Result<Leader<'a>> {
        let now = Instant::now();
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Ok(Leader {
            plan,
            lanes: (0..plan.qps as usize).map(|rank| Lane::new(plan, rank, now)).collect(),
            trips,
            sent: 0,
            answered: 0,
            parts: if plan.op == Op::Read { 1 } else { 2 },
            classes: (0..plan.classes()).map(|_| histogram()).collect::<Result<_, _>>()?,
            start: now,
            now,
        })
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.answered == self.trips.total()
    }

    /// The queue pair that the next message goes over; `None` while none may go.
    #[inline]
    fn next(&self) -> Option<usize> {
        let may = self.sent < self.trips.total()
            && self.sent - self.answered < u64::from(self.plan.unacked);
        may.then(|| (self.sent % self.lanes.len() as u64) as usize)
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
            let left = if self.plan.verify { Instant::now() } else { self.now };
            let at = lane.sent % lane.left.len() as u64;
            lane.left[at as usize] = left;
            lane.sent += 1;
            self.sent += 1;
            if outbox.staged(rank) >= self.plan.batch {
                outbox.post(rank)?;
            }
        }
        // A doorbell for less than a batch, where nothing else would come back.
        if self.plan.batch > 1 && (self.sent == self.trips.total() || !self.any_posted(outbox)) {
            outbox.post_all()?;
        }
        Ok(())
    }

    fn any_posted(&self, outbox: &Outbox) -> bool {
        let staged: u64 = (0..self.lanes.len()).map(|rank| u64::from(outbox.staged(rank))).sum();
        self.sent - self.answered > staged
    }

    /// The oldest message of a queue pair was answered.
    #[inline]
    fn answered(&mut self, rank: usize) {
        let lane = &mut self.lanes[rank];
        let at = lane.answered % lane.left.len() as u64;
        let took = self.now - lane.left[at as usize];
        lane.answered += 1;
        if self.answered >= self.trips.warm_up {
            let ns = took.as_nanos() as u64 / self.parts;
            self.classes[lane.class].saturating_record(ns);
        }
        self.answered += 1;
        if self.answered == self.trips.warm_up {
            self.start = self.now;
        }
    }

    fn finish(self) -> Latencies {
        let sent = self.lanes.iter().map(|lane| lane.sent).collect();
        Latencies { classes: self.classes, elapsed: self.now - self.start, sent }
    }
}

/// Ping-pong of the plan's verb.
pub(super) fn lead(
    plan: &Plan,
    end: &mut End,
    wire: &mut Wire,
    trips: Trips,
    spin: bool,
) -> Result<Latencies> {
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
    wire: &mut Wire,
    mut watch: Watch,
) -> Result<()> {
    let plan = leader.plan;
    let End { outbox, inbox, memory, remote, qp_nums } = end;
    let inbox: &mut Inbox = inbox.as_mut().context("no receives")?;
    let mut scratch = vec![0; plan.largest() as usize];
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let op = message(plan, rank, lane.sent, lane.size, remote.as_ref())?;
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
                leader.now = Instant::now();
            }
            let rank = source(plan, arrival.queue, arrival.qp_num, arrival.imm, qp_nums)?;
            leader.answered(rank);
            let lane = &mut leader.lanes[rank];
            let number = lane.answered - 1;
            match memory {
                _ if !plan.verify => Ok(()),
                None => lane.back.check(arrival.bytes),
                Some(memory) => {
                    let bytes = &mut scratch[..written(plan, lane.size, arrival.imm)?];
                    memory.copy_out(memory::place(plan, rank, number), bytes)?;
                    lane.back.check(bytes)
                }
            }
        })?;
        match arrived {
            0 => drop(watch.idle_with(outbox, wire)?),
            _ => {
                watch.progress();
                inbox.repost()?;
            }
        }
    }
    Ok(())
}

/// The request that carries message `number` of a queue pair.
#[inline]
pub(super) fn message(
    plan: &Plan,
    rank: usize,
    number: u64,
    len: u32,
    remote: Option<&super::end::Remote>,
) -> Result<SendOp> {
    Ok(match plan.op {
        Op::Send if plan.numbered() => SendOp::SendImm { len, imm: (rank as u32) << 24 },
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
/// immediate says so.
#[inline]
pub(super) fn source(
    plan: &Plan,
    queue: usize,
    qp_num: u32,
    imm: Option<u32>,
    qp_nums: &[u32],
) -> Result<usize> {
    if !plan.srq {
        return Ok(queue);
    }
    let rank = match imm {
        Some(imm) if plan.numbered() => (imm >> 24) as usize,
        // The immediate is a length: the completion says which queue pair it is.
        _ => qp_nums.iter().position(|n| *n == qp_num).unwrap_or(usize::MAX),
    };
    let found = qp_nums.get(rank).copied();
    ensure!(
        found == Some(qp_num),
        "a message of queue pair {qp_num} says that it is of rank {rank}"
    );
    Ok(rank)
}

/// The length of a WRITE with immediate, which the immediate carries.
#[inline]
pub(super) fn written(plan: &Plan, size: u32, imm: Option<u32>) -> Result<usize> {
    let length = imm.context("a WRITE without its immediate")?;
    ensure!(length == size, "a WRITE of {length} bytes, of {size} with --op {:?}", plan.op);
    Ok(length as usize)
}

/// Answers appear in memory, which is polled.
fn by_memory(
    leader: &mut Leader<'_>,
    end: &mut End,
    wire: &mut Wire,
    mut watch: Watch,
) -> Result<()> {
    let plan = leader.plan;
    let End { outbox, memory, remote, .. } = end;
    let memory: &SharedRegion = memory.as_ref().context("no memory")?;
    let mut scratch = vec![0; plan.largest() as usize];
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let op = message(plan, rank, lane.sent, lane.size, remote.as_ref())?;
            let (size, mark) = (lane.size as usize, mark(lane.sent));
            outbox.stage(rank, op, false, |slot| {
                memory::wrap(&mut slot[..size], mark, |body| {
                    if plan.verify {
                        lane.out.fill(body);
                    }
                });
            })
        })?;
        let mut arrived = false;
        for rank in 0..leader.lanes.len() {
            while leader.lanes[rank].answered < leader.lanes[rank].sent {
                let (number, size) =
                    (leader.lanes[rank].answered, leader.lanes[rank].size as usize);
                let at = memory::place(plan, rank, number);
                let Some(found) = memory::arrived(memory, at, size)? else { break };
                leader.now = Instant::now();
                leader.answered(rank);
                arrived = true;
                ensure!(found == mark(number), "message {number} has the mark of another one");
                if plan.verify {
                    let bytes = &mut scratch[..size];
                    memory.copy_out(at, bytes)?;
                    leader.lanes[rank].back.check(memory::body(bytes))?;
                }
                memory::reset(memory, at, size)?;
            }
        }
        match arrived {
            false => drop(watch.idle_with(outbox, wire)?),
            true => watch.progress(),
        }
    }
    Ok(())
}

/// The operations themselves are the answers.
fn by_reads(
    leader: &mut Leader<'_>,
    end: &mut End,
    wire: &mut Wire,
    mut watch: Watch,
) -> Result<()> {
    let plan = leader.plan;
    let End { outbox, remote, .. } = end;
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let op = message(plan, rank, lane.sent, lane.size, remote.as_ref())?;
            // What lands there is read when it has.
            outbox.stage_unfilled(rank, op, false)
        })?;
        let mut first = true;
        let completed = outbox.reap_with(|rank, queue, before| {
            if std::mem::take(&mut first) {
                leader.now = Instant::now();
            }
            for request in before + 1..=queue.retired_total() {
                leader.answered(rank);
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
            0 => drop(watch.idle_with(outbox, wire)?),
            _ => watch.progress(),
        }
    }
    Ok(())
}
