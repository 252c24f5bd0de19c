//! The listening end: it receives what all connecting processes send.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use base::outcome::{CommandError, CommandResult, usage};
use base::signals;
use rdma_conn::device::Device;

use super::gather::{BUSY, ListeningEnd, Party};
use super::input;
use super::report::{self, BenchCase};
use super::run::measure;
use crate::cli::{BenchArgs, CommonArgs, SenderRate};
use crate::measure::ResultLine;
use crate::measure::figures::TakenAt;
use crate::protocol::MeasuredProtocol;
use crate::session::{self, Followed, cause};

/// Receives one session, and prints what this end has measured.
pub(super) fn listen<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &BenchArgs,
    device: &Device,
    address: SocketAddr,
) -> CommandResult {
    if options.input.is_some() {
        return Err(usage(
            "the connecting end sends the file: leave --input out where you --listen",
        ));
    }
    if options.rate == Some(SenderRate::Auto) {
        return Err(usage("--rate auto needs both ends in this process"));
    }
    let listener = session::listen::<K>(address)?;
    let report = report::report(common.json, TakenAt::Receiver);
    let host = ListeningEnd::<K> { common, options, device, listener };
    session::follow_all(report, parts(&host))
}

/// Receives one part after the other of a session: the rounds of all connecting processes, or a
/// file.
pub(super) fn parts<K: MeasuredProtocol>(
    host: &ListeningEnd<'_, K>,
) -> impl FnMut() -> Result<Followed> {
    let mut part = 0;
    move || {
        let party = host.gather(part)?;
        part += 1;
        let (parts, rounds) = (party.session.parts, party.session.traffic.rounds);
        let (lines, ended) = match party.session.traffic.file {
            Some(file) => {
                input::receive(host, party, file)?;
                (Vec::new(), None)
            }
            None => receive(host, party)?,
        };
        Ok(Followed { lines, ended, is_last: part == parts, rounds })
    }
}

/// Receives one round: its result, and why it is less than a round, if it is.
fn receive<K: MeasuredProtocol>(
    host: &ListeningEnd<'_, K>,
    mut party: Party<K>,
) -> Result<(Vec<ResultLine>, Option<CommandError>)> {
    let (load, config, shape) = (party.load(), party.config, party.shape);
    let sides = party.sides.take().context("a party without receivers")?;
    let measured = session::engaged::<K, _>(&host.listener, "bench", BUSY, || {
        measure(sides, host.device, &load, || party.begin())
    });
    let (measured, ended) = match (measured, signals::interrupted()) {
        (Ok(part), Some(why)) => {
            let why = CommandError::from(why);
            party.wires().for_each(|wire| wire.give_up(&why));
            (part, Some(why))
        }
        (measured, _) => match measured.and_then(|measured| party.settle(measured)) {
            Ok((part, why)) => (part, why.map(|why| anyhow!("the other end: {why}"))),
            Err(e) => return Err(cause(e, party.wires())),
        },
    };
    let preset = party.session.traffic.preset.as_deref().and_then(|name| name.parse().ok());
    let ListeningEnd { device, options, .. } = *host;
    let case = BenchCase::<K>::new(device, options, &config, &load).hosted(preset, shape);
    Ok((vec![case.line(&measured)], ended))
}

#[cfg(test)]
mod tests;
