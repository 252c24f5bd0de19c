use super::super::inbox::PacketInbox;
use super::super::outbox::{Marks, PacketOutbox};
use super::*;

const INDEX_BITS: u32 = 14;
const PLACE_BITS: u32 = 3;

/// Sends packets for a place to these ports.
fn send(ports: &[UdpPort], place: u32, packets: usize) {
    let sender = UdpPort::bind("127.0.0.3:0".parse().unwrap()).unwrap();
    let mut outbox = PacketOutbox::new(false);
    for _ in 0..packets {
        let (_, room) = outbox.push(ports[0].local(), Marks::default(), 12).unwrap();
        room[4..8].copy_from_slice(&(place << INDEX_BITS).to_be_bytes());
        assert_eq!(outbox.send(&sender), Ok(1));
    }
}

/// The numbers of queue pairs that packets which each of these ports has are for, of some that
/// are sent to these.
fn taken(ports: &[UdpPort], numbers: &[u32]) -> Vec<Vec<u32>> {
    let sender = UdpPort::bind("127.0.0.3:0".parse().unwrap()).unwrap();
    let mut outbox = PacketOutbox::new(true);
    for number in numbers {
        outbox.choose_place(number >> INDEX_BITS);
        let (_, room) = outbox.push(ports[0].local(), Marks::default(), 12).unwrap();
        room[4..8].copy_from_slice(&number.to_be_bytes());
    }
    assert_eq!(outbox.send(&sender), Ok(numbers.len()));
    let mut inbox = PacketInbox::default();
    let of =
        |port: &UdpPort| {
            let mut came = Vec::new();
            while inbox.receive(port).unwrap() {
                came.extend(inbox.datagrams().map(|datagram| {
                    u32::from_be_bytes(*datagram.bytes[4..].first_chunk().unwrap())
                }));
            }
            came
        };
    // Over the loopback device what was sent has arrived.
    ports.iter().map(of).collect()
}

fn group() -> Vec<UdpPort> {
    UdpPort::bind_group("127.0.0.4:0".parse().unwrap(), INDEX_BITS, PLACE_BITS).unwrap()
}

#[test]
fn packets_of_one_run_go_to_the_place_of_their_queue_pair() {
    let ports = group();
    let of = |place: u32, n: u32| place << INDEX_BITS | n;
    let numbers = [of(3, 70), of(3, 71), of(0, 64), of(7, 9), of(3, 70), of(9, 5)];
    let mut expected = vec![Vec::new(); 8];
    expected[3] = vec![of(3, 70), of(3, 71), of(3, 70)];
    expected[0] = vec![of(0, 64)];
    expected[7] = vec![of(7, 9)];
    // No process has that place.
    expected[1] = vec![of(9, 5)];
    assert_eq!(taken(&ports, &numbers), expected);
    let found = taken(&ports, &[0, 1, QPN]);
    assert_eq!((&found[0][..], &found[7][..]), (&[0, 1][..], &[QPN][..]));
}

#[test]
fn a_place_is_where_it_was_as_long_as_any_process_has_it() {
    let mut ports = group();
    let copies: Vec<OwnedFd> =
        ports.iter().map(|port| rustix::io::fcntl_dupfd_cloexec(port, 3).unwrap()).collect();
    let addr = ports[0].local();
    // The process that has bound them ends.
    ports.clear();
    let ports: Vec<UdpPort> =
        copies.into_iter().map(|copy| UdpPort::take_place(copy, addr).unwrap()).collect();
    let found = taken(&ports, &[5 << INDEX_BITS, 2 << INDEX_BITS]);
    assert_eq!((&found[5][..], &found[2][..]), (&[5 << INDEX_BITS][..], &[2 << INDEX_BITS][..]));
}

#[test]
fn who_takes_a_place_gets_no_packet_that_has_come_before() {
    let ports = group();
    send(&ports, 4, 3);
    let socket = rustix::io::fcntl_dupfd_cloexec(&ports[4], 3).unwrap();
    let port = UdpPort::take_place(socket, ports[0].local()).unwrap();
    assert!(port.buffer() > 64 << 10, "{}", port.buffer());
    assert_eq!(PacketInbox::default().receive(&port), Ok(false));
}

/// The second of three processes that have a place one after the other drops packets as well.
#[test]
fn who_takes_a_place_counts_the_packets_that_it_drops_itself() {
    let ports = group();
    let take = || {
        let socket = rustix::io::fcntl_dupfd_cloexec(&ports[4], 3).unwrap();
        UdpPort::take_place(socket, ports[0].local()).unwrap()
    };
    let dropped = |port: &UdpPort, inbox: &mut PacketInbox| {
        send(&ports, 4, 1);
        // Each packet says how many were dropped before it.
        while inbox.receive(port).unwrap() {}
        inbox.dropped()
    };
    // An idle place has room for a few.
    send(&ports, 4, 100);
    let (port, mut inbox) = (take(), PacketInbox::default());
    assert_eq!(dropped(&port, &mut inbox), 0);
    let _ = set(&port, libc::SOL_SOCKET, libc::SO_RCVBUF, IDLE_BUFFER);
    send(&ports, 4, 100);
    let mut came = 0;
    while inbox.receive(&port).unwrap() {
        came += inbox.datagrams().count() as u32;
    }
    assert_eq!(dropped(&port, &mut inbox), 100 - came);
    assert!(came < 100);
    assert_eq!(dropped(&take(), &mut PacketInbox::default()), 0);
}

#[test]
fn a_place_has_a_small_buffer_until_a_process_takes_it() {
    let ports = group();
    let bytes = |port: &UdpPort| rustix::net::sockopt::socket_recv_buffer_size(port).unwrap();
    // The kernel's number has room for its own structures, and is twice what it was given.
    let most = |size: c_int| 2 * size as usize;
    assert!(ports.iter().all(|port| bytes(port) <= most(IDLE_BUFFER)));
    let socket = rustix::io::fcntl_dupfd_cloexec(&ports[4], 3).unwrap();
    let port = UdpPort::take_place(socket, ports[0].local()).unwrap();
    assert!((most(IDLE_BUFFER) + 1..=most(BUFFER)).contains(&bytes(&port)));
}

#[test]
fn a_socket_of_another_address_is_no_place() {
    let ports = group();
    let socket = rustix::io::fcntl_dupfd_cloexec(&ports[4], 3).unwrap();
    let other = "127.0.0.4:1".parse().unwrap();
    assert_eq!(UdpPort::take_place(socket, other).err(), Some(Errno::PROTO));
}

#[test]
fn an_address_is_shared_with_nobody_who_does_not_ask() {
    let ports = group();
    let error = UdpPort::bind(ports[0].local()).unwrap_err();
    assert_eq!(error.errno, Errno::ADDRINUSE);
    let us = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&us), "{error}");
    let error = UdpPort::bind_group(ports[0].local(), INDEX_BITS, PLACE_BITS).unwrap_err();
    assert_eq!(error.errno, Errno::ADDRINUSE);
}
