//! Faults of a network, which hit messages of unreliable transports.

use core::sync::atomic::{AtomicBool, Ordering};

use host::sync::Mutex;

use crate::objects::address::Address;
use crate::objects::wqe::Wqe;
use host::random::Random;

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

/// A queue pair's messages that have met a faulty network.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// All of them.
    pub(crate) sent: u64,
    /// Those that are still under way, in the order of their posts.
    pub(crate) late: Vec<Late>,
}

/// A message that others overtake.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) wqe: Wqe,
    pub(crate) to: Option<(Address, u32)>,
    pub(crate) psn: u32,
    pub(crate) payload: Box<[u8]>,
    /// Messages that still go before it.
    pub(crate) overtakers: u32,
    /// Names the deadline at which it arrives anyway.
    pub(crate) token: u64,
}
