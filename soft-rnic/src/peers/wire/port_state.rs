//! The state of a device's port: whether the interface has the address and is running, and the path
//! MTU that its MTU permits.
//!
//! ```text
//!                 an interface has it                  it is gone
//!   Unlisted ───────────────────────────> Present <─────────────────> Gone
//!                                       (running or not)
//! ```
//!
//! As in the kernel, the GID goes with the address ([`IBV_EVENT_GID_CHANGE`](ibv_event_type)), and
//! the port is down while the interface is not running, or has no address.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};

use host::sync::Mutex;
use roce_core::lengths::{ICRC, MAX_HEADERS};
use verbs_sys::ibv_event_type;

use crate::udp::AddressState;

/// The known state of the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AddressPresence {
    /// No interface has had it since the device was opened: a route leads here. Nothing is known of
    /// the interface; the port is active.
    #[default]
    Unlisted,
    /// An interface has it.
    Present { is_running: bool },
    /// An interface has had it.
    Gone,
}

impl AddressPresence {
    /// Returns the state that is known after a look that has found this.
    fn then(self, found: AddressState) -> AddressPresence {
        match (found, self) {
            (AddressState::Present { is_running, .. }, _) => {
                AddressPresence::Present { is_running }
            }
            (AddressState::Absent, AddressPresence::Unlisted) => AddressPresence::Unlisted,
            (AddressState::Absent, _) => AddressPresence::Gone,
        }
    }

    fn has_gid(self) -> bool {
        self != AddressPresence::Gone
    }

    fn is_active(self) -> bool {
        matches!(self, AddressPresence::Unlisted | AddressPresence::Present { is_running: true })
    }

    /// The events of a change, in order: a program that learns that the port is active finds its
    /// GID.
    fn events_until(self, after: AddressPresence) -> [Option<ibv_event_type>; 2] {
        let (gid, port) =
            (self.has_gid() != after.has_gid(), self.is_active() != after.is_active());
        let of_port = match after.is_active() {
            true => ibv_event_type::IBV_EVENT_PORT_ACTIVE,
            false => ibv_event_type::IBV_EVENT_PORT_ERR,
        };
        [gid.then_some(ibv_event_type::IBV_EVENT_GID_CHANGE), port.then_some(of_port)]
    }
}

/// The state of a device's port. It changes with one look at the interfaces at a time.
#[derive(Debug)]
pub(crate) struct PortState {
    /// The state that is known, and the one that the last look has found.
    seen: Mutex<(AddressPresence, AddressState)>,
    /// The path MTU's code (`ibv_mtu`).
    mtu_code: AtomicU32,
}

impl PortState {
    pub(crate) fn new(mtu_code: u32) -> PortState {
        PortState {
            seen: Mutex::new((AddressPresence::default(), AddressState::Absent)),
            mtu_code: AtomicU32::new(mtu_code),
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        !self.seen.lock().0.is_active()
    }

    /// Reports whether the port has its GID: no look has found the address gone.
    pub(crate) fn has_gid(&self) -> bool {
        self.seen.lock().0.has_gid()
    }

    /// The code of the path MTU that the interface's MTU permits (`ibv_mtu`).
    pub(crate) fn mtu_code(&self) -> u32 {
        // Relaxed: a number that guards no memory.
        self.mtu_code.load(Ordering::Relaxed)
    }

    /// The largest path MTU, in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        128 << self.mtu_code()
    }

    /// A look at the interfaces has found this of the address: the events, and whether it differs
    /// from what the look before has found.
    pub(crate) fn update(
        &self,
        ip: IpAddr,
        found: AddressState,
    ) -> ([Option<ibv_event_type>; 2], bool) {
        if let AddressState::Present { mtu: Some(mtu), .. } = found {
            // Relaxed: as in `mtu_code`.
            self.mtu_code.store(mtu_code_of(ip, mtu), Ordering::Relaxed);
        }
        let mut seen = self.seen.lock();
        let (before, found_before) = *seen;
        let after = before.then(found);
        *seen = (after, found);
        (before.events_until(after), found != found_before)
    }
}

/// The code of the largest path MTU whose packets an interface with this MTU takes whole.
pub(crate) fn mtu_code_of(ip: IpAddr, mtu: usize) -> u32 {
    let headers = if ip.is_ipv4() { 28 } else { 48 } + MAX_HEADERS + ICRC;
    let room = mtu.saturating_sub(headers);
    (1..=5).rev().find(|code| 128_usize << code <= room).unwrap_or(1)
}

#[cfg(test)]
mod tests;
