//! Room for received packets.

use core::mem::{MaybeUninit, size_of};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_int, cmsghdr, iovec, mmsghdr};
use rustix::io::Errno;

use super::errors::last_error;
use super::outbox::Marks;
use super::port::UdpPort;
#[cfg(feature = "simulation")]
use super::world_network::NetworkEndpoint;

/// Datagrams, or runs of them, that one call takes at most.
pub const BATCH: usize = 16;
/// Datagrams, or runs of them, that one call asks for where few arrive, or long runs: these fit
/// into a processor's cache, and there is little to prepare.
pub const FEW: usize = 4;
/// Bytes of a long run.
const LONG: usize = 16 << 10;
/// Bytes that a run has at most.
const ROOM: usize = 1 << 16;
/// Bytes for control messages: class, hops, segment, dropped.
const CONTROL: usize = 128;

/// Room for received packets: a mebibyte, of which only the used part takes memory.
#[derive(Debug)]
pub struct PacketInbox {
    bytes: Vec<u8>,
    runs: [InboundRun; BATCH],
    filled: usize,
    dropped: u32,
    /// Datagrams, or runs of them, that the next call asks for: [`FEW`], or [`BATCH`].
    asks: usize,
    /// The last call has got all that it has asked for.
    is_full: bool,
}

/// Properties of one message of a call.
#[derive(Debug, Clone, Copy)]
struct InboundRun {
    from: SocketAddr,
    marks: Marks,
    len: usize,
    /// Bytes of each datagram but the last.
    segment: usize,
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedDatagram<'i> {
    /// Its sender, as far as that is true: senders can forge it.
    pub from: SocketAddr,
    /// Fields of its IP header.
    pub marks: Marks,
    /// Bytes that it carries.
    pub bytes: &'i [u8],
    /// Its place in the run that the kernel has merged: its identification, if the sender's kernel
    /// has cut that run.
    pub nth: u16,
    /// Another process of the address had it, and has handed it over.
    pub was_handed_over: bool,
}

/// Datagrams of one sender that the kernel has merged, or one: a look at one after the other. It
/// changes in its place, because to move a [`ReceivedDatagram`] for each takes as long as its
/// checksum.
#[derive(Debug, Clone, Copy)]
pub struct MergedDatagrams<'i> {
    current: ReceivedDatagram<'i>,
    /// From the current one on.
    bytes: &'i [u8],
    /// Bytes of each but the last.
    segment: usize,
}

impl<'i> From<ReceivedDatagram<'i>> for MergedDatagrams<'i> {
    fn from(current: ReceivedDatagram<'i>) -> MergedDatagrams<'i> {
        MergedDatagrams { current, bytes: current.bytes, segment: current.bytes.len().max(1) }
    }
}

impl<'i> MergedDatagrams<'i> {
    fn new(all: ReceivedDatagram<'i>, segment: usize) -> MergedDatagrams<'i> {
        let bytes = &all.bytes[..segment.min(all.bytes.len())];
        MergedDatagrams { current: ReceivedDatagram { bytes, ..all }, bytes: all.bytes, segment }
    }

    /// Returns the number of datagrams from the current one on.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len().div_ceil(self.segment)
    }

    /// Reports whether there are no more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The current one; without a byte behind the last.
    #[must_use]
    pub fn current(&self) -> &ReceivedDatagram<'i> {
        &self.current
    }

    /// Advances to the next one.
    pub fn advance(&mut self) {
        self.bytes = self.bytes.get(self.segment..).unwrap_or_default();
        self.current.bytes = &self.bytes[..self.segment.min(self.bytes.len())];
        self.current.nth = self.current.nth.wrapping_add(1);
    }
}

impl<'i> Iterator for MergedDatagrams<'i> {
    type Item = ReceivedDatagram<'i>;

    fn next(&mut self) -> Option<ReceivedDatagram<'i>> {
        let next = (!self.is_empty()).then_some(self.current);
        self.advance();
        next
    }
}

impl Default for PacketInbox {
    fn default() -> PacketInbox {
        let no_sender = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let none =
            InboundRun { from: no_sender, marks: Marks { class: 0, hops: 0 }, len: 0, segment: 1 };
        PacketInbox {
            bytes: vec![0; BATCH * ROOM],
            runs: [none; BATCH],
            filled: 0,
            dropped: 0,
            asks: FEW,
            is_full: false,
        }
    }
}

impl PacketInbox {
    /// Receives datagrams, in place of those that were here; returns true if there are any.
    ///
    /// # Errors
    /// What the system says; not that there is nothing. An error that an earlier packet has caused
    /// (`ECONNREFUSED`, `EHOSTUNREACH`) is one of these, and over then.
    pub fn receive(&mut self, port: &UdpPort) -> Result<bool, Errno> {
        (self.filled, self.is_full) = (0, false);
        let asks = self.asks;
        let came = if asks == FEW { self.take::<FEW>(port)? } else { self.take::<BATCH>(port)? };
        (self.filled, self.is_full) = (came, came == asks);
        let bytes: usize = self.runs[..came].iter().map(|run| run.len).sum();
        self.asks = if came >= FEW && bytes < came * LONG { BATCH } else { FEW };
        Ok(came > 0)
    }

    /// [`receive`](Self::receive) from a port other than the usual one, with that port's own count
    /// of datagrams that the kernel had no room for: [`FEW`] runs at most, or one. What the next
    /// call asks of the usual port stays unchanged.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_apart(
        &mut self,
        port: &UdpPort,
        is_one: bool,
        dropped: &mut u32,
    ) -> Result<bool, Errno> {
        (self.filled, self.is_full) = (0, false);
        core::mem::swap(&mut self.dropped, dropped);
        let came = if is_one { self.take::<1>(port) } else { self.take::<FEW>(port) };
        core::mem::swap(&mut self.dropped, dropped);
        self.filled = came?;
        Ok(self.filled > 0)
    }

    /// Reports whether there may be more: the last call has got as much as it has asked for.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes up to `N` datagrams or runs; returns their number.
    #[expect(clippy::disallowed_methods, reason = "by `MSG_DONTWAIT`")]
    fn take<const N: usize>(&mut self, port: &UdpPort) -> Result<usize, Errno> {
        #[cfg(feature = "simulation")]
        if let Some(endpoint) = &port.endpoint {
            return Ok(self.take_from_network(endpoint, N));
        }
        let mut addrs = [MaybeUninit::<libc::sockaddr_storage>::zeroed(); N];
        let mut controls = [InboundControl([0; CONTROL]); N];
        let mut pieces = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; N];
        // SAFETY: zeroes are valid: null pointers, and lengths of 0.
        let mut messages: [mmsghdr; N] = unsafe { MaybeUninit::zeroed().assume_init() };
        for (at, room) in self.bytes.chunks_exact_mut(ROOM).take(N).enumerate() {
            pieces[at] = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: ROOM };
            let header = &mut messages[at].msg_hdr;
            header.msg_name = addrs[at].as_mut_ptr().cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            (header.msg_iov, header.msg_iovlen) = (&raw mut pieces[at], 1);
            (header.msg_control, header.msg_controllen) = ((&raw mut controls[at]).cast(), CONTROL);
        }
        let (n, flags) = (N as u32, libc::MSG_DONTWAIT);
        let none = core::ptr::null_mut::<libc::timespec>();
        // The call itself: the C library's function lets threads be cancelled in it, which takes
        // time. SAFETY: each header names room for an address, a piece of `bytes` and room for
        // control messages, that live here, with their lengths.
        let came = unsafe {
            libc::syscall(libc::SYS_recvmmsg, port.raw(), messages.as_mut_ptr(), n, flags, none)
        };
        let Ok(came) = usize::try_from(came) else {
            return match last_error() {
                Errno::AGAIN | Errno::INTR => Ok(0),
                error => Err(error),
            };
        };
        for (at, message) in messages[..came].iter().enumerate() {
            // SAFETY: all bytes of it are written.
            let addr = unsafe { addrs[at].assume_init_ref() };
            let (from, len) = match sender(addr) {
                Some(from) => (from, (message.msg_len as usize).min(ROOM)),
                // Of no family: nothing.
                None => (self.runs[at].from, 0),
            };
            let mut run =
                InboundRun { from, marks: Marks { class: 0, hops: 0 }, len, segment: len.max(1) };
            let used = message.msg_hdr.msg_controllen.min(CONTROL);
            self.read(&controls[at].0[..used], &mut run, port.dropped_before);
            self.runs[at] = run;
        }
        Ok(came)
    }

    #[cfg(feature = "simulation")]
    fn take_from_network(&mut self, endpoint: &NetworkEndpoint, most: usize) -> usize {
        for (at, room) in self.bytes.chunks_exact_mut(ROOM).take(most).enumerate() {
            let (parcel, dropped) = endpoint.take();
            self.dropped = dropped;
            let Some(parcel) = parcel else { return at };
            let ([class, hops], len) = (parcel.marks, parcel.bytes.len().min(ROOM));
            room[..len].copy_from_slice(&parcel.bytes[..len]);
            let (from, segment) = (parcel.from, parcel.segment.max(1));
            self.runs[at] = InboundRun { from, marks: Marks { class, hops }, len, segment };
        }
        most
    }

    /// Iterates over the datagrams that the last call has taken, but for those without a byte.
    pub fn datagrams(&self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        self.merged().flatten()
    }

    /// [`datagrams`](Self::datagrams), as the kernel has merged them.
    pub fn merged(&self) -> impl Iterator<Item = MergedDatagrams<'_>> {
        self.runs[..self.filled].iter().enumerate().map(|(at, run)| {
            let bytes = &self.bytes[at * ROOM..][..run.len];
            let &InboundRun { from, marks, segment, .. } = run;
            let was_handed_over = false;
            MergedDatagrams::new(
                ReceivedDatagram { from, marks, bytes, nth: 0, was_handed_over },
                segment,
            )
        })
    }

    /// Datagrams that the kernel had no room for, since the port was bound or its place taken; it
    /// wraps.
    #[must_use]
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Reads the control messages of a message. The kernel counts what it drops since the socket
    /// was bound: `dropped_before` of them are not this process's.
    fn read(&mut self, mut control: &[u8], run: &mut InboundRun, dropped_before: u32) {
        while let Some((header, data)) = next(&mut control) {
            let number = data.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes));
            let byte = data.first().copied();
            match (header.cmsg_level, header.cmsg_type, byte, number) {
                (libc::IPPROTO_IP, libc::IP_TOS, Some(class), _) => run.marks.class = class,
                (libc::IPPROTO_IP, libc::IP_TTL, _, Some(hops))
                | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, _, Some(hops)) => {
                    run.marks.hops = hops as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, _, Some(class)) => {
                    run.marks.class = class as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO, _, Some(segment)) if segment > 0 => {
                    run.segment = segment as usize;
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, _, Some(dropped)) => {
                    let now = dropped.cast_unsigned().wrapping_sub(dropped_before);
                    // A packet has the count at its arrival, which may be before the place was
                    // taken.
                    if now.wrapping_sub(self.dropped).cast_signed() > 0 {
                        self.dropped = now;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Control messages, aligned as their headers are.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct InboundControl([u8; CONTROL]);

/// The next control message.
fn next<'c>(control: &mut &'c [u8]) -> Option<(cmsghdr, &'c [u8])> {
    let bytes: &[u8; size_of::<cmsghdr>()] = control.first_chunk()?;
    // SAFETY: any bytes are a header of integers.
    let header: cmsghdr = unsafe { core::mem::transmute(*bytes) };
    // SAFETY: `CMSG_LEN` computes from its argument, and accesses no memory.
    let before = unsafe { libc::CMSG_LEN(0) } as usize;
    let len = header.cmsg_len;
    let data = control.get(before..len)?;
    // The next one is aligned.
    *control = control.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Some((header, data))
}

/// An address of the kernel's.
fn sender(addr: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at: *const libc::sockaddr_storage = addr;
    match c_int::from(addr.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is one of these, which any bytes are.
            let addr = unsafe { &*at.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(addr.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is one of these, which any bytes are.
            let addr = unsafe { &*at.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(addr.sin6_addr.s6_addr), u16::from_be(addr.sin6_port));
            Some(SocketAddrV6::new(ip, port, 0, addr.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
