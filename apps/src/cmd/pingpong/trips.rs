//! Round trips: one end leads, the other one follows, in as many rounds as were asked for.

use std::time::Duration;

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use rdma_conn::device::{Counters, Device};

use crate::cli::Pingpong;
use crate::measure::{
    HAS_COME, Latency, MEASURES, Machine, Payload, Quantiles, Work, planned_ns, rounds, since,
};
use crate::outcome::Failure;
use crate::protocol::{Duplex, Kind, Receiving, Sending, Taken};
use crate::session::HungUp;
use crate::{settings, signals};

/// Round trips before the measured ones: a tenth of them, and at most so many.
const WARM_UP: u64 = 1000;
/// No peer that lives takes longer for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Measured {
    pub(super) half_trips: Histogram<u64>,
    /// Of both ends.
    pub(super) work: Work,
    /// The device's counters at the start.
    pub(super) before: Option<Counters>,
}

/// Rounds of each size.
pub(super) fn rounds_of_size(options: &Pingpong) -> u32 {
    rounds::rounds_of(options.trips(), options.rounds.asked())
}

/// Measures in as many rounds as were asked for.
pub(super) fn in_rounds(options: &Pingpong, mut one: impl FnMut(u64) -> Result<Latency>) -> SoFar {
    let rounds = rounds_of_size(options);
    let measure = |round| one(rounds::share(options.trips(), round, rounds));
    let (done, ended) = rounds::each(rounds, measure);
    let counts = rounds::count(&done, ended.as_ref());
    (counts.then(|| Latency::of_rounds(done)).and_then(Result::ok), ended)
}

/// What was measured, if anything, and why that is not all.
pub(super) type SoFar = (Option<Latency>, Option<Failure>);

/// Ends a connection whose peer may have gone.
pub(super) fn hang_up<K: Kind>(connection: Duplex<K>) {
    if let Err(e) = connection.sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
    }
}

/// Ends a connection at the end that leads. Where all went well, the other end is heard
/// out: its last message may be here before it knows that.
pub(super) fn hang_up_first<K: Kind>(connection: Duplex<K>, is_well: bool) {
    let Duplex { sender, mut receiver } = connection;
    if let Err(e) = sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
        return;
    }
    match is_well.then(|| receiver.take(Some(PATIENCE), |_, _| Ok(()))) {
        None | Some(Ok(Taken::Closed)) => {}
        Some(other) => tracing::debug!(?other, "the other end has not said goodbye"),
    }
}

pub(super) fn warm_up(trips: u64) -> u64 {
    WARM_UP.min(trips / 10)
}

/// Sends, waits for the answer, and measures.
pub(super) fn lead<K: Kind>(
    near: &mut Duplex<K>,
    options: &Pingpong,
    trips: u64,
    size: u32,
) -> Result<Histogram<u64>> {
    let verify = !options.no_verify;
    let mut out = Payload::new(size as usize, 0);
    if verify {
        out.prepare();
    }
    let mut back = Payload::new(size as usize, 0);
    let mut message = vec![0; size as usize];
    let mut half_trips = Histogram::new(3)?;
    let warm_up = warm_up(trips);
    for trip in 0..warm_up + trips {
        // Once the warm-up is over, there is a result.
        if signals::is_interrupted() && trip != warm_up {
            break;
        }
        if trip == warm_up {
            tracing::info!("{MEASURES}");
        }
        if verify {
            out.fill(&mut message);
        }
        let start = host::time::now();
        near.sender.send(&message)?;
        near.sender.flush()?;
        let mut round_trip = None;
        let taken = near.receiver.take(Some(PATIENCE), |_, answer| {
            if round_trip.replace(host::time::since(start)).is_some() {
                bail!("two answers to one message");
            }
            if verify { back.check(answer) } else { Ok(()) }
        })?;
        let Some(round_trip) = round_trip else { return Err(without_answer(taken)) };
        if trip >= warm_up {
            half_trips.record(round_trip.as_nanos() as u64 / 2)?;
        }
    }
    // A part of the warm-up is no result.
    match signals::interrupted().filter(|_| half_trips.is_empty()) {
        Some(interrupted) => Err(interrupted.into()),
        None => Ok(half_trips),
    }
}

pub(super) fn without_answer(taken: Taken) -> anyhow::Error {
    match taken {
        Taken::Closed => HungUp.into(),
        _ => anyhow::anyhow!("no answer: timed out"),
    }
}

/// Sends back what comes, until the other end closes; how many messages.
pub(super) fn follow<K: Kind>(
    far: &mut Duplex<K>,
    verify: bool,
    size: u32,
    until: impl Fn() -> Result<()>,
) -> Result<u64> {
    let Duplex { sender, receiver } = far;
    let (mut expected, mut messages) = (Payload::new(size as usize, 0), 0);
    loop {
        until()?;
        let taken = receiver.take(Some(PATIENCE), |_, message| {
            sender.send(message)?;
            sender.flush()?;
            if verify { expected.check(message) } else { Ok(()) }
        })?;
        match taken {
            Taken::Some(count) => {
                if messages == 0 {
                    tracing::info!("{HAS_COME}");
                }
                messages += count;
            }
            Taken::Nothing => {}
            Taken::Closed => return Ok(messages),
        }
    }
}

pub(super) fn line<K: Kind>(
    options: &Pingpong,
    trips: u64,
    device: &Device,
    config: &K::Settings,
    size: u32,
    measured: &Measured,
) -> Latency {
    let Measured { half_trips: h, work, before } = measured;
    let all = 2 * (h.len() + warm_up(trips));
    let rnr_events = since(device, *before).and_then(|since| since.rnr_events);
    Latency {
        protocol: K::WORD.into(),
        device: device.name().into(),
        transport: "rc".into(),
        size_bytes: size,
        settings: settings::describe(K::SETTINGS, config),
        messages: 2 * h.len(),
        rounds: 1,
        latency: Quantiles::of(h),
        latency_ns_planned: planned_ns(device.name(), K::WHICH.hops()),
        rdma_ops_per_message: work.operations as f64 / all as f64,
        mean_transfer_bytes: work.mean_transfer_bytes(),
        rnr_events,
        verified: !options.no_verify,
        machine: Machine::here(),
    }
}
