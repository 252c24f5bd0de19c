//! `pingpong --op` and `bench --op`: verbs without a connection on top ("RDMA Tutorial").
//!
//! The leading end sends first and measures; the following end answers (pingpong), or
//! receives (bench). In one process they are two threads, joined as two processes are:
//! over a byte stream, with the handshake of raw queue pairs.

mod compat;
mod end;
mod flight;
mod follow;
mod lead;
mod lobby;
mod memory;
mod plan;
mod queues;
mod rate;
mod report;
#[cfg(test)]
mod tests;
mod wire;

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rdma_conn::device::{self, Counters, Device, SOFT, set_network_faults};
use rdma_conn::verbs_safe::{CqConfig, QueuePairConfig};

use crate::args::{
    Bench, Common, ConnectionArgs, Ends, Faults, Op, Pingpong, RawArgs, RawTransport, Wait,
};
use crate::bench::EndOfLoad;
use crate::outcome::{Failure, Outcome, as_usage, usage};
use crate::session::Flag;
use crate::{progress, session};
pub(crate) use compat::ibv_rc_pingpong;
use end::{End, Local, Refused};
use lead::Trips;
use lobby::{Language, Lobby};
use plan::{Plan, Task};
use rate::Received;
use report::{Counted, Latency, Line, Report};
use wire::{Note, Totals, Wire};

/// Round trips before the measured ones: a tenth of them, and at most so many.
const WARM_UP: u64 = 1000;

/// What the command line asks for.
struct Request<'a> {
    task: Task,
    op: Op,
    common: &'a Common,
    raw: &'a RawArgs,
    connection: &'a ConnectionArgs,
    ends: &'a Ends,
    /// What was asked for; nothing, where that is up to us.
    sizes: &'a [u32],
    /// What it is then, as far as the device has it in one message.
    usual_sizes: &'static [u32],
    srq: bool,
    verify: bool,
    until: Until,
}

/// When the leader has sent enough.
#[derive(Debug, Clone, Copy)]
enum Until {
    Trips(Trips),
    Load(EndOfLoad),
}

/// `pingpong --op`.
pub(crate) fn pingpong(common: &Common, options: &Pingpong, op: Op) -> Outcome {
    pingpong_request(common, options, op).run()
}

/// `bench --op`.
pub(crate) fn bench(common: &Common, options: &Bench, op: Op) -> Outcome {
    bench_request(common, options, op)?.run()
}

fn pingpong_request<'a>(common: &'a Common, options: &'a Pingpong, op: Op) -> Request<'a> {
    let measured = options.trips();
    let trips = Trips { warm_up: WARM_UP.min(measured / 10), measured };
    Request {
        task: Task::Pingpong,
        op,
        common,
        raw: &options.raw,
        connection: &options.connection,
        ends: &options.ends,
        sizes: &options.size,
        usual_sizes: Pingpong::SIZES,
        srq: options.srq,
        verify: !options.no_verify,
        until: Until::Trips(trips),
    }
}

fn bench_request<'a>(common: &'a Common, options: &'a Bench, op: Op) -> Result<Request<'a>> {
    let until = EndOfLoad::asked(options).unwrap_or(EndOfLoad::After(Bench::SECONDS));
    let foreign = options.threads > 1
        || options.senders > 1
        || options.single_receiver
        || options.rate.is_some()
        || options.input.is_some()
        || options.srq_buffers.is_some();
    if foreign {
        return Err(usage(
            "--threads, --senders, --single-receiver, --rate, --input and --srq-buffers are about \
             connections: with --op there are --qps and --recv-window",
        ));
    }
    Ok(Request {
        task: Task::Bench,
        op,
        common,
        raw: &options.raw,
        connection: &options.connection,
        ends: &options.ends,
        sizes: &options.size,
        usual_sizes: &[16],
        srq: options.srq.is_some(),
        verify: !options.no_verify,
        until: Until::Load(until),
    })
}

impl Request<'_> {
    fn run(&self) -> Outcome {
        let device = session::open_device(self.common, self.ends)?;
        self.let_the_network_fail(&device)?;
        let local = Local {
            device: &device,
            gid_index: self.common.gid_index,
            spin: self.connection.wait == Wait::Spin,
        };
        let plans = self.plans(&device)?;
        match self.ends.listen {
            Some(address) => self.listen(local, address),
            None => self.lead(local, &plans),
        }
    }

    /// The network of soft0, if it is to have faults.
    fn let_the_network_fail(&self, device: &Device) -> Outcome {
        let Some(Faults { network, seed }) = self.raw.faults else { return Ok(()) };
        if device.name() != SOFT || self.raw.transport == RawTransport::Rc {
            return Err(usage("--faults are of soft0, with --transport uc or ud"));
        }
        set_network_faults(seed, network);
        Ok(())
    }

    /// One plan for each measurement, and whatever cannot be in one line.
    fn plans(&self, device: &Device) -> Result<Vec<Plan>> {
        if self.connection.wait == Wait::Block {
            return Err(usage("--op polls: it waits by --wait spin, or gives way with adaptive"));
        }
        match (self.raw.transport, self.raw.peers, self.raw.qps) {
            (RawTransport::Ud, _, Some(_)) => {
                return Err(usage("--transport ud has --peers, all served by one queue pair"));
            }
            (RawTransport::Ud, ..) | (_, None, _) => {}
            _ => return Err(usage("--peers is for --transport ud; others have --qps")),
        }
        let assumed = self.in_order_assumed(device)?;
        let port = device.context().port(1);
        let limit = port.as_ref().map_or(u32::MAX, |port| port.max_msg_bytes);
        let mtu = port.as_ref().map_or(u32::MAX, |port| port.active_mtu.bytes());
        let sizes = self.sizes(mtu)?;
        let of = sizes.len() as u32;
        let plan = |(at, (size, large)): (u32, (u32, Option<u32>))| {
            let largest = large.unwrap_or(size);
            let new = Plan::new(self.task, self.op, self.raw, self.connection, largest, self.srq);
            let assumed_in_order = assumed;
            let plan = Plan { size, large, assumed_in_order, at, of, ..new };
            let plan = Plan { verify: self.verify && plan.can_verify(), ..plan };
            plan.check().map_err(as_usage)?;
            if self.raw.transport == RawTransport::Ud && plan.largest() > mtu {
                return Err(usage(format!(
                    "--size {largest} is over the MTU of {}, {mtu} bytes, and a datagram has one \
                     at most: use --transport rc or uc",
                    device.name()
                )));
            }
            if plan.largest() > limit {
                return Err(usage(format!(
                    "--size {largest} is over what {} sends in one message ({limit} bytes)",
                    device.name()
                )));
            }
            Ok(plan)
        };
        (0..).zip(sizes).map(plan).collect()
    }

    /// The size of each measurement, and its second one where there are two classes.
    fn sizes(&self, mtu: u32) -> Result<Vec<(u32, Option<u32>)>> {
        let is_datagram = self.raw.transport == RawTransport::Ud;
        let one = |size: &u32| (*size, None);
        match (self.raw.srq_classes, self.sizes) {
            (true, [small, large]) if small < large => Ok(vec![(*small, Some(*large))]),
            // The connecting end tells them.
            (true, []) if self.ends.listen.is_some() => Ok(Vec::new()),
            (true, _) => Err(usage("--srq-classes takes two sizes: --size SMALL,LARGE")),
            (false, []) if is_datagram => {
                Ok(self.usual_sizes.iter().filter(|size| **size <= mtu).map(one).collect())
            }
            (false, []) => Ok(self.usual_sizes.iter().map(one).collect()),
            (false, sizes) => Ok(sizes.iter().map(one).collect()),
        }
    }

    /// Whether memory is to be polled on a device that does not promise to deliver in
    /// order; that has to be wanted.
    fn in_order_assumed(&self, device: &Device) -> Result<bool> {
        let polls = self.op == Op::Write && self.task == Task::Pingpong;
        if !polls || delivers_in_order(device)? {
            return Ok(false);
        }
        if !self.raw.assume_in_order && self.ends.listen.is_none() {
            return Err(usage(format!(
                "{} does not promise to deliver the bytes of a write in order, which polling \
                 memory takes: use --op write-imm, or --assume-in-order",
                device.name()
            )));
        }
        Ok(true)
    }

    /// The leading end: one measurement after the other.
    fn lead(&self, local: Local<'_>, plans: &[Plan]) -> Outcome {
        let mut report = Report::new(self.common.json, self.task);
        let bar = progress::bar(plans.len() as u64, self.common.json);
        for plan in plans {
            bar.set_message(format!("{} B", plan.largest()));
            let lines = match self.ends.connect {
                Some(address) => {
                    let stream = session::dial(address)?;
                    let led = lead(local, plan, &mut Wire::tcp(stream)?, self.until);
                    led.map_err(|e| self.explain(e, address))?
                }
                None => within_process(local, plan, self.until)?,
            };
            lines.iter().try_for_each(|line| report.add(line))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        report.finish();
        Ok(())
    }

    /// What to do when the end at `address` did not let us join it.
    fn explain(&self, error: Failure, address: SocketAddr) -> Failure {
        match error.downcast() {
            Ok(error) => {
                let op = self.op.protocol().trim_start_matches("raw-");
                let command = format!("{} --op {op}", self.task.name());
                session::explain(error, address, &command)
            }
            Err(error) => error,
        }
    }

    /// The following end of another process: one measurement after the other, until the
    /// last.
    fn listen(&self, local: Local<'_>, address: SocketAddr) -> Outcome {
        self.serve(local, Lobby::listen(address, Language::Handshake)?)
    }

    fn serve(&self, local: Local<'_>, mut lobby: Lobby) -> Outcome {
        let mut report = Report::new(self.common.json, self.task);
        loop {
            let (stream, from) = lobby.next()?;
            let mut wire = match Wire::tcp(stream) {
                Ok(wire) => wire,
                Err(e) => {
                    session::refused(Some(from), &e.to_string());
                    continue;
                }
            };
            let (plan, lines) = match follow(local, &mut wire, |plan| self.contradicts(plan)) {
                Ok(followed) => followed,
                Err(Refused::Stranger(e)) => {
                    session::refused(Some(from), &format!("{e:#}"));
                    continue;
                }
                Err(Refused::Failed(e)) => return Err(e),
            };
            lines.iter().try_for_each(|line| report.add(line))?;
            if plan.at + 1 == plan.of {
                report.finish();
                return Ok(());
            }
        }
    }

    /// The connecting end's parameters hold; what was said here and is not so there is
    /// refused, not overruled.
    fn contradicts(&self, plan: &Plan) -> Result<()> {
        let differs = |what: &str, here: &str, there: &str| {
            Err(usage(format!(
                "the connecting end has {what} {there}, the listening end {here}: give both ends \
                 the same"
            )))
        };
        if plan.task != self.task {
            return differs("the command", self.task.name(), plan.task.name());
        }
        if plan.op != self.op {
            return differs("--op", self.op.flag(), plan.op.flag());
        }
        // rc is what is meant where nothing is said.
        if self.raw.transport != plan.transport && self.raw.transport != RawTransport::Rc {
            return differs("--transport", self.raw.transport.name(), plan.transport.name());
        }
        let sizes = if self.raw.srq_classes { &[] } else { self.sizes };
        let contradiction = session::contradiction(&self.asked(plan.at), &plan.flags());
        match contradiction.or_else(|| session::other_sizes(sizes, plan.of)) {
            Some(why) => Err(usage(why)),
            None => Ok(()),
        }
    }

    /// What was asked for at this end, and is the connecting end's to choose.
    fn asked(&self, at: u32) -> Vec<Flag> {
        use session::{number, switch};
        let (raw, connection) = (self.raw, self.connection);
        let size = match self.sizes {
            [small, large] if raw.srq_classes => Some(format!("{small},{large}")),
            // As many as there are, told in the same order.
            sizes => sizes.get(at as usize).map(u32::to_string),
        };
        let numbers = [
            ("--unacked", connection.unacked),
            ("--batch", connection.batch),
            ("--signal-every", connection.signal_every),
            ("--inline", connection.inline),
            ("--recv-window", connection.recv_window),
            ("--poll-batch", connection.poll_batch),
            ("--repost-batch", connection.repost_batch),
            ("--qps", raw.qps),
            ("--peers", raw.peers),
        ];
        let switches = [
            ("--srq-classes", raw.srq_classes),
            ("--srq", self.srq),
            ("--no-verify", !self.verify),
        ];
        let switched = switches.into_iter().filter(|(_, on)| *on);
        let mut flags: Vec<Flag> = switched.map(|(flag, on)| (flag, switch(on))).collect();
        flags.extend(size.map(|size| ("--size", size)));
        flags.extend(numbers.into_iter().filter_map(|(flag, value)| number(flag, value)));
        flags
    }
}

/// Whether the device promises it; a queue pair is asked.
fn delivers_in_order(device: &Device) -> Result<bool> {
    let cq = device.context().create_cq(CqConfig::new(2))?;
    let config =
        QueuePairConfig { max_send_wr: 1, send_slots: 0, ..QueuePairConfig::new(&cq, &cq) };
    Ok(device.pd().create_qp(&config, ())?.control.data_in_order())
}

/// Both ends as threads of this process.
fn within_process(local: Local<'_>, plan: &Plan, until: Until) -> Result<Vec<Line>> {
    let (near, far) = UnixStream::pair().context("cannot make a pair of sockets")?;
    std::thread::scope(|scope| {
        let follower = scope.spawn(move || follow(local, &mut Wire::Unix(far), |_| Ok(())));
        let led = lead(local, plan, &mut Wire::Unix(near), until);
        let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (led, followed) {
            (Ok(lines), Ok(_)) => Ok(lines),
            // What the follower has found is the cause of what the leader then saw, and
            // the leader says it; or the other way round.
            (Err(e), _) => Err(e),
            (Ok(_), Err(e)) => Err(e.into()),
        }
    })
}

/// Leads one measurement.
fn lead(local: Local<'_>, plan: &Plan, wire: &mut Wire, until: Until) -> Result<Vec<Line>> {
    let before = local.device.counters().ok();
    let mut end = end::connect(local, plan, wire)?;
    tracing::info!(qps = plan.qps, "joined");
    measure(local, plan, &mut end, wire, until, before).map_err(|e| wire.cause(e))
}

/// Leads one measurement with the end that was joined.
fn measure(
    local: Local<'_>,
    plan: &Plan,
    end: &mut End,
    wire: &mut Wire,
    until: Until,
    before: Option<Counters>,
) -> Result<Vec<Line>> {
    let led = match until {
        Until::Trips(trips) => Led::from_latencies(lead::lead(plan, end, wire, trips, local.spin)?),
        Until::Load(until) => Led::from_rate(rate::send(plan, end, wire, until, local.spin)?),
    };
    wire.tell(&Note::Done(Totals { sent: led.sent.clone() }))?;
    let (received, operations, missed) = match wire.hear()? {
        Note::Received { messages, operations, reordered, repeated, missed } => {
            (Received { messages, reordered, repeated }, operations, missed)
        }
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    };
    let (sent, messages): (u64, u64) = (led.sent.iter().sum(), received.messages);
    if plan.is_reliable() && messages != sent {
        bail!("{sent} messages were sent and {messages} arrived");
    }
    if messages == 0 && sent > 0 && plan.receives() && device::unmet_peer().is_some() {
        bail!("of {sent} messages none has arrived");
    }
    let operations = operations.checked_add(end.outbox.posted());
    let operations = operations.context("the other end counts more requests than there can be")?;
    let delivered = if answered(plan) { 2 * (sent - led.faults.lost) } else { messages };
    let after = local.device.counters().ok();
    let since = before.and_then(|before| Some(after?.since(&before)));
    let rnr_events = since.and_then(|since| since.rnr_events);
    // What found no receive is counted where it arrived: by the other process, or here.
    let dropped = match since.and_then(|since| since.dropped) {
        Some(dropped) if wire.stays_within() => missed.map(|missed| missed.saturating_add(dropped)),
        _ => missed,
    };
    let lines: Vec<Line> = (0..plan.classes() as usize)
        .map(|class| {
            let inline = plan.op != Op::Read && end.outbox.is_inline(plan.largest());
            let mut line = Line::new(plan, class, local.device.name(), inline);
            led.fill(plan, class, &received, &mut line);
            line.rdma_ops_per_message = Some(operations as f64 / delivered.max(1) as f64);
            line.rnr_events = rnr_events;
            line.faults.count_dropped(plan.task, dropped);
            line
        })
        .collect();
    wire.tell(&Note::Results(lines.clone()))?;
    Ok(lines)
}

/// The line of `messages` that were delivered, sent by both ends alike.
fn delivered_line(
    local: Local<'_>,
    plan: &Plan,
    end: &End,
    messages: u64,
    elapsed: Duration,
) -> Line {
    let mut line = Line::new(plan, 0, local.device.name(), end.outbox.is_inline(plan.size));
    line.messages = messages;
    line.messages_per_s = messages as f64 / elapsed.as_secs_f64().max(1e-9);
    line.bytes_per_s = line.messages_per_s * f64::from(plan.size);
    line
}

/// Whether each message is answered by another one.
fn answered(plan: &Plan) -> bool {
    plan.task == Task::Pingpong && plan.op != Op::Read
}

/// What the leader has measured.
struct Led {
    latencies: Option<Vec<hdrhistogram::Histogram<u64>>>,
    elapsed: Duration,
    sent: Vec<u64>,
    faults: flight::Faults,
}

impl Led {
    fn from_latencies(latencies: lead::Latencies) -> Led {
        let lead::Latencies { classes, elapsed, sent, faults } = latencies;
        Led { latencies: Some(classes), elapsed, sent, faults }
    }

    fn from_rate(sent: rate::Sent) -> Led {
        let (elapsed, sent) = (sent.elapsed, sent.sent);
        Led { latencies: None, elapsed, sent, faults: flight::Faults::default() }
    }

    /// The figures of one class.
    fn fill(&self, plan: &Plan, class: usize, received: &Received, line: &mut Line) {
        let of_class = |rank: &usize| plan.class_of(*rank) == class;
        let histogram = self.latencies.as_ref().map(|classes| &classes[class]);
        let sent: u64 = (0..self.sent.len()).filter(of_class).map(|rank| self.sent[rank]).sum();
        // Classes have shared receive queues, and those only what is reliable has.
        let arrived = if plan.is_reliable() { sent } else { received.messages };
        let counted = histogram.map_or(arrived, |h| h.len());
        line.messages = if answered(plan) { 2 * counted } else { counted };
        line.messages_per_s = line.messages as f64 / self.elapsed.as_secs_f64().max(1e-9);
        line.bytes_per_s = line.messages_per_s * f64::from(line.size_bytes);
        line.latency = histogram.map(|h| Latency::new(plan.op, h));
        line.faults = self.counted(plan, received);
    }

    /// What the transport did, as far as it is known.
    fn counted(&self, plan: &Plan, received: &Received) -> Counted {
        let sent: u64 = self.sent.iter().sum();
        let numbered = plan.op == Op::Send;
        match plan.task {
            _ if plan.is_reliable() => Counted::default(),
            Task::Pingpong => Counted {
                lost: Some(self.faults.lost),
                dropped: None,
                reordered: Some(self.faults.reordered),
                late: Some(self.faults.late),
                repeated: None,
            },
            // Of plain WRITEs nobody at the other end knows.
            Task::Bench => Counted {
                lost: plan.receives().then(|| sent.saturating_sub(received.messages)),
                dropped: None,
                reordered: numbered.then_some(received.reordered),
                late: None,
                repeated: numbered.then_some(received.repeated),
            },
        }
    }
}

/// Follows one measurement.
fn follow(
    local: Local<'_>,
    wire: &mut Wire,
    judge: impl FnOnce(&Plan) -> Result<()>,
) -> Result<(Plan, Vec<Line>), Refused> {
    let before = local.device.counters().ok();
    let prepare = |plan: &Plan, memory: &_| match plan.op {
        Op::Read => rate::fill_for_reads(plan, memory),
        _ => Ok(()),
    };
    let (plan, mut end) = end::accept(local, wire, judge, prepare).map_err(Refused::Stranger)?;
    tracing::info!(qps = plan.qps, "joined");
    let lines = followed(local, &plan, &mut end, wire, before);
    let mut lines = lines.map_err(|e| Refused::Failed(wire.cause(e)))?;
    let after = local.device.counters().ok();
    for line in &mut lines {
        line.device = local.device.name().into();
        line.build = rdma_conn::build::summary();
        line.rnr_events = before.and_then(|before| after?.since(&before).rnr_events);
    }
    Ok((plan, lines))
}

fn followed(
    local: Local<'_>,
    plan: &Plan,
    end: &mut End,
    wire: &mut Wire,
    before: Option<Counters>,
) -> Result<Vec<Line>> {
    let received = match plan.task {
        Task::Pingpong => {
            let messages = follow::follow(plan, end, wire, None, local.spin)?;
            Received { messages, ..Received::default() }
        }
        Task::Bench => rate::receive(plan, end, wire, local.spin)?,
    };
    let (Received { messages, reordered, repeated }, operations) = (received, end.outbox.posted());
    let after = local.device.counters().ok();
    let missed = before.and_then(|before| after?.since(&before).missed);
    wire.tell(&Note::Received { messages, operations, reordered, repeated, missed })?;
    match wire.hear()? {
        Note::Results(lines) => Ok(lines),
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    }
}
