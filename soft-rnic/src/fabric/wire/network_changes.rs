//! Changes of the network, of which programs learn by events of the port.
//!
//! 1. The kernel tells of changes by a socket, one for all devices of the process. Without that
//!    socket, devices work without events.
//! 2. One thread of the process waits for its messages. They are only a reason to look at all
//!    interfaces: messages may be lost. Threads that take packets never look.
//! 3. What a look finds of each device's address is compared with what was found before. The events
//!    are derived from the difference, so that a change that is reverted at once has none.
//!
//! The socket and the thread see one network namespace: that of the first device. Ports in others
//! stay unchanged, active, and have no events. A child of fork begins anew when it opens a
//! device: its parent's socket is not its own.

use core::time::Duration;
use std::sync::Arc;

use host::sync::Mutex;
use rustix::io::Errno;

use crate::objects::state::Device;
use crate::objects::timed_events::raise_for_all;
use crate::udp::{AddressState, Interfaces, NetworkWatch};

use crate::peers::wire::state::{RoceWire, ip_of};

/// Time in which the thread takes no messages after it has taken some: changes arrive in groups,
/// and a look takes the longer the more interfaces there are.
const PAUSE: Duration = Duration::from_millis(10);
/// After how long it tries again what the system has refused.
const RETRY: Duration = Duration::from_secs(1);

/// A network namespace, as a file's number.
type NamespaceId = (u64, u64);

/// The watch of the network for this process. A child of fork finds that of its parent.
static WATCH: Mutex<Option<Arc<ChangeWatch>>> = Mutex::new(None);

/// The network namespace of this thread, if the system says.
pub(super) fn network_namespace() -> Option<NamespaceId> {
    let stat = rustix::fs::stat("/proc/thread-self/ns/net").ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// A device was opened by this thread: its changes are watched from now on.
pub(super) fn begin(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    let watch = watch_of(&mut WATCH.lock(), std::process::id(), wire.namespace);
    // Otherwise a port would stay in the state that is found now.
    if let Some(watch) = watch {
        watch.add(device, wire);
    }
}

/// Returns the watch of the network for this process: it is made, and its thread started, where
/// there is none yet.
fn watch_of(
    known: &mut Option<Arc<ChangeWatch>>,
    process: u32,
    namespace: Option<NamespaceId>,
) -> Option<Arc<ChangeWatch>> {
    if known.as_ref().is_none_or(|watch| watch.process != process) {
        *known = ChangeWatch::start(process, namespace);
    }
    known.clone()
}

/// The socket by which the kernel tells of changes, and the devices that they are for.
#[derive(Debug)]
pub(super) struct ChangeWatch {
    socket: NetworkWatch,
    /// The process that reads the socket.
    process: u32,
    /// The network namespace that it tells of.
    namespace: Option<NamespaceId>,
    /// Those in the namespace. It is locked during a look, until all of them know what it has
    /// found.
    devices: Mutex<Vec<Arc<Device>>>,
}

impl ChangeWatch {
    pub(super) fn new(process: u32, namespace: Option<NamespaceId>) -> Result<ChangeWatch, Errno> {
        let socket = NetworkWatch::open()?;
        Ok(ChangeWatch { socket, process, namespace, devices: Mutex::default() })
    }

    /// A thread of this thread's namespace watches from now on, until the process ends.
    fn start(process: u32, namespace: Option<NamespaceId>) -> Option<Arc<ChangeWatch>> {
        let watch = Arc::new(ChangeWatch::new(process, namespace).ok()?);
        let watching = Arc::clone(&watch);
        host::thread::spawn("soft-rnic-net", move || watching.run()).ok().and(Some(watch))
    }

    /// The device's port follows the network, if it is the network that is watched.
    pub(super) fn add(&self, device: &Arc<Device>, wire: &RoceWire) {
        if wire.namespace != self.namespace {
            return;
        }
        let mut devices = self.devices.lock();
        // Where that fails, its port is active until the next change.
        if let Ok(interfaces) = Interfaces::look() {
            update(device, wire, interfaces.state_of(ip_of(&wire.gid)));
        }
        devices.push(Arc::clone(device));
    }

    fn run(&self) {
        let mut is_due = false;
        loop {
            let woken = self.socket.wait(is_due.then_some(RETRY));
            match woken.and_then(|()| self.socket.has_changed()) {
                Ok(has_changed) => is_due |= has_changed,
                // What has changed meanwhile is not known.
                Err(_) => {
                    is_due = true;
                    host::time::sleep(RETRY);
                }
            }
            if is_due {
                is_due = self.look().is_err();
            }
            host::time::sleep(PAUSE);
        }
    }

    /// Looks at the interfaces, in this thread's namespace.
    fn look(&self) -> Result<(), Errno> {
        let devices = self.devices.lock();
        let interfaces = Interfaces::look()?;
        for device in devices.iter() {
            if let Some(wire) = device.wire() {
                update(device, wire, interfaces.state_of(ip_of(&wire.gid)));
            }
        }
        Ok(())
    }
}

/// A look has found this of a device's address.
pub(super) fn update(device: &Device, wire: &RoceWire, found: AddressState) {
    let (events, has_changed) = wire.port_state.update(ip_of(&wire.gid), found);
    // Runs may have been refused for want of the address, or by another interface. An interface
    // that always refuses them does not see them tried again when others change.
    if has_changed && !wire.port_state.is_down() {
        wire.tx.lock().cut_again();
    }
    wire.follow_interface(found);
    events.into_iter().flatten().for_each(|event| raise_for_all(device, event));
}

#[cfg(test)]
mod tests;
