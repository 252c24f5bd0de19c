//! The socket.

use core::mem::size_of_val;
use core::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::c_int;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use super::errors::last_error;
use super::holders::port_holders;
#[cfg(feature = "simulation")]
use super::world_network::{NetworkEndpoint, WorldNetwork};

/// Bytes that the kernel is asked to keep for us: a window of some queue pairs. It may grant less.
pub(super) const BUFFER: c_int = 4 << 20;

/// A UDP socket for packets that are never fragmented.
#[derive(Debug)]
pub struct UdpPort {
    socket: OwnedFd,
    local: SocketAddr,
    /// Bytes that the kernel keeps for us, with what it adds to each packet.
    buffer: usize,
    /// Packets that the socket had no room for before it was ours.
    pub(super) dropped_before: u32,
    /// The network of a world that it is on: the socket is an event descriptor then.
    #[cfg(feature = "simulation")]
    pub(super) endpoint: Option<NetworkEndpoint>,
}

/// Reason why there is no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {addr}: {errno}{}",
    .why.as_ref().map_or_else(String::new, |why| format!(" ({why})"))
)]
pub struct PortError {
    /// The address that was asked for.
    pub addr: SocketAddr,
    /// Action that the system refuses.
    pub what: &'static str,
    /// Its reason.
    pub errno: Errno,
    /// More about it, if more is known.
    pub why: Option<String>,
}

impl PortError {
    pub(crate) fn new(addr: SocketAddr, what: &'static str, errno: Errno) -> PortError {
        let why = match errno {
            Errno::ADDRINUSE => port_holders(addr).first().map(|holder| format!("{holder} has it")),
            Errno::ADDRNOTAVAIL => Some("no interface here has this address".to_owned()),
            _ => None,
        };
        PortError { addr, what, errno, why }
    }
}

impl UdpPort {
    /// Binds an address; port 0 is any free one.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn bind(addr: SocketAddr) -> Result<UdpPort, PortError> {
        UdpPort::bind_as(addr, false)
    }

    /// [`bind`](Self::bind) of an address that other sockets of this user share.
    pub(super) fn bind_shared(addr: SocketAddr) -> Result<UdpPort, PortError> {
        UdpPort::bind_as(addr, true)
    }

    /// Binds an address that sockets of any user may bind as well: for groups, of which each gets a
    /// copy.
    pub(super) fn bind_reusable(addr: SocketAddr) -> Result<UdpPort, Errno> {
        let socket = socket_for(addr)?;
        options(&socket, addr)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        bind(&socket, &addr)?;
        UdpPort::from_socket(socket)
    }

    fn bind_as(addr: SocketAddr, shared: bool) -> Result<UdpPort, PortError> {
        let error = |what| move |errno| PortError::new(addr, what, errno);
        let socket = socket_for(addr).map_err(error("making a socket for"))?;
        options(&socket, addr).map_err(error("setting options of a socket for"))?;
        if shared {
            set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(error("sharing"))?;
        }
        bind(&socket, &addr).map_err(error("binding"))?;
        UdpPort::from_socket(socket).map_err(error("the address of a socket for"))
    }

    /// A socket that is bound, and has the options of a port.
    pub(crate) fn from_socket(socket: OwnedFd) -> Result<UdpPort, Errno> {
        let local = SocketAddr::try_from(getsockname(&socket)?)?;
        // What any process is granted: this end's is taken for the peer's.
        let buffer = rustix::net::sockopt::socket_recv_buffer_size(&socket)?;
        // Peers send more at once than many systems grant, the kernel's soft-RoCE 128 packets: a
        // process with CAP_NET_ADMIN (of the first user namespace) gets it beyond the limit as
        // well.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER);
        Ok(UdpPort {
            socket,
            local,
            buffer,
            dropped_before: 0,
            #[cfg(feature = "simulation")]
            endpoint: None,
        })
    }

    /// A port on a network of a world.
    ///
    /// # Errors
    /// The system's, and [`Errno::ADDRINUSE`].
    #[cfg(feature = "simulation")]
    pub(crate) fn on_network(network: &WorldNetwork, local: SocketAddr) -> Result<UdpPort, Errno> {
        network.bind(local).map(|bound| UdpPort::of_network(bound, local))
    }

    #[cfg(feature = "simulation")]
    fn of_network((endpoint, socket): (NetworkEndpoint, OwnedFd), local: SocketAddr) -> UdpPort {
        let buffer = endpoint.nature().queue_bytes;
        UdpPort { socket, local, buffer, dropped_before: 0, endpoint: Some(endpoint) }
    }

    /// Reports whether it is on a network of a world, and no socket.
    pub(crate) fn is_in_world(&self) -> bool {
        #[cfg(feature = "simulation")]
        return self.endpoint.is_some();
        #[cfg(not(feature = "simulation"))]
        false
    }

    /// A port of a group beside this one, which has the address of the device.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub(crate) fn join_beside(&self, group: SocketAddr) -> Result<UdpPort, Errno> {
        #[cfg(feature = "simulation")]
        if let Some(endpoint) = &self.endpoint {
            return endpoint.join(group).map(|bound| UdpPort::of_network(bound, group));
        }
        UdpPort::join(group, self.local.ip())
    }

    /// Returns the address that it is bound to.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Size of the kernel's receive buffer, which also holds what it adds to each packet: windows
    /// of all senders together should be half of it.
    #[must_use]
    pub fn buffer(&self) -> usize {
        self.buffer
    }

    /// Bytes of the longest IP packet that the interface of the address takes, if the system says.
    #[must_use]
    pub fn mtu(&self) -> Option<usize> {
        #[cfg(feature = "simulation")]
        if let Some(endpoint) = &self.endpoint {
            return Some(endpoint.nature().mtu);
        }
        super::interface::mtu(&self.socket, self.local.ip().to_canonical()).ok()
    }

    /// Waits until there is input, or, if a port is given that is full, until that has room to
    /// send, or for `timeout`; returns true unless it timed out.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&self, full: Option<&UdpPort>, timeout: Duration) -> Result<bool, Errno> {
        match full {
            None => wait_for(&mut [self.input()], timeout),
            Some(full) => wait_for(&mut [self.input(), full.room()], timeout),
        }
    }

    /// [`wait`](Self::wait), or until something can be read from one of the others.
    pub(crate) fn wait_or(
        &self,
        full: Option<&UdpPort>,
        others: [Option<&OwnedFd>; 2],
        timeout: Duration,
    ) -> Result<bool, Errno> {
        let input = |socket| PollFd::new(socket, PollFlags::IN);
        let others = others.into_iter().flatten().map(input);
        let mut events = [(); 4].map(|()| input(&self.socket));
        let mut used = 1;
        for event in full.map(UdpPort::room).into_iter().chain(others) {
            events[used] = event;
            used += 1;
        }
        wait_for(&mut events[..used], timeout)
    }

    /// Waits until there is room to send, for at most `timeout`; returns false if it timed out.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait_for_room(&self, timeout: Duration) -> Result<bool, Errno> {
        wait_for(&mut [self.room()], timeout)
    }

    fn input(&self) -> PollFd<'_> {
        PollFd::new(&self.socket, PollFlags::IN)
    }

    fn room(&self) -> PollFd<'_> {
        PollFd::new(&self.socket, PollFlags::OUT)
    }

    pub(super) fn raw(&self) -> c_int {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
impl UdpPort {
    /// A port that is bound so.
    pub(crate) fn bind_any(local: &str) -> UdpPort {
        UdpPort::from_socket(std::net::UdpSocket::bind(local).unwrap().into()).unwrap()
    }

    /// The same, which can send no runs, as it makes no checksums.
    pub(crate) fn without_runs(local: &str) -> UdpPort {
        let port = UdpPort::bind_any(local);
        set(&port, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        port
    }
}

impl From<UdpPort> for OwnedFd {
    fn from(port: UdpPort) -> OwnedFd {
        port.socket
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn socket_for(addr: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::DGRAM, flags, None)
}

fn wait_for(events: &mut [PollFd<'_>], timeout: Duration) -> Result<bool, Errno> {
    match host::fd::poll(events, host::time::now().checked_add(timeout)) {
        Err(Errno::INTR) => Ok(false),
        polled => polled.map(|n| n > 0),
    }
}

/// Sets what a port needs.
fn options(socket: &OwnedFd, addr: SocketAddr) -> Result<(), Errno> {
    // Probing sends packets of any length that the interface takes, also if a router has asked for
    // shorter ones.
    match addr {
        SocketAddr::V4(_) => {
            set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
        }
        SocketAddr::V6(_) => {
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        }
    }
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // Without it each packet is received alone.
    let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    // As much as is granted.
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER);
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
    Ok(())
}

/// Sets an option to an integer or a struct.
pub(super) fn set<T: Copy>(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: T,
) -> Result<(), Errno> {
    let len = size_of_val(&value) as libc::socklen_t;
    let from = (&raw const value).cast();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the option's value lives here, with its length, and is read; where it has a pointer
    // (`steer`), the kernel only reads behind it, and checks that it may.
    let done = unsafe { libc::setsockopt(fd, level, name, from, len) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}
