//! `rdma-conn pingpong`: half of a round trip ("Send Receive", section Latency).

mod ends;
mod report;
mod trips;

use std::net::SocketAddr;

use anyhow::{Context, Result};
use base::outcome::Outcome;
use base::{pinning, progress};
use rdma_conn::device::Device;

use crate::cli::{Common, Compat, Pingpong};
use crate::measure::{EndOfLoad, Latency, NO_THREAD, rounds};
use crate::protocol::{self, Kind, Purpose, With};
use crate::results::Results;
use crate::session;
use trips::{Measured, follow, hang_up, hang_up_first, lead, line, rounds_of_size};

pub(crate) fn run(common: &Common, options: &Pingpong) -> Outcome {
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
    protocol.with(Task { common, options, device: &device })
}

/// Measurement to run over any kind of connection.
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
        match options.ends.connect {
            Some(address) => self.lead_each::<K>(address),
            None => self.measure_in_turn::<K>(),
        }
    }
}

impl Task<'_> {
    /// One size after the other, with the listener at `address`.
    fn lead_each<K: Kind>(&self, address: SocketAddr) -> Outcome {
        let Task { common, options, device } = *self;
        let mut results = Results::new(common.json);
        let sizes: Vec<_> = (0..).zip(options.sizes()).collect();
        let (run, of) = (session::run_number(), sizes.len() as u32);
        let label = |(_, size): &(u32, u32)| label(*size);
        let ran = progress::each(common.json, sizes, label, |(at, size), _| {
            let config = config::<K>(common, options, size);
            let part = session::Part { run, at, of };
            let (line, ended) = ends::connect::<K>(options, device, &config, size, part, address);
            line.iter().try_for_each(|line| report::add(&mut results, line))?;
            Ok(ended)
        });
        results.finish();
        ran
    }

    /// All sizes in turn, with both ends in this process.
    fn measure_in_turn<K: Kind>(&self) -> Outcome {
        let Task { common, options, device } = *self;
        let sizes = options.sizes();
        let labels: Vec<String> = sizes.iter().copied().map(label).collect();
        let rounds = rounds_of_size(options);
        let (done, ended) = rounds::in_turn(common.json, &labels, rounds, |at, round, _| {
            let end = options.end().of_round(round, rounds);
            let config = config::<K>(common, options, sizes[at]);
            within_process::<K>(options, end, device, &config, sizes[at])
        });
        let mut results = Results::new(common.json);
        for lines in done.into_iter().filter(|lines| !lines.is_empty()) {
            report::add(&mut results, &Latency::of_rounds(lines)?)?;
        }
        results.finish();
        ended.map_or(Ok(()), Err)
    }
}

fn label(size: u32) -> String {
    format!("{size} B")
}

fn config<K: Kind>(common: &Common, options: &Pingpong, size: u32) -> K::Settings {
    protocol::config::<K>(common, &options.connection, Purpose::Latency, size)
}

fn within_process<K: Kind>(
    options: &Pingpong,
    end: EndOfLoad,
    device: &Device,
    config: &K::Settings,
    size: u32,
) -> Result<Latency> {
    let before = device.counters().ok();
    let (mut near, mut far) = K::pair(device, config)?;
    let (led, work) = host::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            pinning::pin_thread(1);
            let followed =
                follow(&mut far, !options.no_verify, size, || Ok(())).map(|_| far.work());
            hang_up(far);
            followed
        });
        let follower = follower.context(NO_THREAD)?;
        pinning::pin_thread(0);
        let led = lead(&mut near, options, end, size);
        let work = near.work();
        hang_up_first(near, led.is_ok());
        let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // What the follower has found is the cause of what the leader then saw.
        let followed = followed?;
        Ok::<_, anyhow::Error>((led?, work + followed))
    })?;
    Ok(line::<K>(options, device, config, size, &Measured { led, work, before }))
}
