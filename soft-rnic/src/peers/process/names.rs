//! The names of abstract sockets by which the processes of a user find each other on a device:
//! `soft0`, or an address of the network, whose processes have a place each.

use core::net::IpAddr;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::process::geteuid;

use super::directory::SLOTS;

/// Prefix of all names of this library.
pub(super) const PREFIX: &str = "soft-rnic-";

/// The names of one device.
#[derive(Debug, Clone)]
pub(crate) struct SocketNames {
    /// The part of a name between the user and the slot.
    device: String,
    /// Slots that there are: at most [`SLOTS`].
    pub(crate) slots: u32,
}

impl Default for SocketNames {
    /// Those of `soft0`.
    fn default() -> SocketNames {
        SocketNames { device: String::new(), slots: SLOTS }
    }
}

impl SocketNames {
    /// Names of an address that up to `slots` processes share.
    pub(crate) fn of_address(ip: IpAddr, slots: u32) -> SocketNames {
        SocketNames { device: format!("{}-", ip.to_canonical()), slots: slots.min(SLOTS) }
    }

    /// Those of devices of one world, which is one of this process's.
    #[cfg(feature = "simulation")]
    pub(crate) fn of_world(number: u64) -> SocketNames {
        /// Few: a process that looks through all of them does so in each world.
        const SLOTS: u32 = 16;
        SocketNames { device: format!("world-{}-{number}-", std::process::id()), slots: SLOTS }
    }

    /// Returns the name of the process in a slot.
    pub(crate) fn slot(&self, slot: u32) -> Result<SocketAddrUnix, Errno> {
        self.name(slot)
    }

    /// Returns the name of the marker of a slot (see `marker`).
    pub(crate) fn marker(&self, slot: u32) -> Result<SocketAddrUnix, Errno> {
        self.name(format_args!("{slot}-multicast"))
    }

    /// Returns the name that a process has while it joins the others.
    pub(crate) fn joining(&self) -> Result<SocketAddrUnix, Errno> {
        self.name("joining")
    }

    fn name(&self, what: impl core::fmt::Display) -> Result<SocketAddrUnix, Errno> {
        let name = format!("{PREFIX}{}-{}{what}", geteuid().as_raw(), self.device);
        SocketAddrUnix::new_abstract_name(name.as_bytes())
    }

    /// The user and the slot of a name, if it is a slot's of this device.
    pub(super) fn parse(&self, name: &str) -> Option<(u32, u32)> {
        let (user, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let slot = rest.strip_prefix(self.device.as_str())?;
        Some((user.parse().ok()?, slot.parse().ok()?))
    }
}

#[cfg(test)]
mod tests;
