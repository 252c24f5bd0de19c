//! One address for several processes: it has a socket for each place, and the kernel gives each
//! packet to the place that the number of its queue pair names.
//!
//! The sockets of an address are a group of one user's (`SO_REUSEPORT`), in the order in which they
//! were bound. A program for the kernel (classic BPF, which needs no privilege) takes the number of
//! the destination queue pair, whose upper bits are the place, and says which socket that is. All
//! processes have all descriptors, so that none of the sockets is closed, and none moves, while one
//! of them lives. Each receives from the socket of its place only, and sends from it. So there is
//! no process that the others depend on: one that is stopped, or dies, stops nothing but its own
//! traffic.
//!
//! Each packet goes to some place: of the numbers that are no process's, 0 and 1 are at place 0,
//! and `0xffffff`, of multicast groups, at the last one.

use core::mem::size_of_val;
use core::net::SocketAddr;
use std::os::fd::OwnedFd;

use libc::{c_int, sock_filter, sock_fprog};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::port::{BUFFER, PortError, UdpPort, set};

/// Offset of the number of the destination queue pair in a packet, with a byte before it.
const DEST_QPN: u32 = 4;
const QPN: u32 = 0x00ff_ffff;

/// Bytes that the kernel is asked to keep at a place without a process. It keeps twice as much, and
/// no less than some 2 KiB.
const IDLE_BUFFER: c_int = 1 << 12;
/// Packets of the process that had a place before, at most: as many as its socket keeps.
const STALE: usize = 1 << 14;

impl UdpPort {
    /// Binds the sockets of an address, one for each of `1 << place_bits` places, and has the
    /// kernel give each packet to the place of its queue pair. The place is what is above
    /// `index_bits` of its number.
    ///
    /// # Errors
    /// [`PortError`]: if another socket has the address, nothing is bound.
    pub fn bind_group(
        addr: SocketAddr,
        index_bits: u32,
        place_bits: u32,
    ) -> Result<Vec<UdpPort>, PortError> {
        let error = |what| move |errno| PortError::new(addr, what, errno);
        // It is the only one while it is bound, and shares the address from then on.
        let first = UdpPort::bind(addr)?;
        let addr = first.local();
        set(&first, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(error("sharing"))?;
        let mut group = vec![first];
        for _ in 1..1_u32 << place_bits {
            group.push(UdpPort::bind_shared(addr)?);
        }
        for port in &group {
            let _ = set(port, libc::SOL_SOCKET, libc::SO_RCVBUF, IDLE_BUFFER);
        }
        group[0].steer(index_bits, place_bits).map_err(error("steering packets to"))?;
        Ok(group)
    }

    /// Has the kernel give each packet to the socket of its place, for all sockets of the group.
    fn steer(&self, index_bits: u32, place_bits: u32) -> Result<(), Errno> {
        let op = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut program = [
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, DEST_QPN),
            op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, QPN),
            op(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, index_bits),
            op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, (1 << place_bits) - 1),
            op(libc::BPF_RET | libc::BPF_A, 0),
        ];
        let all = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // The program lives here, with its length; the kernel reads and checks it.
        set(self, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, all)
    }

    /// The socket of a place of a group that another process has bound, for the process that takes
    /// the place: packets for the one that had it are dropped, and there is room for new ones.
    ///
    /// # Errors
    /// What the system says; [`Errno::PROTO`] if it is no socket of this address.
    pub fn take_place(socket: OwnedFd, addr: SocketAddr) -> Result<UdpPort, Errno> {
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER);
        let mut port = UdpPort::from_socket(socket)?;
        if port.local() != addr {
            return Err(Errno::PROTO);
        }
        // Before the received ones are dropped: all later ones have no lower count.
        port.dropped_before = port.dropped_since_bound();
        port.drop_stale();
        Ok(port)
    }

    /// Packets that the socket had no room for, whichever process had it; 0 if the system does not
    /// say.
    fn dropped_since_bound(&self) -> u32 {
        const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
        let mut counts = [0_u32; DROPS + 1];
        let mut len = size_of_val(&counts) as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
        let into = (&raw mut counts).cast();
        // SAFETY: a place for the counts, and its size.
        let done = unsafe { libc::getsockopt(self.raw(), level, name, into, &raw mut len) };
        if done == 0 { counts[DROPS] } else { 0 }
    }

    /// Drops the received packets.
    #[expect(clippy::disallowed_methods, reason = "by `DONTWAIT`")]
    fn drop_stale(&self) {
        for _ in 0..STALE {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            // Any other error is one that an earlier packet has met.
            if recv(self, &mut [0; 1], flags) == Err(Errno::AGAIN) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
