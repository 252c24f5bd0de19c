//! Packets for two processes of one address that arrive as one run, as a card merges them on
//! receipt.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::net::{SocketAddr, UdpSocket};

use common::other::*;
use common::*;
use roce_core::codec;
use roce_core::headers::{Bth, Deth, Headers};
use roce_core::icrc::Flow;
use roce_core::lengths::{BTH, DETH, ICRC, MAX_HEADERS};
use roce_core::opcode::Opcode;
use roce_core::psn::Psn;
use soft_rnic::udp::{Marks, PacketOutbox, UdpPort};
use verbs_sys::*;

const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
/// Bytes of a datagram, and of the header in front of it.
const LEN: usize = 64;
const GRH: usize = 40;
/// Datagrams for each process.
const EACH: usize = 3;
/// The queue pair that they say they are from.
const SRC_QPN: u32 = 0x99;

fn port_of(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 4_791)
}

/// A datagram queue pair that can receive, on a device.
fn end(ip: &str) -> NearEnd {
    let net = wired::open(ip);
    let cq = net.cq(64);
    let end = NearEnd::on(UD, net, cq);
    for n in 0..2 * EACH {
        let place = end.local(0, n * (GRH + LEN), (GRH + LEN) as u32);
        assert_eq!(post_recv(end.qp, n as u64, &mut [place]), 0);
    }
    end.net.connect(end.qp, 0, ConnectConfig::default());
    end
}

/// Returns of each received datagram the first byte, the sender's last address byte in the
/// header in front, and the queue pair.
fn came(end: &NearEnd, count: usize) -> Vec<(u8, u8, u32)> {
    let done = end.net.poll(end.cq, count);
    let of = |wc: &Wc| {
        assert_eq!((wc.status, wc.len as usize), ("SUCCESS", GRH + LEN));
        let at = wc.id as usize * (GRH + LEN);
        // The header of IPv4 is the last 20 bytes of the 40; its source is 12 bytes from its start.
        (end.shared.bytes[at + GRH], end.shared.bytes[at + 20 + 15], wc.src_qp)
    };
    done.iter().map(of).collect()
}

#[test]
fn the_other_process() {
    let Some(ip) = role() else { return };
    let end = end(&ip);
    say(&end.say());
    say(&format!("{:?}", came(&end, EACH)));
    while hear().is_some() {}
}

/// A datagram that begins with this number, as the one after `nth` others of its run.
fn write(packet: &mut [u8], nth: u16, [from, ip]: [&str; 2], qpn: u32, first: u8) {
    let bth = Bth::new(Opcode::UdSendOnly, qpn, Psn::new(first.into()));
    let mut headers = Headers::new(bth);
    headers.deth = Some(Deth { qkey: QKEY, src_qpn: SRC_QPN });
    let mut bytes = [0; MAX_HEADERS];
    assert_eq!(codec::write(&headers, &mut bytes), Ok(BTH + DETH));
    packet[..BTH + DETH].copy_from_slice(&bytes[..BTH + DETH]);
    packet[BTH + DETH..].fill(first);
    let flow = Flow::new(port_of(from), port_of(ip)).unwrap();
    flow.seal(nth, packet).unwrap();
}

#[test]
fn each_process_gets_its_packets_of_a_run() {
    let [sender, ip] = ["127.0.0.159", "127.0.0.158"];
    let mut other = Other::start("the_other_process", ip);
    let end = end(ip);
    let far = Far::parse(&other.hear()).num;
    // SAFETY: the queue pair is alive.
    let near = unsafe { (*end.qp).qp_num };
    let port = UdpPort::bind(port_of(sender)).unwrap();
    let mut outbox = PacketOutbox::new(true);
    for n in 0..2 * EACH as u8 {
        let len = BTH + DETH + LEN + ICRC;
        let (nth, packet) = outbox.push(port_of(ip), Marks::default(), len).unwrap();
        assert_eq!(nth, n.into(), "one run");
        write(packet, nth, [sender, ip], if n % 2 == 0 { near } else { far }, n);
    }
    assert_eq!(outbox.send(&port), Ok(2 * EACH));
    let of = |n: u8| (n, 159, SRC_QPN);
    assert_eq!(came(&end, EACH), [0, 2, 4].map(of));
    assert_eq!(other.hear(), format!("{:?}", [1, 3, 5].map(of)));
    end.close();
}

/// Packets that one process hands over to another are sent from the port of both, which no other
/// user has.
#[test]
fn what_others_say_was_handed_over_is_dropped() {
    let [sender, stranger, ip] = ["127.0.0.162", "127.0.0.160", "127.0.0.161"];
    let end = end(ip);
    // SAFETY: the queue pair is alive.
    let number = unsafe { (*end.qp).qp_num };
    let of_sender = |first: u8| {
        let mut packet = [0; BTH + DETH + LEN + ICRC];
        write(&mut packet, 0, [sender, ip], number, first);
        packet
    };
    let address: std::net::Ipv4Addr = sender.parse().unwrap();
    let mut forged = vec![0; 32];
    forged[0] = 0xff;
    forged[4..8].copy_from_slice(&(number & !0x3fff | 2).to_be_bytes());
    forged[8..10].copy_from_slice(&4_791_u16.to_be_bytes());
    forged[12..28].copy_from_slice(&address.to_ipv6_mapped().octets());
    forged.extend(of_sender(1));
    let strangers = || wired::counted(ip).strangers;
    let before = strangers();
    for forger in [format!("{ip}:0"), format!("{stranger}:4791")] {
        let forger = UdpSocket::bind(forger).unwrap();
        assert_eq!(forger.send_to(&forged, port_of(ip)).unwrap(), forged.len());
    }
    let sender = UdpSocket::bind(port_of(sender)).unwrap();
    sender.send_to(&of_sender(2), port_of(ip)).unwrap();
    assert_eq!(came(&end, 1), [(2, 162, SRC_QPN)]);
    assert_eq!(strangers(), before + 2);
    end.close();
}
