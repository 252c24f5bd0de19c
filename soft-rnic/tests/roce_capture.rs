//! Captures of devices over UDP: a small reader of pcap files checks every packet.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::multicast::*;
use common::wired::open;
use common::*;
use roce_core::icrc::{Checked, Flow};
use verbs_sys::*;

const BYTES: usize = 300_000;

const CONFIG: ConnectConfig =
    ConnectConfig { access: RW, rq_psn: 1, sq_psn: 1, qkey: 0x11, ..ConnectConfig::PATIENT };

/// A packet of a capture.
struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    /// Identification and "don't fragment"; none of IPv6.
    id: Option<(u16, bool)>,
    class: u8,
    hops: u8,
    bytes: Vec<u8>,
}

impl Packet {
    /// Reads the headers of IP and UDP; all lengths have to fit each other.
    fn parse(ip: &[u8]) -> Packet {
        let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (from, to, id, class, hops, udp) = match ip[0] >> 4 {
            4 => {
                assert_eq!((ip[0], word(ip, 2) as usize, ip[9]), (0x45, ip.len(), 17));
                let addr = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
                let id = Some((word(ip, 4), word(ip, 6) == 1 << 14));
                (addr(12), addr(16), id, ip[1], ip[8], &ip[20..])
            }
            6 => {
                assert_eq!((word(ip, 4) as usize + 40, ip[6]), (ip.len(), 17));
                let addr =
                    |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
                (addr(8), addr(24), None, (word(ip, 0) >> 4) as u8, ip[7], &ip[40..])
            }
            version => panic!("IP version {version}"),
        };
        assert_eq!(word(udp, 4) as usize, udp.len());
        let (from, to) = (SocketAddr::new(from, word(udp, 0)), SocketAddr::new(to, word(udp, 2)));
        Packet { from, to, id, class, hops, bytes: udp[8..].to_vec() }
    }

    /// The full check of the ICRC: with the identification that the header says.
    #[track_caller]
    fn check(&self) {
        let checked = Flow::new(self.from, self.to).unwrap().check(0, &self.bytes).unwrap();
        match (checked, self.id) {
            (Checked::V4 { id, dont_fragment }, said) => {
                assert_eq!(Some((id, dont_fragment)), said)
            }
            (Checked::V6, said) => assert_eq!(said, None),
        }
        roce_core::codec::parse(&self.bytes).unwrap();
    }
}

/// Reads the current contents of a capture.
fn read(path: &PathBuf) -> Vec<Packet> {
    soft_rnic::udp::write_captures();
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(16), word(20)), (0xa1b2_3c4d, 65_535, 101));
    let (mut at, mut packets, mut last) = (24, Vec::new(), (0, 0));
    while at < bytes.len() {
        let [seconds, nanos, len, whole] = [0, 4, 8, 12].map(|field| word(at + field));
        assert!(nanos < 1_000_000_000 && (seconds, nanos) >= last, "in order of time");
        last = (seconds, nanos);
        assert_eq!(len, whole);
        packets.push(Packet::parse(&bytes[at + 16..at + 16 + len as usize]));
        at += 16 + len as usize;
    }
    packets
}

fn file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcap"));
    let _ = std::fs::remove_file(&path);
    path
}

/// A long SEND from one device to the other.
fn send(a: &Net, b: &Net, len: usize) {
    let kind = ibv_qp_type::IBV_QPT_RC;
    let [(a_cq, a_qp), (b_cq, b_qp)] = [a, b].map(|net| {
        let cq = net.cq(16);
        (cq, net.qp_of(kind, cq))
    });
    for (net, qp, to, peer) in [(a, a_qp, b, b_qp), (b, b_qp, a, a_qp)] {
        let number = qp_num(peer);
        for (attr, mask) in <[_; 3]>::from(to.steps_of(kind, number, CONFIG)) {
            assert_eq!(net.modify(qp, attr, mask), 0);
        }
    }
    let (mut from, mut into) = (vec![0x5a; BYTES], vec![0; BYTES]);
    let (mr, peer_mr) = (a.mr(&mut from, RW), b.mr(&mut into, RW));
    assert_eq!(post_recv(b_qp, 1, &mut [sge(peer_mr, 0, len as u32)]), 0);
    let mut list = [sge(mr, 0, len as u32)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut list, SIGNALED);
    assert_eq!(post_send(a_qp, &mut wr), 0);
    assert_eq!(a.poll(a_cq, 1)[0].status, "SUCCESS");
    assert_eq!(b.poll(b_cq, 1)[0].status, "SUCCESS");
    assert!(into[..len] == from[..len]);
    for (net, qp, cq, mr) in [(a, a_qp, a_cq, mr), (b, b_qp, b_cq, peer_mr)] {
        net.destroy_qp(qp);
        net.destroy_cq(cq);
        net.dereg(mr);
    }
}

#[test]
fn both_ends_capture_the_same_packets() {
    let paths = ["sender", "receiver"].map(file);
    let [a, b] = [0, 1].map(|n| open(&format!("127.31.1.{},pcap={}", n + 1, paths[n].display())));
    send(&a, &b, BYTES);
    let [sent, came] = [&paths[0], &paths[1]].map(read);
    for packet in sent.iter().chain(&came) {
        packet.check();
        assert_eq!((packet.from.port(), packet.to.port()), (4_791, 4_791));
        assert_eq!((packet.class, packet.hops), (0, 1), "those of the address vector");
    }
    let payload: usize = sent
        .iter()
        .filter(|packet| packet.from.ip().to_string() == "127.31.1.1")
        .map(|packet| roce_core::codec::parse(&packet.bytes).unwrap().payload.len())
        .sum();
    assert!(payload >= BYTES, "{payload}");
    // Runs that the kernel cuts have identifications that count.
    assert!(sent.iter().any(|packet| packet.id > Some((0, true))));
    // Nothing is lost here, so that both have the same, each with what was sent first, once all has
    // arrived: a packet that was sent again may still be on its way.
    let of = |packets: &[Packet], from: &str| {
        let theirs = packets.iter().filter(|packet| packet.from.ip().to_string() == from);
        theirs.map(|packet| (packet.id, packet.bytes.clone())).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    for from in ["127.31.1.1", "127.31.1.2"] {
        while of(&read(&paths[0]), from) != of(&read(&paths[1]), from) {
            assert!(begun.elapsed() < PATIENCE, "{from}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    a.close();
    b.close();
}

/// Packets of a queue pair leave by one of the source ports, and arrive whole.
#[test]
fn queue_pairs_send_from_several_ports_each_from_its_own() {
    let path = file("sports");
    let a = open(&format!("127.31.1.9,sports=4,pcap={}", path.display()));
    let b = open("127.31.1.10,loss=0.02,seed=4");
    for _ in 0..12 {
        send(&a, &b, 50_000);
    }
    let packets = read(&path);
    packets.iter().for_each(Packet::check);
    let ours = packets.iter().filter(|packet| packet.from.ip().to_string() == "127.31.1.9");
    let mut ports = std::collections::BTreeMap::new();
    for packet in ours {
        assert_eq!(packet.to.port(), 4_791);
        let to = roce_core::codec::peek(&packet.bytes).unwrap().dest_qpn;
        let port = *ports.entry(to).or_insert(packet.from.port());
        assert_eq!(port, packet.from.port(), "the packets to {to} leave by one port");
    }
    let used: std::collections::BTreeSet<u16> = ports.into_values().collect();
    assert!((2..=4).contains(&used.len()), "{used:?}");
    assert!(
        packets
            .iter()
            .filter(|packet| packet.from.ip().to_string() == "127.31.1.10")
            .all(|packet| (packet.from.port(), packet.to.port()) == (4_791, 4_791))
    );
    a.close();
    b.close();
}

#[test]
fn a_damaged_packet_is_captured_as_it_came() {
    let path = file("damaged");
    let net = open(&format!("127.31.1.3,pcap={}", path.display()));
    let other = open("127.31.1.4");
    // The device's thread takes packets from here on.
    send(&net, &other, 8);
    let sender = std::net::UdpSocket::bind("127.31.1.5:0").unwrap();
    // The system gives a packet to the process whose place is in the number of the queue pair.
    let packets = read(&path);
    let ours = packets.iter().find(|packet| packet.to.ip().to_string() == "127.31.1.3").unwrap();
    let mut damaged = [4, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 5, 1, 2, 3, 4];
    damaged[5..8].copy_from_slice(&ours.bytes[5..8]);
    sender.send_to(&damaged, "127.31.1.3:4791").unwrap();
    let is_there = || read(&path).iter().any(|packet| packet.bytes == damaged);
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "it is not captured");
        std::thread::yield_now();
    }
    let all = read(&path);
    let found = all.iter().find(|packet| packet.bytes == damaged).unwrap();
    assert_eq!(found.from, sender.local_addr().unwrap());
    let checked = Flow::new(found.from, found.to).unwrap().check(0, &found.bytes);
    assert!(checked.is_err(), "the capture does not repair it");
    net.close();
    other.close();
}

#[test]
fn ipv6_is_captured_too() {
    let path = file("v6");
    let net = open(&format!("::1,loopback=wire,pcap={}", path.display()));
    send(&net, &net, 10_000);
    let packets = read(&path);
    assert!(packets.iter().all(|packet| packet.from.is_ipv6()));
    packets.iter().for_each(Packet::check);
    // Sent and received: each is there twice.
    assert!(packets.len() >= 2 * 10_000_usize.div_ceil(4_096), "{}", packets.len());
    net.close();
}

#[test]
fn files_that_cannot_be_captures_are_refused_with_the_reason() {
    let error = |text: &str| text.parse::<soft_rnic::Roce>().map(|roce| roce.list());
    let refused = error("127.31.1.6,pcap=/no/such/folder/x").unwrap().unwrap_err().to_string();
    assert!(refused.contains("/no/such/folder/x") && refused.contains("not found"), "{refused}");
    for sports in ["0", "65", "x"] {
        let refused = error(&format!("127.31.1.6,sports={sports}")).unwrap_err().to_string();
        assert!(refused.contains("1 to 64"), "{refused}");
    }
    assert!(error("127.31.1.6,pcap=").unwrap_err().to_string().contains("pcap"));
    let path = file("shared");
    let text = |n: u32| format!("127.31.1.{n},pcap={}", path.display());
    assert!(error(&text(7)).unwrap().is_ok());
    let refused = error(&text(8)).unwrap().unwrap_err().to_string();
    assert!(refused.contains("%p"), "{refused}");
}

#[test]
fn a_group_packet_is_captured_with_the_group_address() {
    let path = file("group");
    let net = open(&format!("127.45.0.14,pcap={}", path.display()));
    let (to, member) = (ah(&net, group(1)), GroupMember::new(&net));
    assert_eq!(attach(&net, member.qp, group(1), 0), 0);
    member.post_recvs(1);
    member.post(to, 8, None);
    // What it has sent, and its own copy.
    assert_eq!(net.poll(member.cq, 2).len(), 2);
    let packets = read(&path);
    let ip = <[u8; 4]>::try_from(&raw(&group(1))[12..]).unwrap();
    assert_eq!(packets.len(), 2);
    for packet in packets {
        packet.check();
        assert_eq!(packet.from, "127.45.0.14:4791".parse().unwrap());
        assert_eq!(packet.to, SocketAddr::new(ip.into(), 4_791));
        assert_eq!((packet.class, packet.hops), (0x5a, 1));
    }
    assert_eq!(detach(&net, member.qp, group(1), 0), 0);
    member.close(&net);
    net.destroy_ah(to);
    net.close();
}
