//! The two ends in two processes: the connecting one leads, the listening one answers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use rdma_conn::device::Device;
use rdma_conn::listener::Listener;

use super::{Line, Measured, Report, follow, hang_up, hang_up_first, lead, line};
use crate::args::{Common, Pingpong};
use crate::bench::EndOfLoad;
use crate::note::{Note, Wire, cause};
use crate::outcome::Outcome;
use crate::protocol::{Duplex, Kind, Purpose, Work};
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
pub(super) fn connect<K: Kind>(
    options: &Pingpong,
    device: &Device,
    config: &K::Config,
    size: u32,
    part: Part,
    address: SocketAddr,
) -> Result<Line> {
    let before = device.counters().ok();
    let mut stream = session::dial(address)?;
    let session = part.session::<K>(options, config, size).encode()?;
    let near = K::connect(&mut stream, device, config, &session);
    let mut near = near.map_err(|e| session::explain(e, address, "pingpong"))?;
    let mut wire = Wire::new(stream)?;
    let led = lead(&mut near, options, size).map(|half_trips| (half_trips, near.work()));
    hang_up_first(near, led.is_ok());
    let (half_trips, here) = led.map_err(|e| cause(e, [&mut wire]))?;
    wire.tell(&Note::Sent { messages: options.trips(), work: here })?;
    let there = match wire.hear()? {
        Note::Arrived { work, .. } => work,
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    };
    let measured = Measured { half_trips, work: here + there, before };
    let line = line::<K>(options, device, config, size, &measured);
    wire.tell(&Note::Latency(Box::new(line.clone())))?;
    Ok(line)
}

impl Part {
    pub(super) fn session<K: Kind>(
        self,
        options: &Pingpong,
        config: &K::Config,
        size: u32,
    ) -> Session<K::Wish> {
        let wish = K::wish(&options.connection, config);
        let traffic = Traffic::new(wish, size, !options.no_verify);
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
pub(super) fn listen<K: Kind>(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    address: SocketAddr,
) -> Outcome {
    let listener = session::listen::<K>(address)?;
    let mut report = Report::new(common.json);
    serve::<K>(common, options, device, &listener, &mut report)?;
    report.finish();
    Ok(())
}

fn serve<K: Kind>(
    common: &Common,
    options: &Pingpong,
    device: &Device,
    listener: &Listener<K>,
    report: &mut Report,
) -> Outcome {
    let mut session: Option<Session<K::Wish>> = None;
    loop {
        let at = session.as_ref().map_or(0, |session| session.part + 1);
        let Some(guest) = session::next_peer::<K>(listener, "pingpong", PATIENCE)? else {
            match at {
                0 => continue,
                _ => bail!("the connecting end has ended after {at} sizes: start both ends again"),
            }
        };
        if let Err(why) = judge::<K>(options, &guest.session, session.as_ref()) {
            guest.refuse(&why);
            continue;
        }
        let Guest { incoming, session: accepted, mut wire } = guest;
        let (args, traffic) = (&options.connection, &accepted.traffic);
        let config = K::hosted(common, args, Purpose::Latency, traffic.size, &traffic.wish);
        let from = incoming.from();
        match K::accept(incoming, device, &config) {
            Ok(far) => {
                let followed =
                    session::engaged::<K, _>(listener, "pingpong", BUSY, || answer(far, &accepted));
                let answered =
                    followed.and_then(|(messages, work)| settle(&mut wire, messages, work));
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

/// Answers one size; how many messages, and what work it took.
fn answer<K: Kind>(mut far: Duplex<K>, session: &Session<K::Wish>) -> Result<(u64, Work)> {
    let followed = follow(&mut far, session.traffic.verify, session.traffic.size);
    let work = far.work();
    hang_up(far);
    followed.map(|messages| (messages, work))
}

/// Tells what this end has done, and is told what has come of it.
fn settle(wire: &mut Wire, messages: u64, work: Work) -> Result<Line> {
    loop {
        match wire.hear()? {
            Note::Sent { .. } => wire.tell(&Note::Arrived { messages, work, equal: None })?,
            Note::Latency(line) => return Ok(*line),
            Note::Failed(why) => bail!("the other end: {why}"),
            other => bail!("the other end says {other:?}"),
        }
    }
}

/// Whether it goes on with the session that has begun, or may begin one.
fn judge<K: Kind>(
    options: &Pingpong,
    new: &Session<K::Wish>,
    before: Option<&Session<K::Wish>>,
) -> Result<(), String> {
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
    let wanted = new.traffic.flags(Purpose::Latency).into_iter().map(rename);
    let size = options.size.get(new.part as usize).copied();
    let mut asked = session::asked(K::asked(&options.connection), size, options.no_verify);
    asked.extend(options.iterations.map(|n| ("--iterations", n.to_string())));
    contradiction(&asked, &wanted.collect::<Vec<_>>()).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
