//! One address for several processes: each has a socket of its own there, and the kernel gives
//! each packet to the one whose queue pair it is for.
//!
//! The sockets of an address are a group of one user's (`SO_REUSEPORT`), in the order in which they were
//! bound; where one is closed, the last one takes its place. A program for the kernel
//! (classic BPF, which needs no privilege) looks at the number of the queue pair, whose upper
//! bits name the process, and says which place its socket has. So there is no process that the
//! others depend on: one that is stopped, or dies, stops nothing but its own traffic. A packet
//! for no place that is named goes to any socket, which drops it.

use core::mem::size_of_val;

use libc::{c_int, sock_filter, sock_fprog};
use rustix::io::Errno;

use super::errors::last_error;
use super::port::Port;

/// Processes on one address at most: a program has 4,096 instructions.
pub const PLACES: usize = 1_024;

/// Where the number of the destination queue pair is in a packet, with a byte before it.
const DEST_QPN: u32 = 4;
const QPN: u32 = 0x00ff_ffff;
/// A place that no socket has.
const NOWHERE: u32 = u32::MAX;

/// A socket of a shared address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The upper bits of the numbers of its queue pairs.
    pub process: u32,
    /// Which socket of the address it is, in the order in which they were bound.
    pub index: u32,
}

impl Port {
    /// Has the kernel give each packet to this address to the socket of the process that it is for;
    /// `process_bits` of 24 say which that is. For all sockets of the address, until it is said again.
    ///
    /// # Errors
    /// What the system says: `EINVAL` if there are more than [`PLACES`].
    pub fn steer(&self, process_bits: u32, places: &[Place]) -> Result<(), Errno> {
        if places.len() > PLACES || process_bits > 24 {
            return Err(Errno::INVAL);
        }
        let mut program = program(process_bits, places);
        let all = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        let len = size_of_val(&all) as libc::socklen_t;
        let from = (&raw const all).cast();
        // SAFETY: the program lives here, with its length; the kernel reads and checks it.
        let done: c_int = unsafe { libc::setsockopt(self.raw(), level, name, from, len) };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }
}

/// Compares the process with each in turn.
fn program(process_bits: u32, places: &[Place]) -> Vec<sock_filter> {
    let op = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let ret = |k: u32| op(libc::BPF_RET | libc::BPF_K, k);
    let mut all = vec![
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, DEST_QPN),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, QPN),
        op(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 24 - process_bits),
    ];
    for place in places {
        let is_it = op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, place.process);
        all.push(sock_filter { jf: 1, ..is_it });
        all.push(ret(place.index));
    }
    all.push(ret(NOWHERE));
    all
}

#[cfg(test)]
mod tests {
    use super::super::inbox::Inbox;
    use super::super::outbox::{Marks, Outbox};
    use super::*;

    const PROCESS_BITS: u32 = 10;

    /// What each of these ports has of a packet for each of these processes.
    fn taken(ports: &[&Port], processes: &[u32]) -> Vec<Vec<u32>> {
        let sender = Port::bind("127.0.0.3:0".parse().unwrap()).unwrap();
        let mut outbox = Outbox::new(false);
        for process in processes {
            let (_, room) = outbox.push(ports[0].local(), Marks::default(), 12).unwrap();
            room[4..8].copy_from_slice(&(process << (24 - PROCESS_BITS) | 5).to_be_bytes());
        }
        assert_eq!(outbox.send(&sender), Ok(processes.len()));
        let mut inbox = Inbox::default();
        let mut of = |port: &Port| {
            let mut came = Vec::new();
            while inbox.receive(port).unwrap() {
                came.extend(inbox.datagrams().map(|datagram| {
                    let number = *datagram.bytes[4..].first_chunk().unwrap();
                    u32::from_be_bytes(number) >> (24 - PROCESS_BITS)
                }));
            }
            came
        };
        // Over the loopback device what was sent has come.
        ports.iter().map(|port| of(port)).collect()
    }

    #[test]
    fn packets_go_to_the_socket_of_their_process_also_when_another_one_is_gone() {
        let first = Port::bind_shared("127.0.0.4:0".parse().unwrap()).unwrap();
        let [second, third, fourth] = [(); 3].map(|()| Port::bind_shared(first.local()).unwrap());
        let place = |process, index| Place { process, index };
        let all = [place(700, 0), place(3, 1), place(1_023, 2), place(0, 3)];
        third.steer(PROCESS_BITS, &all).unwrap();
        let found = taken(&[&first, &second, &third, &fourth], &[0, 3, 700, 1_023, 3]);
        assert_eq!(found, [vec![700], vec![3, 3], vec![1_023], vec![0]]);
        drop(second);
        // Without another word, those before the gap have what is theirs.
        let found = taken(&[&first, &third], &[700, 1_023]);
        assert_eq!(found, [[700], [1_023]]);
        // The last one has taken its place.
        first.steer(PROCESS_BITS, &[place(700, 0), place(0, 1), place(1_023, 2)]).unwrap();
        let found = taken(&[&first, &third, &fourth], &[0, 700, 1_023, 0]);
        assert_eq!(found, [vec![700], vec![1_023], vec![0, 0]]);
    }

    #[test]
    fn an_address_is_shared_with_nobody_who_does_not_ask() {
        let port = Port::bind_shared("127.0.0.4:0".parse().unwrap()).unwrap();
        let error = Port::bind(port.local()).unwrap_err();
        assert_eq!(error.errno, Errno::ADDRINUSE);
        assert!(error.to_string().contains("another user"), "{error}");
    }

    #[test]
    fn more_places_than_a_program_has_room_for_are_refused() {
        let port = Port::bind_shared("127.0.0.4:0".parse().unwrap()).unwrap();
        let places = vec![Place { process: 1, index: 0 }; PLACES];
        assert_eq!(port.steer(PROCESS_BITS, &places), Ok(()));
        let more = vec![Place { process: 1, index: 0 }; PLACES + 1];
        assert_eq!(port.steer(PROCESS_BITS, &more), Err(Errno::INVAL));
    }
}
