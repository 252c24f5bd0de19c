//! The two ends in two processes: the connecting one leads, the listening one answers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use base::outcome::CommandResult;
use base::{pinning, signals};
use rdma_conn::device::Device;
use rdma_conn::listener::Listener;

use super::report;
use super::trips::{
    TripMeasurement, end_of_round, follow, hang_up, hang_up_first, lead, rounds_of_size,
};
use crate::cli::{CommonArgs, PingpongArgs};
use crate::measure::{EndOfLoad, ResultLine, Work};
use crate::protocol::{self, Duplex, MeasuredProtocol, Purpose};
use crate::session::{
    self, ControlMessage, Followed, MeasurementIndex, SessionChannel, SessionParameters,
    TrafficParameters, cause, contradiction,
};
use crate::settings::{Flag, number};

/// Reason given to a connection that is refused during a session.
const BUSY: &str = "busy with another session: wait for its end, or start another listener";
/// Longest time that the connecting end may take from one size to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// Leads one round, with the listener at `address`.
pub(super) fn connect<K: MeasuredProtocol>(
    (options, device, config): (&PingpongArgs, &Device, &K::Settings),
    (size, round): (u32, u32),
    part: MeasurementIndex,
    address: SocketAddr,
) -> Result<ResultLine> {
    let before = device.counters().ok();
    let mut stream = session::dial(address)?;
    let session = part.session("pingpong", 1, 0, traffic::<K>(options, config, size)).encode()?;
    let near = K::connect(&mut stream, device, config, &session);
    let mut near = near.map_err(|e| session::explain(e, address, "pingpong"))?;
    let mut wire = SessionChannel::new(stream)?;
    pinning::pin_thread(0);
    let end = end_of_round(options, round);
    let led = lead(&mut near, options, end, size).map(|led| (led, near.work()));
    hang_up_first(near, led.is_ok());
    let (led, here) = led.map_err(|e| cause(e, [&mut wire]))?;
    let interrupted = signals::interrupted().map(|why| why.to_string());
    wire.tell(&ControlMessage::Sent { messages: led.half_trips.len(), work: here, interrupted })?;
    let there = match wire.hear()? {
        ControlMessage::Arrived { work, .. } => work,
        other => session::unexpected(other)?,
    };
    let measured = TripMeasurement { led, work: here + there, before };
    let line = report::line::<K>((options, device, config), size, &measured);
    wire.tell(&ControlMessage::Result(Box::new(line.clone())))?;
    Ok(line)
}

/// Describes the messages of one size to send.
fn traffic<K: MeasuredProtocol>(
    options: &PingpongArgs,
    config: &K::Settings,
    size: u32,
) -> TrafficParameters {
    TrafficParameters {
        end: Some(options.end()),
        rounds: rounds_of_size(options),
        ..TrafficParameters::new::<K>(&options.connection, config, size, !options.no_verify)
    }
}

/// The listening end: answers one size after the other until the last.
pub(super) fn listen<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &PingpongArgs,
    device: &Device,
    address: SocketAddr,
) -> CommandResult {
    let listener = session::listen::<K>(address)?;
    let report = report::report(common.json);
    session::follow_all(report, parts::<K>(common, options, device, &listener))
}

/// Answers one part of a session after the other.
fn parts<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &PingpongArgs,
    device: &Device,
    listener: &Listener<K>,
) -> impl FnMut() -> Result<Followed> {
    let mut before: Option<SessionParameters> = None;
    move || {
        let (far, session, mut wire) = welcome(common, options, device, listener, before.as_ref())?;
        let answered =
            session::engaged::<K, _>(listener, "pingpong", BUSY, || answer(far, &session));
        let settled = answered.and_then(|(messages, work)| settle(&mut wire, messages, work));
        let (mut line, why) = settled.map_err(|e| cause(e, [&mut wire]))?;
        line.measured_by(device.name());
        let (is_last, rounds) = (session.part + 1 == session.parts, session.traffic.rounds);
        before = Some(session);
        let ended = why.map(|why| anyhow!("the other end: {why}"));
        Ok(Followed { lines: vec![line], ended, is_last, rounds })
    }
}

/// Waits for the connection of the next part of a session, or of the first one.
fn welcome<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &PingpongArgs,
    device: &Device,
    listener: &Listener<K>,
    before: Option<&SessionParameters>,
) -> Result<(Duplex<K>, SessionParameters, SessionChannel)> {
    let judge = |new: &SessionParameters| judge::<K>(options, new, before);
    let accept = |incoming, session: &SessionParameters| -> Result<Duplex<K>> {
        let (args, traffic) = (&options.connection, &session.traffic);
        let config =
            protocol::hosted::<K>(common, args, Purpose::Latency, traffic.size, &traffic.terms)?;
        Ok(K::accept(incoming, device, &config)?)
    };
    loop {
        let admitted = session::admitted::<K, _>(listener, "pingpong", PATIENCE, judge, accept)?;
        match (admitted, before) {
            (Some(admitted), _) => return Ok(admitted),
            (None, None) => {}
            (None, Some(before)) => bail!(
                "the connecting end has ended after {} measurements: start both ends again",
                before.part + 1
            ),
        }
    }
}

/// Answers one size; returns the number of messages, and the work that it took.
fn answer<K: MeasuredProtocol>(
    mut far: Duplex<K>,
    session: &SessionParameters,
) -> Result<(u64, Work)> {
    pinning::pin_thread(0);
    let TrafficParameters { verify, size, .. } = session.traffic;
    let followed = follow(&mut far, verify, size, || Ok(signals::go_on()?));
    let work = far.work();
    hang_up(far);
    followed.map(|messages| (messages, work))
}

/// Tells the other end what this one has done, and returns the result that the other end reports.
/// Also returns the signal that has ended the other end early, if one has.
fn settle(
    wire: &mut SessionChannel,
    messages: u64,
    work: Work,
) -> Result<(ResultLine, Option<String>)> {
    let mut ended = None;
    loop {
        match wire.hear()? {
            ControlMessage::Sent { interrupted, .. } => {
                ended = interrupted;
                wire.tell(&ControlMessage::Arrived { messages, work, equal: None })?;
            }
            ControlMessage::Result(line) => return Ok((line.validated()?, ended)),
            other => return session::unexpected(other),
        }
    }
}

/// Checks that the connecting end continues the session that has begun, or may begin one.
fn judge<K: MeasuredProtocol>(
    options: &PingpongArgs,
    new: &SessionParameters,
    before: Option<&SessionParameters>,
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
