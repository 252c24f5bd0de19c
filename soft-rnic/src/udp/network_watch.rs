//! Messages of the kernel about changes of interfaces and addresses (`NETLINK_ROUTE`).

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

/// Groups of messages that the kernel is asked for.
const GROUPS: libc::c_int = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
/// Messages that one call reads at most.
const MESSAGES: u32 = 64;
/// Bytes of a message's header (`nlmsghdr`); what is behind them is not looked at.
const HEADER: usize = 16;
/// Types of the messages about interfaces and addresses, new ones and those that go.
const TYPES: [u16; 4] =
    [libc::RTM_NEWLINK, libc::RTM_DELLINK, libc::RTM_NEWADDR, libc::RTM_DELADDR];

/// A socket by which the kernel tells of changes of interfaces and addresses. What waits in it is
/// bounded by its buffer.
#[derive(Debug)]
pub(crate) struct NetworkWatch(OwnedFd);

impl NetworkWatch {
    /// # Errors
    /// What the system says.
    pub(crate) fn open() -> Result<NetworkWatch, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS.cast_unsigned()))?;
        Ok(NetworkWatch(socket))
    }

    /// Waits until there is a message, or an error, or for at most this time.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<(), Errno> {
        let end = timeout.and_then(|time| host::time::now().checked_add(time));
        match host::fd::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], end) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes messages; returns true if one of them is a reason to look at the interfaces again.
    ///
    /// # Errors
    /// What the system says.
    #[expect(clippy::disallowed_methods, reason = "by `DONTWAIT`")]
    pub(crate) fn has_changed(&self) -> Result<bool, Errno> {
        let mut has_changed = false;
        for _ in 0..MESSAGES {
            let mut header = [0; HEADER];
            match recvfrom(&self.0, &mut header, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, len, from)) => {
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    has_changed |= from.is_some_and(|from| is_change(from.pid(), &header, len));
                }
                // Messages were lost.
                Err(Errno::NOBUFS) => has_changed = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(has_changed)
    }
}

/// Reports whether a message of `len` bytes that begins with `header` tells of an interface or an
/// address. The kernel is sender 0; others may send, too.
fn is_change(from: u32, header: &[u8; HEADER], len: usize) -> bool {
    let [a, b, c, d, e, f, ..] = *header;
    let declared = u32::from_ne_bytes([a, b, c, d]) as usize;
    from == 0 && (HEADER..=len).contains(&declared) && TYPES.contains(&u16::from_ne_bytes([e, f]))
}

#[cfg(test)]
mod tests;
