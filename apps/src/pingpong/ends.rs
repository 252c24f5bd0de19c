//! The two ends in two processes: the connecting one leads, the listening one answers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Connection, Listener, Preset, connect_over};

use super::{Line, Measured, Report, follow, hang_up, hang_up_first, lead, line, operations};
use crate::args::{Common, Pingpong};
use crate::bench::EndOfLoad;
use crate::note::{Note, Wire, cause};
use crate::outcome::Outcome;
use crate::session::{self, Flag, Guest, Session, Traffic, contradiction};

/// What whoever comes during a session is told.
const BUSY: &str = "busy with another session: wait for its end, or start another listener";
/// How long the connecting end may take from one size to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which of its sizes a connecting process is at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The process's own number.
    pub(super) run: u64,
    pub(super) at: u32,
    pub(super) of: u32,
}

/// Leads, with the listener at `address`.
pub(super) fn connect(
    options: &Pingpong,
    device: &Device,
    config: &Config,
    size: u32,
    part: Part,
    address: SocketAddr,
) -> Result<Line> {
    let before = device.counters().ok();
    let mut stream = session::dial(address)?;
    let session = part.session(options, config, size).encode()?;
    let near = connect_over(&mut stream, device, config, &session);
    let mut near = near.map_err(|e| session::explain(e, address, "pingpong"))?;
    let mut wire = Wire::new(stream)?;
    let led = lead(&mut near, options, size).map(|half_trips| (half_trips, operations(&near)));
    hang_up_first(near, led.is_ok());
    let (half_trips, here) = led.map_err(|e| cause(e, [&mut wire]))?;
    wire.tell(&Note::Sent { messages: options.trips(), operations: here })?;
    let there = match wire.hear()? {
        Note::Arrived { operations, .. } => operations,
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    };
    let measured = Measured { half_trips, operations: here + there, before };
    let line = line(options, device, config, size, &measured);
    wire.tell(&Note::Latency(Box::new(line.clone())))?;
    Ok(line)
}

impl Part {
    fn session(self, options: &Pingpong, config: &Config, size: u32) -> Session {
        let traffic = Traffic::new(options.connection.preset, config, size, !options.no_verify);
        Session {
            command: "pingpong".into(),
            run: self.run,
            parts: self.of,
            part: self.at,
            senders: 1,
            sender: 0,
            traffic: Traffic { end: Some(EndOfLoad::Messages(options.trips())), ..traffic },
        }
    }
}

/// The listening end: answers one size after the other until the last.
pub(super) fn listen(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    address: SocketAddr,
) -> Outcome {
    let listener = session::listen(address)?;
    let mut report = Report::new(common.json);
    serve(common, options, device, &listener, &mut report)?;
    report.finish();
    Ok(())
}

fn serve(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    listener: &Listener,
    report: &mut Report,
) -> Outcome {
    let mut session: Option<Session> = None;
    loop {
        let at = session.as_ref().map_or(0, |session| session.part + 1);
        let Some(guest) = session::next_peer(listener, "pingpong", PATIENCE)? else {
            match at {
                0 => continue,
                _ => bail!("the connecting end has ended after {at} sizes: start both ends again"),
            }
        };
        if let Err(why) = judge(options, &guest.session, session.as_ref()) {
            guest.refuse(&why);
            continue;
        }
        let Guest { incoming, session: accepted, mut wire } = guest;
        let own = Preset::Sequential;
        let own = options.connection.config(common, own, accepted.traffic.message_bytes);
        let (from, config) = (incoming.from(), accepted.traffic.config(&own));
        match incoming.accept(device, &config) {
            Ok(far) => {
                let followed =
                    session::engaged(listener, "pingpong", BUSY, || answer(far, &accepted));
                let answered = followed
                    .and_then(|(messages, operations)| settle(&mut wire, messages, operations));
                let line = answered.map_err(|e| cause(e, [&mut wire]))?;
                report.add(&Line { device: device.name().into(), ..line })?;
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

/// Answers one size; how many messages, and with how many work requests.
fn answer(mut far: Connection, session: &Session) -> Result<(u64, u64)> {
    let followed = follow(&mut far, session.traffic.verify, session.traffic.size);
    let done = (far.receiver.stats().messages, operations(&far));
    hang_up(far);
    followed.map(|()| done)
}

/// Tells what this end has done, and is told what has come of it.
fn settle(wire: &mut Wire, messages: u64, operations: u64) -> Result<Line> {
    loop {
        match wire.hear()? {
            Note::Sent { .. } => wire.tell(&Note::Arrived { messages, operations, equal: None })?,
            Note::Latency(line) => return Ok(*line),
            Note::Failed(why) => bail!("the other end: {why}"),
            other => bail!("the other end says {other:?}"),
        }
    }
}

/// Whether it goes on with the session that has begun, or may begin one.
fn judge(options: &Pingpong, new: &Session, before: Option<&Session>) -> Result<(), String> {
    let expected = before.map_or(0, |session| session.part + 1);
    if new.part != expected || before.is_some_and(|session| session.run != new.run) {
        return Err(BUSY.into());
    }
    if let Some(why) = session::other_sizes(&options.size, new.parts) {
        return Err(why);
    }
    let rename = |(flag, value): Flag| match flag {
        "--messages" => ("--iterations", value),
        flag => (flag, value),
    };
    let wanted = new.traffic.flags(Preset::Sequential.name()).into_iter().map(rename);
    let size = options.size.get(new.part as usize).copied();
    let mut asked = session::asked(&options.connection, size, options.no_verify);
    asked.extend(options.iterations.map(|n| ("--iterations", n.to_string())));
    contradiction(&asked, &wanted.collect::<Vec<_>>()).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
