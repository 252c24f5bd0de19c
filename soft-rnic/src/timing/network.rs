//! Faults of a network, which hit messages of unreliable transports.

use core::sync::atomic::{AtomicBool, Ordering};

use host::random::Random;
use host::sync::Mutex;

/// Most messages that overtake a late one.
pub(crate) const OVERTAKERS: u64 = 4;

/// Probabilities, 0 to 1, of the faults that hit each message of an unreliable
/// connection and each datagram. At most one of them hits a message; they are tried in
/// this order.
///
/// ```
/// let network = soft_rnic::NetworkFaults { loss: 0.01, ..Default::default() };
/// assert_eq!(network.reordering, 0.0);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct NetworkFaults {
    /// The message never arrives.
    pub loss: f64,
    /// Up to four later messages of the same queue pair arrive before it; where
    /// fewer are sent, it arrives after 1 ms.
    pub reordering: f64,
    /// The message arrives twice, as it does when a path repeats a packet.
    pub duplication: f64,
    /// A packet arrives marked, as behind a switch whose queue is long (CE), if its sender permits
    /// it (ECT). Only on a device on the network.
    pub congestion: f64,
}

/// The network of a device.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// There is a fault to draw.
    is_faulty: AtomicBool,
    setting: Mutex<(u64, NetworkFaults)>,
}

/// Fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    Lost,
    /// This number of later ones overtake it.
    Late(u32),
    Twice,
}

impl Network {
    pub(crate) fn set(&self, seed: u64, faults: NetworkFaults) {
        *self.setting.lock() = (seed, faults);
        // Relaxed: the setting itself is read under its lock.
        self.is_faulty.store(faults != NetworkFaults::default(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_faulty(&self) -> bool {
        // Relaxed: see `set`.
        self.is_faulty.load(Ordering::Relaxed)
    }

    /// The fate of message `n` of a queue pair.
    pub(crate) fn fate(&self, qpn: u32, n: u64) -> Fate {
        let (seed, faults) = *self.setting.lock();
        let mut random = Random::new(Random::new(seed ^ u64::from(qpn) << 40).next_u64() ^ n);
        if random.strikes(faults.loss) {
            Fate::Lost
        } else if random.strikes(faults.reordering) {
            Fate::Late(1 + random.below(OVERTAKERS) as u32)
        } else if random.strikes(faults.duplication) {
            Fate::Twice
        } else {
            Fate::Arrives
        }
    }
}
