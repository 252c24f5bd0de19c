//! Reports of a device over UDP about a peer that does not answer. One test: the process has one
//! last such peer.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::net::UdpSocket;

use common::wired::open;
use common::*;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
/// The peer is not there.
const ABSENT: ConnectConfig =
    ConnectConfig { access: RW, rq_psn: 9, sq_psn: 9, ..ConnectConfig::DEAD };
/// The peer is there.
const PRESENT: ConnectConfig =
    ConnectConfig { access: RW, rq_psn: 9, sq_psn: 9, ..ConnectConfig::LIVING };

fn connect(net: &Net, qp: *mut ibv_qp, to: &Net, peer: u32) {
    connect_with(net, qp, to, (peer, ABSENT));
}

fn connect_with(net: &Net, qp: *mut ibv_qp, to: &Net, (peer, config): (u32, ConnectConfig)) {
    for (attr, mask) in <[_; 3]>::from(to.steps_of(RC, peer, config)) {
        assert_eq!(net.modify(qp, attr, mask), 0);
    }
}

/// Sends `len` bytes; returns the status.
fn send(net: &Net, cq: *mut ibv_cq, qp: *mut ibv_qp, mr: *mut ibv_mr, len: u32) -> &'static str {
    let mut list = [sge(mr, 0, len)];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut list, SIGNALED);
    assert_eq!(post_send(qp, &mut wr), 0);
    net.poll(cq, 1)[0].status
}

#[test]
fn causes_are_named_by_what_has_come() {
    let [a, b] = ["127.31.2.1", "127.31.2.2"].map(open);
    let (cq, peer_cq) = (a.cq(16), b.cq(16));
    let mut bytes = vec![0; 20_000];
    let mr = a.mr(&mut bytes, RW);
    assert_eq!(soft_rnic::peer_unreached(), None);

    // No queue pair has the number there: no reply arrives.
    let qp = a.qp_of(RC, cq);
    connect(&a, qp, &b, 0xff_0001);
    assert_eq!(send(&a, cq, qp, mr, 8), "RETRY_EXC");
    let silent = soft_rnic::peer_unreached().unwrap();
    assert_eq!(
        (&*silent.device, silent.peer.to_string()),
        ("roce:127.31.2.1", "127.31.2.2".into())
    );
    assert_eq!((silent.has_answered, silent.packet_bytes), (false, 8));
    assert!(
        silent.to_string().contains("does not answer: nothing came from 127.31.2.2"),
        "{silent}"
    );
    a.destroy_qp(qp);

    // It answers a short message, and is gone when a long one arrives.
    let (qp, peer) = (a.qp_of(RC, cq), b.qp_of(RC, peer_cq));
    connect_with(&a, qp, &b, (qp_num(peer), PRESENT));
    connect(&b, peer, &a, qp_num(qp));
    let mut room = vec![0; 64];
    let room_mr = b.mr(&mut room, RW);
    assert_eq!(post_recv(peer, 1, &mut [sge(room_mr, 0, 64)]), 0);
    assert_eq!(send(&a, cq, qp, mr, 8), "SUCCESS");
    a.expect_death(qp);
    b.destroy_qp(peer);
    assert_eq!(send(&a, cq, qp, mr, 20_000), "RETRY_EXC");
    let long = soft_rnic::peer_unreached().unwrap();
    assert_eq!((long.has_answered, long.packet_bytes), (true, 4_096));
    assert!(long.to_string().contains("does not answer: it has answered before"), "{long}");
    a.destroy_qp(qp);

    // Packets for it are sent from elsewhere, and damaged ones from its peer's address.
    let qp = a.qp_of(RC, cq);
    connect(&a, qp, &b, 0xff_0001);
    let mut packet = [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 9, 0x1f, 0, 0, 0, 1, 2, 3, 4];
    packet[5..8].copy_from_slice(&qp_num(qp).to_be_bytes()[1..]);
    let sender = UdpSocket::bind("127.31.2.2:0").unwrap();
    sender.send_to(&packet, "127.31.2.1:4791").unwrap();
    assert_eq!(send(&a, cq, qp, mr, 8), "RETRY_EXC");
    let damaged = soft_rnic::peer_unreached().unwrap();
    assert_eq!((damaged.bad_icrc, damaged.foreign), (1, None));
    assert!(
        damaged.to_string().contains("does not answer: 1 packets came with a checksum"),
        "{damaged}"
    );
    a.destroy_qp(qp);
    let qp = a.qp_of(RC, cq);
    connect(&a, qp, &b, 0xff_0001);
    packet[5..8].copy_from_slice(&qp_num(qp).to_be_bytes()[1..]);
    let sender = UdpSocket::bind("127.31.2.3:0").unwrap();
    sender.send_to(&packet, "127.31.2.1:4791").unwrap();
    assert_eq!(send(&a, cq, qp, mr, 8), "RETRY_EXC");
    let foreign = soft_rnic::peer_unreached().unwrap();
    assert_eq!(foreign.foreign, Some("127.31.2.3".parse().unwrap()));
    assert!(
        foreign
            .to_string()
            .contains("does not answer: packets for a queue pair came from 127.31.2.3"),
        "{foreign}"
    );
    a.destroy_qp(qp);
    for (net, cq, mr) in [(a, cq, mr), (b, peer_cq, room_mr)] {
        net.destroy_cq(cq);
        net.dereg(mr);
        net.close();
    }
}
