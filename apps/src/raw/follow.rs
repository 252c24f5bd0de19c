//! The end that answers: every message with one of its own, by the same verb.

use anyhow::{Context, Result, ensure};
use rdma_conn::verbs_safe::SharedRegion;

use super::end::End;
use super::lead::{message, source, written};
use super::memory::{self, mark};
use super::plan::Plan;
use super::queues::Watch;
use super::wire::{Note, Totals, Wire};
use crate::args::Op;
use crate::verify::Payload;

/// What is expected over one queue pair.
struct Lane {
    size: u32,
    answered: u64,
    expected: Payload,
}

fn lanes(plan: &Plan) -> Vec<Lane> {
    let lane = |rank| {
        let size = plan.size_of(rank);
        Lane { size, answered: 0, expected: Payload::new(size as usize, rank as u64) }
    };
    (0..plan.qps as usize).map(lane).collect()
}

/// Answers until the leader says that it has all it wants, or there have been `limit`
/// messages; how many came.
pub(super) fn follow(
    plan: &Plan,
    end: &mut End,
    wire: &mut Wire,
    limit: Option<u64>,
    spin: bool,
) -> Result<u64> {
    let mut lanes = lanes(plan);
    match plan.op {
        Op::Send | Op::WriteImm => {
            by_messages(plan, &mut lanes, end, wire, limit, Watch::new(spin))?;
        }
        Op::Write => by_memory(plan, &mut lanes, end, wire, Watch::new(spin))?,
        Op::Read => return Ok(done(wire.hear_whenever()?)?.sent.iter().sum()),
    }
    Ok(lanes.iter().map(|lane| lane.answered).sum())
}

/// What the leader has sent, if that is what it says.
pub(super) fn done(note: Note) -> Result<Totals> {
    match note {
        Note::Done(totals) => Ok(totals),
        Note::Failed(why) => anyhow::bail!("the other end: {why}"),
        other => anyhow::bail!("the other end says {other:?}"),
    }
}

fn by_messages(
    plan: &Plan,
    lanes: &mut [Lane],
    end: &mut End,
    wire: &mut Wire,
    limit: Option<u64>,
    mut watch: Watch,
) -> Result<()> {
    let End { outbox, inbox, memory, remote, qp_nums } = end;
    let inbox = inbox.as_mut().context("no receives")?;
    let mut answered = 0;
    while limit.is_none_or(|limit| answered < limit) {
        let arrived = inbox.poll(|arrival| {
            let rank = source(plan, arrival.queue, arrival.qp_num, arrival.imm, qp_nums)?;
            let lane = &mut lanes[rank];
            let (size, number) = (lane.size as usize, lane.answered);
            let op = message(plan, rank, number, lane.size, remote.as_ref())?;
            lane.answered += 1;
            answered += 1;
            // Nobody says that the last answer has come: its completion does.
            let last = limit == Some(answered);
            let (mut checked, expected) = (Ok(()), &mut lane.expected);
            match memory {
                _ if !plan.verify => outbox.stage(rank, op, last, |_| {})?,
                None => {
                    ensure!(
                        arrival.bytes.len() == size,
                        "a message of {} bytes",
                        arrival.bytes.len()
                    );
                    outbox.stage(rank, op, last, |slot| {
                        slot[..size].copy_from_slice(arrival.bytes)
                    })?;
                }
                Some(memory) => {
                    written(plan, lane.size, arrival.imm)?;
                    let at = memory::place(plan, rank, number);
                    outbox.stage(rank, op, last, |slot| {
                        checked = copied(memory, at, &mut slot[..size])
                            .and_then(|()| expected.check(&slot[..size]));
                    })?;
                    checked?;
                }
            }
            if outbox.staged(rank) >= plan.batch {
                outbox.post(rank)?;
            }
            // Once the answer is on its way: that takes no time of the leader's.
            if plan.verify && memory.is_none() { expected.check(arrival.bytes) } else { Ok(()) }
        })?;
        if arrived > 0 {
            watch.progress();
            outbox.post_all()?;
            inbox.repost()?;
        } else if let Some(note) = watch.idle_with(outbox, wire)? {
            return done(note).map(drop);
        }
    }
    while outbox.outstanding() > 0 {
        outbox.wait()?;
    }
    Ok(())
}

fn copied(memory: &SharedRegion, at: usize, to: &mut [u8]) -> Result<()> {
    Ok(memory.copy_out(at, to)?)
}

fn by_memory(
    plan: &Plan,
    lanes: &mut [Lane],
    end: &mut End,
    wire: &mut Wire,
    mut watch: Watch,
) -> Result<()> {
    let End { outbox, memory, remote, .. } = end;
    let memory = memory.as_ref().context("no memory")?;
    loop {
        let mut arrived = false;
        for (rank, lane) in lanes.iter_mut().enumerate() {
            let (size, number) = (lane.size as usize, lane.answered);
            let at = memory::place(plan, rank, number);
            let Some(found) = memory::arrived(memory, at, size)? else { continue };
            ensure!(found == mark(number), "message {number} has the mark of another one");
            let op = message(plan, rank, number, lane.size, remote.as_ref())?;
            lane.answered += 1;
            arrived = true;
            let (mut checked, expected) = (Ok(()), &mut lane.expected);
            outbox.stage(rank, op, false, |slot| {
                let slot = &mut slot[..size];
                if plan.verify {
                    checked =
                        copied(memory, at, slot).and_then(|()| expected.check(memory::body(slot)));
                } else {
                    memory::wrap(slot, found, |_| {});
                }
            })?;
            checked?;
            // Before the answer: the next message may come as soon as it is there.
            memory::reset(memory, at, size)?;
            if outbox.staged(rank) >= plan.batch {
                outbox.post(rank)?;
            }
        }
        if arrived {
            watch.progress();
        } else {
            if plan.batch > 1 {
                outbox.post_all()?;
            }
            if let Some(note) = watch.idle_with(outbox, wire)? {
                return done(note).map(drop);
            }
        }
    }
}
