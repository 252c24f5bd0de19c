//! Messages that go one way, as fast as they go.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::signals;
use rdma_conn::verbs_safe::SharedRegion;

use super::control::{RawChannel, Received};
use super::end::{End, Remote};
use super::flight::Seen;
use super::follow::done;
use super::lead::{message, source, written};
use super::led::Led;
use super::memory::Places;
use super::plan::{Plan, rank_and_number};
use super::queues::{Arrival, Outbox, Watch};
use crate::cli::RawOp;
use crate::measure::{EndOfLoad, Payload};
use crate::scratch::scratch;

/// The sender's account of its messages.
struct Pump<'a> {
    plan: &'a Plan,
    lanes: Vec<Lane>,
    /// Messages of each queue pair.
    limit: u64,
    /// True if time is up.
    over: bool,
    /// True if each queue pair has a send queue of its own: then only the queues that may have room
    /// are looked at.
    one_to_one: bool,
}

/// One queue pair.
struct Lane {
    size: u32,
    sent: u64,
    done: bool,
    out: Payload,
    /// Payload that READs are expected to bring.
    back: Payload,
}

impl<'a> Pump<'a> {
    fn new(plan: &'a Plan, limit: u64, one_to_one: bool) -> Pump<'a> {
        let lane = |rank| {
            let size = plan.size_of(rank);
            let back = Payload::new(size as usize, rank as u64);
            let mut out = back.clone();
            if plan.verify && plan.op != RawOp::Read {
                out.prepare();
            }
            Lane { size, sent: 0, done: false, out, back }
        };
        let lanes = (0..plan.qps as usize).map(lane).collect();
        Pump { plan, lanes, limit, over: false, one_to_one }
    }

    fn is_done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.done)
    }

    /// Posts a list to each queue pair that has room for one; returns the number of messages in
    /// all.
    #[inline]
    fn post(&mut self, outbox: &mut Outbox, remote: Option<&Remote>) -> Result<u64> {
        if !self.one_to_one {
            return (0..self.lanes.len())
                .try_fold(0, |staged, rank| Ok(staged + self.post_to(rank, outbox, remote)?));
        }
        let (ready, mut staged) = (outbox.take_ready(), 0);
        for rank in &ready {
            staged += self.post_to(*rank, outbox, remote)?;
        }
        outbox.put_ready(ready);
        Ok(staged)
    }

    /// Posts a list to a queue pair, as far as there is room.
    #[inline]
    fn post_to(
        &mut self,
        rank: usize,
        outbox: &mut Outbox,
        remote: Option<&Remote>,
    ) -> Result<u64> {
        let (plan, lane) = (self.plan, &mut self.lanes[rank]);
        let room = if lane.done { 0 } else { outbox.room(rank).min(plan.batch) };
        // Where time is up, one more message makes the last ones complete.
        let count = u64::from(if self.over { room.min(1) } else { room });
        let count = count.min(self.limit - lane.sent);
        for _ in 0..count {
            let op = message(plan, rank, lane.sent, lane.size, remote)?;
            lane.sent += 1;
            lane.done = self.over || lane.sent == self.limit;
            if plan.verify && plan.op != RawOp::Read {
                let size = lane.size as usize;
                outbox.stage(rank, op, lane.done, |slot| lane.out.fill(&mut slot[..size]))?;
            } else {
                outbox.stage_unfilled(rank, op, lane.done)?;
            }
        }
        if count > 0 {
            outbox.post(rank)?;
        }
        Ok(count)
    }

    /// Takes completions, and looks at what READs have brought.
    #[inline]
    fn reap(&mut self, outbox: &mut Outbox) -> Result<usize> {
        let plan = self.plan;
        if !plan.verify || plan.op != RawOp::Read {
            return outbox.reap();
        }
        outbox.reap_with(|rank, queue, before| {
            for request in before + 1..=queue.retired_total() {
                let landed = queue.landed(request).context("what was read is gone")?;
                let back = &mut self.lanes[rank].back;
                back.seek((request - 1) % u64::from(plan.places()));
                back.check(landed)?;
            }
            Ok(())
        })
    }
}

/// Messages between two looks at the clock.
fn stride(size: u32) -> u64 {
    (1 << 20) / u64::from(size.clamp(1 << 12, 1 << 20))
}

/// Sends until `until`, over each queue pair, and waits until all has completed.
pub(super) fn send(
    plan: &Plan,
    end: &mut End,
    wire: &mut RawChannel,
    until: EndOfLoad,
    spin: bool,
) -> Result<Led> {
    let (limit, time) = until.limits();
    let End { outbox, remote, .. } = end;
    let mut pump = Pump::new(plan, limit, outbox.is_one_to_one());
    let mut watch = Watch::new(spin);
    let (start, stride) = (host::time::now(), stride(plan.largest()));
    let (mut until_look, mut next_listen) = (stride, Watch::LOOK);
    while !pump.is_done() || outbox.outstanding() > 0 {
        let staged = pump.post(outbox, remote.as_ref())?;
        // While requests can be staged, completions are not taken.
        if staged == 0 && pump.reap(outbox)? == 0 {
            watch.idle_with(outbox, wire)?;
            until_look = until_look.saturating_sub(1);
        } else {
            watch.progress();
            until_look = until_look.saturating_sub(staged);
        }
        if until_look == 0 {
            until_look = stride;
            let elapsed = host::time::since(start);
            pump.over |= elapsed >= time || signals::is_interrupted();
            // Unreliable messages do not fail when the peer has gone: only the wire shows that.
            if !plan.is_reliable() && elapsed >= next_listen {
                next_listen = elapsed + Watch::LOOK;
                Watch::listen(outbox, wire)?;
            }
        }
    }
    let elapsed = host::time::since(start);
    let sent = pump.lanes.iter().map(|lane| lane.sent).collect();
    Ok(Led { sent, ..Led::one_way(elapsed) })
}

/// Silence that ends a measurement once the sender has finished, where messages may be lost.
const QUIET: Duration = Duration::from_millis(200);

/// Receives until all that was sent has arrived. Where messages may be lost: or until the sender
/// has finished, and nothing has arrived for [`QUIET`].
pub(super) fn receive(
    plan: &Plan,
    end: &mut End,
    wire: &mut RawChannel,
    spin: bool,
) -> Result<Received> {
    if !plan.receives() {
        let totals = done(wire.hear_unless_interrupted()?)?;
        let messages = totals.messages()?;
        if let (Some(memory), RawOp::Write, true) = (&end.memory, plan.op, plan.verify) {
            check_last(plan, memory, &totals.sent)?;
        }
        return Ok(Received { messages, ..Received::default() });
    }
    let (mut watch, mut total) = (Watch::new(spin), None);
    let mut receiver = Receiver::new(plan)?;
    let End { outbox, inbox, memory, sources, .. } = end;
    let inbox = inbox.as_mut().context("no receives")?;
    let mut quiet = None;
    loop {
        wire.end_at_signal()?;
        let count = inbox.poll(|arrival| match source(plan, &arrival, sources)? {
            Some(rank) => receiver.take(rank, &arrival, memory.as_ref()),
            None => Ok(()),
        })?;
        if count > 0 {
            watch.progress();
            inbox.repost()?;
            quiet = None;
        } else if let Some(now) = watch.idle()? {
            if let Some(note) = Watch::listen(outbox, wire)? {
                total = Some(done(note)?.messages()?);
            }
            let since = *quiet.get_or_insert(now);
            let over = !plan.is_reliable() && now.saturating_duration_since(since) > QUIET;
            if total.is_some() && over {
                return Ok(receiver.received());
            }
        }
        if total.is_some_and(|total| receiver.messages >= total) {
            return Ok(receiver.received());
        }
    }
}

/// The account of what arrives.
struct Receiver<'a> {
    plan: &'a Plan,
    lanes: Vec<Stream>,
    /// Messages of all streams together.
    messages: u64,
    places: Places,
    scratch: Vec<u8>,
}

/// The messages of one queue pair.
struct Stream {
    size: u32,
    arrived: u64,
    seen: Seen,
    expected: Payload,
}

impl<'a> Receiver<'a> {
    fn new(plan: &'a Plan) -> Result<Receiver<'a>> {
        let stream = |rank| {
            let size = plan.size_of(rank);
            let expected = Payload::new(size as usize, rank as u64);
            Stream { size, arrived: 0, seen: Seen::new(), expected }
        };
        let lanes = (0..plan.qps as usize).map(stream).collect();
        let (places, scratch) = (Places::new(plan), scratch(plan.largest())?);
        Ok(Receiver { plan, lanes, messages: 0, places, scratch })
    }

    #[inline]
    fn take(
        &mut self,
        rank: usize,
        arrival: &Arrival<'_>,
        memory: Option<&SharedRegion>,
    ) -> Result<()> {
        let (plan, stream) = (self.plan, &mut self.lanes[rank]);
        let number = stream.arrived;
        stream.arrived += 1;
        if !plan.is_reliable() && plan.op == RawOp::Send {
            let imm = arrival.imm.context("a message without its number")?;
            let number = stream.seen.number(rank_and_number(imm).1);
            self.messages += u64::from(stream.seen.see(number));
            stream.expected.seek(number);
        } else {
            self.messages += 1;
        }
        match memory {
            _ if !plan.verify => Ok(()),
            None => stream.expected.check(arrival.bytes),
            Some(memory) => {
                let bytes = &mut self.scratch[..written(stream.size, arrival.imm)?];
                memory.copy_out(self.places.at(rank, number), bytes)?;
                stream.expected.check(bytes)
            }
        }
    }

    #[inline]
    fn received(&self) -> Received {
        Received {
            messages: self.messages,
            reordered: self.lanes.iter().map(|lane| lane.seen.reordered).sum(),
            repeated: self.lanes.iter().map(|lane| lane.seen.repeated).sum(),
        }
    }
}

/// Checks the messages that plain WRITEs have left in memory: nothing reports their arrival.
fn check_last(plan: &Plan, memory: &SharedRegion, sent: &[u64]) -> Result<()> {
    ensure!(sent.len() == plan.qps as usize, "{} queue pairs of {}", sent.len(), plan.qps);
    let mut scratch = scratch(plan.largest())?;
    for (rank, sent) in sent.iter().enumerate() {
        let bytes = &mut scratch[..plan.size_of(rank) as usize];
        let mut expected = Payload::new(bytes.len(), rank as u64);
        for number in sent.saturating_sub(plan.places().into())..*sent {
            memory.copy_out(Places::new(plan).at(rank, number), bytes)?;
            expected.seek(number);
            expected.check(bytes)?;
        }
    }
    Ok(())
}

/// Fills the memory that the peer reads, with what it expects there.
pub(super) fn fill_for_reads(plan: &Plan, memory: &SharedRegion) -> Result<()> {
    let mut bytes = scratch(plan.largest())?;
    for rank in 0..plan.qps as usize {
        let bytes = &mut bytes[..plan.size_of(rank) as usize];
        let mut payload = Payload::new(bytes.len(), rank as u64);
        for number in 0..plan.places().into() {
            payload.fill(bytes);
            memory.copy_in(Places::new(plan).at(rank, number), bytes)?;
        }
    }
    Ok(())
}
