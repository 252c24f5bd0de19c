//! What a device itself has counted. A figure that it does not count is absent,
//! never 0.

use std::path::PathBuf;

use super::{Device, Provider};

/// Counts of a device since it was started, at one moment. Two snapshots and
/// [`since`](Counters::since) give what happened in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Send-queue work requests executed, by all programs that use the device.
    pub work_requests: Option<u64>,
    /// Receiver-not-ready events seen by senders.
    pub rnr_events: Option<u64>,
    /// Times that a request was repeated because nobody answered.
    pub retries: Option<u64>,
}

/// Counters that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the counters of {device} cannot be read from {path}: {source}")]
pub struct CounterError {
    device: String,
    path: String,
    source: std::io::Error,
}

impl Counters {
    /// What was counted after `before`.
    ///
    /// ```
    /// let device = rdma_conn::device::soft()?;
    /// let before = device.counters()?;
    /// assert_eq!(device.counters()?.since(&before).rnr_events, Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        let diff = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Counters {
            work_requests: diff(self.work_requests, before.work_requests),
            rnr_events: diff(self.rnr_events, before.rnr_events),
            retries: diff(self.retries, before.retries),
        }
    }
}

impl Device {
    /// Reads the device's counters.
    ///
    /// # Errors
    /// [`CounterError`] when the kernel does not show them.
    pub fn counters(&self) -> Result<Counters, CounterError> {
        match self.provider {
            Provider::Soft => Ok(soft()),
            Provider::RdmaCore => self.kernel_counters(),
        }
    }

    /// The counters that drivers keep under the port's `hw_counters`; each driver
    /// has names of its own for the same thing.
    fn kernel_counters(&self) -> Result<Counters, CounterError> {
        let dir: PathBuf =
            ["/sys/class/infiniband", self.name(), "ports/1/hw_counters"].iter().collect();
        if let Err(source) = std::fs::read_dir(&dir) {
            let path = dir.display().to_string();
            return Err(CounterError { device: self.name().to_owned(), path, source });
        }
        let read = |names: &[&str]| {
            names
                .iter()
                .find_map(|n| std::fs::read_to_string(dir.join(n)).ok()?.trim().parse().ok())
        };
        Ok(Counters {
            work_requests: None,
            rnr_events: read(&["rcvd_rnr_err", "rnr_nak_retry_err"]),
            retries: read(&["completer_retry_err", "local_ack_timeout_err"]),
        })
    }
}

fn soft() -> Counters {
    let counted = soft_rnic::counters();
    Counters {
        work_requests: Some(counted.requests),
        rnr_events: Some(counted.rnr_naks),
        retries: Some(counted.retries),
    }
}
