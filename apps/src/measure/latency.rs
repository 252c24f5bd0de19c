//! What a measurement of latency has come to.

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
    /// What several rounds have come to: counts are of all of them together.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_end_reads_is_what_was_written() {
        let settings = [("unacked".to_owned(), 8.into())].into_iter().collect();
        let line = Latency {
            protocol: "send-recv".into(),
            device: "soft0".into(),
            transport: "rc".into(),
            size_bytes: 16,
            messages: 2,
            rounds: 1,
            latency: Quantiles::of(&hdrhistogram::Histogram::new(3).unwrap()),
            rdma_ops_per_message: 1.0,
            mean_transfer_bytes: None,
            rnr_events: Some(0),
            verified: true,
            machine: Machine::here(),
            settings,
        };
        let json = serde_json::to_string(&line).unwrap();
        let read: Latency = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json, "each key once");
    }
}
