//! `rdma-conn pingpong`: half of a round trip ("Send Receive", section Latency).

mod ends;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use comfy_table::Table;
use hdrhistogram::Histogram;
use rdma_conn::device::{Counters, Device};
use rdma_conn::send_recv::{Config, Connection, Preset, RecvError, pair};
use serde::{Deserialize, Serialize};

use crate::args::{Common, Compat, Pingpong};
use crate::bench::{HAS_COME, right_aligned};
use crate::outcome::{Outcome, by_flag};
use crate::progress;
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
    unacked: u32,
    batch: u32,
    messages: u64,
    latency_ns_min: u64,
    latency_ns_p50: u64,
    latency_ns_p90: u64,
    latency_ns_p99: u64,
    latency_ns_p999: u64,
    latency_ns_max: u64,
    rdma_ops_per_message: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    rnr_events: Option<u64>,
    verified: bool,
    build: String,
}

struct Measured {
    half_trips: Histogram<u64>,
    /// Work requests of both ends.
    operations: u64,
    /// The device's counters at the start.
    before: Option<Counters>,
}

pub(crate) fn run(common: &Common, options: &Pingpong) -> Outcome {
    if let Some(op) = options.raw.op {
        return crate::raw::pingpong(common, options, op);
    }
    if let Some(Compat::IbvRcPingpong) = options.compat {
        return crate::raw::ibv_rc_pingpong(common, options);
    }
    let device = session::open_device(common, &options.ends)?;
    for size in &options.sizes() {
        let config = options.connection.config(common, Preset::Sequential, *size);
        config.validate().map_err(|e| by_flag(&e, &config))?;
        options.connection.check_pack(*size)?;
    }
    if let Some(address) = options.ends.listen {
        return ends::listen(common, options, &device, address);
    }
    let mut report = Report::new(common.json);
    let (run, of) = (session::run_number(), options.sizes().len() as u32);
    let bar = progress::bar(of.into(), common.json);
    for (at, size) in (0..).zip(options.sizes()) {
        let config = config(common, options, size);
        bar.set_message(format!("{size} B"));
        let line = match options.ends.connect {
            None => within_process(options, &device, &config, size)?,
            Some(address) => {
                let part = ends::Part { run, at, of };
                ends::connect(options, &device, &config, size, part, address)?
            }
        };
        report.add(&line)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.finish();
    Ok(())
}

/// What was asked for; without other wishes the longest messages have fewer buffers.
fn config(common: &Common, options: &Pingpong, size: u32) -> Config {
    let connection = &options.connection;
    let config = connection.config(common, Preset::Sequential, size);
    let buffers = u64::from(config.recv_window) + 1 + u64::from(config.unacked);
    let is_open = connection.recv_window.is_none() && config.unacked == 1;
    match is_open && buffers * u64::from(config.message_bytes) > session::MOST_BUFFER_BYTES {
        true => Config { recv_window: 2, ..config },
        false => config,
    }
}

fn within_process(options: &Pingpong, device: &Device, config: &Config, size: u32) -> Result<Line> {
    let before = device.counters().ok();
    let (mut near, mut far) = pair(device, device, config)?;
    let (half_trips, operations) = std::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            let followed = follow(&mut far, !options.no_verify, size).map(|()| operations(&far));
            hang_up(far);
            followed
        });
        let half_trips = lead(&mut near, options, size);
        let led = operations(&near);
        hang_up_first(near, half_trips.is_ok());
        let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // What the follower has found is the cause of what the leader then saw.
        let followed = followed?;
        Ok::<_, anyhow::Error>((half_trips?, led + followed))
    })?;
    Ok(line(options, device, config, size, &Measured { half_trips, operations, before }))
}

/// Ends a connection whose peer may have gone.
fn hang_up(connection: Connection) {
    if let Err(e) = connection.sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
    }
}

/// Ends a connection at the end that leads. Where all went well, the other end is heard
/// out: its last message may be here before it knows that.
fn hang_up_first(connection: Connection, is_well: bool) {
    let Connection { sender, mut receiver } = connection;
    if let Err(e) = sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
        return;
    }
    match is_well.then(|| receiver.recv_timeout(PATIENCE)) {
        None | Some(Err(RecvError::Closed)) => {}
        Some(other) => tracing::debug!(?other, "the other end has not said goodbye"),
    }
}

fn operations(connection: &Connection) -> u64 {
    connection.sender.stats().work_requests + connection.receiver.stats().work_requests
}

fn warm_up(options: &Pingpong) -> u64 {
    WARM_UP.min(options.trips() / 10)
}

/// Sends, waits for the answer, and measures.
fn lead(near: &mut Connection, options: &Pingpong, size: u32) -> Result<Histogram<u64>> {
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
        near.sender.send_async(&message)?;
        near.sender.flush()?;
        let answer = near.receiver.recv_timeout(PATIENCE).context("no answer")?;
        let round_trip = start.elapsed();
        if verify {
            back.check(&answer)?;
        }
        near.receiver.free(answer);
        if trip >= warm_up {
            half_trips.record(round_trip.as_nanos() as u64 / 2)?;
        }
    }
    Ok(half_trips)
}

/// Sends back what comes, until the other end closes.
fn follow(far: &mut Connection, verify: bool, size: u32) -> Result<()> {
    let (mut expected, mut is_first) = (Payload::new(size as usize, 0), true);
    loop {
        let message = match far.receiver.recv() {
            Ok(message) => message,
            Err(RecvError::Closed) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        if std::mem::take(&mut is_first) {
            tracing::info!("{HAS_COME}");
        }
        far.sender.send_async(&message)?;
        far.sender.flush()?;
        if verify {
            expected.check(&message)?;
        }
        far.receiver.free(message);
    }
}

fn line(
    options: &Pingpong,
    device: &Device,
    config: &Config,
    size: u32,
    measured: &Measured,
) -> Line {
    let Measured { half_trips: h, operations, before } = measured;
    let all = 2 * (options.trips() + warm_up(options));
    let rnr_events = before.and_then(|before| device.counters().ok()?.since(&before).rnr_events);
    Line {
        protocol: options.connection.protocol.name().into(),
        device: device.name().into(),
        transport: "rc".into(),
        size_bytes: size,
        unacked: config.unacked,
        batch: config.batch,
        messages: 2 * options.trips(),
        latency_ns_min: h.min(),
        latency_ns_p50: h.value_at_quantile(0.5),
        latency_ns_p90: h.value_at_quantile(0.9),
        latency_ns_p99: h.value_at_quantile(0.99),
        latency_ns_p999: h.value_at_quantile(0.999),
        latency_ns_max: h.max(),
        rdma_ops_per_message: *operations as f64 / all as f64,
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
