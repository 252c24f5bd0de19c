//! `--rate auto`: the highest rate at which no receiver-not-ready happens, found as
//! Fischer did it ("Know Your Memory", 2021: "we limit the sender to a stable sending rate").

use std::time::Duration;

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{CloseReason, SendError};
use rdma_conn::verbs_safe::WcStatus;

use super::run::within_process;
use crate::measure::{EndOfLoad, LoadShape, MessageLoad, RoundResult};
use crate::protocol::MeasuredProtocol;

/// Time for which each rate is tried.
const TRIAL: Duration = Duration::from_millis(400);
/// The result is within this factor of the limit.
const PRECISION: f64 = 1.05;
/// Factor by which a rate that was too high after all is lowered.
const STEP_DOWN: f64 = 0.7;
/// Messages a second of each sender that any machine can do.
const FLOOR: f64 = 1000.0;
/// Messages a second that no sender reaches.
const CEILING: f64 = 5e7;

/// The highest rate of each sender without an RNR event, in messages per second.
pub(crate) fn find<K: MeasuredProtocol>(
    device: &Device,
    config: &K::Settings,
    shape: LoadShape,
    load: &MessageLoad,
) -> Result<f64> {
    let trial = |rate: Option<f64>| -> Result<(bool, f64)> {
        let load = MessageLoad { rate, end: EndOfLoad::After(TRIAL), ..*load };
        let measured = match within_process::<K>(device, config, shape, &load) {
            Err(e) if fell_behind(&e) => return Ok((false, CEILING)),
            measured => measured?,
        };
        let events = measured.rnr_events.context(
            "this device does not count RNR events, so --rate auto cannot look for them: give a number",
        )?;
        Ok((events == 0, measured.messages_per_s() / f64::from(shape.senders)))
    };
    // Without a limit, for a start: nothing to find if that is clean.
    let (clean, unpaced) = trial(None)?;
    if clean {
        return Ok(unpaced);
    }
    search(unpaced.max(FLOOR), |rate| {
        let (clean, reached) = trial(Some(rate))?;
        tracing::info!(rate, reached, clean, "tried a rate");
        Ok(clean)
    })
}

/// Measures at the rate that was found, and at lower ones for as long as the receiver
/// falls behind: a longer run meets with more than the trials did. The rate of each
/// sender that it took.
pub(crate) fn measure<K: MeasuredProtocol>(
    device: &Device,
    config: &K::Settings,
    shape: LoadShape,
    load: &MessageLoad,
    found: f64,
) -> Result<(f64, RoundResult)> {
    let (rate, measured) = descend(found, |rate| {
        within_process::<K>(device, config, shape, &MessageLoad { rate: Some(rate), ..*load })
    })?;
    Ok((held(rate, measured.messages_per_s() / f64::from(shape.senders)), measured))
}

/// The rate that was held: a sender that is slower than it was allowed to be shows nothing
/// about the faster one.
fn held(allowed: f64, reached: f64) -> f64 {
    allowed.min(reached)
}

/// Goes down from `rate` until `run` does not fall behind.
fn descend<T>(mut rate: f64, mut run: impl FnMut(f64) -> Result<T>) -> Result<(f64, T)> {
    loop {
        match run(rate) {
            Err(e) if fell_behind(&e) && rate > FLOOR => rate = (rate * STEP_DOWN).max(FLOOR),
            done => return Ok((rate, done?)),
        }
    }
}

/// Reports whether the rate was so high that the RNR retries were exhausted.
fn fell_behind(failure: &anyhow::Error) -> bool {
    matches!(
        failure.downcast_ref(),
        Some(SendError::Ended(CloseReason::PeerLost(e))) if e.cause.status == WcStatus::RNR_RETRY_EXC
    )
}

/// The highest rate below `ceiling` at which `is_clean`: first downward in halves,
/// then between the last clean and the last dirty one.
fn search(ceiling: f64, mut is_clean: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    let (mut clean, mut dirty) = (ceiling / 2.0, ceiling);
    while !is_clean(clean)? {
        dirty = clean;
        clean /= 2.0;
        if clean < FLOOR {
            anyhow::bail!(
                "RNR events even at {FLOOR} messages per second: raise --recv-depth, or use credits"
            );
        }
    }
    while dirty / clean > PRECISION {
        let middle = (clean * dirty).sqrt();
        if is_clean(middle)? {
            clean = middle;
        } else {
            dirty = middle;
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests;
