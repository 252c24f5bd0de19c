//! One measurement: the end that leads it, and the one that follows.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::signals;
use rdma_conn::device::{self, Counters};

use super::control::{self, RawChannel, RawControl, ReceivedCounts, Totals};
use super::end::{self, FollowError, JoinedEnd, Local};
use super::follow::{self};
use super::lead::{self};
use super::led::{LedResult, TripCounts};
use super::plan::{RawPlan, RawTask};
use super::rate;
use super::reliable;
use super::report::{plan_line, with_times};
use crate::cli::RawOp;
use crate::measure::{EndOfLoad, ResultLine, pair, per_s, since};
use crate::session;

/// Round trips before the measured ones: a tenth of them, and at most this number.
const WARM_UP: u64 = 1000;

/// Both ends as threads of this process.
pub(super) fn within_process(
    local: Local<'_>,
    plan: &RawPlan,
    until: EndOfLoad,
) -> Result<Vec<ResultLine>> {
    let (near, far) = RawChannel::within().context("cannot make a pair of sockets")?;
    let other = session::card::peer_device(local.device)?;
    let device = other.as_ref().unwrap_or(local.device);
    // Each end's channel goes with it: the other one then waits for no more.
    let lead = || {
        let mut near = near;
        lead(local, plan, &mut near, until)
    };
    let follow = || {
        let mut far = far;
        follow(Local { device, ..local }, &mut far, |_| Ok(()))
    };
    match pair(lead, follow)? {
        (Ok(lines), Ok(_)) => Ok(lines),
        // What the follower has found is the cause of what the leader then saw, and
        // the leader says it; or the other way round.
        (Err(e), _) => Err(e),
        (Ok(_), Err(e)) => Err(e.into()),
    }
}

/// Leads one measurement.
pub(super) fn lead(
    local: Local<'_>,
    plan: &RawPlan,
    wire: &mut RawChannel,
    until: EndOfLoad,
) -> Result<Vec<ResultLine>> {
    let before = local.device.counters().ok();
    let mut end = end::connect(local, plan, wire)?;
    tracing::info!(qps = plan.qps, "joined");
    measure(local, plan, &mut end, wire, until, before).map_err(|e| control::cause(wire, e))
}

/// Leads one measurement with the end that was joined.
fn measure(
    local: Local<'_>,
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    until: EndOfLoad,
    before: Option<Counters>,
) -> Result<Vec<ResultLine>> {
    let led = match plan.task {
        RawTask::Pingpong => {
            let (measured, _) = until.limits();
            let trips = TripCounts { warm_up: WARM_UP.min(measured / 10), measured };
            match plan.datagram {
                None => lead::lead(plan, end, wire, trips, local)?,
                Some(_) => lead::datagrams::lead(plan, end, wire, trips, local.spin)?,
            }
        }
        RawTask::Bench if plan.datagram.is_some() => {
            reliable::send(plan, end, wire, until, local.spin)?
        }
        RawTask::Bench => rate::send(plan, end, wire, until, local.spin)?,
    };
    if led.is_nothing() {
        signals::go_on()?;
    }
    wire.tell(&RawControl::Done(Totals { sent: led.sent.clone() }))?;
    let (received, operations, missed) = match wire.hear()? {
        RawControl::Received { received, operations, missed } => (received, operations, missed),
        other => session::unexpected(other)?,
    };
    let (sent, messages): (u64, u64) = (led.sent.iter().sum(), received.messages);
    if plan.is_reliable() && messages != sent {
        bail!("messages sent: {sent}, arrived: {messages}");
    }
    if messages == 0 && sent > 0 && plan.receives() && device::peer_not_found().is_some() {
        bail!("messages sent: {sent}, arrived: none");
    }
    let operations = operations.checked_add(end.outbox.posted());
    let operations = operations.context("the other end counts more requests than there can be")?;
    let delivered = if answered(plan) { 2 * (sent - led.faults.lost) } else { messages };
    let since = since(local.device, before);
    let rnr_events = since.and_then(|since| since.rnr_events);
    // What found no receive is counted where it arrived: by the other process, or here.
    let dropped = match since.and_then(|since| since.dropped) {
        Some(dropped) if wire.stays_within() => missed.map(|missed| missed.saturating_add(dropped)),
        _ => missed,
    };
    let inline = plan.op != RawOp::Read && end.outbox.is_inline(plan.request_bytes());
    let line = |class| {
        let line = plan_line(plan, class, local.device.name(), inline);
        let line = led.with_rates(plan, class, &received, line);
        led.with_faults(plan, &received, dropped, line)
            .with("rdma_ops_per_message", operations as f64 / delivered.max(1) as f64)
            .with("rnr_events", rnr_events)
            .with("polling_threads", local.polling_threads.then_some(plan.qps))
    };
    let lines: Vec<ResultLine> = (0..plan.classes() as usize).map(line).collect();
    let interrupted = signals::interrupted().map(|why| why.to_string());
    wire.tell(&RawControl::Results(lines.clone(), interrupted))?;
    Ok(lines)
}

/// The line of `messages` that were delivered, sent by both ends alike.
pub(super) fn delivered_line(
    local: Local<'_>,
    plan: &RawPlan,
    end: &JoinedEnd,
    messages: u64,
    elapsed: Duration,
) -> ResultLine {
    let inline = end.outbox.is_inline(plan.size);
    let line = plan_line(plan, 0, local.device.name(), inline);
    line.with_rates(messages, per_s(messages, elapsed))
}

/// Reports whether each message is answered by another one.
fn answered(plan: &RawPlan) -> bool {
    plan.task == RawTask::Pingpong && plan.op != RawOp::Read
}

impl LedResult {
    /// Reports whether a ping-pong has measured nothing, because a signal ended it early.
    fn is_nothing(&self) -> bool {
        !self.classes.is_empty() && self.classes.iter().all(|h| h.is_empty())
    }

    /// Adds the rates and the latency of one class.
    fn with_rates(
        &self,
        plan: &RawPlan,
        class: usize,
        received: &ReceivedCounts,
        line: ResultLine,
    ) -> ResultLine {
        let of_class = |rank: &usize| plan.class_of(*rank) == class;
        let histogram = self.classes.get(class);
        let sent: u64 = (0..self.sent.len()).filter(of_class).map(|rank| self.sent[rank]).sum();
        // Classes have shared receive queues, and those only what is reliable has.
        let arrived = if plan.is_reliable() { sent } else { received.messages };
        let counted = histogram.map_or(arrived, |h| h.len());
        let messages = if answered(plan) { 2 * counted } else { counted };
        let line = line.with_rates(messages, per_s(messages, self.elapsed));
        with_times(line, plan.op, histogram)
    }

    /// Adds what the transport did to messages, as far as it is known; `dropped` found no posted
    /// receive, as the device counts them.
    fn with_faults(
        &self,
        plan: &RawPlan,
        received: &ReceivedCounts,
        dropped: Option<u64>,
        line: ResultLine,
    ) -> ResultLine {
        let (sent, numbered): (u64, _) = (self.sent.iter().sum(), plan.op == RawOp::Send);
        match plan.task {
            _ if plan.is_reliable() => line.with("resent", self.resent),
            RawTask::Pingpong => line
                .with("lost", self.faults.lost)
                .with("reordered", self.faults.reordered)
                .with("late", self.faults.late),
            RawTask::Bench => {
                // The receiver does not notice plain WRITEs, and cannot count them.
                let lost = plan.receives().then(|| sent.saturating_sub(received.messages));
                // A second copy of a message may be among those that were dropped, and is no loss.
                let dropped = lost.zip(dropped).map(|(lost, dropped)| dropped.min(lost));
                line.with("lost", lost)
                    .with("dropped", dropped)
                    .with("reordered", numbered.then_some(received.reordered))
                    .with("repeated", numbered.then_some(received.repeated))
            }
        }
    }
}

/// Follows one measurement.
pub(super) fn follow(
    local: Local<'_>,
    wire: &mut RawChannel,
    judge: impl FnOnce(&RawPlan) -> Result<()>,
) -> Result<(RawPlan, Vec<ResultLine>, Option<String>), FollowError> {
    let before = local.device.counters().ok();
    let prepare = |plan: &RawPlan, memory: &_| match plan.op {
        RawOp::Read => rate::fill_for_reads(plan, memory),
        _ => Ok(()),
    };
    let (plan, mut end) =
        end::accept(local, wire, judge, prepare).map_err(FollowError::Stranger)?;
    tracing::info!(qps = plan.qps, "joined");
    let lines = followed(local, &plan, &mut end, wire, before);
    let (mut lines, ended) = lines.map_err(|e| FollowError::Failed(control::cause(wire, e)))?;
    let since = since(local.device, before);
    for line in &mut lines {
        line.measured_by(local.device.name());
        line.set("rnr_events", since.and_then(|since| since.rnr_events));
    }
    Ok((plan, lines, ended))
}

fn followed(
    local: Local<'_>,
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    before: Option<Counters>,
) -> Result<(Vec<ResultLine>, Option<String>)> {
    let received = match plan.task {
        RawTask::Pingpong => {
            let messages = match plan.datagram {
                None => follow::follow(plan, end, wire, None, local)?,
                Some(_) => reliable::answer(plan, end, wire, local.spin)?,
            };
            ReceivedCounts { messages, ..ReceivedCounts::default() }
        }
        RawTask::Bench if plan.datagram.is_some() => {
            reliable::receive(plan, end, wire, local.spin)?
        }
        RawTask::Bench => rate::receive(plan, end, wire, local.spin)?,
    };
    let operations = end.outbox.posted();
    let missed = since(local.device, before).and_then(|since| since.missed);
    wire.tell(&RawControl::Received { received, operations, missed })?;
    match wire.hear()? {
        RawControl::Results(lines, ended) if lines.len() == plan.classes() as usize => {
            let lines: Result<Vec<_>> = lines.into_iter().map(ResultLine::validated).collect();
            Ok((lines?, ended))
        }
        other => session::unexpected(other),
    }
}
