//! `rdma-conn pingpong`: half of a round trip ("Send Receive", section Latency).

mod ends;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use comfy_table::Table;
use hdrhistogram::Histogram;
use rdma_conn::device::{Counters, Device};
use serde::{Deserialize, Serialize};

use crate::args::{Common, Compat, Pingpong};
use crate::bench::{HAS_COME, right_aligned};
use crate::outcome::Outcome;
use crate::progress;
use crate::protocol::{Described, Duplex, Kind, Purpose, Receiving, Sending, Taken, With, Work};
use crate::session;
use crate::verify::Payload;

/// Round trips before the measured ones: a tenth of them, and at most so many.
const WARM_UP: u64 = 1000;
/// No peer that lives takes longer for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// One line of `--json`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Line {
    protocol: String,
    device: String,
    transport: String,
    size_bytes: u32,
    #[serde(flatten)]
    settings: Described,
    messages: u64,
    latency_ns_min: u64,
    latency_ns_p50: u64,
    latency_ns_p90: u64,
    latency_ns_p99: u64,
    latency_ns_p999: u64,
    latency_ns_max: u64,
    rdma_ops_per_message: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    mean_transfer_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    rnr_events: Option<u64>,
    verified: bool,
    build: String,
}

struct Measured {
    half_trips: Histogram<u64>,
    /// Of both ends.
    work: Work,
    /// The device's counters at the start.
    before: Option<Counters>,
}

pub(crate) fn run(common: &Common, options: &Pingpong) -> Outcome {
    if let Some(op) = options.raw.op {
        options.connection.check_raw()?;
        return crate::raw::pingpong(common, options, op);
    }
    if let Some(Compat::IbvRcPingpong) = options.compat {
        return crate::raw::ibv_rc_pingpong(common, options);
    }
    let protocol = options.connection.protocol();
    protocol.check_flags(&options.connection.given())?;
    let device = session::open_device(common, &options.ends)?;
    protocol.with(Task { common, options, device: &device })
}

/// What is to be measured, with whichever connection.
struct Task<'a> {
    common: &'a Common,
    options: &'a Pingpong,
    device: &'a Device,
}

impl With for Task<'_> {
    type Out = Outcome;

    fn with<K: Kind>(self) -> Outcome {
        let Task { common, options, device } = self;
        for size in options.sizes() {
            let config = config::<K>(common, options, size);
            K::check(&options.connection, &config, size)?;
        }
        if let Some(address) = options.ends.listen {
            return ends::listen::<K>(common, options, device, address);
        }
        let mut report = Report::new(common.json);
        let (run, of) = (session::run_number(), options.sizes().len() as u32);
        let bar = progress::bar(of.into(), common.json);
        for (at, size) in (0..).zip(options.sizes()) {
            let config = config::<K>(common, options, size);
            bar.set_message(format!("{size} B"));
            let line = match options.ends.connect {
                None => within_process::<K>(options, device, &config, size)?,
                Some(address) => {
                    let part = ends::Part { run, at, of };
                    ends::connect::<K>(options, device, &config, size, part, address)?
                }
            };
            report.add(&line)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        report.finish();
        Ok(())
    }
}

fn config<K: Kind>(common: &Common, options: &Pingpong, size: u32) -> K::Config {
    K::config(common, &options.connection, Purpose::Latency, size)
}

fn within_process<K: Kind>(
    options: &Pingpong,
    device: &Device,
    config: &K::Config,
    size: u32,
) -> Result<Line> {
    let before = device.counters().ok();
    let (mut near, mut far) = K::pair(device, config)?;
    let (half_trips, work) = std::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            let followed = follow(&mut far, !options.no_verify, size).map(|_| far.work());
            hang_up(far);
            followed
        });
        let half_trips = lead(&mut near, options, size);
        let led = near.work();
        hang_up_first(near, half_trips.is_ok());
        let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // What the follower has found is the cause of what the leader then saw.
        let followed = followed?;
        Ok::<_, anyhow::Error>((half_trips?, led + followed))
    })?;
    Ok(line::<K>(options, device, config, size, &Measured { half_trips, work, before }))
}

/// Ends a connection whose peer may have gone.
fn hang_up<K: Kind>(connection: Duplex<K>) {
    if let Err(e) = connection.sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
    }
}

/// Ends a connection at the end that leads. Where all went well, the other end is heard
/// out: its last message may be here before it knows that.
fn hang_up_first<K: Kind>(connection: Duplex<K>, is_well: bool) {
    let Duplex { sender, mut receiver } = connection;
    if let Err(e) = sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
        return;
    }
    match is_well.then(|| receiver.take(Some(PATIENCE), |_, _| Ok(()))) {
        None | Some(Ok(Taken::Closed)) => {}
        Some(other) => tracing::debug!(?other, "the other end has not said goodbye"),
    }
}

fn warm_up(options: &Pingpong) -> u64 {
    WARM_UP.min(options.trips() / 10)
}

/// Sends, waits for the answer, and measures.
fn lead<K: Kind>(near: &mut Duplex<K>, options: &Pingpong, size: u32) -> Result<Histogram<u64>> {
    let verify = !options.no_verify;
    let mut out = Payload::new(size as usize, 0);
    if verify {
        out.prepare();
    }
    let mut back = Payload::new(size as usize, 0);
    let mut message = vec![0; size as usize];
    let mut half_trips = Histogram::new(3)?;
    let warm_up = warm_up(options);
    for trip in 0..warm_up + options.trips() {
        if verify {
            out.fill(&mut message);
        }
        let start = Instant::now();
        near.sender.send(&message)?;
        near.sender.flush()?;
        let mut round_trip = None;
        let taken = near.receiver.take(Some(PATIENCE), |_, answer| {
            if round_trip.replace(start.elapsed()).is_some() {
                bail!("two answers to one message");
            }
            if verify { back.check(answer) } else { Ok(()) }
        })?;
        let Some(round_trip) = round_trip else { return Err(without_answer(taken)) };
        if trip >= warm_up {
            half_trips.record(round_trip.as_nanos() as u64 / 2)?;
        }
    }
    Ok(half_trips)
}

fn without_answer(taken: Taken) -> anyhow::Error {
    match taken {
        Taken::Closed => anyhow::anyhow!("no answer: the connection is closed"),
        _ => anyhow::anyhow!("no answer: timed out"),
    }
}

/// Sends back what comes, until the other end closes; how many messages.
fn follow<K: Kind>(far: &mut Duplex<K>, verify: bool, size: u32) -> Result<u64> {
    let Duplex { sender, receiver } = far;
    let (mut expected, mut messages) = (Payload::new(size as usize, 0), 0);
    loop {
        let taken = receiver.take(Some(PATIENCE), |_, message| {
            sender.send(message)?;
            sender.flush()?;
            if verify { expected.check(message) } else { Ok(()) }
        })?;
        match taken {
            Taken::Some(count) => {
                if messages == 0 {
                    tracing::info!("{HAS_COME}");
                }
                messages += count;
            }
            Taken::Nothing => {}
            Taken::Closed => return Ok(messages),
        }
    }
}

fn line<K: Kind>(
    options: &Pingpong,
    device: &Device,
    config: &K::Config,
    size: u32,
    measured: &Measured,
) -> Line {
    let Measured { half_trips: h, work, before } = measured;
    let all = 2 * (options.trips() + warm_up(options));
    let rnr_events = before.and_then(|before| device.counters().ok()?.since(&before).rnr_events);
    Line {
        protocol: K::NAME.into(),
        device: device.name().into(),
        transport: "rc".into(),
        size_bytes: size,
        settings: K::describe(config),
        messages: 2 * options.trips(),
        latency_ns_min: h.min(),
        latency_ns_p50: h.value_at_quantile(0.5),
        latency_ns_p90: h.value_at_quantile(0.9),
        latency_ns_p99: h.value_at_quantile(0.99),
        latency_ns_p999: h.value_at_quantile(0.999),
        latency_ns_max: h.max(),
        rdma_ops_per_message: work.operations as f64 / all as f64,
        mean_transfer_bytes: work.mean_transfer_bytes(),
        rnr_events,
        verified: !options.no_verify,
        build: rdma_conn::build::summary(),
    }
}

/// Gathers results, and prints them.
struct Report {
    json: bool,
    table: Table,
    title: Option<String>,
}

impl Report {
    fn new(json: bool) -> Report {
        let header = ["size", "min", "50 %", "90 %", "99 %", "99.9 %", "max"];
        Report { json, table: right_aligned(&header), title: None }
    }

    fn add(&mut self, line: &Line) -> Result<()> {
        if self.json {
            say!("{}", serde_json::to_string(line)?);
            return Ok(());
        }
        let (trips, device) = (line.messages / 2, &line.device);
        let title =
            || format!("Half of a round trip in µs, {trips} round trips a size, on {device}:");
        self.title.get_or_insert_with(title);
        let quantiles = [
            line.latency_ns_min,
            line.latency_ns_p50,
            line.latency_ns_p90,
            line.latency_ns_p99,
            line.latency_ns_p999,
            line.latency_ns_max,
        ];
        let us = quantiles.map(|ns| format!("{:.2}", ns as f64 / 1e3));
        self.table.add_row([format!("{} B", line.size_bytes)].into_iter().chain(us));
        Ok(())
    }

    fn finish(self) {
        if let Some(title) = self.title {
            say!("{title}");
            say!("{}", self.table);
        }
    }
}
