//! Packets for other processes of the address that came to this one: a card may merge packets of
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
//! Such a datagram counts only if it comes from the address and port of the device: only processes
//! of this user can bind them. Each process hands over what is for others only, and no packet is
//! handed over twice, so that none goes in circles: also where the kernel gives one to another
//! process than the one that it is for. What the socket at the other end has no room for is lost.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use roce_core::codec;
use roce_core::lengths::MAX_PACKET;

use super::members::PLACES;
use super::state::Wire;
use crate::fabric::process::directory::{INDEX_BITS, slot_of};
use crate::udp::{Datagram, Marks};

/// The opcode, which no packet of RoCE has: manufacturers have those from 0xc0 on.
const OPCODE: u8 = 0xff;
/// The number of a queue pair, below the place, that no queue pair has.
const INDEX: u32 = 2;
/// Bytes in front of the packet.
const HEADER: usize = 32;

impl Wire {
    /// Hands a packet over that is for a queue pair of another place, if it is for one; it is sent
    /// with what the outbox has.
    #[cold]
    pub(super) fn hand_over(&self, datagram: &Datagram<'_>, dest_qpn: u32) -> bool {
        let (place, local) = (slot_of(dest_qpn), self.port.local());
        let is_others = self.place.is_some_and(|own| own != place) && place < PLACES;
        // What comes from the address itself need not be.
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
    pub(super) fn may_be_handed_over(&self, datagram: &Datagram<'_>) -> bool {
        datagram.from == self.port.local() && self.place.is_some()
    }
}

/// The packet in a datagram that another process of the address has handed over, if it is one.
/// (Processes may also reach each other over the network: `loopback=wire`.)
#[cold]
pub(super) fn handed_over(datagram: Datagram<'_>) -> Datagram<'_> {
    parse(datagram.bytes).unwrap_or(datagram)
}

/// Reports whether a datagram is a packet that is handed over to another process.
pub(super) fn is_handed_over(bytes: &[u8]) -> bool {
    parse(bytes).is_some()
}

fn header_of(place: u32, datagram: &Datagram<'_>) -> [u8; HEADER] {
    let &Datagram { from, marks, nth, .. } = datagram;
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

fn parse(bytes: &[u8]) -> Option<Datagram<'_>> {
    let (header, packet) = bytes.split_first_chunk::<HEADER>()?;
    let is_one = codec::peek(header)?.dest_qpn & ((1 << INDEX_BITS) - 1) == INDEX;
    let ip: [u8; 16] = *header[12..].first_chunk()?;
    let ip = IpAddr::V6(Ipv6Addr::from(ip)).to_canonical();
    let from = SocketAddr::new(ip, u16::from_be_bytes([header[8], header[9]]));
    let marks = Marks { class: header[10], hops: header[11] };
    let nth = u16::from_be_bytes([header[28], header[29]]);
    let datagram = Datagram { from, marks, bytes: packet, nth, was_handed_over: true };
    (is_one && header[0] == OPCODE).then_some(datagram)
}

#[cfg(test)]
mod tests {
    use super::super::device::Roce;
    use super::super::packets::renumber;
    use super::super::state::PacketFaults;
    use super::*;
    use crate::objects::device::DEVICES;
    use crate::schedule::network::faults::NetworkFaults;
    use host::random::Random;

    #[test]
    fn a_packet_is_unwrapped_as_it_came() {
        for from in ["10.0.0.1:4791", "[fd00::1]:9"] {
            let from = from.parse().unwrap();
            let marks = Marks { class: 0xb8, hops: 17 };
            let was_handed_over = false;
            let datagram = Datagram { from, marks, bytes: &[7; 20], nth: 300, was_handed_over };
            let whole = [&header_of(31, &datagram)[..], datagram.bytes].concat();
            let parsed = parse(&whole).unwrap();
            assert_eq!((parsed.from, parsed.marks, parsed.nth), (from, marks, 300));
            assert_eq!(parsed.bytes, datagram.bytes);
            assert_eq!(codec::peek(&whole).map(|peek| slot_of(peek.dest_qpn)), Some(31));
            for len in 0..HEADER {
                assert!(parse(&whole[..len]).is_none(), "{len}");
            }
        }
    }

    /// The packet in it has the ICRC of its way here.
    #[test]
    fn what_is_handed_over_is_not_sealed_again() {
        let addr = "127.0.0.1:4791".parse().unwrap();
        let (marks, was_handed_over) = (Marks::default(), false);
        let datagram = Datagram { from: addr, marks, bytes: &[7; 20], nth: 3, was_handed_over };
        let whole = [&header_of(31, &datagram)[..], datagram.bytes].concat();
        let mut sent = whole.clone();
        renumber(addr, addr, &mut sent);
        assert_eq!(sent, whole);
        // Another packet would be.
        let mut packet = datagram.bytes.to_vec();
        renumber(addr, addr, &mut packet);
        assert_ne!(packet, datagram.bytes);
    }

    #[test]
    fn packets_of_queue_pairs_are_not_handed_over() {
        let datagram = Datagram {
            from: "10.0.0.1:4791".parse().unwrap(),
            marks: Marks::default(),
            bytes: &[],
            nth: 0,
            was_handed_over: false,
        };
        let header = header_of(3, &datagram);
        let with = |at: usize, value: u8| {
            let mut changed = header;
            changed[at] = value;
            parse(&changed).is_some()
        };
        assert!(with(0, OPCODE));
        assert!(!with(0, 0x64) && !with(7, 0x40) && !with(6, 1));
    }

    /// Also not after it was set aside.
    #[test]
    fn a_packet_is_handed_over_once() {
        let roce: Roce = "127.0.0.241".parse().unwrap();
        let name = roce.list().unwrap();
        let device = DEVICES.lock().iter().find(|device| device.name() == name).cloned().unwrap();
        let wire = device.wire().unwrap();
        let other = (wire.place.expect("others may share it") + 1) % PLACES;
        let qpn = other << INDEX_BITS | 0x40;
        let from = "127.0.0.242:4791".parse().unwrap();
        let (marks, bytes) = (Marks::default(), &[7; 20]);
        let datagram = Datagram { from, marks, bytes, nth: 0, was_handed_over: false };
        assert!(wire.hand_over(&datagram, qpn));
        // Another process hands it over, but the kernel gives it to this one.
        let whole = [&header_of(other, &datagram)[..], datagram.bytes].concat();
        let unwrapped =
            handed_over(Datagram { from: wire.port.local(), bytes: &whole, ..datagram });
        assert_eq!((unwrapped.from, unwrapped.bytes), (datagram.from, datagram.bytes));
        let network = NetworkFaults { reordering: 1.0, ..NetworkFaults::default() };
        let mut faults = PacketFaults { network, random: Random::new(1) };
        let (mut late, mut taken) = (None, 0);
        while taken < 20 {
            let mut take = |one: &Datagram<'_>| {
                assert!(!wire.hand_over(one, qpn), "it goes in circles");
                taken += 1;
            };
            faults.strike(&mut late, &unwrapped, &mut take);
        }
    }
}
