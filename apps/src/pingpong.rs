//! `rdma-conn pingpong`: half of a round trip ("Send Receive", section Latency).

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use comfy_table::Table;
use hdrhistogram::Histogram;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Connection, Preset, RecvError, connect_over, pair};
use serde::Serialize;

use crate::args::{Common, Compat, Pingpong};
use crate::bench::right_aligned;
use crate::outcome::{Outcome, as_usage};
use crate::progress;
use crate::session::{self, Session};
use crate::verify::Payload;

/// Round trips before the measured ones.
const WARM_UP: u64 = 1000;
/// No peer that lives takes longer for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'a str,
    device: &'a str,
    transport: &'a str,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    rnr_events: Option<u64>,
    verified: bool,
    build: String,
}

struct Measured {
    half_trips: Histogram<u64>,
    rdma_ops_per_message: f64,
    rnr_events: Option<u64>,
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
        options
            .connection
            .config(common, Preset::Sequential, *size)
            .validate()
            .map_err(as_usage)?;
        options.connection.check_pack(*size)?;
    }
    if let Some(address) = options.ends.listen {
        return listen(common, options, &device, address);
    }
    let mut table = table();
    let bar = progress::bar(options.sizes().len() as u64, common.json);
    for (at, size) in (0..).zip(options.sizes()) {
        let config = options.connection.config(common, Preset::Sequential, size);
        bar.set_message(format!("{size} B"));
        let measured = measure(options, &device, &config, size, at)?;
        if common.json {
            print_line(options, &device, &config, size, &measured)?;
        }
        add_row(&mut table, size, &measured.half_trips);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !common.json {
        say!(
            "Half of a round trip in µs, {} round trips a size, on {}:",
            options.trips(),
            device.name()
        );
        say!("{table}");
    }
    Ok(())
}

fn measure(
    options: &Pingpong,
    device: &Device,
    config: &Config,
    size: u32,
    at: u32,
) -> Result<Measured> {
    let before = device.counters().ok();
    let (half_trips, operations) = match options.ends.connect {
        None => within_process(options, device, config, size)?,
        Some(address) => {
            let mut stream = session::dial(address)?;
            let session = session_of(options, config, size, at).encode()?;
            let mut near = connect_over(&mut stream, device, config, &session)?;
            let half_trips = lead(&mut near, options, size)?;
            // The far end does as much as this one.
            (half_trips, 2 * operations(&near))
        }
    };
    let messages = 2 * (options.trips() + WARM_UP);
    let rnr = |before| device.counters().ok()?.since(&before).rnr_events;
    Ok(Measured {
        half_trips,
        rdma_ops_per_message: operations as f64 / messages as f64,
        rnr_events: before.and_then(rnr),
    })
}

fn within_process(
    options: &Pingpong,
    device: &Device,
    config: &Config,
    size: u32,
) -> Result<(Histogram<u64>, u64)> {
    let (mut near, mut far) = pair(device, device, config)?;
    std::thread::scope(|scope| {
        let follower = scope
            .spawn(move || follow(&mut far, !options.no_verify, size).map(|()| operations(&far)));
        let half_trips = lead(&mut near, options, size);
        let led = operations(&near);
        drop(near);
        let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // What the follower has found is the cause of what the leader then saw.
        let followed = followed?;
        Ok((half_trips?, led + followed))
    })
}

fn operations(connection: &Connection) -> u64 {
    connection.sender.stats().work_requests + connection.receiver.stats().work_requests
}

/// Sends, waits for the answer, and measures.
fn lead(near: &mut Connection, options: &Pingpong, size: u32) -> Result<Histogram<u64>> {
    let verify = !options.no_verify;
    let mut out = Payload::new(size as usize, 0);
    let mut back = Payload::new(size as usize, 0);
    let mut message = vec![0; size as usize];
    let mut half_trips = Histogram::new(3)?;
    for trip in 0..WARM_UP + options.trips() {
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
        if trip >= WARM_UP {
            half_trips.record(round_trip.as_nanos() as u64 / 2)?;
        }
    }
    Ok(half_trips)
}

/// Sends back what comes, until the other end closes.
fn follow(far: &mut Connection, verify: bool, size: u32) -> Result<()> {
    let mut expected = Payload::new(size as usize, 0);
    loop {
        let message = match far.receiver.recv() {
            Ok(message) => message,
            Err(RecvError::Closed) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        far.sender.send_async(&message)?;
        far.sender.flush()?;
        if verify {
            expected.check(&message)?;
        }
        far.receiver.free(message);
    }
}

/// The listening end: answers one size after the other until the last.
fn listen(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    address: std::net::SocketAddr,
) -> Outcome {
    let listener = session::listen(address)?;
    loop {
        let (incoming, session) = session::next_peer(&listener, "pingpong")?;
        let mut config =
            options.connection.config(common, Preset::Sequential, session.message_bytes);
        config.recv_window = session.recv_window;
        config.credits = session.credits;
        let mut far = incoming.accept(device, &config)?;
        follow(&mut far, session.verify, session.size)?;
        eprintln!("answered {} messages of {} B", far.receiver.stats().messages, session.size);
        if session.sender + 1 == session.senders {
            return Ok(());
        }
    }
}

/// Each size is a connection of its own; the last one ends the listener.
fn session_of(options: &Pingpong, config: &Config, size: u32, at: u32) -> Session {
    Session {
        command: "pingpong".into(),
        size,
        message_bytes: config.message_bytes,
        unacked: config.unacked,
        batch: config.batch,
        preset: None,
        pack_bytes: config.pack_bytes,
        recv_window: config.recv_window,
        credits: config.credits,
        verify: !options.no_verify,
        senders: options.sizes().len() as u32,
        sender: at,
        single_receiver: false,
        srq: None,
        file: None,
    }
}

const QUANTILES: [(&str, f64); 6] =
    [("min", 0.0), ("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999), ("max", 1.0)];

fn table() -> Table {
    let header: Vec<&str> = ["size"].into_iter().chain(QUANTILES.map(|(name, _)| name)).collect();
    right_aligned(&header)
}

fn add_row(table: &mut Table, size: u32, half_trips: &Histogram<u64>) {
    let at = |(_, q): (&str, f64)| format!("{:.2}", half_trips.value_at_quantile(q) as f64 / 1e3);
    table.add_row([format!("{size} B")].into_iter().chain(QUANTILES.map(at)));
}

fn print_line(
    options: &Pingpong,
    device: &Device,
    config: &Config,
    size: u32,
    measured: &Measured,
) -> Result<()> {
    let h = &measured.half_trips;
    let line = Line {
        protocol: options.connection.protocol.name(),
        device: device.name(),
        transport: "rc",
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
        rdma_ops_per_message: measured.rdma_ops_per_message,
        rnr_events: measured.rnr_events,
        verified: !options.no_verify,
        build: rdma_conn::build::summary(),
    };
    say!("{}", serde_json::to_string(&line)?);
    Ok(())
}
