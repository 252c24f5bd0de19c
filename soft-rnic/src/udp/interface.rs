//! Interfaces of this machine.

use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::errors::last_error;

/// Bytes of the longest IP packet that the interface with this address takes.
pub(super) fn mtu(socket: impl AsFd, ip: IpAddr) -> Result<usize, Errno> {
    of_interface_with(ip, |name| mtu_of(&socket, name))
}

/// The number of the interface with this address.
pub(super) fn index(ip: IpAddr) -> Result<u32, Errno> {
    of_interface_with(ip, |name| {
        // SAFETY: a name that ends with zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 { Err(last_error()) } else { Ok(index) }
    })
}

/// Something of the interface with this address, by its name.
fn of_interface_with<T>(
    ip: IpAddr,
    what: impl FnOnce(&CStr) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut list = core::ptr::null_mut();
    // SAFETY: a place for the list.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(last_error());
    }
    let mut found = Err(Errno::ADDRNOTAVAIL);
    let mut at: *const libc::ifaddrs = list;
    // SAFETY: the list's entries stay until it is freed; the last one's `ifa_next` is null.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let is_loopback = ip.is_loopback() && entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
        // SAFETY: null, or an address of its family.
        if is_loopback || unsafe { address(entry.ifa_addr) } == Some(ip) {
            // SAFETY: a name that ends with zero.
            found = what(unsafe { CStr::from_ptr(entry.ifa_name) });
            break;
        }
    }
    // SAFETY: the list is used no more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// # Safety
/// Null, or an address of its family.
pub(super) unsafe fn address(addr: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    match i32::from(unsafe { addr.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: as above.
            let ip = unsafe { (*addr.cast::<libc::sockaddr_in>()).sin_addr };
            Some(Ipv4Addr::from(ip.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let ip = unsafe { (*addr.cast::<libc::sockaddr_in6>()).sin6_addr };
            Some(Ipv6Addr::from(ip.s6_addr).into())
        }
        _ => None,
    }
}

pub(super) fn mtu_of(socket: impl AsFd, name: &CStr) -> Result<usize, Errno> {
    // SAFETY: zeroes are a request about no interface.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    let name = name.to_bytes();
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name) {
        *to = (*from).cast_signed();
    }
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the request lives here, and names an interface.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFMTU, &raw mut request) } != 0 {
        return Err(last_error());
    }
    // SAFETY: the call has written this member.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(|_| Errno::INVAL)
}
