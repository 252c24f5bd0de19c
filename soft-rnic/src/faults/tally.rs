//! Effects of a plan on the requests of a process.

use core::sync::atomic::{AtomicU64, Ordering};

/// Counts of requests.
#[derive(Debug, Default)]
pub(super) struct FaultTally {
    /// Requests that have had their turn.
    pub(super) requests: AtomicU64,
    /// Those of UC and UD.
    pub(super) unreliable: AtomicU64,
    /// Requests that one or more faults have struck.
    pub(super) struck: AtomicU64,
    /// Requests that have failed because of faults.
    pub(super) failed: AtomicU64,
}

/// Counts one. Relaxed: it guards no memory.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl FaultTally {
    /// In a line; of a plan that may have messages lost.
    pub(super) fn line(&self, has_loss: bool) -> String {
        // Relaxed: as above.
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (requests, struck, failed) = (of(&self.requests), of(&self.struck), of(&self.failed));
        let why = match has_loss && of(&self.unreliable) == 0 {
            true => ": loss strikes those of UC and UD only, and there were none",
            false => "",
        };
        let requests = format!("{requests} request{}", if requests == 1 { "" } else { "s" });
        match struck {
            0 => format!("none of {requests} struck{why}"),
            _ => format!("{struck} of {requests} struck, {failed} failed{why}"),
        }
    }
}

#[cfg(test)]
mod tests;
