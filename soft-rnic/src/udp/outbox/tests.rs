use super::*;
use crate::udp::PacketInbox;

fn pushed(outbox: &mut PacketOutbox, to: &UdpPort, first: u8) -> Vec<u16> {
    let mut push = |(byte, len)| {
        let (nth, packet) = outbox.push(to.local(), Marks::default(), len).unwrap();
        packet.fill(byte);
        nth
    };
    (first..).zip([64, 64, 64, 8]).map(&mut push).collect()
}

/// The first byte of each packet received at a port, until there are `packets`.
fn taken(port: &UdpPort, packets: usize) -> Vec<u8> {
    let (mut inbox, mut all) = (PacketInbox::default(), Vec::new());
    while all.len() < packets {
        assert_eq!(port.wait(None, std::time::Duration::from_secs(30)), Ok(true));
        assert!(inbox.receive(port).is_ok());
        all.extend(inbox.datagrams().map(|datagram| datagram.bytes[0]));
    }
    all
}

#[test]
fn nothing_is_lost_of_a_run_that_is_refused() {
    let (a, b) = (UdpPort::without_runs("127.0.0.1:0"), UdpPort::bind_any("127.0.0.1:0"));
    let mut outbox = PacketOutbox::new(true);
    assert_eq!(pushed(&mut outbox, &b, 0), [0, 1, 2, 3]);
    let renumbered = core::cell::RefCell::new(Vec::new());
    let renumber = |from, to, packet: &mut [u8]| {
        assert_eq!((from, to), (a.local(), b.local()));
        renumbered.borrow_mut().push(packet[0]);
    };
    assert_eq!(outbox.send_from(&a, &[], renumber), Ok(4));
    assert_eq!((outbox.is_empty(), outbox.used), (true, 0));
    assert_eq!(renumbered.take(), [0, 1, 2, 3]);
    assert_eq!(pushed(&mut outbox, &b, 4), [0, 0, 0, 0]);
    assert_eq!(outbox.send_from(&a, &[], renumber), Ok(4));
    assert_eq!(renumbered.take(), []);
    assert_eq!(taken(&b, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_run_that_is_held_waits_for_more_packets() {
    let (a, b) = (UdpPort::bind_any("127.0.0.1:0"), UdpPort::bind_any("127.0.0.1:0"));
    let mut outbox = PacketOutbox::new(true);
    let push = |outbox: &mut PacketOutbox, byte, len| {
        outbox.push(b.local(), Marks::default(), len).unwrap().1.fill(byte);
    };
    (0..2).for_each(|byte| push(&mut outbox, byte, 64));
    outbox.hold();
    assert_eq!((outbox.is_held(), outbox.has_due(), outbox.send(&a)), (true, false, Ok(0)));
    // It takes more, and goes when something else is behind it.
    push(&mut outbox, 2, 64);
    push(&mut outbox, 3, 8);
    push(&mut outbox, 4, 64);
    outbox.hold();
    assert_eq!((outbox.is_held(), outbox.has_due(), outbox.send(&a)), (true, true, Ok(4)));
    assert_eq!((outbox.first(), outbox.held(), outbox.begun()), (200, 1, 2));
    outbox.release();
    assert_eq!((outbox.send(&a), outbox.is_empty(), outbox.used), (Ok(1), true, 0));
    // One that no packet can join is not held: it is closed, or has as many as it can have.
    push(&mut outbox, 5, 64);
    push(&mut outbox, 6, 8);
    outbox.hold();
    assert_eq!((outbox.is_held(), outbox.is_full(), outbox.send(&a)), (false, false, Ok(2)));
    for nth in 0..SEGMENTS {
        assert!(!outbox.is_full(), "{nth}");
        push(&mut outbox, 7, 16);
    }
    outbox.hold();
    assert_eq!((outbox.is_held(), outbox.is_full()), (false, true));
    assert_eq!(outbox.send(&a), Ok(SEGMENTS));
    // Nor is one that begins behind another.
    push(&mut outbox, 8, 64);
    outbox.hold();
    push(&mut outbox, 8, 100);
    assert_eq!((outbox.is_held(), outbox.held(), outbox.send(&a)), (false, 0, Ok(2)));
    // What is withdrawn is held no more.
    push(&mut outbox, 8, 64);
    outbox.hold();
    outbox.withdraw();
    assert!(!outbox.is_held() && !outbox.has_due());
    assert_eq!(taken(&b, 9 + SEGMENTS)[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn packets_that_are_held_make_room_behind_them() {
    let (a, b) = (UdpPort::bind_any("127.0.0.1:0"), UdpPort::bind_any("127.0.0.1:0"));
    let mut outbox = PacketOutbox::new(true);
    let mut seen = 0;
    for nth in 0..3 * OUTBOX / 4_096 {
        let (_, packet) = outbox.push(b.local(), Marks::default(), 4_096).unwrap();
        packet.fill(nth as u8);
        outbox.hold();
        seen += outbox.send(&a).unwrap();
        // The receiver's buffer is not to be full.
        if seen >= 8 {
            let came = taken(&b, seen);
            let first = (nth + 1 - outbox.runs.last().map_or(0, |run| run.packets)) - seen;
            assert!(came.iter().enumerate().all(|(at, byte)| *byte == (first + at) as u8));
            seen = 0;
        }
    }
    assert!(!outbox.has_room(b.local(), Marks::default(), OUTBOX));
}

/// A run of which some packets were sent alone stays split: the rest would get other
/// identifications.
#[test]
fn what_is_left_of_a_run_goes_packet_by_packet() {
    let (a, b) = (UdpPort::bind_any("127.0.0.1:0"), UdpPort::bind_any("127.0.0.1:0"));
    let mut outbox = PacketOutbox::new(true);
    pushed(&mut outbox, &b, 0);
    outbox.withdraw();
    assert_eq!(outbox.send_one(&a, 0, |_, _, _| ()), Ok(1));
    assert_eq!(outbox.drop_one(0), 0);
    outbox.cut_again();
    assert_eq!(pushed(&mut outbox, &b, 3), [0, 1, 2, 3]);
    let split = core::cell::Cell::new(0);
    let renumber = |_, _, _: &mut [u8]| split.set(split.get() + 1);
    assert_eq!(outbox.send_from(&a, &[], renumber), Ok(6));
    assert_eq!(split.get(), 2);
    assert_eq!(taken(&b, 7), [0, 1, 2, 3, 4, 5, 6]);
}
