//! Counters that a device itself keeps. A figure that it does not count is absent, never 0.

use std::path::{Path, PathBuf};

use super::{Device, Provider};

/// Counts of a device since it was started, at one moment. Two snapshots and
/// [`since`](Counters::since) give what happened in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Send-queue work requests executed, by all programs that use the device.
    pub work_requests: Option<u64>,
    /// Packets sent, acknowledgements among them.
    pub sent_packets: Option<u64>,
    /// Receiver-not-ready events seen by senders.
    pub rnr_events: Option<u64>,
    /// Times that a request was repeated because no answer arrived.
    pub retries: Option<u64>,
    /// Messages of unreliable transports that this process has sent and a faulty network
    /// has lost ([`set_network_faults`](super::set_network_faults)).
    pub lost: Option<u64>,
    /// Messages of unreliable transports that this process has sent, and that arrived and
    /// were dropped: no receive that fitted was posted. Another process that they have
    /// reached counts them as [`missed`](Self::missed) instead.
    pub dropped: Option<u64>,
    /// Messages of unreliable transports that other processes have sent to this one, and
    /// that were dropped here: no receive that fitted was posted.
    pub missed: Option<u64>,
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
    /// Returns the difference from `before`.
    ///
    /// ```
    /// let device = rdma_conn::device::soft()?;
    /// let before = device.counters()?;
    /// assert_eq!(device.counters()?.since(&before).rnr_events, Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        self.with(before, |now, then| Some(now?.saturating_sub(then?)))
    }

    /// Both together, for two ports of a device.
    fn plus(self, other: Counters) -> Counters {
        self.with(&other, |a, b| a.map_or(b, |a| Some(a + b.unwrap_or(0))))
    }

    /// Each figure with the one of `other`.
    fn with(
        &self,
        other: &Counters,
        join: impl Fn(Option<u64>, Option<u64>) -> Option<u64>,
    ) -> Counters {
        Counters {
            work_requests: join(self.work_requests, other.work_requests),
            sent_packets: join(self.sent_packets, other.sent_packets),
            rnr_events: join(self.rnr_events, other.rnr_events),
            retries: join(self.retries, other.retries),
            lost: join(self.lost, other.lost),
            dropped: join(self.dropped, other.dropped),
            missed: join(self.missed, other.missed),
        }
    }
}

impl Device {
    /// Reads the device's counters. The kernel refreshes its own at most once in an interval, and
    /// returns the cached values in between. The file `hw_counters/lifespan` of the port has the
    /// interval in milliseconds, 10 by default.
    ///
    /// # Errors
    /// [`CounterError`] when the kernel does not show them.
    pub fn counters(&self) -> Result<Counters, CounterError> {
        match self.provider {
            Provider::Soft => Ok(soft(self.name())),
            Provider::RdmaCore => self.kernel_counters(),
        }
    }

    /// The counters that drivers keep for each port, under `hw_counters`; the device's
    /// are the sums over its ports.
    fn kernel_counters(&self) -> Result<Counters, CounterError> {
        let dir: PathBuf = ["/sys/class/infiniband", self.name(), "ports"].iter().collect();
        let ports = std::fs::read_dir(&dir).map_err(|source| CounterError {
            device: self.name().to_owned(),
            path: dir.display().to_string(),
            source,
        })?;
        let ports = ports.flatten().map(|port| of_port(&port.path().join("hw_counters")));
        Ok(ports.reduce(Counters::plus).unwrap_or_default())
    }
}

/// Returns the counters in `dir`. Each driver has names of its own for the same thing.
fn of_port(dir: &Path) -> Counters {
    let read = |names: &[&str]| {
        names.iter().find_map(|n| std::fs::read_to_string(dir.join(n)).ok()?.trim().parse().ok())
    };
    Counters {
        sent_packets: read(&["sent_pkts"]),
        rnr_events: read(&["rcvd_rnr_err", "rnr_nak_retry_err"]),
        retries: read(&["completer_retry_err", "local_ack_timeout_err"]),
        ..Counters::default()
    }
}

fn soft(name: &str) -> Counters {
    // A simulation that is no longer listed has no counters.
    let Some(counted) = soft_rnic::counters_of(name) else { return Counters::default() };
    Counters {
        work_requests: Some(counted.requests),
        sent_packets: soft_rnic::packet_counters_of(name).map(|packets| packets.sent),
        rnr_events: Some(counted.rnr_naks),
        retries: Some(counted.retries),
        lost: Some(counted.lost),
        dropped: Some(counted.dropped.saturating_sub(counted.lost)),
        missed: Some(counted.missed),
    }
}
