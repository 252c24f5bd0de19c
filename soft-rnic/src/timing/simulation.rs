//! State of a simulated device.

use core::sync::atomic::{AtomicU64, Ordering};

use host::sync::Mutex;

use crate::timing::network::NetworkFaults;
use host::random::Random;

/// Probabilities, 0 to 1, of the faults that a simulation injects at each step.
///
/// ```
/// let faults = soft_rnic::Faults { lost_response: 0.1, ..Default::default() };
/// assert_eq!(faults.qp_death, 0.0);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The request waits for up to 100 µs first.
    pub delay: f64,
    /// The responder claims to have no receive request (of those that take one).
    pub rnr: f64,
    /// Half of these requests are lost, of the others only the response: either
    /// way the requester tries again after its timeout. A queue pair whose timeout
    /// is 0, that is, infinite, then waits for ever, as on a card.
    pub lost_response: f64,
    /// A READ takes its time, and the next SEND or WRITE behind it, if it has no fence,
    /// is executed first: as the specification permits it, up to the queue pair's limit
    /// of READs in flight. Completions stay in order.
    pub late_read: f64,
    /// The queue pair whose turn it is goes to the error state.
    pub qp_death: f64,
    /// The responder refuses the key of a request, of those that have one.
    pub access_error: f64,
    /// Faults of the messages of unreliable connections and datagrams, to which `rnr` and
    /// `lost_response` do not apply.
    pub network: NetworkFaults,
}

/// Virtual time that one step takes.
const STEP_NS: u64 = 100;

/// Additional state of a simulated device.
#[derive(Debug)]
pub(crate) struct SimulationState {
    pub(crate) faults: Faults,
    random: Mutex<Random>,
    pub(crate) now: AtomicU64,
    /// One step at a time, whichever thread asks for it.
    pub(crate) stepping: Mutex<()>,
}

impl SimulationState {
    pub(crate) fn new(seed: u64, faults: Faults) -> SimulationState {
        SimulationState {
            faults,
            random: Mutex::new(Random::new(seed)),
            now: AtomicU64::new(0),
            stepping: Mutex::new(()),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        if host::is_in_world() {
            return host::time::monotonic_ns();
        }
        // Relaxed: one thread steps at a time, and the clock guards no memory.
        self.now.load(Ordering::Relaxed)
    }

    /// A step takes its time; the time behind it.
    pub(crate) fn advance(&self) -> u64 {
        if host::is_in_world() {
            return self.now();
        }
        self.now.fetch_add(STEP_NS, Ordering::Relaxed) + STEP_NS
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        self.random.lock().below(n)
    }

    /// Draws whether a fault of this probability strikes now.
    pub(crate) fn strikes(&self, probability: f64) -> bool {
        self.random.lock().strikes(probability)
    }
}
