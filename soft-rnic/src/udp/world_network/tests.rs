use host::world::{Limits, Nature, run};

use super::super::inbox::PacketInbox;
use super::super::outbox::{Marks, PacketOutbox};
use super::super::port::UdpPort;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn in_world(program: impl FnOnce() + Send + 'static) {
    run(3, Nature::default(), Limits::default(), program).1.unwrap();
}

fn addr(last: u8) -> SocketAddr {
    SocketAddr::new([10, 0, 0, last].into(), 4_791)
}

fn ports(network: &WorldNetwork) -> [UdpPort; 2] {
    [1, 2].map(|last| UdpPort::on_network(network, addr(last)).unwrap())
}

/// Sends numbered packets of 8 bytes, in runs.
fn send(from: &UdpPort, to: SocketAddr, packets: u64) {
    let mut outbox = PacketOutbox::new(true);
    for number in 0..packets {
        if !outbox.has_room_for_any(8) {
            outbox.send(from).unwrap();
        }
        let (_, room) = outbox.push(to, Marks::default(), 8).unwrap();
        room.copy_from_slice(&number.to_ne_bytes());
    }
    outbox.send(from).unwrap();
}

/// The numbers of packets that arrive until none has arrived for a second.
fn come(to: &UdpPort, inbox: &mut PacketInbox) -> Vec<u64> {
    let mut all = Vec::new();
    while to.wait(None, SECOND).unwrap() {
        inbox.receive(to).unwrap();
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        all.extend(inbox.datagrams().map(|datagram| number(datagram.bytes)));
    }
    all
}

fn over(nature: NetworkNature, packets: u64) -> (Vec<u64>, u32) {
    let network = WorldNetwork::new(nature).unwrap();
    let [here, there] = ports(&network);
    let mut inbox = PacketInbox::default();
    send(&here, there.local(), packets);
    host::time::sleep(SECOND);
    (come(&there, &mut inbox), inbox.dropped())
}

#[test]
fn without_faults_all_packets_come_in_order() {
    in_world(|| assert_eq!(over(NetworkNature::default(), 200), ((0..200).collect(), 0)));
}

#[test]
fn each_fault_does_what_it_is_called() {
    in_world(|| {
        let calm = NetworkNature::default();
        let (lossy, _) = over(NetworkNature { loss: 0.5, ..calm }, 200);
        assert!((50..150).contains(&lossy.len()) && lossy.is_sorted(), "{lossy:?}");
        let (mut repeated, _) = over(NetworkNature { repeat: 0.5, ..calm }, 200);
        assert!((250..350).contains(&repeated.len()), "{repeated:?}");
        repeated.sort_unstable();
        repeated.dedup();
        assert_eq!(repeated, (0..200).collect::<Vec<_>>());
        let (mut reordered, _) = over(NetworkNature { reorder: 0.5, ..calm }, 200);
        assert!(!reordered.is_sorted());
        reordered.sort_unstable();
        assert_eq!(reordered, (0..200).collect::<Vec<_>>());
        let (corrupt, _) = over(NetworkNature { corrupt: 1.0, ..calm }, 200);
        let changed = corrupt.iter().zip(0..).filter(|(come, sent)| *come != sent);
        assert_eq!((corrupt.len(), changed.count()), (200, 200));
    });
}

#[test]
fn a_queue_that_is_full_drops_and_counts() {
    in_world(|| {
        // Runs of 64 packets: the second one is the last that finds no more than this.
        let queue_bytes = 64 * 8 + OVERHEAD;
        let (come, dropped) =
            over(NetworkNature { queue_bytes, ..NetworkNature::default() }, 64 * 5);
        assert_eq!((come, dropped), ((0..128).collect(), 64 * 3));
    });
}

#[test]
fn a_partition_ends() {
    in_world(|| {
        let network = WorldNetwork::new(NetworkNature::default()).unwrap();
        let ([here, there], mut inbox) = (ports(&network), PacketInbox::default());
        network.partition(addr(2).ip(), addr(1).ip(), SECOND / 2);
        send(&here, there.local(), 3);
        assert_eq!(come(&there, &mut inbox), []);
        send(&here, there.local(), 3);
        assert_eq!(come(&there, &mut inbox), [0, 1, 2]);
    });
}

#[test]
fn members_of_a_group_have_copies_until_they_leave() {
    in_world(|| {
        let network = WorldNetwork::new(NetworkNature::default()).unwrap();
        let group = "239.1.2.3:4791".parse().unwrap();
        let [here, there] = ports(&network);
        let [one, two] = [&here, &there].map(|port| port.join_beside(group).unwrap());
        let mut inbox = PacketInbox::default();
        send(&here, group, 2);
        assert_eq!([come(&one, &mut inbox), come(&two, &mut inbox)], [[0, 1], [0, 1]]);
        drop(two);
        send(&here, group, 1);
        assert_eq!(come(&one, &mut inbox), [0]);
    });
}

#[test]
fn an_address_is_of_one_port() {
    in_world(|| {
        let network = WorldNetwork::new(NetworkNature::default()).unwrap();
        let bind = || UdpPort::on_network(&network, addr(1));
        let first = bind().unwrap();
        assert_eq!(bind().err(), Some(Errno::ADDRINUSE));
        drop(first);
        bind().unwrap();
    });
}
