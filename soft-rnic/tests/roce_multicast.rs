//! Multicast groups on the network: between devices, and what a forged packet does.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::net::{IpAddr, SocketAddr};

use common::multicast::*;
use common::wired::{counted, open, until_counted};
use common::*;
use libc::{EINVAL, ENOMEM};
use roce_core::codec;
use roce_core::headers::{Bth, Deth, Headers};
use roce_core::icrc::Flow;
use roce_core::lengths::{ICRC, MAX_HEADERS};
use roce_core::opcode::Opcode;
use roce_core::psn::Psn;
use soft_rnic::udp::{Marks, PacketOutbox, UdpPort};
use verbs_sys::*;

/// The immediate of the only message that has arrived.
fn number(net: &Net, member: &GroupMember) -> u32 {
    let came = net.poll(member.cq, 1);
    assert_eq!(came.len(), 1, "{came:?}");
    came[0].imm.unwrap()
}

#[test]
fn members_on_all_devices_get_one_copy_until_they_leave() {
    let [a, b, c] = ["127.45.0.1", "127.45.0.2", "127.45.0.3"].map(open);
    let (to, other) = (ah(&a, group(1)), ah(&a, group(2)));
    let mut sender = GroupMember::new(&a);
    let here = member(&a, group(1));
    let [one, two] = [(); 2].map(|()| member(&b, group(1)));
    let apart = member(&c, group(2));
    sender.buf[63 * SLOT..][..5].copy_from_slice(b"hello");
    sender.send(&a, to, 5, Some(1));
    for (net, member) in [(&a, &here), (&b, &one), (&b, &two)] {
        let came = net.poll(member.cq, 1);
        assert_eq!(came.len(), 1);
        assert_eq!((came[0].src_qp, came[0].imm, came[0].len), (sender.num(), Some(1), 45));
        assert!(came[0].has_grh);
        assert_eq!(&member.buf[GRH..GRH + 5], b"hello");
        let header = &member.buf[20..GRH];
        assert_eq!((header[0], header[1], header[8], header[9]), (0x45, 0x5a, 1, 17));
        assert_eq!(&header[12..16], [127, 45, 0, 1]);
        assert_eq!(&header[16..], &raw(&group(1))[12..]);
    }
    // A packet is counted once, however many get it.
    assert_eq!(counted("127.45.0.2").received, 1);
    sender.send(&a, other, 5, Some(2));
    assert_eq!(number(&c, &apart), 2, "a device gets packets of its groups alone");
    assert_eq!(detach(&b, one.qp, group(1), 0), 0);
    sender.send(&a, to, 5, Some(3));
    assert_eq!([number(&a, &here), number(&b, &two)], [3, 3]);
    assert!(b.poll_now(one.cq).is_empty(), "it has left");
    // With its last member a device leaves the group.
    end(&b, group(1), two);
    let before = counted("127.45.0.2").received;
    sender.send(&a, to, 5, Some(4));
    assert_eq!(number(&a, &here), 4);
    assert_eq!(attach(&b, one.qp, group(1), 0), 0);
    sender.send(&a, to, 5, Some(5));
    assert_eq!(number(&b, &one), 5);
    assert_eq!(counted("127.45.0.2").received, before + 1);
    end(&b, group(1), one);
    end(&a, group(1), here);
    end(&c, group(2), apart);
    sender.close(&a);
    [to, other].iter().for_each(|ah| a.destroy_ah(*ah));
    [a, b, c].into_iter().for_each(Net::close);
}

#[test]
fn a_copy_that_a_member_cannot_take_is_counted() {
    const TO: &str = "127.45.0.5";
    let (a, b) = (open("127.45.0.4"), open(TO));
    let to = ah(&a, group(3));
    let sender = GroupMember::new(&a);
    let (unready, keyed) = (GroupMember::new(&b), GroupMember::with(&b, QKEY ^ 1));
    for member in [&unready, &keyed] {
        assert_eq!(attach(&b, member.qp, group(3), 0), 0);
    }
    keyed.post_recvs(1);
    let last = member(&b, group(3));
    sender.send(&a, to, 5, Some(1));
    assert_eq!(number(&b, &last), 1);
    assert_eq!(counted(TO).not_ready, 1);
    assert_eq!(b.port().qkey_viol_cntr, 1);
    assert!([&unready, &keyed].iter().all(|member| b.poll_now(member.cq).is_empty()));
    [unready, keyed, last].into_iter().for_each(|member| end(&b, group(3), member));
    sender.close(&a);
    a.destroy_ah(to);
    [a, b].into_iter().for_each(Net::close);
}

/// Sends packets that no device would.
struct Forger {
    port: UdpPort,
    outbox: PacketOutbox,
}

impl Forger {
    fn new(ip: &str) -> Forger {
        let port = UdpPort::bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
        port.send_groups_by_own_interface().unwrap();
        Forger { port, outbox: PacketOutbox::new(false) }
    }

    /// That of a device with its address.
    fn gid(&self) -> ibv_gid {
        let IpAddr::V4(ip) = self.port.local().ip() else { panic!("of version 4") };
        ibv_gid { raw: ip.to_ipv6_mapped().octets() }
    }

    /// A packet with eight bytes of payload, whose checksum is right for one to `to`.
    fn packet(&self, headers: &Headers, to: SocketAddr) -> Vec<u8> {
        let mut bytes = [0; MAX_HEADERS];
        let len = codec::write(headers, &mut bytes).unwrap();
        let mut packet = [&bytes[..len], b"payload.", &[0; ICRC]].concat();
        let flow = Flow::new(self.port.local(), to).unwrap();
        flow.seal(0, &mut packet).unwrap();
        packet
    }

    fn send(&mut self, packet: &[u8], to: SocketAddr) {
        let (_, room) = self.outbox.push(to, Marks::default(), packet.len()).unwrap();
        room.copy_from_slice(packet);
        assert_eq!(self.outbox.send(&self.port), Ok(1));
    }
}

fn datagram(opcode: Opcode, qpn: u32, qkey: u32) -> Headers {
    let mut headers = Headers::new(Bth::new(opcode, qpn, Psn::new(0)));
    headers.deth = (opcode == Opcode::UdSendOnly).then_some(Deth { qkey, src_qpn: 9 });
    headers
}

#[test]
fn packets_to_a_group_that_are_no_datagrams_for_it_are_dropped() {
    const HERE: &str = "127.45.0.6";
    let mut net = open(HERE);
    let mut forger = Forger::new("127.45.0.7");
    let listens = member(&net, group(4));
    // A connection whose peer has the forger's address.
    let cq = net.cq(16);
    let connected = net.qp_of(ibv_qp_type::IBV_QPT_RC, cq);
    let own = core::mem::replace(&mut net.gid, forger.gid());
    net.connect(connected, 9, ConnectConfig::default());
    net.gid = own;
    assert_eq!(post_recv(connected, 0, &mut []), 0);
    // SAFETY: the queue pair is alive.
    let number_of = |qp: *mut ibv_qp| unsafe { (*qp).qp_num };
    let group_ip: [u8; 4] = raw(&group(4))[12..].try_into().unwrap();
    let to = SocketAddr::new(IpAddr::from(group_ip), soft_rnic::Roce::UDP_PORT);
    let unicast = SocketAddr::new(HERE.parse().unwrap(), soft_rnic::Roce::UDP_PORT);
    let good = datagram(Opcode::UdSendOnly, GROUP_QPN, QKEY);
    let before = counted(HERE);
    // Checksums: of a damaged packet, and of one to another address.
    let mut damaged = forger.packet(&good, to);
    damaged[22] ^= 4;
    forger.send(&damaged, to);
    let elsewhere = forger.packet(&good, unicast);
    forger.send(&elsewhere, to);
    // No packet, and one that is no datagram.
    forger.send(&[7; 5], to);
    let reliable = forger.packet(&datagram(Opcode::RcSendOnly, GROUP_QPN, 0), to);
    forger.send(&reliable, to);
    // To queue pairs, and of another partition.
    for headers in [
        datagram(Opcode::UdSendOnly, listens.num(), QKEY),
        datagram(Opcode::RcSendOnly, number_of(connected), 0),
        Headers { bth: Bth { pkey: 0x1234, ..good.bth }, ..good },
    ] {
        let packet = forger.packet(&headers, to);
        forger.send(&packet, to);
    }
    let keyed = forger.packet(&datagram(Opcode::UdSendOnly, GROUP_QPN, QKEY ^ 1), to);
    forger.send(&keyed, to);
    let whole = forger.packet(&good, to);
    forger.send(&whole, to);
    let came = net.poll(listens.cq, 1);
    assert_eq!(came.len(), 1, "{came:?}");
    assert_eq!((came[0].id, came[0].src_qp, came[0].len), (0, 9, 48));
    assert_eq!(&listens.buf[GRH..GRH + 8], b"payload.");
    let after = counted(HERE);
    assert_eq!(after.received - before.received, 9);
    assert_eq!(after.bad_icrc - before.bad_icrc, 2);
    assert_eq!(after.malformed - before.malformed, 2);
    assert_eq!(after.strangers - before.strangers, 3);
    assert_eq!(net.port().qkey_viol_cntr, 1);
    assert!(net.poll_now(listens.cq).is_empty() && net.poll_now(cq).is_empty());
    end(&net, group(4), listens);
    net.destroy_qp(connected);
    net.destroy_cq(cq);
    net.close();
}

/// Reports whether a socket of this machine has joined a group, as the system lists it.
fn is_joined(group: ibv_gid) -> bool {
    let address = u32::from_ne_bytes(raw(&group)[12..].try_into().unwrap());
    let all = std::fs::read_to_string("/proc/self/net/igmp").unwrap();
    all.split_whitespace().any(|word| word == format!("{address:08X}"))
}

#[test]
fn a_process_joins_as_many_groups_as_the_device_says() {
    let net = open("127.45.0.9");
    let mut limit = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut limit) }, 0);
    let groups = u8::try_from(limit.max_mcast_grp).unwrap();
    assert_eq!(limit.max_total_mcast_qp_attach, i32::from(groups) * limit.max_mcast_qp_attach);
    let [one, two] = [(); 2].map(|()| GroupMember::new(&net));
    let first = 100;
    for n in 0..groups {
        assert_eq!(attach(&net, one.qp, group(first + n), 0), 0, "{n}");
    }
    assert_eq!(attach(&net, two.qp, group(first + groups), 0), ENOMEM);
    assert_eq!(attach(&net, two.qp, group(first), 0), 0, "one that was joined");
    assert_eq!(detach(&net, one.qp, group(first), 0), 0);
    assert_eq!(attach(&net, one.qp, group(first + groups), 0), ENOMEM, "it has a member");
    assert_eq!(detach(&net, two.qp, group(first), 0), 0);
    assert_eq!(detach(&net, two.qp, group(first), 0), EINVAL);
    assert_eq!(attach(&net, one.qp, group(first + groups), 0), 0);
    for n in 1..=groups {
        assert!(is_joined(group(first + n)));
        assert_eq!(detach(&net, one.qp, group(first + n), 0), 0);
        assert!(!is_joined(group(first + n)), "it is left with its last member");
    }
    assert_eq!(attach(&net, two.qp, group_v6(1), 0), EINVAL, "of another family");
    [one, two].into_iter().for_each(|member| member.close(&net));
    net.close();
}

/// Without a thread that polls, the device's thread takes them.
#[test]
fn the_devices_thread_takes_packets_of_groups() {
    const TO: &str = "127.45.0.11";
    let (a, b) = (open("127.45.0.10"), open(TO));
    let to = ah(&a, group(5));
    let (sender, listens) = (GroupMember::new(&a), member(&b, group(5)));
    for n in 1..=20 {
        sender.send(&a, to, 4, None);
        until_counted(TO, |counters| counters.received == n);
    }
    end(&b, group(5), listens);
    sender.close(&a);
    a.destroy_ah(to);
    [a, b].into_iter().for_each(Net::close);
}

/// The network's faults, which are drawn for each packet: of those to a group, and to a queue
/// pair's own address.
#[test]
fn packets_to_a_group_are_repeated_and_overtake_each_other() {
    const N: u32 = 20;
    let a = open("127.45.0.12");
    let b = open("127.45.0.13,reordering=0.5,duplication=0.5,seed=3");
    let (to, one) = (ah(&a, group(6)), a.ah_in(a.pd, b.ah_attr()));
    let sender = GroupMember::new(&a);
    let (listens, direct) = (member(&b, group(6)), GroupMember::new(&b));
    direct.post_recvs(63);
    listens.post_recvs(55);
    let post = |n: u32| {
        sender.post(to, 4, Some(n));
        sender.post_to(one, direct.num(), 4, Some(n));
        assert_eq!(a.poll(sender.cq, 2).len(), 2);
    };
    (0..N).for_each(post);
    for member in [&listens, &direct] {
        let (mut came, mut next) = (Vec::new(), N);
        // The last ones may be kept back until others arrive.
        while !(0..N).all(|n| came.contains(&n)) {
            post(next);
            next += 1;
            assert!(next < 2 * N, "{came:?}");
            came.extend(b.poll(member.cq, 1).iter().map(|wc| wc.imm.unwrap()));
        }
        assert!(!came.is_sorted(), "{came:?}");
        came.retain(|n| *n < N);
        assert!(came.len() > N as usize, "some arrived twice");
        came.sort_unstable();
        came.dedup();
        assert!(came.into_iter().eq(0..N));
    }
    end(&b, group(6), listens);
    [(&a, sender), (&b, direct)].into_iter().for_each(|(net, member)| member.close(net));
    [to, one].iter().for_each(|ah| a.destroy_ah(*ah));
    [a, b].into_iter().for_each(Net::close);
}
