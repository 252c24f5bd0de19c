//! The addresses of this machine.

use core::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::interface::{listed, mtu_of};

/// An address that packets can be sent from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAddress {
    /// The interface that has it.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Bytes of the longest IP packet that the interface takes.
    pub mtu: usize,
}

/// The addresses of all interfaces that are up, in the system's order. Link-local IPv6 addresses
/// are left out: they need an interface beside them, for which a GID has no room.
///
/// # Errors
/// What the system says.
pub fn local_addresses() -> Result<Vec<LocalAddress>, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    let mut all = Vec::new();
    for found in listed()? {
        let interface = found.name.to_string_lossy().into_owned();
        if !found.has(libc::IFF_UP) || is_link_local_v6(found.ip) {
            continue;
        }
        // One that goes away meanwhile has no MTU.
        if let Ok(mtu) = mtu_of(&socket, &found.name) {
            all.push(LocalAddress { interface, ip: found.ip, mtu });
        }
    }
    Ok(all)
}

/// The address of an interface that others can reach first: of those that leave the machine before
/// those that do not, IPv4 before IPv6.
#[must_use]
pub fn address_of<'a>(all: &'a [LocalAddress], interface: &str) -> Option<&'a LocalAddress> {
    let of_it = all.iter().filter(|address| address.interface == interface);
    of_it.min_by_key(|address| (is_confined(address.ip), address.ip.is_ipv6()))
}

/// Reports whether an address is for one machine, or one network segment, only.
fn is_confined(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

fn is_link_local_v6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests;
