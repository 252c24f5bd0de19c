//! Devices that could be named on this machine: RoCE v2 over UDP, from each of its addresses.

use std::net::{IpAddr, SocketAddr};

use soft_rnic::Roce;
use soft_rnic::udp::{local_addresses, port_holders};

/// A device on the network that could be opened, by its address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nameable {
    /// Its name: `roce:10.0.0.1`.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// The interface that has the address.
    pub interface: String,
    /// Bytes of the longest IP packet that the interface takes.
    pub mtu_bytes: usize,
    /// Bytes of payload in a packet, at most.
    pub path_mtu_bytes: usize,
    /// Programs, or the kernel, that have UDP port 4791 of the address; none where it is free.
    pub holders: Vec<String>,
    /// Those are processes of one user that share the address: if it is this user, one more can.
    pub is_shared: bool,
}

/// The devices on the network that could be named on this machine. None is opened, and no port is
/// bound.
///
/// ```
/// let all = rdma_conn::device::nameable()?;
/// assert!(all.iter().any(|device| device.name == "roce:127.0.0.1"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The system does not say which addresses there are.
pub fn nameable() -> std::io::Result<Vec<Nameable>> {
    let of = |address: soft_rnic::udp::LocalAddress| {
        let found = port_holders(SocketAddr::new(address.ip, Roce::UDP_PORT));
        Nameable {
            name: format!("{}{}", super::ROCE, address.ip),
            ip: address.ip,
            path_mtu_bytes: Roce::path_mtu(&address),
            mtu_bytes: address.mtu,
            holders: found.iter().map(ToString::to_string).collect(),
            is_shared: found.iter().any(|holder| holder.is_shared),
            interface: address.interface,
        }
    };
    Ok(local_addresses()?.into_iter().map(of).collect())
}
