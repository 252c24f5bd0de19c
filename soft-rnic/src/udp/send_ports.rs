//! Sockets that only send: more than one source port, for networks that choose among paths by a hash of it.
//!
//! Packets of a queue pair leave by one of them, always the same, so that they stay in order. Those
//! of peers still arrive at the device's own port, to which peers send whatever port a packet was
//! sent from.

use core::net::{IpAddr, SocketAddr};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::port::{PortError, UdpPort};

/// Source ports of a device, at most.
pub const MAX_SEND_PORTS: u8 = 64;

/// The source ports of a device beside its own, which is the first.
#[derive(Debug, Default)]
pub struct SendPorts(Vec<UdpPort>);

impl SendPorts {
    /// Binds free ports, so that there are `count` source ports with the device's own.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn bind(ip: IpAddr, count: u8) -> Result<SendPorts, PortError> {
        let bind = |_| {
            let port = UdpPort::bind(SocketAddr::new(ip, 0))?;
            // Nothing that arrives here is read: the kernel keeps as little as it can.
            let _ = set_socket_recv_buffer_size(&port, 0);
            Ok(port)
        };
        (1..count.min(MAX_SEND_PORTS)).map(bind).collect::<Result<_, _>>().map(SendPorts)
    }

    /// Those beside the device's own.
    #[must_use]
    pub fn others(&self) -> &[UdpPort] {
        &self.0
    }

    /// The source port of packets from one queue pair to another: 0 is the device's own.
    #[must_use]
    pub fn choose(&self, from: u32, to: u32) -> u8 {
        // Fibonacci hashing: numbers of queue pairs follow each other.
        let hash = (from ^ to.rotate_left(12)).wrapping_mul(0x9e37_79b1) >> 16;
        (hash % (self.0.len() as u32 + 1)) as u8
    }

    /// The address of a source port, unless it is the device's own.
    #[must_use]
    pub fn local(&self, chosen: u8) -> Option<SocketAddr> {
        let at = usize::from(chosen).checked_sub(1)?;
        self.0.get(at).map(UdpPort::local)
    }
}

#[cfg(test)]
mod tests;
