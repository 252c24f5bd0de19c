//! Symptoms that a device meets, and that explain later why a peer does not answer.

use core::net::IpAddr;
use core::sync::atomic::{AtomicI32, Ordering};

use host::sync::Mutex;
use rustix::io::Errno;

/// The symptoms that a device has met: they speak for the reason if a peer does not answer.
#[derive(Debug, Default)]
pub(crate) struct Symptoms {
    /// The error of a packet that was not sent; 0 if there was none.
    pub(crate) refused: AtomicI32,
    pub(crate) foreign: Mutex<Option<IpAddr>>,
}

impl Symptoms {
    /// The system has refused to send a packet.
    #[cold]
    pub(crate) fn note_refused(&self, error: Errno) {
        // Relaxed: a statistic.
        self.refused.store(error.raw_os_error(), Ordering::Relaxed);
    }

    /// A packet for a queue pair was sent from an address that is not its peer's.
    #[cold]
    pub(crate) fn note_foreign(&self, from: IpAddr) {
        // Of packets that arrive at once, one will do.
        if let Some(mut foreign) = self.foreign.try_lock() {
            *foreign = Some(from.to_canonical());
        }
    }
}
