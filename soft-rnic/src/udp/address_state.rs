//! State of an address: whether packets can be sent from it now.

use core::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::interface::{InterfaceAddress, index_of, listed, mtu_of};

/// State of an address on the interfaces of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressState {
    /// No interface has it.
    Absent,
    /// An interface has it.
    Present {
        /// The interface is up and has a carrier.
        is_running: bool,
        /// Bytes of the longest IP packet that it takes, if the system says.
        mtu: Option<usize>,
        /// The interface's number, if the system says.
        index: Option<u32>,
    },
}

/// One look at all interfaces.
#[derive(Debug)]
pub(crate) struct Interfaces(Vec<InterfaceAddress>);

impl Interfaces {
    /// # Errors
    /// What the system says.
    pub(crate) fn look() -> Result<Interfaces, Errno> {
        listed().map(Interfaces)
    }

    /// Returns the state of an address.
    pub(crate) fn state_of(&self, ip: IpAddr) -> AddressState {
        let Interfaces(all) = self;
        let Some(found) = choose(all, ip) else { return AddressState::Absent };
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let mtu = socket.and_then(|socket| mtu_of(&socket, &found.name)).ok();
        AddressState::Present {
            is_running: is_running(found),
            mtu,
            index: index_of(&found.name).ok(),
        }
    }
}

fn is_running(listed: &InterfaceAddress) -> bool {
    listed.has(libc::IFF_UP) && listed.has(libc::IFF_RUNNING)
}

/// The interface that has the address: of several one that is running, if there is one.
fn choose(all: &[InterfaceAddress], ip: IpAddr) -> Option<&InterfaceAddress> {
    let of_it = all.iter().filter(|listed| listed.is_of(ip));
    of_it.min_by_key(|listed| !is_running(listed))
}

#[cfg(test)]
mod tests;
