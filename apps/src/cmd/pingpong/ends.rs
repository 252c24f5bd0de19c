//! The two ends in two processes: the connecting one leads, the listening one answers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use base::outcome::Outcome;
use base::{pinning, signals};
use rdma_conn::device::Device;
use rdma_conn::listener::Listener;

use super::report;
use super::trips::{
    Measured, SoFar, follow, hang_up, hang_up_first, in_rounds, lead, line, rounds_of_size,
};
use crate::cli::{Common, Pingpong};
use crate::measure::{EndOfLoad, Latency, Machine, Work, rounds};
use crate::protocol::{self, Duplex, Kind, Purpose};
use crate::results::Results;
use crate::session::{
    self, Channel, Control, Part, Pending, Session, Traffic, cause, contradiction,
};
use crate::settings::{Flag, number};

/// Reason given to a connection that is refused during a session.
const BUSY: &str = "busy with another session: wait for its end, or start another listener";
/// Longest time that the connecting end may take from one size to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// Leads, with the listener at `address`, round after round.
pub(super) fn connect<K: Kind>(
    options: &Pingpong,
    device: &Device,
    config: &K::Settings,
    size: u32,
    part: Part,
    address: SocketAddr,
) -> SoFar {
    let (rounds, mut round) = (rounds_of_size(options), 0);
    in_rounds(options, |end| {
        let part = part.of_round(round, rounds);
        round += 1;
        connect_once::<K>((options, device, config), (size, end), part, address)
    })
}

/// Leads one round.
fn connect_once<K: Kind>(
    (options, device, config): (&Pingpong, &Device, &K::Settings),
    (size, end): (u32, EndOfLoad),
    part: Part,
    address: SocketAddr,
) -> Result<Latency> {
    let before = device.counters().ok();
    let mut stream = session::dial(address)?;
    let session = part.session("pingpong", 1, 0, traffic::<K>(options, config, size)).encode()?;
    let near = K::connect(&mut stream, device, config, &session);
    let mut near = near.map_err(|e| session::explain(e, address, "pingpong"))?;
    let mut wire = Channel::new(stream)?;
    pinning::pin_thread(0);
    let led = lead(&mut near, options, end, size).map(|led| (led, near.work()));
    hang_up_first(near, led.is_ok());
    let (led, here) = led.map_err(|e| cause(e, [&mut wire]))?;
    let interrupted = signals::interrupted().map(|why| why.to_string());
    wire.tell(&Control::Sent { messages: led.half_trips.len(), work: here, interrupted })?;
    let there = match wire.hear()? {
        Control::Arrived { work, .. } => work,
        other => session::unexpected(other)?,
    };
    let measured = Measured { led, work: here + there, before };
    let line = line::<K>(options, device, config, size, &measured);
    wire.tell(&Control::Latency(Box::new(line.clone())))?;
    Ok(line)
}

/// Describes the messages of one size to send.
fn traffic<K: Kind>(options: &Pingpong, config: &K::Settings, size: u32) -> Traffic {
    Traffic {
        end: Some(options.end()),
        rounds: rounds_of_size(options),
        ..Traffic::new::<K>(&options.connection, config, size, !options.no_verify)
    }
}

/// The listening end: answers one size after the other until the last.
pub(super) fn listen<K: Kind>(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    address: SocketAddr,
) -> Outcome {
    let listener = session::listen::<K>(address)?;
    let mut results = Results::new(common.json);
    let served = serve::<K>(common, options, device, &listener, &mut results);
    results.finish();
    served
}

fn serve<K: Kind>(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    listener: &Listener<K>,
    results: &mut Results,
) -> Outcome {
    let (mut session, mut rounds): (Option<Session>, _) = (None, Vec::new());
    loop {
        let at = session.as_ref().map_or(0, |session| session.part + 1);
        let Some(pending) = session::next_peer::<K>(listener, "pingpong", PATIENCE)? else {
            match at {
                0 => continue,
                _ => bail!(
                    "the connecting end has ended after {at} measurements: start both ends again"
                ),
            }
        };
        if let Err(why) = judge::<K>(options, &pending.session, session.as_ref()) {
            pending.refuse(&why);
            continue;
        }
        let Pending { incoming, session: accepted, mut wire } = pending;
        let (args, traffic) = (&options.connection, &accepted.traffic);
        let config =
            protocol::hosted::<K>(common, args, Purpose::Latency, traffic.size, &traffic.terms)?;
        let from = incoming.from();
        match K::accept(incoming, device, &config) {
            Ok(far) => {
                let followed =
                    session::engaged::<K, _>(listener, "pingpong", BUSY, || answer(far, &accepted));
                let answered =
                    followed.and_then(|(messages, work)| settle(&mut wire, messages, work));
                let answered = answered.map_err(|e| cause(e, [&mut wire]));
                let (line, ended) = match answered {
                    Ok((line, why)) => (Some(line), why.map(|why| anyhow!("the other end: {why}"))),
                    Err(e) => (None, Some(e)),
                };
                let line = line.map(|line| Latency {
                    device: device.name().into(),
                    machine: Machine::here(),
                    ..line
                });
                let whole = rounds::gather(&mut rounds, line, traffic.rounds, ended.as_ref());
                if let Some(whole) = whole {
                    report::add(results, &Latency::of_rounds(whole)?)?;
                }
                if let Some(ended) = ended {
                    return Err(ended);
                }
            }
            Err(e) => {
                session::refused(from, &e.to_string());
                continue;
            }
        }
        if accepted.part + 1 == accepted.parts {
            return Ok(());
        }
        session = Some(accepted);
    }
}

/// Answers one size; returns the number of messages, and the work that it took.
fn answer<K: Kind>(mut far: Duplex<K>, session: &Session) -> Result<(u64, Work)> {
    pinning::pin_thread(0);
    let until = || signals::interrupted().map_or(Ok(()), |interrupted| Err(interrupted.into()));
    let followed = follow(&mut far, session.traffic.verify, session.traffic.size, until);
    let work = far.work();
    hang_up(far);
    followed.map(|messages| (messages, work))
}

/// Tells the other end what this one has done, and returns the latency that the other end reports.
/// Also returns the signal that has ended the other end early, if one has.
fn settle(wire: &mut Channel, messages: u64, work: Work) -> Result<(Latency, Option<String>)> {
    let mut ended = None;
    loop {
        match wire.hear()? {
            Control::Sent { interrupted, .. } => {
                ended = interrupted;
                wire.tell(&Control::Arrived { messages, work, equal: None })?;
            }
            Control::Latency(line) => return Ok((*line, ended)),
            other => return session::unexpected(other),
        }
    }
}

/// Checks that the connecting end continues the session that has begun, or may begin one.
fn judge<K: Kind>(
    options: &Pingpong,
    new: &Session,
    before: Option<&Session>,
) -> Result<(), String> {
    let expected = before.map_or(0, |session| session.part + 1);
    if new.part != expected || before.is_some_and(|session| session.run != new.run) {
        return Err(BUSY.into());
    }
    let (at, of) = new.size_of_sizes();
    if let Some(why) = session::other_sizes(&options.size, of) {
        return Err(why);
    }
    let rename = |(flag, value): Flag| match flag {
        "--messages" => ("--iterations", value),
        flag => (flag, value),
    };
    let wanted = new.traffic.flags::<K>(Purpose::Latency).into_iter().map(rename);
    let size = options.size.get(at as usize).copied();
    let mut asked = session::asked::<K>(&options.connection, size, options.no_verify);
    asked.extend(number("--rounds", options.rounds.rounds));
    asked.extend(options.iterations.map(|n| ("--iterations", n.to_string())));
    asked.extend(options.seconds.map(|time| EndOfLoad::After(time).flag()));
    contradiction(&asked, &wanted.collect::<Vec<_>>()).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
