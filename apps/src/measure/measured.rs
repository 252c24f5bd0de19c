//! Result of a measurement.

use std::time::Duration;

use rdma_conn::device::{Counters, Device};
use serde::{Deserialize, Serialize};

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

/// Messages a second, of those that took this time together.
pub(crate) fn per_s(messages: u64, elapsed: Duration) -> f64 {
    messages as f64 / elapsed.as_secs_f64().max(1e-9)
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

    /// Requests of a message on the average.
    pub(crate) fn operations_per_message(&self, messages: u64) -> f64 {
        self.operations as f64 / messages.max(1) as f64
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
            // The other end tells its own.
            operations: self.operations.saturating_add(other.operations),
            transfers: self.transfers.saturating_add(other.transfers),
            transferred: self.transferred.saturating_add(other.transferred),
        }
    }
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundResult {
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
    /// Messages of the sender that sent fewest, as a part of those of the one that sent most.
    /// `None` unless several senders sent for a time.
    pub(crate) fairness: Option<f64>,
}

/// Messages and work of all ends together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) messages: u64,
    pub(crate) work: Work,
}

impl Whole {
    pub(crate) fn operations_per_message(&self) -> f64 {
        self.work.operations_per_message(self.messages)
    }
}

impl RoundResult {
    pub(crate) fn messages_per_s(&self) -> f64 {
        per_s(self.messages, self.elapsed)
    }

    /// Processors that the threads which receive kept busy on average.
    pub(crate) fn receiver_processor_use(&self) -> Option<f64> {
        let busy = self.receivers_busy?.as_secs_f64();
        Some(busy / self.elapsed.as_secs_f64()).filter(|busy| busy.is_finite())
    }
}
