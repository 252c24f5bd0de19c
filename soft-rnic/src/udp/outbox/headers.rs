//! Headers of a message as the kernel reads them: its address, and control messages.

use core::mem::{MaybeUninit, size_of};
use core::net::SocketAddr;

use libc::{c_int, cmsghdr};

/// Fields of the IP header that the sender of a packet chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Type of service, or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
}

impl Default for Marks {
    /// Best effort, 64 hops.
    fn default() -> Marks {
        Marks { class: 0, hops: 64 }
    }
}

/// A socket address as the kernel reads it.
#[derive(Clone, Copy)]
pub(super) union Addr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Default for Addr {
    fn default() -> Addr {
        // SAFETY: zeroes are an address of no family.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }
}

impl Addr {
    pub(super) fn set(&mut self, to: SocketAddr) -> (*mut libc::c_void, libc::socklen_t) {
        let len = match to {
            SocketAddr::V4(to) => {
                let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) };
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as _,
                    sin_port: to.port().to_be(),
                    sin_addr,
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(to) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as _,
                    sin6_port: to.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
                    sin6_scope_id: to.scope_id(),
                };
                size_of::<libc::sockaddr_in6>()
            }
        };
        ((&raw mut *self).cast(), len as libc::socklen_t)
    }
}

/// Control messages: the class, the hops, and how long the segments of a run are.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct OutboundControl([u8; 96]);

const _: () = assert!(3 * space(size_of::<c_int>()) <= size_of::<OutboundControl>());

impl Default for OutboundControl {
    fn default() -> OutboundControl {
        OutboundControl([0; 96])
    }
}

/// Returns the bytes of a control message with `len` bytes of data.
const fn space(len: usize) -> usize {
    // SAFETY: `CMSG_SPACE` computes from its argument, and accesses no memory.
    unsafe { libc::CMSG_SPACE(len as u32) as usize }
}

impl OutboundControl {
    /// Fills it, and returns the number of its bytes.
    pub(super) fn set(&mut self, to: SocketAddr, marks: Marks, segment: Option<u16>) -> usize {
        let (level, class, hops) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        let mut used = 0;
        if marks.class != 0 {
            used = self.put(used, level, class, &c_int::from(marks.class).to_ne_bytes());
        }
        used = self.put(used, level, hops, &c_int::from(marks.hops).to_ne_bytes());
        if let Some(segment) = segment {
            used = self.put(used, libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        used
    }

    fn put(&mut self, at: usize, level: c_int, kind: c_int, data: &[u8]) -> usize {
        // SAFETY: `CMSG_LEN` computes from its argument, and accesses no memory.
        let len = unsafe { libc::CMSG_LEN(data.len() as u32) } as usize;
        let header = cmsghdr { cmsg_len: len as _, cmsg_level: level, cmsg_type: kind };
        let OutboundControl(bytes) = self;
        // SAFETY: `cmsghdr` is integers without padding; transmute checks that the array has its size.
        let header: [u8; size_of::<cmsghdr>()] = unsafe { core::mem::transmute(header) };
        bytes[at..at + header.len()].copy_from_slice(&header);
        bytes[at + len - data.len()..at + len].copy_from_slice(data);
        at + space(data.len())
    }
}
