//! Result of a measurement.

use std::time::Duration;

use anyhow::{Context, Result};
use base::pinning;
use rdma_conn::device::{Counters, Device};
use serde::{Deserialize, Serialize};

use crate::measure::Spread;

/// Log message of a receiving end that has its first message.
pub(crate) const HAS_COME: &str = "the first message has arrived";

/// Log message at the end of the warm-up.
pub(crate) const MEASURES: &str = "the warm-up is over";

/// Settings as the JSON has them.
pub(crate) type Described = serde_json::Map<String, serde_json::Value>;

/// Returns what `device` has counted since `before`, if it counts.
pub(crate) fn since(device: &Device, before: Option<Counters>) -> Option<Counters> {
    before.and_then(|before| Some(device.counters().ok()?.since(&before)))
}

/// Processors that a process runs on, and its build.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Machine {
    /// The processors that this end runs on, where they were listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    build: String,
}

impl Machine {
    /// Describes this process.
    pub(crate) fn here() -> Machine {
        Machine { cpu: pinning::listed(), build: rdma_conn::build::summary() }
    }
}

/// Work of one end, or of both.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Work {
    /// Send-queue work requests.
    #[serde(rename = "operations")]
    pub(crate) operations: u64,
    /// Transfers of data that may carry several messages or a part of one, and their
    /// bytes; none where a transfer is a message.
    #[serde(default)]
    pub(crate) transfers: u64,
    #[serde(default)]
    pub(crate) transferred: u64,
}

impl Work {
    /// Work of `operations` requests, none of which gathers messages.
    pub(crate) fn requests(operations: u64) -> Work {
        Work { operations, ..Work::default() }
    }

    /// Bytes of a transfer on the average.
    pub(crate) fn mean_transfer_bytes(&self) -> Option<f64> {
        (self.transfers > 0).then(|| self.transferred as f64 / self.transfers as f64)
    }
}

impl std::ops::Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work {
            operations: self.operations + other.operations,
            transfers: self.transfers + other.transfers,
            transferred: self.transferred + other.transferred,
        }
    }
}

/// Result of a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    pub(crate) messages: u64,
    pub(crate) elapsed: Duration,
    /// Work of this process.
    pub(crate) work: Work,
    /// Messages and work of all ends, for all that was delivered.
    pub(crate) whole: Option<Whole>,
    /// `None` where the device does not count them.
    pub(crate) rnr_events: Option<u64>,
    /// Bytes registered for receiving.
    pub(crate) registered_bytes: u64,
    /// Processor time of the threads that receive; `None` if another process has them.
    pub(crate) receivers_busy: Option<Duration>,
    /// Messages of the sender that sent fewest, as a part of those of the one that sent most; of
    /// several rounds, the least. `None` unless several senders sent for a time.
    pub(crate) fairness: Option<f64>,
    /// Messages a second, where there were several rounds; all else is of them together.
    pub(crate) rounds: Option<(u32, Spread)>,
}

/// Messages and work of all ends together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) messages: u64,
    pub(crate) work: Work,
}

impl Whole {
    pub(crate) fn operations_per_message(&self) -> f64 {
        self.work.operations as f64 / self.messages.max(1) as f64
    }
}

impl Measured {
    /// The median of the rounds, where there were several.
    pub(crate) fn messages_per_s(&self) -> f64 {
        let own = || self.messages as f64 / self.elapsed.as_secs_f64();
        self.rounds.map_or_else(own, |(_, rates)| rates.median)
    }

    /// Processors that the threads which receive kept busy on average.
    pub(crate) fn receiver_processor_use(&self) -> Option<f64> {
        let busy = self.receivers_busy?.as_secs_f64();
        Some(busy / self.elapsed.as_secs_f64()).filter(|busy| busy.is_finite())
    }

    /// Merges several rounds.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn of_rounds(rounds: &[Measured]) -> Result<Measured> {
        let rates = Spread::of(rounds.iter().map(Measured::messages_per_s));
        let all = rounds.iter().copied().reduce(Measured::and).context("nothing was measured")?;
        Ok(Measured { rounds: Some((rounds.len() as u32, rates)), ..all })
    }

    /// Merges two rounds.
    fn and(self, other: Measured) -> Measured {
        let whole = |(a, b): (Whole, Whole)| Whole {
            messages: a.messages + b.messages,
            work: a.work + b.work,
        };
        Measured {
            messages: self.messages + other.messages,
            elapsed: self.elapsed + other.elapsed,
            work: self.work + other.work,
            whole: self.whole.zip(other.whole).map(whole),
            rnr_events: self.rnr_events.zip(other.rnr_events).map(|(a, b)| a + b),
            registered_bytes: self.registered_bytes.max(other.registered_bytes),
            receivers_busy: self.receivers_busy.zip(other.receivers_busy).map(|(a, b)| a + b),
            fairness: self.fairness.zip(other.fairness).map(|(a, b)| a.min(b)),
            rounds: None,
        }
    }
}
