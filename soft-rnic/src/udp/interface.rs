//! Interfaces of this machine.

use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::errors::last_error;

/// An address of an interface, as the system lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InterfaceAddress {
    /// The interface.
    pub(super) name: CString,
    pub(super) ip: IpAddr,
    /// The interface's (`IFF_UP` and others).
    pub(super) flags: u32,
}

impl InterfaceAddress {
    pub(super) fn has(&self, flag: libc::c_int) -> bool {
        self.flags & flag.cast_unsigned() != 0
    }

    /// Reports whether the interface has this address. Of the addresses of the loopback interface
    /// only some are listed.
    pub(super) fn is_of(&self, ip: IpAddr) -> bool {
        self.ip == ip || ip.is_loopback() && self.has(libc::IFF_LOOPBACK)
    }
}

/// The addresses of all interfaces, in the system's order.
pub(super) fn listed() -> Result<Vec<InterfaceAddress>, Errno> {
    let mut list = core::ptr::null_mut();
    // SAFETY: a place for the list.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(last_error());
    }
    let mut all = Vec::new();
    let mut at: *const libc::ifaddrs = list;
    // SAFETY: the list's entries stay until it is freed; the last one's `ifa_next` is null.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: null, or an address of its family.
        let Some(ip) = (unsafe { address(entry.ifa_addr) }) else { continue };
        // SAFETY: a name that ends with zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_owned();
        all.push(InterfaceAddress { name, ip, flags: entry.ifa_flags });
    }
    // SAFETY: the list is used no more.
    unsafe { libc::freeifaddrs(list) };
    Ok(all)
}

/// Bytes of the longest IP packet that the interface with this address takes.
pub(super) fn mtu(socket: impl AsFd, ip: IpAddr) -> Result<usize, Errno> {
    mtu_of(socket, &with_address(ip)?.name)
}

/// The number of the interface with this address.
pub(crate) fn index(ip: IpAddr) -> Result<u32, Errno> {
    index_of(&with_address(ip)?.name)
}

pub(super) fn index_of(name: &CStr) -> Result<u32, Errno> {
    // SAFETY: a name that ends with zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(last_error()) } else { Ok(index) }
}

fn with_address(ip: IpAddr) -> Result<InterfaceAddress, Errno> {
    listed()?.into_iter().find(|listed| listed.is_of(ip)).ok_or(Errno::ADDRNOTAVAIL)
}

/// # Safety
/// Null, or an address of its family.
unsafe fn address(addr: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: `addr` is null, or an address of its family (see # Safety).
    match i32::from(unsafe { addr.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: `addr` is not null, and its family is that of `sockaddr_in` (see # Safety).
            let ip = unsafe { (*addr.cast::<libc::sockaddr_in>()).sin_addr };
            Some(Ipv4Addr::from(ip.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: `addr` is not null, and its family is that of `sockaddr_in6` (see # Safety).
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
