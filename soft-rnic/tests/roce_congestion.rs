//! Congestion over UDP: a network that marks packets, between two devices of this process.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use common::*;
use soft_rnic::PacketCounters;
use verbs_sys::*;

const MESSAGES: u64 = 40;
const LEN: usize = 20_000;
const CONFIG: ConnectConfig = ConnectConfig { access: RW, qkey: 0x11, ..ConnectConfig::PATIENT };

/// An end on a device of its own.
struct Side {
    ip: String,
    net: Net,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    bytes: Vec<u8>,
}

impl Side {
    fn new(text: &str, kind: ibv_qp_type) -> Side {
        let net = wired::open(text);
        let cq = net.cq(256);
        let qp = net.qp_of(kind, cq);
        let mut bytes = vec![0; 2 * MESSAGES as usize * LEN];
        let mr = net.mr(&mut bytes, RW);
        let ip = text.split(',').next().unwrap().to_owned();
        Side { ip, net, cq, qp, mr, bytes }
    }

    /// Connects to the other end, with a traffic class.
    fn connect(&self, to: &Side, class: u8) {
        // SAFETY: the queue pairs are alive.
        let (kind, number) = unsafe { ((*self.qp).qp_type, (*to.qp).qp_num) };
        for (mut attr, mask) in <[_; 3]>::from(to.net.steps_of(kind, number, CONFIG)) {
            attr.ah_attr.grh.traffic_class = class;
            assert_eq!(self.net.modify(self.qp, attr, mask), 0);
        }
    }

    fn counted(&self) -> PacketCounters {
        wired::counted(&self.ip)
    }

    fn local(&self, nth: u64) -> [ibv_sge; 1] {
        [sge(self.mr, nth as usize * LEN, LEN as u32)]
    }

    fn close(self) {
        self.net.destroy_qp(self.qp);
        self.net.destroy_cq(self.cq);
        self.net.dereg(self.mr);
        self.net.close();
    }
}

fn pair(texts: [&str; 2], kind: ibv_qp_type, class: u8) -> [Side; 2] {
    let [a, b] = texts.map(|text| Side::new(text, kind));
    a.connect(&b, class);
    b.connect(&a, class);
    [a, b]
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8) as u8
}

/// Messages from the first to the second end, one after the other: no socket is ever full. All
/// arrive as they were sent.
fn exchange(a: &mut Side, b: &Side) {
    let len = MESSAGES as usize * LEN;
    a.bytes[..len].iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
    for nth in 0..MESSAGES {
        assert_eq!(post_recv(b.qp, nth, &mut b.local(nth)), 0);
    }
    for nth in 0..MESSAGES {
        let mut from = a.local(nth);
        let mut wr = send_wr(nth, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
        assert_eq!(post_send(a.qp, &mut wr), 0);
        for side in [&*a, b] {
            assert_eq!(side.net.poll(side.cq, 1)[0].status, "SUCCESS");
        }
    }
    assert!(a.bytes[..len] == b.bytes[..len]);
}

#[test]
fn a_congested_network_is_noticed_and_answered() {
    let texts = ["127.44.2.1,ecn=on", "127.44.2.2,ecn=on,congestion=0.3,seed=5"];
    let [mut a, b] = pair(texts, ibv_qp_type::IBV_QPT_RC, 0);
    exchange(&mut a, &b);
    let counted = b.counted();
    assert!(counted.np_ecn_marked_packets > 20, "{counted:?}");
    assert!((1..=counted.np_ecn_marked_packets).contains(&counted.np_cnp_sent), "{counted:?}");
    let sender =
        wired::until_counted(&a.ip, |sender| sender.rp_cnp_handled == b.counted().np_cnp_sent);
    assert_eq!((sender.rp_cnp_ignored, sender.np_ecn_marked_packets), (0, 0));
    assert_eq!((counted.rp_cnp_handled, counted.malformed), (0, 0));
    a.close();
    b.close();
}

/// Only a sender that permits it has its packets marked.
#[test]
fn packets_of_a_sender_without_ecn_are_not_marked() {
    let texts = ["127.44.2.3", "127.44.2.4,ecn=off,congestion=1"];
    let [mut a, b] = pair(texts, ibv_qp_type::IBV_QPT_RC, 0xb8);
    exchange(&mut a, &b);
    let counted = b.counted();
    assert!(counted.received > 0);
    assert_eq!((counted.np_ecn_marked_packets, counted.np_cnp_sent), (0, 0));
    a.close();
    b.close();
}

/// `ecn=on` is for those that have a window; the traffic class of a queue pair may be ECN-capable anyway.
#[test]
fn an_unreliable_connection_notifies_and_ignores_notifications() {
    let texts = ["127.44.2.5,ecn=on", "127.44.2.6,congestion=1"];
    let [mut a, b] = pair(texts, ibv_qp_type::IBV_QPT_UC, 0xb8);
    exchange(&mut a, &b);
    assert_eq!(b.counted().np_ecn_marked_packets, 0);
    a.close();
    b.close();
    let [mut a, b] =
        ["127.44.2.5", "127.44.2.6"].map(|text| Side::new(text, ibv_qp_type::IBV_QPT_UC));
    a.connect(&b, 0xb9);
    b.connect(&a, 0xb9);
    exchange(&mut a, &b);
    let counted = b.counted();
    assert!(counted.np_ecn_marked_packets > 50 && counted.np_cnp_sent > 0, "{counted:?}");
    let sender =
        wired::until_counted(&a.ip, |sender| sender.rp_cnp_ignored == b.counted().np_cnp_sent);
    assert_eq!(sender.rp_cnp_handled, 0);
    a.close();
    b.close();
}

#[test]
fn a_datagram_marked_for_congestion_is_counted_and_not_answered() {
    let texts = ["127.44.2.7", "127.44.2.8,congestion=1"];
    let [a, b] = pair(texts, ibv_qp_type::IBV_QPT_UD, 0);
    for (id, class) in [(0, 0xb8), (1, 0xb8 | 2), (2, 0xb8 | 1)] {
        assert_eq!(post_recv(b.qp, id, &mut b.local(0)), 0);
        let mut attr = b.net.ah_attr();
        attr.grh.traffic_class = class;
        let ah = a.net.ah_in(a.net.pd, attr);
        let mut from = [sge(a.mr, 0, 100)];
        // SAFETY: the queue pair is alive.
        let number = unsafe { (*b.qp).qp_num };
        let mut wr = datagram_wr(id, &mut from, SIGNALED, (ah, number, CONFIG.qkey));
        assert_eq!(post_send(a.qp, &mut wr), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
        assert_eq!(b.net.poll(b.cq, 1)[0].id, id);
        // The program sees the mark as well: in the header in front.
        let mark = if class == 0xb8 { 0 } else { 3 };
        assert_eq!(b.bytes[21], 0xb8 | mark);
        a.net.destroy_ah(ah);
    }
    let counted = b.counted();
    assert_eq!((counted.np_ecn_marked_packets, counted.np_cnp_sent), (2, 0));
    a.close();
    b.close();
}
