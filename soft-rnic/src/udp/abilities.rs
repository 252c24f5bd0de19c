//! Abilities of the system's sockets.

use core::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::port::{UdpPort, set};

/// Abilities of the system's UDP sockets, as far as it takes the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Cuts runs of packets (`UDP_SEGMENT`).
    pub cuts: bool,
    /// Merges received packets (`UDP_GRO`).
    pub merges: bool,
    /// Sockets can share an address (`SO_REUSEPORT`).
    pub shares: bool,
}

/// Tries the options on sockets of their own, of which only the last is bound: to any free port of
/// `ip`.
#[must_use]
pub fn abilities(ip: IpAddr) -> Abilities {
    let takes = |option: libc::c_int, value: libc::c_int| {
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        socket.is_ok_and(|socket| set(&socket, libc::SOL_UDP, option, value).is_ok())
    };
    let shared = UdpPort::bind_group(SocketAddr::new(ip, 0), 0, 1);
    Abilities {
        cuts: takes(libc::UDP_SEGMENT, 1_024),
        merges: takes(libc::UDP_GRO, 1),
        shares: shared.is_ok(),
    }
}

#[cfg(test)]
mod tests;
