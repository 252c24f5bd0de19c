use super::*;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A packet as received from `seen`.
fn through(probe: &Probe, from: &str, len: usize, seen: &str) -> Option<(Probe, bool)> {
    let (mut outbox, port) =
        (PacketOutbox::new(false), crate::udp::UdpPort::bind(addr("127.0.0.1:0")).unwrap());
    assert!(probe.push(&mut outbox, addr(from), port.local(), len));
    let (mut inbox, sender) =
        (crate::udp::PacketInbox::default(), crate::udp::UdpPort::bind(addr(seen)).unwrap());
    outbox.send(&sender).unwrap();
    port.wait(None, std::time::Duration::from_secs(10)).unwrap();
    inbox.receive(&port).unwrap();
    inbox.datagrams().next().and_then(|datagram| Probe::read(&datagram, port.local()))
}

const PROBE: Probe = Probe {
    kind: ProbeKind::Join,
    sequence: 0x0102_0304,
    addr: SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1)), 4_791),
    is_intact: true,
    words: [1, 2, 3, u32::MAX],
};

#[test]
fn a_probe_arrives_intact_and_a_translated_one_is_recognized() {
    for len in [SHORTEST, longest(256), longest(4_096)] {
        let came = through(&PROBE, "127.31.3.1:4791", len, "127.31.3.1:4791");
        assert_eq!(came, Some((PROBE, true)), "{len}");
    }
    let translated = through(&PROBE, "127.31.3.1:4791", SHORTEST, "127.31.3.2:4791");
    assert_eq!(translated, Some((PROBE, false)));
}

#[test]
fn lengths_that_no_packet_has_are_refused() {
    for len in [0, SHORTEST - 4, SHORTEST + 1, longest(4_096) + 4] {
        let mut outbox = PacketOutbox::new(false);
        assert!(!PROBE.push(&mut outbox, addr("10.0.0.1:1"), addr("10.0.0.2:1"), len), "{len}");
        assert!(outbox.is_empty());
    }
}

#[test]
fn other_packets_are_no_probes() {
    let from = addr("10.0.0.1:1");
    let read = |bytes: &[u8]| {
        let (marks, was_handed_over) = (Marks::default(), false);
        let datagram = ReceivedDatagram { from, marks, bytes, nth: 0, was_handed_over };
        Probe::read(&datagram, addr("10.0.0.2:1"))
    };
    let mut packet = vec![0; SHORTEST];
    assert_eq!(read(&packet), None);
    assert_eq!(read(&packet[..20]), None);
    packet[5..8].copy_from_slice(&QPN.to_be_bytes()[1..]);
    assert_eq!(read(&packet), None, "without the magic");
}
