//! Round trips: one end leads, the other one follows.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use base::signals;
use hdrhistogram::Histogram;
use rdma_conn::device::Counters;

use crate::cli::PingpongArgs;
use crate::measure::{EndOfLoad, HAS_COME, MEASURES, Payload, Work};
use crate::protocol::{Duplex, MeasuredProtocol, MeasuredReceiver, MeasuredSender, TakeOutcome};
use crate::session::HungUp;

/// Round trips before the measured ones: a tenth of them, and at most this number.
const WARM_UP: u64 = 1000;
/// No peer that lives takes longer for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct TripMeasurement {
    pub(super) led: LedTrips,
    /// Work of both ends.
    pub(super) work: Work,
    /// The device's counters at the start.
    pub(super) before: Option<Counters>,
}

/// The round trips of the end that leads.
pub(super) struct LedTrips {
    /// Halves of the round trips that count, in nanoseconds.
    pub(super) half_trips: Histogram<u64>,
    /// Round trips before those.
    pub(super) warm_up: u64,
}

/// Rounds of each size.
pub(super) fn rounds_of_size(options: &PingpongArgs) -> u32 {
    options.end().rounds(options.rounds.asked())
}

/// End of a round of each size.
pub(super) fn end_of_round(options: &PingpongArgs, round: u32) -> EndOfLoad {
    options.end().of_round(round, rounds_of_size(options))
}

/// Ends a connection whose peer may have gone.
pub(super) fn hang_up<K: MeasuredProtocol>(connection: Duplex<K>) {
    if let Err(e) = connection.sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
    }
}

/// Ends a connection at the end that leads. Where all went well, the other end is heard
/// out: its last message may be here before it knows that.
pub(super) fn hang_up_first<K: MeasuredProtocol>(connection: Duplex<K>, is_well: bool) {
    let Duplex { sender, mut receiver } = connection;
    if let Err(e) = sender.close() {
        tracing::debug!(error = %e, "the other end was not told goodbye");
        return;
    }
    match is_well.then(|| receiver.take(Some(PATIENCE), |_, _| Ok(()))) {
        None | Some(Ok(TakeOutcome::Closed)) => {}
        Some(other) => tracing::debug!(?other, "the other end has not said goodbye"),
    }
}

/// True if `trips` round trips since `start` are enough before the measured ones.
fn is_warm(end: EndOfLoad, trips: u64, start: Instant) -> bool {
    match end {
        EndOfLoad::Messages(all) => trips >= WARM_UP.min(all / 10),
        EndOfLoad::After(time) => trips >= WARM_UP || host::time::since(start) >= time / 10,
    }
}

/// Sends, waits for the answer, and measures.
pub(super) fn lead<K: MeasuredProtocol>(
    near: &mut Duplex<K>,
    options: &PingpongArgs,
    end: EndOfLoad,
    size: u32,
) -> Result<LedTrips> {
    let verify = !options.no_verify;
    let mut out = Payload::new(size as usize, 0);
    if verify {
        out.prepare();
    }
    let mut back = Payload::new(size as usize, 0);
    let mut message = vec![0; size as usize];
    let mut half_trips = Histogram::new(3)?;
    let (begin, mut warm_up, mut measured_from) = (host::time::now(), 0, None);
    loop {
        let begins = measured_from.is_none() && is_warm(end, warm_up, begin);
        if begins {
            measured_from = Some(host::time::now());
            tracing::info!("{MEASURES}");
        }
        let is_done = measured_from.is_some_and(|from| match end {
            EndOfLoad::Messages(trips) => half_trips.len() == trips,
            EndOfLoad::After(time) => !half_trips.is_empty() && host::time::since(from) >= time,
        });
        // Once the warm-up is over, there is a result.
        if is_done || (signals::is_interrupted() && !begins) {
            break;
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
        match measured_from {
            Some(_) => half_trips.record(round_trip.as_nanos() as u64 / 2)?,
            None => warm_up += 1,
        }
    }
    if half_trips.is_empty() {
        // A part of the warm-up is no result.
        signals::go_on()?;
    }
    Ok(LedTrips { half_trips, warm_up })
}

pub(super) fn without_answer(taken: TakeOutcome) -> anyhow::Error {
    match taken {
        TakeOutcome::Closed => HungUp.into(),
        _ => anyhow::anyhow!("no answer: timed out"),
    }
}

/// Echoes messages until the other end closes; returns their number.
pub(super) fn follow<K: MeasuredProtocol>(
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
            TakeOutcome::Some(count) => {
                if messages == 0 {
                    tracing::info!("{HAS_COME}");
                }
                messages += count;
            }
            TakeOutcome::Nothing => {}
            TakeOutcome::Closed => return Ok(messages),
        }
    }
}
