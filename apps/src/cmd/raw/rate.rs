//! Messages that go one way, as fast as they go.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::signals;
use rdma_conn::verbs_safe::SharedRegion;

use super::control::{RawChannel, ReceivedCounts};
use super::end::{JoinedEnd, RemotePlaces};
use super::flight::SeenWindow;
use super::follow::done;
use super::lead::{message, source, written};
use super::led::LedResult;
use super::memory::MessagePlaces;
use super::plan::{RawPlan, rank_and_number};
use super::queues::{ArrivedMessage, IdleWatch, SendQueues};
use crate::cli::RawOp;
use crate::measure::{EndOfLoad, Payload};
use crate::scratch::scratch;

/// The sender's account of its messages.
struct Pump<'a> {
    plan: &'a RawPlan,
    lanes: Vec<RateQp>,
    /// Messages of each queue pair.
    limit: u64,
    /// True if time is up.
    over: bool,
    /// True if each queue pair has a send queue of its own: then only the queues that may have room
    /// are looked at.
    one_to_one: bool,
}

/// One queue pair.
struct RateQp {
    size: u32,
    sent: u64,
    done: bool,
    out: Payload,
    /// Payload that READs are expected to bring.
    back: Payload,
}

impl<'a> Pump<'a> {
    fn new(plan: &'a RawPlan, limit: u64, one_to_one: bool) -> Pump<'a> {
        let lane = |rank| {
            let size = plan.size_of(rank);
            let back = Payload::new(size as usize, rank as u64);
            let mut out = back.clone();
            if plan.verify && plan.op != RawOp::Read {
                out.prepare();
            }
            RateQp { size, sent: 0, done: false, out, back }
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
    fn post(&mut self, outbox: &mut SendQueues, remote: Option<&RemotePlaces>) -> Result<u64> {
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
        outbox: &mut SendQueues,
        remote: Option<&RemotePlaces>,
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
    fn reap(&mut self, outbox: &mut SendQueues) -> Result<usize> {
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
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    until: EndOfLoad,
    spin: bool,
) -> Result<LedResult> {
    let (limit, time) = until.limits();
    let JoinedEnd { outbox, remote, .. } = end;
    let mut pump = Pump::new(plan, limit, outbox.is_one_to_one());
    let mut watch = IdleWatch::new(spin);
    let (start, stride) = (host::time::now(), stride(plan.largest()));
    let (mut until_look, mut next_listen) = (stride, IdleWatch::LOOK);
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
                next_listen = elapsed + IdleWatch::LOOK;
                IdleWatch::listen(outbox, wire)?;
            }
        }
    }
    let elapsed = host::time::since(start);
    let sent = pump.lanes.iter().map(|lane| lane.sent).collect();
    Ok(LedResult { sent, ..LedResult::one_way(elapsed) })
}

/// Silence that ends a measurement once the sender has finished, where messages may be lost.
const QUIET: Duration = Duration::from_millis(200);

/// Receives until all that was sent has arrived. Where messages may be lost: or until the sender
/// has finished, and nothing has arrived for [`QUIET`].
pub(super) fn receive(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    spin: bool,
) -> Result<ReceivedCounts> {
    if !plan.receives() {
        let totals = done(wire.hear_unless_interrupted()?)?;
        let messages = totals.messages()?;
        if let (Some(memory), RawOp::Write, true) = (&end.memory, plan.op, plan.verify) {
            check_last(plan, memory, &totals.sent)?;
        }
        return Ok(ReceivedCounts { messages, ..ReceivedCounts::default() });
    }
    let (mut watch, mut total) = (IdleWatch::new(spin), None);
    let mut receiver = RateReceiver::new(plan)?;
    let JoinedEnd { outbox, inbox, memory, sources, .. } = end;
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
            if let Some(note) = IdleWatch::listen(outbox, wire)? {
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
struct RateReceiver<'a> {
    plan: &'a RawPlan,
    lanes: Vec<RateStream>,
    /// Messages of all streams together.
    messages: u64,
    places: MessagePlaces,
    scratch: Vec<u8>,
}

/// The messages of one queue pair.
struct RateStream {
    size: u32,
    arrived: u64,
    seen: SeenWindow,
    expected: Payload,
}

impl<'a> RateReceiver<'a> {
    fn new(plan: &'a RawPlan) -> Result<RateReceiver<'a>> {
        let stream = |rank| {
            let size = plan.size_of(rank);
            let expected = Payload::new(size as usize, rank as u64);
            RateStream { size, arrived: 0, seen: SeenWindow::new(), expected }
        };
        let lanes = (0..plan.qps as usize).map(stream).collect();
        let (places, scratch) = (MessagePlaces::new(plan), scratch(plan.largest())?);
        Ok(RateReceiver { plan, lanes, messages: 0, places, scratch })
    }

    #[inline]
    fn take(
        &mut self,
        rank: usize,
        arrival: &ArrivedMessage<'_>,
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
    fn received(&self) -> ReceivedCounts {
        ReceivedCounts {
            messages: self.messages,
            reordered: self.lanes.iter().map(|lane| lane.seen.reordered).sum(),
            repeated: self.lanes.iter().map(|lane| lane.seen.repeated).sum(),
        }
    }
}

/// Checks the messages that plain WRITEs have left in memory: nothing reports their arrival.
fn check_last(plan: &RawPlan, memory: &SharedRegion, sent: &[u64]) -> Result<()> {
    ensure!(sent.len() == plan.qps as usize, "{} queue pairs of {}", sent.len(), plan.qps);
    let mut scratch = scratch(plan.largest())?;
    for (rank, sent) in sent.iter().enumerate() {
        let bytes = &mut scratch[..plan.size_of(rank) as usize];
        let mut expected = Payload::new(bytes.len(), rank as u64);
        for number in sent.saturating_sub(plan.places().into())..*sent {
            memory.copy_out(MessagePlaces::new(plan).at(rank, number), bytes)?;
            expected.seek(number);
            expected.check(bytes)?;
        }
    }
    Ok(())
}

/// Fills the memory that the peer reads, with what it expects there.
pub(super) fn fill_for_reads(plan: &RawPlan, memory: &SharedRegion) -> Result<()> {
    let mut bytes = scratch(plan.largest())?;
    for rank in 0..plan.qps as usize {
        let bytes = &mut bytes[..plan.size_of(rank) as usize];
        let mut payload = Payload::new(bytes.len(), rank as u64);
        for number in 0..plan.places().into() {
            payload.fill(bytes);
            memory.copy_in(MessagePlaces::new(plan).at(rank, number), bytes)?;
        }
    }
    Ok(())
}
