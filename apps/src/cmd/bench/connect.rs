//! The connecting end: it sends.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use base::outcome::CommandError;
use base::{remark, signals};
use rdma_conn::device::Device;

use super::report::Case;
use super::run::{Outlet, Sides, measure};
use crate::cli::BenchArgs;
use crate::measure::{Load, Measured, Receivers, ResultLine, Shape, Whole};
use crate::protocol::Kind;
use crate::session::{self, Channel, Control, Part, PeerFailure, Session, Traffic, cause};

/// Time in which a measurement begins if all ends are there.
const MOMENT: Duration = Duration::from_secs(2);

/// Sends one round to the listener at `address`.
pub(super) fn connect<K: Kind>(
    (options, device, config): (&BenchArgs, &Device, &K::Settings),
    load: &Load,
    (part, traffic): (Part, &Traffic),
    address: SocketAddr,
) -> Result<ResultLine> {
    let mut sides = Sides::<K>::sending();
    let senders = Shape::new(options).senders;
    let mut wires = Vec::new();
    for sender in 0..senders {
        let session = part.session("bench", senders, sender, traffic.clone());
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
            Ok(Case::<K>::new(device, options, config, load).line(&measured))
        }
        Err(e) => Err(cause(e, [&mut wire])),
    }
}

/// Connects one sender.
pub(super) fn join<K: Kind>(
    session: &Session,
    device: &Device,
    config: &K::Settings,
    address: SocketAddr,
) -> Result<(Outlet<K>, Channel)> {
    let mut stream = session::dial(address)?;
    let made = K::connect_sender(&mut stream, device, config, &session.encode()?);
    let sender = made.map_err(|e| session::explain(e, address, "bench"))?;
    Ok((Outlet { sender, stream: session.stream() }, Channel::new(stream)?))
}

/// Waits until the listening end has all its senders.
pub(super) fn begin(wire: &mut Channel) -> Result<()> {
    let silent = "the listening end does not begin";
    let why = |e: CommandError| if e.is::<PeerFailure>() { e } else { e.context(silent) };
    let note = match wire.hear_within(MOMENT).map_err(why)? {
        Some(note) => note,
        None => {
            remark!("connected; the listening end waits for more senders");
            wire.hear_unless_interrupted().map_err(why)?
        }
    };
    match note {
        Control::Begin => {
            tracing::info!("it begins");
            Ok(())
        }
        other => session::unexpected(other),
    }
}

/// Returns the messages that arrived of all that all processes sent, and the work of all ends.
pub(super) fn arrived(wire: &mut Channel, measured: &Measured) -> Result<Whole> {
    let Measured { messages, work, .. } = *measured;
    let interrupted = signals::interrupted().map(|why| why.to_string());
    wire.tell(&Control::Sent { messages, work, interrupted })?;
    match wire.hear_whenever()? {
        Control::Arrived { messages, work, .. } => Ok(Whole { messages, work }),
        other => session::unexpected(other),
    }
}

/// Describes the messages to send, and how the other end is to receive them.
pub(super) fn traffic<K: Kind>(
    options: &BenchArgs,
    config: &K::Settings,
    load: &Load,
    file: Option<(u64, u32)>,
) -> Traffic {
    Traffic {
        receiving: Receivers::asked(options),
        srq: options.srq.map(|s| s.reposting().name().to_owned()),
        srq_buffers: options.srq_buffers,
        end: file.is_none().then_some(load.end),
        rate: load.rate,
        file,
        rounds: match file {
            Some(_) => 1,
            None => load.end.rounds(options.rounds.asked()),
        },
        ..Traffic::new::<K>(&options.connection, config, load.size, load.verify)
    }
}
