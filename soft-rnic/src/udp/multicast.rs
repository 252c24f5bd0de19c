//! Multicast groups of IP.
//!
//! A socket that is bound to an address of one interface gets no packets of groups: each group has a
//! socket of its own, bound to the group's address. The kernel gives every such socket of the machine a
//! copy (`SO_REUSEADDR`), so that each process and each device that has joined gets one, the sender's
//! among them (`IP_MULTICAST_LOOP`, which is on unless it is switched off).

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use libc::{in_addr, in6_addr, ip_mreqn, ipv6_mreq};
use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_multicast_if;

use super::interface;
use super::port::{UdpPort, set};

impl UdpPort {
    /// Binds the address of a group, and joins the group on the interface that has the address `local`.
    /// Other sockets may do the same.
    ///
    /// # Errors
    /// What the system says; [`Errno::INVAL`] if the two are of different families.
    pub fn join(group: SocketAddr, local: IpAddr) -> Result<UdpPort, Errno> {
        match (group, local) {
            (SocketAddr::V4(to), IpAddr::V4(local)) => {
                let port = UdpPort::bind_reusable(group)?;
                set(&port, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
                let request = on_interface(*to.ip(), local);
                set(&port, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, request)?;
                Ok(port)
            }
            (SocketAddr::V6(to), IpAddr::V6(_)) => {
                let index = interface::index(local).unwrap_or(0);
                // A group of one link is bound with its interface.
                let scoped = SocketAddrV6::new(*to.ip(), to.port(), 0, index);
                let port = UdpPort::bind_reusable(scoped.into())?;
                // Not known to kernels before 4.20.
                let _ = set(&port, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
                let ipv6mr_multiaddr = in6_addr { s6_addr: to.ip().octets() };
                let request = ipv6_mreq { ipv6mr_multiaddr, ipv6mr_interface: index };
                set(&port, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, request)?;
                Ok(port)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Leaves a group that was [joined](Self::join) so: also if another process has a copy of the socket,
    /// as a child of `fork` has.
    pub fn leave(&self, local: IpAddr) {
        // It leaves when it is closed.
        if self.is_in_world() {
            return;
        }
        // A membership that is not there needs no end.
        let _ = match (self.local(), local) {
            (SocketAddr::V4(group), IpAddr::V4(local)) => {
                let request = on_interface(*group.ip(), local);
                set(self, libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP, request)
            }
            (SocketAddr::V6(group), _) => {
                let ipv6mr_multiaddr = in6_addr { s6_addr: group.ip().octets() };
                let ipv6mr_interface = interface::index(local).unwrap_or(0);
                let request = ipv6_mreq { ipv6mr_multiaddr, ipv6mr_interface };
                set(self, libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP, request)
            }
            _ => Ok(()),
        };
    }

    /// Sends packets to groups by the interface that has the socket's address, whatever the routes say. (Over
    /// IPv4 that is so for a socket that is bound to an address.)
    ///
    /// # Errors
    /// What the system says.
    pub fn send_groups_by_own_interface(&self) -> Result<(), Errno> {
        match self.local().ip() {
            _ if self.is_in_world() => Ok(()),
            IpAddr::V4(_) => Ok(()),
            local @ IpAddr::V6(_) => set_ipv6_multicast_if(self, interface::index(local)?),
        }
    }
}

/// A group on the interface that has an address. (Those of 127.0.0.0/8 are all the loopback interface's.)
fn on_interface(group: Ipv4Addr, local: Ipv4Addr) -> ip_mreqn {
    let of = |ip: Ipv4Addr| in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
    ip_mreqn { imr_multiaddr: of(group), imr_address: of(local), imr_ifindex: 0 }
}

#[cfg(test)]
mod tests;
