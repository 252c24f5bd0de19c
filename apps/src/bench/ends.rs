//! The two ends in two processes: the connecting one sends, the listening one
//! receives.

use std::net::SocketAddr;

use anyhow::Result;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Incoming, Preset, Reposting, connect_sender_over};

use super::input;
use super::load::{End, Load, Receiving, Shape};
use super::report::{Case, Report};
use super::run::{Measured, Sides, measure};
use crate::args::{Bench, Common};
use crate::outcome::{Outcome, usage};
use crate::session::{self, Session};

/// Sends to the listener at `address`.
pub(crate) fn connect(
    options: &Bench,
    device: &Device,
    config: &Config,
    load: &Load,
    address: SocketAddr,
) -> Result<Measured> {
    let shape = Shape::new(options);
    let mut sides = Sides { senders: Vec::new(), receivers: Vec::new(), pool: None };
    for sender in 0..shape.senders {
        let session = session_of(options, config, load, sender).encode()?;
        let mut stream = session::dial(address)?;
        sides.senders.push(connect_sender_over(&mut stream, device, config, &session)?);
    }
    measure(sides, device, load)
}

fn session_of(options: &Bench, config: &Config, load: &Load, sender: u32) -> Session {
    let shape = Shape::new(options);
    Session {
        command: "bench".into(),
        size: load.size,
        message_bytes: config.message_bytes,
        unacked: config.unacked,
        batch: config.batch,
        preset: options.connection.preset.map(|p| p.name().to_owned()),
        pack_bytes: config.pack_bytes,
        recv_window: config.recv_window,
        credits: config.credits,
        verify: load.verify,
        senders: shape.senders,
        sender,
        single_receiver: shape.receiving == Receiving::SingleReceiver,
        srq: shape.srq.map(|s| s.name().to_owned()),
        file: None,
    }
}

/// Receives one session, and prints what this end has measured.
pub(crate) fn listen(
    common: &Common,
    options: &Bench,
    device: &Device,
    address: SocketAddr,
) -> Outcome {
    let listener = session::listen(address)?;
    let (mut incoming, session) = session::next_peer(&listener, "bench")?;
    if let Err(e) = check_contradictions(options, &session) {
        incoming.refuse(&e.to_string());
        return Err(e);
    }
    let config = Config {
        recv_window: session.recv_window,
        credits: session.credits,
        unacked: session.unacked,
        batch: session.batch,
        pack_bytes: session.pack_bytes,
        ..options.connection.config(common, Preset::Batched, session.message_bytes)
    };
    if let Some(file) = session.file {
        return input::receive(common, incoming, device, &config, file);
    }
    let shape = shape_of(&session);
    let mut sides = Sides::receiving(device, &config, shape)?;
    for i in 0..session.senders {
        accept(incoming, &mut sides, i, device, &config)?;
        if i + 1 == session.senders {
            break;
        }
        incoming = session::next_peer(&listener, "bench")?.0;
    }
    let load =
        Load { size: session.size, end: End::Messages(0), verify: session.verify, rate: None };
    let measured = measure(sides, device, &load)?;
    let mut report = Report::new(common.json);
    let preset = session.preset.and_then(|name| name.parse().ok());
    report.add(Case { device, options, preset, shape, config: &config, load: &load }, &measured)?;
    report.finish();
    Ok(())
}

fn accept(
    incoming: Incoming,
    sides: &mut Sides,
    sender: u32,
    device: &Device,
    config: &Config,
) -> Result<()> {
    let pool = sides.pool.clone();
    let Some(receiver) = sides.receiver_of(sender as usize) else {
        return Err(usage("more senders than the session said"));
    };
    incoming.accept_into(receiver, pool.as_ref(), device, config)?;
    Ok(())
}

fn shape_of(session: &Session) -> Shape {
    let reposting = |name: &String| Reposting::ALL.into_iter().find(|r| r.name() == name);
    let receiving = match (session.single_receiver, session.senders) {
        (true, _) => Receiving::SingleReceiver,
        (false, 1) => Receiving::ThreadEach,
        (false, _) => Receiving::RoundRobin,
    };
    let srq = session.srq.as_ref().and_then(reposting);
    Shape { senders: session.senders, receiving, srq, srq_buffers: None }
}

/// The connecting end's parameters hold; what was said here and is not so there is
/// refused, not overruled.
fn check_contradictions(options: &Bench, session: &Session) -> Result<()> {
    let differs = |what: &str, here: String, there: String| {
        Err(usage(format!(
            "the connecting end has {what} {there}, this end {here}: leave it out here"
        )))
    };
    let shape = Shape::new(options);
    if shape.senders > 1 && shape.senders != session.senders {
        return differs("--senders", shape.senders.to_string(), session.senders.to_string());
    }
    if let Some(size) = options.size.iter().find(|s| **s != session.size) {
        return differs("--size", size.to_string(), session.size.to_string());
    }
    match shape.srq {
        Some(srq) if session.srq.as_deref() != Some(srq.name()) => {
            let there = session.srq.clone().unwrap_or_else(|| "off".into());
            differs("--srq", srq.name().into(), there)
        }
        _ => Ok(()),
    }
}
