//! Statistics of a device.

use core::ops::AddAssign;

use crate::device::DEVICES;

/// What a device has done so far. Counted per queue pair, under the lock that an
/// execution holds anyway, and added up when somebody asks.
///
/// ```
/// let before = soft_rnic::counters();
/// // … traffic …
/// assert!(soft_rnic::counters().requests >= before.requests);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Send-queue work requests that were executed to their end, failures
    /// included, flushed ones not.
    pub requests: u64,
    /// Payload bytes of those that succeeded.
    pub bytes: u64,
    /// Times a responder had no receive buffer ready (injected ones included).
    pub rnr_naks: u64,
    /// Requests sent again after a time without response.
    pub retries: u64,
    /// Messages of unreliable transports that nobody took: no receive request was
    /// posted or it was too short, the key was wrong, nobody was there, or they
    /// were lost on purpose. Those that have reached another process are not among
    /// them: that process counts them as missed.
    pub dropped: u64,
    /// Messages of unreliable transports that other processes have sent to this one, and
    /// that nobody took here.
    pub missed: u64,
    /// Those of them that were lost on purpose.
    pub lost: u64,
    /// Faults that a simulation injected.
    pub faults: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.rnr_naks += other.rnr_naks;
        self.retries += other.retries;
        self.dropped += other.dropped;
        self.missed += other.missed;
        self.lost += other.lost;
        self.faults += other.faults;
    }
}

/// Statistics of `soft0` since the process began.
///
/// ```
/// assert_eq!(soft_rnic::counters().faults, 0); // only simulations inject any
/// ```
#[must_use]
pub fn counters() -> Counters {
    crate::device::default_device().counters()
}

/// Statistics of the device of that name since it is there, if there is one: `soft0`, one at
/// a [distance](crate::distant), or a [`Simulation`](crate::Simulation).
///
/// ```
/// assert!(soft_rnic::counters_of("soft0").is_some());
/// assert!(soft_rnic::counters_of("soft1").is_none());
/// ```
#[must_use]
pub fn counters_of(name: &str) -> Option<Counters> {
    let device = DEVICES.lock().iter().find(|device| device.name() == name).cloned();
    device.map(|device| device.counters())
}
