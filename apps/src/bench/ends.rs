//! The two ends in two processes: the connecting ones send, the listening one receives.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rdma_conn::device::Device;

use super::gather::{BUSY, Host, Party};
use super::input;
use super::load::{Load, Receiving, Shape};
use super::report::{Case, Report};
use super::run::{Measured, Outlet, Sides, Whole, measure};
use crate::args::{Bench, Common, Rate};
use crate::note::{Note, Wire, cause};
use crate::outcome::{Outcome, usage};
use crate::protocol::{Kind, Wish};
use crate::session::{self, Session, Traffic};

/// How long it takes to begin where all are there.
const MOMENT: Duration = Duration::from_secs(2);

/// Which of its measurements a connecting process is at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The process's own number.
    pub(super) run: u64,
    pub(super) at: u32,
    pub(super) of: u32,
}

/// Sends to the listener at `address`.
pub(super) fn connect<K: Kind>(
    options: &Bench,
    device: &Device,
    config: &K::Config,
    load: &Load,
    part: Part,
    address: SocketAddr,
) -> Result<Measured> {
    let mut sides = Sides::<K>::sending();
    let (senders, traffic) =
        (Shape::new(options).senders, traffic::<K>(options, config, load, None));
    let mut wires = Vec::new();
    for sender in 0..senders {
        let session = part.session(senders, sender, &traffic);
        let (outlet, wire) = join::<K>(&session, device, config, address)?;
        sides.senders.push(outlet);
        wires.push(wire);
    }
    // One speaks for the process.
    let mut wire = wires.swap_remove(0);
    drop(wires);
    begin(&mut wire)?;
    match measure(sides, device, load, || {}) {
        Ok(mut measured) => {
            measured.whole = Some(arrived(&mut wire, &measured)?);
            Ok(measured)
        }
        Err(e) => Err(cause(e, [&mut wire])),
    }
}

/// Connects one sender.
pub(super) fn join<K: Kind>(
    session: &Session<K::Wish>,
    device: &Device,
    config: &K::Config,
    address: SocketAddr,
) -> Result<(Outlet<K>, Wire)> {
    let mut stream = session::dial(address)?;
    let made = K::connect_sender(&mut stream, device, config, &session.encode()?);
    let sender = made.map_err(|e| session::explain(e, address, "bench"))?;
    Ok((Outlet { sender, stream: session.stream() }, Wire::new(stream)?))
}

/// Waits until the listening end has all its senders.
pub(super) fn begin(wire: &mut Wire) -> Result<()> {
    let silent = "the listening end does not begin";
    let note = match wire.hear_within(MOMENT).context(silent)? {
        Some(note) => note,
        None => {
            remark!("connected; the listening end waits for more senders");
            wire.hear_whenever().context(silent)?
        }
    };
    match note {
        Note::Begin => {
            tracing::info!("it begins");
            Ok(())
        }
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    }
}

/// What has arrived of everything that all processes have sent, and the work of all ends.
fn arrived(wire: &mut Wire, measured: &Measured) -> Result<Whole> {
    let Measured { messages, work, .. } = *measured;
    wire.tell(&Note::Sent { messages, work })?;
    match wire.hear_whenever()? {
        Note::Arrived { messages, work, .. } => Ok(Whole { messages, work }),
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    }
}

impl Part {
    /// The only one.
    pub(super) fn only() -> Part {
        Part { run: session::run_number(), at: 0, of: 1 }
    }

    pub(super) fn session<W: Wish>(
        self,
        senders: u32,
        sender: u32,
        traffic: &Traffic<W>,
    ) -> Session<W> {
        Session {
            command: "bench".into(),
            run: self.run,
            parts: self.of,
            part: self.at,
            senders,
            sender,
            traffic: traffic.clone(),
        }
    }
}

/// What is sent, and how the other end is to receive it.
pub(super) fn traffic<K: Kind>(
    options: &Bench,
    config: &K::Config,
    load: &Load,
    file: Option<(u64, u32)>,
) -> Traffic<K::Wish> {
    let wish = K::wish(&options.connection, config);
    Traffic {
        receiving: Receiving::asked(options),
        srq: options.srq.map(|s| s.reposting().name().to_owned()),
        srq_buffers: options.srq_buffers,
        end: file.is_none().then_some(load.end),
        rate: load.rate,
        file,
        ..Traffic::new(wish, load.size, load.verify)
    }
}

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
    let mut report = Report::new(common.json);
    serve(&Host::<K> { common, options, device, listener }, &mut report)?;
    report.finish();
    Ok(())
}

/// Receives one session: the measurements of all connecting processes, or a file.
pub(super) fn serve<K: Kind>(host: &Host<'_, K>, report: &mut Report) -> Outcome {
    for part in 0.. {
        let party = host.gather(part)?;
        let parts = party.session.parts;
        match party.session.traffic.file {
            Some(file) => input::receive(host, party, file)?,
            None => receive(host, party, report)?,
        }
        if part + 1 == parts {
            break;
        }
    }
    Ok(())
}

fn receive<K: Kind>(host: &Host<'_, K>, mut party: Party<K>, report: &mut Report) -> Result<()> {
    let (load, config, shape) = (party.load(), party.config, party.shape);
    let sides = party.sides.take().context("a party without receivers")?;
    let measured = session::engaged::<K, _>(&host.listener, "bench", BUSY, || {
        measure(sides, host.device, &load, || party.begin())
    });
    let measured = measured.and_then(|measured| party.settle(measured));
    let measured = measured.map_err(|e| cause(e, party.wires()))?;
    let preset = party.session.traffic.wish.preset().and_then(|name| name.parse().ok());
    let Host { device, options, .. } = *host;
    let case = Case::new::<K>(device, options, &config, &load);
    report.add(case.hosted(preset, shape), &measured)
}

#[cfg(test)]
mod tests;
