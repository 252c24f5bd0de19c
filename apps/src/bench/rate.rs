//! `--rate auto`: the highest rate at which no receiver-not-ready happens, found as
//! the thesis on these connections did ("we limit the sender to a stable sending rate").

use std::time::Duration;

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Ended, SendError};
use rdma_conn::verbs_safe::WcStatus;

use super::load::{End, Load, Shape};
use super::run::within_process;

/// How long each rate is tried.
const TRIAL: Duration = Duration::from_millis(400);
/// The result is within this factor of the limit.
const PRECISION: f64 = 1.05;
/// Messages a second of each sender that any machine can do.
const FLOOR: f64 = 1000.0;
/// Messages a second that no sender reaches.
const CEILING: f64 = 5e7;

/// The highest rate of each sender without an RNR event, in messages per second.
pub(crate) fn find(device: &Device, config: &Config, shape: Shape, load: &Load) -> Result<f64> {
    let trial = |rate: Option<f64>| -> Result<(bool, f64)> {
        let load = Load { rate, end: End::After(TRIAL), ..*load };
        let measured = match within_process(device, config, shape, &load) {
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

/// Whether it was too fast by so much that the retries did not last.
fn fell_behind(failure: &anyhow::Error) -> bool {
    matches!(
        failure.downcast_ref(),
        Some(SendError::Ended(Ended::PeerLost(e))) if e.status == WcStatus::RNR_RETRY_EXC
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
                "RNR events even at {FLOOR} messages per second: raise --recv-window, or use credits"
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
mod tests {
    use super::*;

    #[test]
    fn finds_the_limit_from_below() {
        for limit in [1.5e3, 1e5, 3.3e6, 9.9e6] {
            let found = search(1e7, |rate| Ok(rate <= limit)).unwrap();
            assert!(found <= limit && found * PRECISION >= limit, "{found} for {limit}");
        }
    }

    #[test]
    fn retries_that_do_not_last_are_a_rate_that_is_too_high() {
        let lost = |status| {
            let cause = rdma_conn::verbs_safe::WcError { status, vendor_err: 0, qp_num: 1 };
            anyhow::Error::from(SendError::Ended(Ended::PeerLost(cause))).context("what to do")
        };
        assert!(fell_behind(&lost(WcStatus::RNR_RETRY_EXC)));
        assert!(!fell_behind(&lost(WcStatus::RETRY_EXC)), "that is no matter of speed");
        assert!(!fell_behind(&SendError::TimedOut.into()));
    }

    #[test]
    fn a_receiver_that_is_never_ready_is_an_error() {
        assert!(search(1e7, |_| Ok(false)).is_err());
    }
}
