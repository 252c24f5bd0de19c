use super::super::device::Roce;
use super::super::packets::renumber;
use super::*;
use crate::objects::device::DEVICES;
use crate::peers::wire::state::PacketFaults;
use crate::timing::network::NetworkFaults;
use host::random::Random;

#[test]
fn a_packet_is_unwrapped_as_it_came() {
    for from in ["10.0.0.1:4791", "[fd00::1]:9"] {
        let from = from.parse().unwrap();
        let marks = Marks { class: 0xb8, hops: 17 };
        let was_handed_over = false;
        let datagram = ReceivedDatagram { from, marks, bytes: &[7; 20], nth: 300, was_handed_over };
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
    let datagram = ReceivedDatagram { from: addr, marks, bytes: &[7; 20], nth: 3, was_handed_over };
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
    let datagram = ReceivedDatagram {
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
    let datagram = ReceivedDatagram { from, marks, bytes, nth: 0, was_handed_over: false };
    assert!(wire.hand_over(&datagram, qpn));
    // Another process hands it over, but the kernel gives it to this one.
    let whole = [&header_of(other, &datagram)[..], datagram.bytes].concat();
    let unwrapped =
        handed_over(ReceivedDatagram { from: wire.port.local(), bytes: &whole, ..datagram });
    assert_eq!((unwrapped.from, unwrapped.bytes), (datagram.from, datagram.bytes));
    let network = NetworkFaults { reordering: 1.0, ..NetworkFaults::default() };
    let mut faults = PacketFaults { network, random: Random::new(1) };
    let (mut late, mut taken) = (None, 0);
    while taken < 20 {
        let mut take = |one: &ReceivedDatagram<'_>| {
            assert!(!wire.hand_over(one, qpn), "it goes in circles");
            taken += 1;
        };
        faults.strike(&mut late, &unwrapped, &mut take);
    }
}
