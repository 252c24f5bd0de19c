//! Result of a measurement of latency.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::measure::{Described, Machine, Quantiles};

/// One line of `--json`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Latency {
    pub(crate) protocol: String,
    pub(crate) device: String,
    pub(crate) transport: String,
    pub(crate) size_bytes: u32,
    pub(crate) messages: u64,
    pub(crate) rounds: u32,
    #[serde(flatten)]
    pub(crate) latency: Quantiles,
    /// Time that the device's network alone takes, if the device keeps the time of one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) latency_ns_planned: Option<u64>,
    pub(crate) rdma_ops_per_message: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) mean_transfer_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) rnr_events: Option<u64>,
    pub(crate) verified: bool,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// Behind all others: where it is read, it takes what they have left.
    #[serde(flatten)]
    pub(crate) settings: Described,
}

impl Latency {
    /// Merges several rounds; counts are of all of them together.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn of_rounds(rounds: Vec<Latency>) -> Result<Latency> {
        let all: u64 = rounds.iter().map(|line| line.messages).sum();
        let each = |figure: fn(&Latency) -> Option<f64>| {
            let parts = rounds.iter().map(|line| Some(figure(line)? * line.messages as f64));
            Some(parts.sum::<Option<f64>>()? / all.max(1) as f64)
        };
        let first = rounds.first().context("nothing was measured")?.clone();
        Ok(Latency {
            messages: all,
            rounds: rounds.len() as u32,
            latency: Quantiles::of_rounds(rounds.iter().map(|line| line.latency)),
            rdma_ops_per_message: each(|line| Some(line.rdma_ops_per_message)).unwrap_or(0.0),
            mean_transfer_bytes: each(|line| line.mean_transfer_bytes),
            rnr_events: rounds.iter().map(|line| line.rnr_events).sum(),
            ..first
        })
    }
}

/// Returns the least time, in nanoseconds, of a message that crosses the network `hops` times, one
/// after the other, on a device at a distance (`soft0@5us`: a round trip of 5 µs). On others
/// nothing is planned.
pub(crate) fn planned_ns(device: &str, hops: Option<u32>) -> Option<u64> {
    let round_trip = device.strip_prefix("soft0@")?;
    let number = |unit: &str| round_trip.strip_suffix(unit)?.parse::<u64>().ok();
    let ns = number("us").map(|us| 1000 * us).or_else(|| number("ns"))?;
    Some(ns * u64::from(hops?) / 2)
}

#[cfg(test)]
mod tests;
