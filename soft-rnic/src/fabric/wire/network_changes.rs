//! Changes of the network, of which programs learn by events of the port.
//!
//! 1. The kernel tells of changes by a socket, one for all devices of the process. Without that
//!    socket, devices work without events.
//! 2. A device's thread takes the messages. They are only a reason to look at all interfaces: messages
//!    may be lost.
//! 3. What a look finds of each device's address is compared with what was found before. The events
//!    come from the difference, so that a change that is reverted at once has none.
//!
//! In a process that has devices in several network namespaces, only the devices in that of the first
//! one have events.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::clock;
use crate::objects::device::DEVICES;
use crate::objects::state::Device;
use crate::schedule::timed_events::raise_for_all;
use crate::udp::{AddressState, Interfaces, NetworkWatch};

use super::state::{Wire, ip_of};

/// How long a thread takes no messages after it has taken some: changes come in groups, and a look takes
/// the longer the more interfaces there are.
const PAUSE: Duration = Duration::from_millis(10);

/// What the kernel tells of changes by, if it does.
static WATCH: OnceLock<NetworkWatch> = OnceLock::new();
/// There was a reason to look, and no look since.
static IS_CHANGED: AtomicBool = AtomicBool::new(false);
/// Held during a look, until all devices know what it has found.
pub(super) static LOOKING: Mutex<()> = Mutex::new(());

/// The network namespace of this thread, if the system says, as a file's number.
pub(super) fn network_namespace() -> Option<(u64, u64)> {
    let stat = rustix::fs::stat("/proc/thread-self/ns/net").ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// A device was listed: its changes are watched from now on.
pub(super) fn begin() {
    if WATCH.get().is_none()
        && let Ok(watch) = NetworkWatch::open()
    {
        // Another device may have been faster.
        let _ = WATCH.set(watch);
    }
    // Otherwise a port would stay as it is found now.
    if WATCH.get().is_some() {
        // Release: the look finds the device.
        IS_CHANGED.store(true, Ordering::Release);
        look();
    }
}

/// When a device's thread has taken messages last.
#[derive(Debug, Default)]
pub(super) struct Attention {
    taken_ns: u64,
    pause: Option<Duration>,
}

impl Attention {
    /// Takes messages and does what follows from them, unless that was just now. What wakes the thread when
    /// there are more, if it need not pause.
    pub(super) fn attend(&mut self) -> Option<&'static OwnedFd> {
        let watch = WATCH.get()?;
        let now = clock::now();
        let since = Duration::from_nanos(now.saturating_sub(self.taken_ns));
        self.pause = PAUSE.checked_sub(since).filter(|_| self.taken_ns > 0);
        if self.pause.is_some() {
            return None;
        }
        self.taken_ns = now;
        let has_changed = watch.has_changed();
        if has_changed != Ok(false) {
            // Release: as in `begin`.
            IS_CHANGED.store(true, Ordering::Release);
        }
        look();
        // One that has failed does not wake the thread: it looks when it wakes by itself.
        has_changed.is_ok().then(|| watch.socket())
    }

    /// How long the thread may wait, of `longest`.
    pub(super) fn wait(&self, longest: Duration) -> Duration {
        self.pause.map_or(longest, |pause| pause.min(longest))
    }
}

/// Looks at the interfaces if there is a reason. A look that fails is repeated when the thread attends next.
fn look() {
    // Relaxed: it is asked again under the lock.
    if !IS_CHANGED.load(Ordering::Relaxed) {
        return;
    }
    let _looking = LOOKING.lock();
    // Acquire: what changes after this is a reason for another look.
    if !IS_CHANGED.swap(false, Ordering::Acquire) {
        return;
    }
    let Ok(interfaces) = Interfaces::look() else {
        // Relaxed: this thread sees it, or another one, later.
        return IS_CHANGED.store(true, Ordering::Relaxed);
    };
    // A process that exits needs the list.
    let devices = DEVICES.lock().clone();
    let here = network_namespace();
    for device in &devices {
        // A thread does not see the interfaces of another network namespace.
        if let Some(wire) = device.wire().filter(|wire| wire.namespace == here) {
            update(device, wire, interfaces.state_of(ip_of(&wire.gid)));
        }
    }
}

/// A look has found this of a device's address.
pub(super) fn update(device: &Device, wire: &Wire, found: AddressState) {
    let events = wire.port_state.update(ip_of(&wire.gid), found);
    // What the system refused may have been refused for want of the address, even if it is back.
    if !wire.port_state.is_down() {
        wire.tx.lock().cut_again();
    }
    events.into_iter().flatten().for_each(|event| raise_for_all(device, event));
}
