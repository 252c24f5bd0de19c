//! `rdma-conn pingpong`: half of a round trip ("Send Receive", section Latency).

mod ends;
mod report;
mod trips;

use std::net::SocketAddr;

use anyhow::Result;
use base::outcome::CommandResult;
use rdma_conn::device::Device;

use crate::cli::{CommonArgs, Compat, PingpongArgs};
use crate::measure::{ResultLine, pair, rounds};
use crate::protocol::{self, MeasuredProtocol, Purpose, With};
use crate::session;
use trips::{TripMeasurement, end_of_round, follow, hang_up, hang_up_first, lead, rounds_of_size};

pub(crate) fn run(common: &CommonArgs, options: &PingpongArgs) -> CommandResult {
    rounds::check(options.rounds.rounds, "--iterations", options.iterations)?;
    if let Some(op) = options.raw.op {
        return crate::cmd::raw::pingpong(common, options, op);
    }
    if let Some(Compat::IbvRcPingpong) = options.compat {
        return crate::cmd::raw::ibv_rc_pingpong(common, options);
    }
    let protocol = options.connection.protocol();
    protocol.check_flags(&options.connection.given.names())?;
    let device = session::open_device(common, &options.ends)?;
    protocol.with(PingpongTask { common, options, device: &device })
}

/// Measurement to run over any kind of connection.
struct PingpongTask<'a> {
    common: &'a CommonArgs,
    options: &'a PingpongArgs,
    device: &'a Device,
}

impl With for PingpongTask<'_> {
    type Out = CommandResult;

    fn with<K: MeasuredProtocol>(self) -> CommandResult {
        let PingpongTask { common, options, device } = self;
        for size in options.sizes() {
            let config = config::<K>(common, options, size);
            K::check(&options.connection, &config, size)?;
        }
        if let Some(address) = options.ends.listen {
            return ends::listen::<K>(common, options, device, address);
        }
        match options.ends.connect {
            Some(address) => self.lead_each::<K>(address),
            None => self.measure_in_turn::<K>(),
        }
    }
}

impl PingpongTask<'_> {
    /// One size after the other, with the listener at `address`.
    fn lead_each<K: MeasuredProtocol>(&self, address: SocketAddr) -> CommandResult {
        let PingpongTask { common, options, device } = *self;
        let (sizes, rounds) = (options.sizes(), rounds_of_size(options));
        let report = report::report(common.json);
        session::lead_each(common.json, &labels(&sizes), rounds, report, |at, round, part| {
            let config = config::<K>(common, options, sizes[at]);
            let (case, load) = ((options, device, &config), (sizes[at], round));
            Ok(vec![ends::connect::<K>(case, load, part, address)?])
        })
    }

    /// All sizes in turn, with both ends in this process.
    fn measure_in_turn<K: MeasuredProtocol>(&self) -> CommandResult {
        let PingpongTask { common, options, device } = *self;
        let (sizes, rounds) = (options.sizes(), rounds_of_size(options));
        let report = report::report(common.json);
        session::in_turn(common.json, &labels(&sizes), rounds, report, |at, round| {
            let config = config::<K>(common, options, sizes[at]);
            let case = (options, device, &config);
            Ok(vec![within_process::<K>(case, (sizes[at], round))?])
        })
    }
}

fn labels(sizes: &[u32]) -> Vec<String> {
    sizes.iter().map(|size| format!("{size} B")).collect()
}

fn config<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &PingpongArgs,
    size: u32,
) -> K::Settings {
    protocol::config::<K>(common, &options.connection, Purpose::Latency, size)
}

fn within_process<K: MeasuredProtocol>(
    (options, device, config): (&PingpongArgs, &Device, &K::Settings),
    (size, round): (u32, u32),
) -> Result<ResultLine> {
    let before = device.counters().ok();
    let other = session::card::peer_device(device)?;
    let (mut near, mut far) = K::pair([device, other.as_ref().unwrap_or(device)], config)?;
    let lead = || {
        let led = lead(&mut near, options, end_of_round(options, round), size);
        let work = near.work();
        hang_up_first(near, led.is_ok());
        led.map(|led| (led, work))
    };
    let follow = || {
        let followed = follow(&mut far, !options.no_verify, size, || Ok(())).map(|_| far.work());
        hang_up(far);
        followed
    };
    let (led, followed) = pair(lead, follow)?;
    // What the follower has found is the cause of what the leader then saw.
    let there = followed?;
    let (led, here) = led?;
    let measured = TripMeasurement { led, work: here + there, before };
    Ok(report::line::<K>((options, device, config), size, &measured))
}
