//! The end that answers: every message with one of its own, by the same verb.

use anyhow::{Context, Result, ensure};
use rdma_conn::verbs_safe::SharedRegion;

use super::control::{RawChannel, RawControl, Totals};
use super::detection::{Detection, InTurn, by_threads};
use super::end::{JoinedEnd, Local, RemotePlaces};
use super::flight::SeenWindow;
use super::lead::{message, source, written};
use super::memory::{self, MessagePlaces, mark};
use super::plan::{RawPlan, rank_and_number};
use super::queues::{IdleWatch, SendQueues};
use crate::cli::RawOp;
use crate::measure::Payload;
use crate::scratch::scratch;
use crate::session;

/// Account of the messages of one queue pair.
struct FollowedQp {
    size: u32,
    answered: u64,
    /// The number of the next message, where none is lost.
    next: u64,
    seen: SeenWindow,
    expected: Payload,
}

/// Numbers that are tried, from the next one on, for a message that only its payload identifies.
const MOST_AHEAD: u64 = 256;

impl FollowedQp {
    fn new(plan: &RawPlan, rank: usize) -> FollowedQp {
        let size = plan.size_of(rank);
        let expected = Payload::new(size as usize, rank as u64);
        FollowedQp { size, answered: 0, next: 0, seen: SeenWindow::new(), expected }
    }

    /// The number of a message, which is answered; `None` if it is none, having been
    /// written over while it was looked at.
    #[inline]
    fn take(&mut self, plan: &RawPlan, bytes: &[u8], imm: Option<u32>) -> Result<Option<u64>> {
        let number = if plan.is_reliable() || (plan.op != RawOp::Send && !plan.verify) {
            self.next
        } else if plan.op == RawOp::Send {
            let imm = imm.context("a message without its number")?;
            let number = self.seen.number(rank_and_number(imm).1);
            self.seen.see(number);
            if plan.verify {
                self.expected.seek(number);
                self.expected.check(bytes)?;
            }
            number
        } else {
            let numbers = self.next..self.next + MOST_AHEAD;
            let Some(number) = self.expected.identify(bytes, numbers) else { return Ok(None) };
            number
        };
        self.next = number + 1;
        self.answered += 1;
        Ok(Some(number))
    }

    /// The number of the message with this mark: the next one, or, where messages may be
    /// lost, a later one.
    fn marked(&self, plan: &RawPlan, found: u8) -> Result<u64> {
        let ahead = (u64::from(found) + 255 - u64::from(mark(self.next))) % 255;
        ensure!(
            ahead == 0 || !plan.is_reliable(),
            "message {} has the mark of another one",
            self.next
        );
        Ok(self.next + ahead)
    }
}

/// Answers until the leader says that it has all it wants, or until `limit` messages; returns how
/// many arrived.
pub(super) fn follow(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    limit: Option<u64>,
    local: Local<'_>,
) -> Result<u64> {
    let mut lanes: Vec<FollowedQp> =
        (0..plan.qps as usize).map(|rank| FollowedQp::new(plan, rank)).collect();
    match plan.op {
        RawOp::Send | RawOp::WriteImm => {
            by_messages(plan, &mut lanes, end, wire, limit, IdleWatch::new(local.spin))?;
        }
        RawOp::Write => {
            let JoinedEnd { outbox, memory, remote, .. } = end;
            let memory = memory.as_ref().context("no memory")?;
            let (places, watch) = ((memory, remote.as_ref()), IdleWatch::new(local.spin));
            if local.polling_threads {
                by_threads(plan, memory, |threads| {
                    by_memory(plan, &mut lanes, (outbox, places), wire, watch, threads)
                })?;
            } else {
                let all = InTurn(lanes.len());
                by_memory(plan, &mut lanes, (outbox, places), wire, watch, all)?;
            }
        }
        RawOp::Read => return done(wire.hear_unless_interrupted()?)?.messages(),
    }
    Ok(lanes.iter().map(|lane| lane.answered).sum())
}

/// Returns the leader's totals if `note` has them; any other message is an error.
pub(super) fn done(note: RawControl) -> Result<Totals> {
    match note {
        RawControl::Done(totals) => Ok(totals),
        other => session::unexpected(other),
    }
}

fn by_messages(
    plan: &RawPlan,
    lanes: &mut [FollowedQp],
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    limit: Option<u64>,
    mut watch: IdleWatch,
) -> Result<()> {
    let JoinedEnd { outbox, inbox, memory, remote, sources } = end;
    let inbox = inbox.as_mut().context("no receives")?;
    let (mut answered, mut scratch) = (0, scratch(plan.largest())?);
    let places = MessagePlaces::new(plan);
    while limit.is_none_or(|limit| answered < limit) {
        wire.end_at_signal()?;
        let arrived = inbox.poll(|arrival| {
            let Some(rank) = source(plan, &arrival, sources)? else { return Ok(()) };
            let lane = &mut lanes[rank];
            let bytes = match memory {
                None => arrival.bytes,
                Some(memory) => {
                    let bytes = &mut scratch[..written(lane.size, arrival.imm)?];
                    if plan.verify {
                        memory.copy_out(places.at(rank, lane.next), bytes)?;
                    }
                    bytes
                }
            };
            ensure!(bytes.len() == lane.size as usize, "a message of {} bytes", bytes.len());
            let Some(number) = lane.take(plan, bytes, arrival.imm)? else { return Ok(()) };
            let op = message(plan, rank, number, lane.size, remote.as_ref())?;
            answered += 1;
            // Only its completion shows that the last answer has arrived.
            let last = limit == Some(answered);
            outbox.stage(rank, op, last, |slot| {
                if plan.verify {
                    slot[..bytes.len()].copy_from_slice(bytes);
                }
            })?;
            if outbox.staged(rank) >= plan.batch {
                outbox.post(rank)?;
            }
            // Once the answer is on its way: that takes no time of the leader's.
            if plan.verify && plan.is_reliable() { lane.expected.check(bytes) } else { Ok(()) }
        })?;
        if arrived > 0 {
            watch.progress();
            outbox.post_all()?;
            inbox.repost()?;
            outbox.tidy()?;
        } else if let Some(note) = watch.idle_with(outbox, wire)? {
            return done(note).map(drop);
        }
    }
    while outbox.outstanding() > 0 {
        outbox.wait()?;
    }
    Ok(())
}

fn by_memory(
    plan: &RawPlan,
    lanes: &mut [FollowedQp],
    (outbox, (memory, remote)): (&mut SendQueues, (&SharedRegion, Option<&RemotePlaces>)),
    wire: &mut RawChannel,
    mut watch: IdleWatch,
    mut detection: impl Detection,
) -> Result<()> {
    let (mut scratch, places) = (scratch(plan.largest())?, MessagePlaces::new(plan));
    let looks = if plan.qps == 1 { watch.looks() } else { 1 };
    loop {
        wire.end_at_signal()?;
        let mut arrived = false;
        for nth in 0..detection.look() {
            let rank = detection.rank(nth);
            let lane = &mut lanes[rank];
            let (size, at) = (lane.size as usize, places.at(rank, lane.next));
            let Some(found) = memory::arrives(memory, at, size, looks)? else { continue };
            arrived = true;
            let (number, bytes) = (lane.marked(plan, found)?, &mut scratch[..size]);
            if plan.verify {
                memory.copy_out(at, bytes)?;
            }
            // Before the answer: the next message may arrive as soon as it is sent.
            memory::reset(memory, at, size)?;
            if plan.verify {
                lane.expected.seek(number);
                let checked = lane.expected.check(memory::body(bytes));
                if checked.is_err() && !plan.is_reliable() {
                    continue; // written over while it was looked at
                }
                checked?;
            }
            let op = message(plan, rank, number, lane.size, remote)?;
            lane.next = number + 1;
            detection.taken(rank, lane.next);
            lane.answered += 1;
            outbox.stage(rank, op, false, |slot| match plan.verify {
                true => slot[..size].copy_from_slice(bytes),
                false => memory::wrap(&mut slot[..size], found, |_| {}),
            })?;
            if outbox.staged(rank) >= plan.batch {
                outbox.post(rank)?;
            }
        }
        if arrived {
            watch.progress();
            outbox.tidy()?;
            continue;
        }
        if plan.batch > 1 {
            outbox.post_all()?;
        }
        if let Some(note) = watch.idle_with(outbox, wire)? {
            return done(note).map(drop);
        }
    }
}
