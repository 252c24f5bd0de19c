//! Quantiles of latency, as the JSON has them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::measure::Spread;
use crate::measure::figures::spread;

/// Quantiles of the time that messages took, in nanoseconds.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quantiles {
    /// The least of all rounds.
    pub(crate) latency_ns_min: u64,
    /// Medians of the rounds.
    pub(crate) latency_ns_p50: u64,
    pub(crate) latency_ns_p90: u64,
    pub(crate) latency_ns_p99: u64,
    pub(crate) latency_ns_p999: u64,
    /// The most of all rounds.
    pub(crate) latency_ns_max: u64,
    /// Least and greatest value of the rounds.
    pub(crate) latency_ns_p50_min: u64,
    pub(crate) latency_ns_p50_max: u64,
    pub(crate) latency_ns_p99_min: u64,
    pub(crate) latency_ns_p99_max: u64,
}

impl Quantiles {
    /// Returns the quantiles of one round.
    pub(crate) fn of(h: &Histogram<u64>) -> Quantiles {
        let (p50, p99) = (h.value_at_quantile(0.5), h.value_at_quantile(0.99));
        Quantiles {
            latency_ns_min: h.min(),
            latency_ns_p50: p50,
            latency_ns_p90: h.value_at_quantile(0.9),
            latency_ns_p99: p99,
            latency_ns_p999: h.value_at_quantile(0.999),
            latency_ns_max: h.max(),
            latency_ns_p50_min: p50,
            latency_ns_p50_max: p50,
            latency_ns_p99_min: p99,
            latency_ns_p99_max: p99,
        }
    }

    /// Merges several rounds.
    pub(crate) fn of_rounds(rounds: impl Iterator<Item = Quantiles> + Clone) -> Quantiles {
        let median = |figure: fn(&Quantiles) -> u64| {
            Spread::of_whole(rounds.clone().map(|round| figure(&round)))
        };
        let (p50, p50_min, p50_max) = median(|q| q.latency_ns_p50);
        let (p99, p99_min, p99_max) = median(|q| q.latency_ns_p99);
        Quantiles {
            latency_ns_min: rounds.clone().map(|q| q.latency_ns_min).min().unwrap_or(0),
            latency_ns_p50: p50,
            latency_ns_p90: median(|q| q.latency_ns_p90).0,
            latency_ns_p99: p99,
            latency_ns_p999: median(|q| q.latency_ns_p999).0,
            latency_ns_max: rounds.clone().map(|q| q.latency_ns_max).max().unwrap_or(0),
            latency_ns_p50_min: p50_min,
            latency_ns_p50_max: p50_max,
            latency_ns_p99_min: p99_min,
            latency_ns_p99_max: p99_max,
        }
    }

    /// Formats the spread of the medians of the rounds.
    pub(crate) fn spread(&self) -> String {
        let [median, min, max] =
            [self.latency_ns_p50, self.latency_ns_p50_min, self.latency_ns_p50_max];
        spread(median as f64, min as f64, max as f64)
    }

    /// From the least to the most, for a table.
    pub(crate) fn columns(&self) -> [u64; 6] {
        [
            self.latency_ns_min,
            self.latency_ns_p50,
            self.latency_ns_p90,
            self.latency_ns_p99,
            self.latency_ns_p999,
            self.latency_ns_max,
        ]
    }
}

#[cfg(test)]
mod tests;
