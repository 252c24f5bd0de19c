use std::time::Duration;

use super::super::inbox::PacketInbox;
use super::super::outbox::{Marks, PacketOutbox};
use super::*;

const LOCAL: &str = "127.0.0.43";
const LONG: Duration = Duration::from_secs(10);

/// The payloads of the next datagrams, and their marks.
fn come(port: &UdpPort, n: usize) -> Vec<(Vec<u8>, Marks)> {
    let (mut inbox, mut all) = (PacketInbox::default(), Vec::new());
    while all.len() < n {
        assert_eq!(port.wait(None, LONG), Ok(true), "{} arrived", all.len());
        inbox.receive(port).unwrap();
        all.extend(inbox.datagrams().map(|datagram| {
            assert_eq!(datagram.from.ip(), LOCAL.parse::<IpAddr>().unwrap());
            (datagram.bytes.to_vec(), datagram.marks)
        }));
    }
    all
}

#[test]
fn each_socket_that_has_joined_gets_a_copy() {
    let local = LOCAL.parse().unwrap();
    let joins =
        |group: &str, port| UdpPort::join(SocketAddr::new(group.parse().unwrap(), port), local);
    let one = joins("239.77.1.1", 0).unwrap();
    let number = one.local().port();
    let (two, apart) = (joins("239.77.1.1", number).unwrap(), joins("239.77.1.2", number).unwrap());
    let sender = UdpPort::bind(SocketAddr::new(local, 0)).unwrap();
    sender.send_groups_by_own_interface().unwrap();
    let marks = Marks { class: 0x28, hops: 1 };
    let mut outbox = PacketOutbox::new(true);
    let mut send = |to: &UdpPort, bytes: &[u8]| {
        let (_, room) = outbox.push(to.local(), marks, bytes.len()).unwrap();
        room.copy_from_slice(bytes);
        assert_eq!(outbox.send(&sender), Ok(1));
    };
    send(&one, b"both");
    for port in [&one, &two] {
        assert_eq!(come(port, 1), [(b"both".to_vec(), marks)]);
    }
    two.leave(local);
    send(&one, b"one");
    send(&apart, b"apart");
    assert_eq!(come(&one, 1), [(b"one".to_vec(), marks)]);
    assert_eq!(come(&apart, 1), [(b"apart".to_vec(), marks)]);
    // A packet reaches all sockets before the call that sends it returns.
    assert_eq!(two.wait(None, Duration::ZERO), Ok(false), "it has left");
}

#[test]
fn a_socket_sends_to_groups_by_the_interface_of_its_address() {
    let port = UdpPort::bind("[::1]:0".parse().unwrap()).unwrap();
    port.send_groups_by_own_interface().unwrap();
    // SAFETY: a name that ends with zero.
    let loopback = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
    assert_eq!(rustix::net::sockopt::ipv6_multicast_if(&port), Ok(loopback));
}

#[test]
fn a_group_and_an_address_are_of_one_family() {
    let (v4, v6) = ("239.77.1.3:0".parse().unwrap(), "[ff15::77]:0".parse().unwrap());
    assert_eq!(UdpPort::join(v4, "::1".parse().unwrap()).err(), Some(Errno::INVAL));
    assert_eq!(UdpPort::join(v6, LOCAL.parse().unwrap()).err(), Some(Errno::INVAL));
    // The loopback interface takes part in groups of IPv6 as far as joining goes, those of a link too.
    for group in [v6, "[ff02::77]:0".parse().unwrap()] {
        let joined = UdpPort::join(group, "::1".parse().unwrap()).unwrap();
        assert_eq!(joined.local().ip(), group.ip());
        joined.leave("::1".parse().unwrap());
    }
}
