//! The listening end: it receives what all connecting processes send.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use base::outcome::{Failure, Outcome, usage};
use base::signals;
use rdma_conn::device::Device;

use super::gather::{BUSY, Host, Party};
use super::input;
use super::report::{Case, Report};
use super::run::measure;
use crate::cli::{Bench, Common, Rate};
use crate::measure::figures::TakenAt;
use crate::measure::{Measured, rounds};
use crate::protocol::Kind;
use crate::session::{self, cause};

/// Receives one session, and prints what this end has measured.
pub(super) fn listen<K: Kind>(
    common: &Common,
    options: &Bench,
    device: &Device,
    address: SocketAddr,
) -> Outcome {
    if options.input.is_some() {
        return Err(usage(
            "the connecting end sends the file: leave --input out where you --listen",
        ));
    }
    if options.rate == Some(Rate::Auto) {
        return Err(usage("--rate auto needs both ends in this process"));
    }
    let listener = session::listen::<K>(address)?;
    let mut report = Report::new(common.json, TakenAt::Receiver);
    let served = serve(&Host::<K> { common, options, device, listener }, &mut report);
    report.results.finish();
    served
}

/// Receives one session: the measurements of all connecting processes, or a file.
pub(super) fn serve<K: Kind>(host: &Host<'_, K>, report: &mut Report) -> Outcome {
    let mut rounds = Vec::new();
    for part in 0.. {
        let party = host.gather(part)?;
        let parts = party.session.parts;
        match party.session.traffic.file {
            Some(file) => input::receive(host, party, file)?,
            None => receive(host, party, &mut rounds, report)?,
        }
        if part + 1 == parts {
            break;
        }
    }
    Ok(())
}

/// Receives one round; the last one of a measurement brings its result.
fn receive<K: Kind>(
    host: &Host<'_, K>,
    mut party: Party<K>,
    rounds: &mut Vec<Measured>,
    report: &mut Report,
) -> Result<()> {
    let (load, config, shape) = (party.load(), party.config, party.shape);
    let sides = party.sides.take().context("a party without receivers")?;
    let measured = session::engaged::<K, _>(&host.listener, "bench", BUSY, || {
        measure(sides, host.device, &load, || party.begin())
    });
    let (part, ended) = match (measured, signals::interrupted()) {
        (Ok(part), Some(why)) => {
            let why = Failure::from(why);
            party.wires().for_each(|wire| wire.give_up(&why));
            (Some(part), Some(why))
        }
        (measured, _) => match measured.and_then(|measured| party.settle(measured)) {
            Ok((part, Some(why))) => (Some(part), Some(anyhow!("the other end: {why}"))),
            Ok((whole, None)) => (Some(whole), None),
            Err(e) => (None, Some(cause(e, party.wires()))),
        },
    };
    let of = party.session.traffic.rounds;
    let Some(rounds) = rounds::gather(rounds, part, of, ended.as_ref()) else {
        return ended.map_or(Ok(()), Err);
    };
    let measured = Measured::of_rounds(&rounds)?;
    let preset = party.session.traffic.preset.as_deref().and_then(|name| name.parse().ok());
    let Host { device, options, .. } = *host;
    let case = Case::new::<K>(device, options, &config, &load);
    report.add(case.hosted(preset, shape), &measured)?;
    ended.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
