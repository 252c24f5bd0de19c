//! The leading end of a ping-pong: sends, waits for the answers, measures.

pub(super) mod datagrams;
mod leader;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rdma_conn::verbs_safe::{SendOp, SharedRegion};

use super::control::RawChannel;
use super::detection::{Detection, InTurn, by_threads};
use super::end::{JoinedEnd, Local, RemotePlaces};
use super::led::{LedResult, TripCounts};
use super::memory::{self, MessagePlaces, mark};
use super::plan::{RawPlan, immediate, rank_and_number};
use super::queues::{ArrivedMessage, IdleWatch, RecvQueues, SendQueues};
use crate::cli::{RawOp, RawTransport};
use leader::{LedQp, RawLeader};

/// Numbers before the awaited one that are tried for an answer that only its payload identifies.
const MOST_LATE: u64 = 16;

/// Ping-pong of the plan's verb.
pub(super) fn lead(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    trips: TripCounts,
    local: Local<'_>,
) -> Result<LedResult> {
    let mut leader = RawLeader::new(plan, trips)?;
    let watch = IdleWatch::new(local.spin);
    match plan.op {
        RawOp::Send | RawOp::WriteImm => by_messages(&mut leader, end, wire, watch)?,
        RawOp::Write => {
            let JoinedEnd { outbox, memory, remote, .. } = end;
            let memory = memory.as_ref().context("no memory")?;
            let places = (memory, remote.as_ref());
            if local.polling_threads {
                by_threads(plan, memory, |threads| {
                    by_memory(&mut leader, (outbox, places), wire, watch, threads)
                })?;
            } else {
                let all = InTurn(leader.lanes.len());
                by_memory(&mut leader, (outbox, places), wire, watch, all)?;
            }
        }
        RawOp::Read => by_reads(&mut leader, end, wire, watch)?,
    }
    Ok(leader.finish())
}

/// Answers complete receives.
fn by_messages(
    leader: &mut RawLeader<'_>,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    mut watch: IdleWatch,
) -> Result<()> {
    let plan = leader.plan;
    let JoinedEnd { outbox, inbox, memory, remote, sources } = end;
    let inbox: &mut RecvQueues = inbox.as_mut().context("no receives")?;
    let (mut scratch, places) = (vec![0; plan.largest() as usize], MessagePlaces::new(plan));
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
    fn settle(&self, plan: &RawPlan, lane: &mut LedQp) -> Result<Option<Instant>> {
        if plan.is_reliable() {
            if plan.verify {
                lane.back.check(self.bytes)?;
            }
            return Ok(lane.flight.arrive());
        }
        self.settle_unreliable(plan, lane)
    }

    fn settle_unreliable(&self, plan: &RawPlan, lane: &mut LedQp) -> Result<Option<Instant>> {
        let awaited = lane.flight.awaited();
        let number = match plan.op {
            RawOp::Send => {
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
    plan: &RawPlan,
    rank: usize,
    number: u64,
    len: u32,
    remote: Option<&RemotePlaces>,
) -> Result<SendOp> {
    Ok(match plan.op {
        RawOp::Send if plan.numbered() => SendOp::SendImm { len, imm: immediate(rank, number) },
        RawOp::Send => SendOp::Send { len },
        RawOp::WriteImm => {
            let remote = remote.context("the peer offers no memory")?.place(rank, number);
            SendOp::WriteImm { len, imm: len, remote }
        }
        RawOp::Write => {
            let remote = remote.context("the peer offers no memory")?.place(rank, number);
            SendOp::Write { len, remote }
        }
        RawOp::Read => {
            let remote = remote.context("the peer offers no memory")?.place(rank, number);
            SendOp::Read { len, remote }
        }
    })
}

/// The queue pair that a message is from: where the receive queue is shared, its
/// immediate says so. `None` if no peer of ours sent it, as may happen with datagrams.
#[inline]
pub(super) fn source(
    plan: &RawPlan,
    arrival: &ArrivedMessage<'_>,
    sources: &[u32],
) -> Result<Option<usize>> {
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
    leader: &mut RawLeader<'_>,
    (outbox, (memory, remote)): (&mut SendQueues, (&SharedRegion, Option<&RemotePlaces>)),
    wire: &mut RawChannel,
    mut watch: IdleWatch,
    mut detection: impl Detection,
) -> Result<()> {
    let plan = leader.plan;
    let (mut scratch, places) = (vec![0; plan.largest() as usize], MessagePlaces::new(plan));
    let looks = if plan.qps == 1 { watch.looks() } else { 1 };
    while !leader.is_done() {
        leader.send(outbox, |outbox, rank, lane| {
            let number = lane.flight.sent();
            let op = message(plan, rank, number, lane.size, remote)?;
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
        for nth in 0..detection.look() {
            let rank = detection.rank(nth);
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
                detection.taken(rank, lane.flight.awaited());
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
    leader: &mut RawLeader<'_>,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    mut watch: IdleWatch,
) -> Result<()> {
    let plan = leader.plan;
    let JoinedEnd { outbox, remote, .. } = end;
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
