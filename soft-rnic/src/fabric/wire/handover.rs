//! Packets for other processes of the address that arrived at this one: a card may merge packets of
//! several processes on receipt (GRO), and all go where the first one goes.
//!
//! The process that has them sends each again, in a datagram from the address to itself, which the
//! kernel gives to the process that it is for:
//!
//! ```text
//!    0       4       8       10    11    12       28       30        32
//!    | 0xff… | place | port  class hops | address | nth    | zeroes  | packet …
//!    base transport header| of the sender        | in its run
//! ```
//!
//! Such a datagram counts only if it is from the address and port of the device: only processes
//! of this user can bind them. Each process hands over what is for others only, and no packet is
//! handed over twice, so that none goes in circles: also where the kernel gives one to another
//! process than the one that it is for. What the socket at the other end has no room for is lost.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use roce_core::codec;
use roce_core::lengths::MAX_PACKET;

use super::members::PLACES;
use crate::peers::process::directory::{INDEX_BITS, slot_of};
use crate::peers::wire::state::RoceWire;
use crate::udp::{Marks, ReceivedDatagram};

/// The opcode, which no packet of RoCE has: manufacturers have those from 0xc0 on.
const OPCODE: u8 = 0xff;
/// The number of a queue pair, below the place, that no queue pair has.
const INDEX: u32 = 2;
/// Bytes in front of the packet.
const HEADER: usize = 32;

impl RoceWire {
    /// Hands a packet over that is for a queue pair of another place, if it is for one; it is sent
    /// with what the outbox has.
    #[cold]
    pub(super) fn hand_over(&self, datagram: &ReceivedDatagram<'_>, dest_qpn: u32) -> bool {
        let (place, local) = (slot_of(dest_qpn), self.port.local());
        let is_others = self.place.is_some_and(|own| own != place) && place < PLACES;
        // A packet from the address itself need not be.
        let has_come = datagram.was_handed_over || datagram.from == local;
        if !is_others || has_come || datagram.bytes.len() > MAX_PACKET {
            return false;
        }
        let mut tx = self.tx.lock();
        tx.choose_source(0);
        tx.choose_place(place);
        let len = HEADER + datagram.bytes.len();
        if !tx.has_room(local, Marks::default(), len) {
            self.flush(&mut tx);
        }
        if let Some((_, bytes)) = tx.push(local, Marks::default(), len) {
            let (header, packet) = bytes.split_at_mut(HEADER);
            header.copy_from_slice(&header_of(place, datagram));
            packet.copy_from_slice(datagram.bytes);
        }
        true
    }

    /// Reports whether a datagram may have been handed over by another process of the address.
    pub(super) fn may_be_handed_over(&self, datagram: &ReceivedDatagram<'_>) -> bool {
        datagram.from == self.port.local() && self.place.is_some()
    }
}

/// The packet in a datagram that another process of the address has handed over, if it is one.
/// (Processes may also reach each other over the network: `loopback=wire`.)
#[cold]
pub(super) fn handed_over(datagram: ReceivedDatagram<'_>) -> ReceivedDatagram<'_> {
    parse(datagram.bytes).unwrap_or(datagram)
}

/// Reports whether a datagram is a packet that is handed over to another process.
pub(super) fn is_handed_over(bytes: &[u8]) -> bool {
    parse(bytes).is_some()
}

fn header_of(place: u32, datagram: &ReceivedDatagram<'_>) -> [u8; HEADER] {
    let &ReceivedDatagram { from, marks, nth, .. } = datagram;
    let ip = match from.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut header = [0; HEADER];
    header[0] = OPCODE;
    header[4..8].copy_from_slice(&(place << INDEX_BITS | INDEX).to_be_bytes());
    header[8..10].copy_from_slice(&from.port().to_be_bytes());
    (header[10], header[11]) = (marks.class, marks.hops);
    header[12..28].copy_from_slice(&ip.octets());
    header[28..30].copy_from_slice(&nth.to_be_bytes());
    header
}

fn parse(bytes: &[u8]) -> Option<ReceivedDatagram<'_>> {
    let (header, packet) = bytes.split_first_chunk::<HEADER>()?;
    let is_one = codec::peek(header)?.dest_qpn & ((1 << INDEX_BITS) - 1) == INDEX;
    let ip: [u8; 16] = *header[12..].first_chunk()?;
    let ip = IpAddr::V6(Ipv6Addr::from(ip)).to_canonical();
    let from = SocketAddr::new(ip, u16::from_be_bytes([header[8], header[9]]));
    let marks = Marks { class: header[10], hops: header[11] };
    let nth = u16::from_be_bytes([header[28], header[29]]);
    let datagram = ReceivedDatagram { from, marks, bytes: packet, nth, was_handed_over: true };
    (is_one && header[0] == OPCODE).then_some(datagram)
}

#[cfg(test)]
mod tests;
