//! The connecting end: it sends.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use base::outcome::CommandError;
use base::{remark, signals};
use rdma_conn::device::Device;

use super::report::BenchCase;
use super::run::{Outlet, Sides, measure};
use crate::cli::BenchArgs;
use crate::measure::{LoadShape, MessageLoad, ReceiverThreads, ResultLine, RoundResult, Whole};
use crate::protocol::MeasuredProtocol;
use crate::session::{
    self, ControlMessage, MeasurementIndex, PeerFailure, SessionChannel, SessionParameters,
    TrafficParameters, cause,
};

/// Time in which a measurement begins if all ends are there.
const MOMENT: Duration = Duration::from_secs(2);

/// Sends one round to the listener at `address`.
pub(super) fn connect<K: MeasuredProtocol>(
    (options, device, config): (&BenchArgs, &Device, &K::Settings),
    load: &MessageLoad,
    (part, traffic): (MeasurementIndex, &TrafficParameters),
    address: SocketAddr,
) -> Result<ResultLine> {
    let mut sides = Sides::<K>::sending();
    let senders = LoadShape::new(options).senders;
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
            Ok(BenchCase::<K>::new(device, options, config, load).line(&measured))
        }
        Err(e) => Err(cause(e, [&mut wire])),
    }
}

/// Connects one sender.
pub(super) fn join<K: MeasuredProtocol>(
    session: &SessionParameters,
    device: &Device,
    config: &K::Settings,
    address: SocketAddr,
) -> Result<(Outlet<K>, SessionChannel)> {
    let mut stream = session::dial(address)?;
    let made = K::connect_sender(&mut stream, device, config, &session.encode()?);
    let sender = made.map_err(|e| session::explain(e, address, "bench"))?;
    Ok((Outlet { sender, stream: session.stream() }, SessionChannel::new(stream)?))
}

/// Waits until the listening end has all its senders.
pub(super) fn begin(wire: &mut SessionChannel) -> Result<()> {
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
        ControlMessage::Begin => {
            tracing::info!("it begins");
            Ok(())
        }
        other => session::unexpected(other),
    }
}

/// Returns the messages that arrived of all that all processes sent, and the work of all ends.
pub(super) fn arrived(wire: &mut SessionChannel, measured: &RoundResult) -> Result<Whole> {
    let RoundResult { messages, work, .. } = *measured;
    let interrupted = signals::interrupted().map(|why| why.to_string());
    wire.tell(&ControlMessage::Sent { messages, work, interrupted })?;
    match wire.hear_whenever()? {
        ControlMessage::Arrived { messages, work, .. } => Ok(Whole { messages, work }),
        other => session::unexpected(other),
    }
}

/// Describes the messages to send, and how the other end is to receive them.
pub(super) fn traffic<K: MeasuredProtocol>(
    options: &BenchArgs,
    config: &K::Settings,
    load: &MessageLoad,
    file: Option<(u64, u32)>,
) -> TrafficParameters {
    TrafficParameters {
        receiving: ReceiverThreads::asked(options),
        srq: options.srq.map(|s| s.reposting().name().to_owned()),
        srq_buffers: options.srq_buffers,
        end: file.is_none().then_some(load.end),
        rate: load.rate,
        file,
        rounds: match file {
            Some(_) => 1,
            None => load.end.rounds(options.rounds.asked()),
        },
        ..TrafficParameters::new::<K>(&options.connection, config, load.size, load.verify)
    }
}
