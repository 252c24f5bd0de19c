//! Two devices that reach each other over UDP, on addresses of the loopback interface.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::time::Instant;

use common::other;
use common::*;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
const BYTES: usize = 1 << 20;

/// PSNs wrap around soon.
const PATIENT: ConnectConfig = ConnectConfig {
    access: RW,
    rq_psn: 0xff_fff0,
    sq_psn: 0xff_fff0,
    qkey: 0x11,
    ..ConnectConfig::PATIENT
};

/// An end on a device of its own.
struct Side {
    net: Net,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    bytes: Vec<u8>,
}

impl Side {
    fn new(text: &str, kind: ibv_qp_type) -> Side {
        Side::on(wired::open(text), kind)
    }

    fn on(net: Net, kind: ibv_qp_type) -> Side {
        let cq = net.cq(256);
        let qp = net.qp_of(kind, cq);
        let mut bytes = vec![0; BYTES];
        let mr = net.mr(&mut bytes, RW);
        Side { net, cq, qp, mr, bytes }
    }

    fn number(&self) -> u32 {
        qp_num(self.qp)
    }

    fn connect(&self, to: &Side, config: ConnectConfig) {
        // SAFETY: the queue pair is alive.
        let kind = unsafe { (*self.qp).qp_type };
        // The route is to the other device's GID.
        for (attr, mask) in <[_; 3]>::from(to.net.steps_of(kind, to.number(), config)) {
            assert_eq!(self.net.modify(self.qp, attr, mask), 0);
        }
    }

    fn local(&self, offset: usize, len: usize) -> [ibv_sge; 1] {
        [sge(self.mr, offset, len as u32)]
    }

    fn close(self) {
        self.net.destroy_qp(self.qp);
        self.net.destroy_cq(self.cq);
        self.net.dereg(self.mr);
        self.net.close();
    }
}

fn pair(texts: [&str; 2], kind: ibv_qp_type) -> [Side; 2] {
    connected(texts.map(|text| Side::new(text, kind)))
}

fn connected([a, b]: [Side; 2]) -> [Side; 2] {
    a.connect(&b, PATIENT);
    b.connect(&a, PATIENT);
    [a, b]
}

/// An operation on the peer's memory.
fn remote(wr: &mut ibv_send_wr, to: &Side, offset: usize) {
    let remote_addr = to.bytes.as_ptr() as u64 + offset as u64;
    // SAFETY: the region is alive.
    let rkey = unsafe { (*to.mr).rkey };
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
}

fn number(i: usize, seed: usize) -> u8 {
    (i.wrapping_mul(31) ^ seed.wrapping_mul(0x9e37) ^ i >> 8) as u8
}

/// Sends, writes, reads and adds, over numbers that wrap; compares all memory.
fn every_operation(texts: [&str; 2]) {
    let [mut a, mut b] = pair(texts, RC);
    for (round, len) in [0, 1, 1_000, 1_024, 1_025, 40_000, 300_000].into_iter().enumerate() {
        for (i, byte) in a.bytes.iter_mut().enumerate() {
            *byte = number(i, round);
        }
        b.bytes.fill(0);
        assert_eq!(post_recv(b.qp, 7, &mut b.local(8, len)), 0);
        let (mut sent, mut written) = (a.local(16, len), a.local(400_000, len));
        let mut send = send_wr(1, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, &mut sent, SIGNALED);
        send.__bindgen_anon_1.imm_data = 99_u32.to_be();
        let mut write = send_wr(2, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut written, SIGNALED);
        remote(&mut write, &b, 400_000);
        send.next = &mut write;
        assert_eq!(post_send(a.qp, &mut send), 0);
        let done = a.net.poll(a.cq, 2);
        assert!(done.iter().all(|wc| wc.status == "SUCCESS"), "{done:?}");
        let came = b.net.poll(b.cq, 1)[0];
        assert_eq!((came.id, came.len, came.imm), (7, len as u32, Some(99)));
        assert!(b.bytes[8..8 + len] == a.bytes[16..16 + len], "sent {len}");
        assert!(
            b.bytes[400_000..400_000 + len] == a.bytes[400_000..400_000 + len],
            "written {len}"
        );
        assert_eq!((b.bytes[7], b.bytes[400_000 + len]), (0, 0));
        let mut to = a.local(0, len);
        let mut read = send_wr(3, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut to, SIGNALED);
        remote(&mut read, &b, 400_000);
        assert_eq!(post_send(a.qp, &mut read), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
        assert!(a.bytes[..len] == b.bytes[400_000..400_000 + len], "read {len}");
    }
    b.bytes[..8].copy_from_slice(&5_u64.to_ne_bytes());
    for n in 0..200 {
        let mut found = a.local(8, 8);
        let mut add = send_wr(4, ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, &mut found, SIGNALED);
        let remote_addr = b.bytes.as_ptr() as u64;
        // SAFETY: the region is alive.
        let rkey = unsafe { (*b.mr).rkey };
        add.wr.atomic =
            ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add: 3, swap: 0, rkey };
        assert_eq!(post_send(a.qp, &mut add), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
        assert_eq!(a.bytes[8..16], (5 + 3 * n as u64).to_ne_bytes(), "each is executed once");
    }
    write_words([&mut a, &mut b]);
    a.close();
    b.close();
}

/// Atomic writes to one word, several under way: the last one of a list is there at its end, as the
/// READ behind it finds it.
fn write_words([a, b]: [&mut Side; 2]) {
    const WORDS: u64 = 3;
    for n in 0..100 {
        let mut lists: Vec<_> = (0..WORDS).map(|i| a.local(8 * i as usize, 8)).collect();
        let (mut read, to) = (a.local(64, 8), b.bytes.as_ptr() as u64);
        // SAFETY: the region is alive.
        let rkey = unsafe { (*b.mr).rkey };
        let all = lists.iter_mut().map(|sges| atomic_write::request(sges, to, rkey));
        let mut all: Vec<_> = all.collect();
        all.push(send_wr(2, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut read, SIGNALED));
        remote(&mut all[WORDS as usize], b, 0);
        for i in 0..WORDS {
            let word = WORDS * n + i;
            a.bytes[8 * i as usize..][..8].copy_from_slice(&word.to_ne_bytes());
            all[i as usize].next = &raw mut all[i as usize + 1];
        }
        assert_eq!(post_send(a.qp, &mut all[0]), 0);
        let done = a.net.poll(a.cq, WORDS as usize + 1);
        assert!(done.iter().all(|wc| wc.status == "SUCCESS"), "{done:?}");
        let last = (WORDS * n + WORDS - 1).to_ne_bytes();
        assert_eq!((&a.bytes[64..72], &b.bytes[..8]), (&last[..], &last[..]), "round {n}");
    }
}

#[test]
fn every_operation_goes_over_udp() {
    every_operation(["127.0.0.81", "127.0.0.82"]);
    every_operation(["::1,loopback=wire"; 2]);
    every_operation(["127.0.0.150,gso=off", "127.0.0.151,gso=off"]);
}

#[test]
fn every_operation_succeeds_on_a_faulty_network() {
    let faults = "loss=0.03,reordering=0.03,duplication=0.03";
    let [a, b] = [83, 84].map(|n| format!("127.0.0.{n},{faults},seed={n}"));
    every_operation([&a, &b]);
}

/// Each end posts long messages until all have arrived, in both directions at once.
#[test]
fn both_ends_stream_at_once() {
    const MESSAGES: usize = 60;
    const LEN: usize = 30_000;
    let faults = "loss=0.01,seed=5";
    let [a, b] = [85, 86].map(|n| format!("127.0.0.{n},{faults}"));
    let sides = pair([&a, &b], RC);
    for side in &sides {
        for n in 0..MESSAGES {
            assert_eq!(post_recv(side.qp, n as u64, &mut side.local(500_000, LEN)), 0);
        }
    }
    for n in 0..MESSAGES {
        for side in &sides {
            let mut from = side.local(n, LEN);
            let mut wr = send_wr(n as u64, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
            assert_eq!(post_send(side.qp, &mut wr), 0);
        }
    }
    for side in sides {
        let all = side.net.poll(side.cq, 2 * MESSAGES);
        assert!(all.iter().all(|wc| wc.status == "SUCCESS"), "{all:?}");
        for opcode in ["SEND", "RECV"] {
            let ids = all.iter().filter(|wc| wc.opcode == opcode).map(|wc| wc.id);
            assert!(ids.eq(0..MESSAGES as u64), "{opcode}: in order, and once");
        }
        side.close();
    }
}

#[test]
fn a_message_over_uc_arrives_whole_or_not_at_all() {
    const MESSAGES: u64 = 60;
    let [mut a, b] = pair(["127.0.0.87", "127.0.0.88,loss=0.05,seed=1"], UC);
    for n in 0..MESSAGES {
        assert_eq!(post_recv(b.qp, n, &mut b.local(n as usize * 10_000, 10_000)), 0);
    }
    for n in 0..MESSAGES {
        a.bytes[..10_000].fill(n as u8 + 1);
        let mut from = a.local(0, 10_000);
        let mut wr = send_wr(n, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, &mut from, SIGNALED);
        wr.__bindgen_anon_1.imm_data = (n as u32).to_be();
        assert_eq!(post_send(a.qp, &mut wr), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
    }
    let mut came = Vec::new();
    // What is lost is not waited for: a last message is repeated until it arrives.
    let end = Instant::now() + PATIENCE;
    while came.last().is_none_or(|wc: &Wc| wc.imm != Some(1_000)) {
        assert!(Instant::now() < end, "{} arrived", came.len());
        let mut wr = send_wr(0, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, &mut [], SIGNALED);
        wr.__bindgen_anon_1.imm_data = 1_000_u32.to_be();
        assert_eq!(post_send(a.qp, &mut wr), 0);
        a.net.poll(a.cq, 1);
        came.extend(b.net.poll_now(b.cq));
    }
    let whole: Vec<_> = came.iter().filter(|wc| wc.imm != Some(1_000)).collect();
    assert!(!whole.is_empty() && whole.len() < MESSAGES as usize, "{} arrived", whole.len());
    for wc in whole {
        let number = wc.imm.unwrap();
        let at = wc.id as usize * 10_000;
        assert!(b.bytes[at..at + 10_000].iter().all(|byte| *byte == number as u8 + 1), "{wc:?}");
    }
    a.close();
    b.close();
}

#[test]
fn a_datagram_says_where_it_comes_from() {
    let [a, b] = pair(["127.0.0.89", "127.0.0.90"], UD);
    assert_eq!(post_recv(b.qp, 5, &mut b.local(0, 140)), 0);
    let ah = a.net.ah_in(a.net.pd, b.net.ah_attr());
    let mut from = a.local(0, 100);
    let mut wr = datagram_wr(1, &mut from, SIGNALED, (ah, b.number(), PATIENT.qkey));
    assert_eq!(post_send(a.qp, &mut wr), 0);
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
    let came = b.net.poll(b.cq, 1)[0];
    assert_eq!((came.id, came.len, came.src_qp, came.has_grh), (5, 140, a.number(), true));
    // The last 20 of the 40 bytes are an IPv4 header.
    let ip = &b.bytes[20..40];
    assert_eq!((ip[0], ip[9]), (0x45, 17));
    assert_eq!((&ip[12..16], &ip[16..20]), (&[127, 0, 0, 89][..], &[127, 0, 0, 90][..]));
    // Hop limit of the handle.
    assert_eq!(ip[8], 1);
    // One with another key is dropped, and counted.
    assert_eq!(post_recv(b.qp, 6, &mut b.local(0, 140)), 0);
    for key in [PATIENT.qkey + 1, PATIENT.qkey] {
        let mut from = a.local(0, 100);
        let mut wr = datagram_wr(1, &mut from, SIGNALED, (ah, b.number(), key));
        assert_eq!(post_send(a.qp, &mut wr), 0);
    }
    a.net.poll(a.cq, 2);
    assert_eq!(b.net.poll(b.cq, 1)[0].id, 6);
    assert_eq!(b.net.port().qkey_viol_cntr, 1);
    a.net.destroy_ah(ah);
    a.close();
    b.close();
}

/// A receive request without room for the header stays, whatever is behind it.
#[test]
fn an_empty_datagram_needs_room_for_the_header_in_front() {
    const TO: &str = "127.0.0.107";
    let [a, b] = pair(["127.0.0.108", TO], UD);
    let ah = a.net.ah_in(a.net.pd, b.net.ah_attr());
    let send = || {
        let mut wr = datagram_wr(1, &mut [], SIGNALED, (ah, b.number(), PATIENT.qkey));
        assert_eq!(post_send(a.qp, &mut wr), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
    };
    assert_eq!(post_recv(b.qp, 40, &mut b.local(0, 40)), 0);
    assert_eq!(post_recv(b.qp, 39, &mut b.local(0, 39)), 0);
    send();
    let came = b.net.poll(b.cq, 1)[0];
    assert_eq!((came.id, came.status, came.len), (40, "SUCCESS", 40));
    send();
    wired::until_counted(TO, |counted| counted.received >= 2);
    let fails = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
    assert_eq!(b.net.modify(b.qp, fails, ibv_qp_attr_mask::IBV_QP_STATE), 0);
    let came = b.net.poll(b.cq, 1)[0];
    assert_eq!((came.id, came.status), (39, "WR_FLUSH"));
    a.net.destroy_ah(ah);
    a.close();
    b.close();
}

/// Whichever packets arrive at the port, from the peer's address or another one, with a checksum
/// that fits or not, the connection stays up, as long as no packet is the next one of it.
#[test]
fn packets_that_belong_to_no_request_are_dropped() {
    let [a, b] = pair(["127.0.0.91", "127.0.0.92"], RC);
    let senders = ["127.0.0.91:0", "127.0.0.93:0"].map(|at| std::net::UdpSocket::bind(at).unwrap());
    let to = "127.0.0.92:4791".parse().unwrap();
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    for round in 0..40 {
        for sender in &senders {
            for fits in [false, true] {
                let mut packet: Vec<u8> =
                    (0..12 + random() % 40 * 4).map(|_| random() as u8).collect();
                packet.resize(packet.len().max(16), 0);
                // A key of the partition, the queue pair, and a number far from the next one.
                packet[2..4].copy_from_slice(&[0xff, 0xff]);
                packet[5..8].copy_from_slice(&b.number().to_be_bytes()[1..]);
                packet[9] = 0x40 | random() as u8 & 0x1f;
                let flow = roce_core::icrc::Flow::new(sender.local_addr().unwrap(), to).unwrap();
                if fits {
                    // Sockets of the standard library send with any identification: one that is
                    // solved.
                    flow.seal(0, &mut packet).unwrap();
                }
                sender.send_to(&packet, to).unwrap();
            }
        }
        assert_eq!(post_recv(b.qp, round, &mut b.local(0, 5_000)), 0);
        let mut from = a.local(0, 5_000);
        let mut wr = send_wr(round, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
        assert_eq!(post_send(a.qp, &mut wr), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
        assert_eq!(b.net.poll(b.cq, 1)[0].id, round);
    }
    a.close();
    b.close();
}

/// All else is as the next packet of the connection has it.
#[test]
fn a_packet_with_a_wrong_checksum_or_source_is_dropped() {
    let [mut a, b] = pair(["127.0.0.101", "127.0.0.102"], RC);
    assert_eq!(post_recv(b.qp, 5, &mut b.local(0, 8)), 0);
    let to = "127.0.0.102:4791".parse().unwrap();
    // SEND only, with the partition's key, the queue pair and the first number; eight bytes; the
    // ICRC.
    let mut packet = vec![0x04, 0, 0xff, 0xff, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xf0];
    packet[5..8].copy_from_slice(&b.number().to_be_bytes()[1..]);
    packet.extend([9; 8]);
    packet.extend([0; 4]);
    for (from, wrong) in [("127.0.0.101:0", 1), ("127.0.0.103:0", 0)] {
        let sender = std::net::UdpSocket::bind(from).unwrap();
        let flow = roce_core::icrc::Flow::new(sender.local_addr().unwrap(), to).unwrap();
        flow.seal(0, &mut packet).unwrap();
        packet[23] ^= wrong;
        sender.send_to(&packet, to).unwrap();
    }
    a.bytes[..8].fill(1);
    let mut from = a.local(0, 8);
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
    assert_eq!(post_send(a.qp, &mut wr), 0);
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
    assert_eq!(b.net.poll(b.cq, 1)[0].id, 5);
    assert_eq!(b.bytes[..8], [1; 8]);
    let counted = wired::counted("127.0.0.102");
    assert_eq!((counted.bad_icrc, counted.strangers), (1, 1));
    // Those two, and the message; it is acknowledged.
    assert!(counted.received >= 3 && counted.sent >= 1, "{counted:?}");
    a.close();
    b.close();
}

#[test]
fn a_landing_place_that_has_gone_is_an_error() {
    let [a, b] = ["127.0.0.97", "127.0.0.98"].map(|text| Side::new(text, RC));
    a.connect(&b, PATIENT);
    let mut landing = vec![0_u8; 4_096];
    let mr = a.net.mr(&mut landing, RW);
    let mut to = [sge(mr, 0, 4_096)];
    let mut read = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut to, SIGNALED);
    remote(&mut read, &b, 0);
    assert_eq!(post_send(a.qp, &mut read), 0);
    a.net.dereg(mr);
    // Only now does the peer answer.
    b.connect(&a, PATIENT);
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "LOC_PROT");
    assert_eq!(landing, [0; 4_096]);
    a.close();
    b.close();
}

#[test]
fn a_uc_queue_pair_continues_after_a_local_failure() {
    let [a, b] = pair(["127.0.0.99", "127.0.0.100"], UC);
    assert_eq!(post_recv(b.qp, 7, &mut b.local(0, 64)), 0);
    let mut nobodys = a.local(0, 8);
    nobodys[0].lkey ^= 0x5500;
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut nobodys, SIGNALED);
    assert_eq!(post_send(a.qp, &mut wr), 0);
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "LOC_PROT");
    assert_eq!(a.net.to_state(a.qp, ibv_qp_state::IBV_QPS_RTS), 0);
    let mut from = a.local(0, 8);
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
    assert_eq!(post_send(a.qp, &mut wr), 0);
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
    assert_eq!(b.net.poll(b.cq, 1)[0].id, 7);
    a.close();
    b.close();
}

/// As in a reliable connection: it is an error of the receiver's own.
#[test]
fn inaccessible_receive_memory_ends_an_unreliable_queue_pair() {
    for kind in [UC, UD] {
        let [a, b] = pair(["127.0.0.105", "127.0.0.106"], kind);
        let mut nobodys = b.local(0, 64);
        nobodys[0].lkey ^= 0x5500;
        assert_eq!(post_recv(b.qp, 7, &mut nobodys), 0);
        assert_eq!(post_recv(b.qp, 8, &mut b.local(0, 64)), 0);
        let ah = a.net.ah_in(a.net.pd, b.net.ah_attr());
        let mut from = a.local(0, 8);
        let mut wr = match kind {
            UD => datagram_wr(1, &mut from, SIGNALED, (ah, b.number(), PATIENT.qkey)),
            _ => send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED),
        };
        assert_eq!(post_send(a.qp, &mut wr), 0);
        assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS");
        let ended = b.net.poll(b.cq, 2);
        let ended: Vec<_> = ended.iter().map(|wc| (wc.id, wc.status)).collect();
        assert_eq!(ended, [(7, "LOC_PROT"), (8, "WR_FLUSH")]);
        assert!(b.net.reaches(b.qp, ibv_qp_state::IBV_QPS_ERR));
        a.net.destroy_ah(ah);
        a.close();
        b.close();
    }
}

#[test]
fn a_peer_that_is_not_there_is_missed() {
    let a = Side::new("127.0.0.94", RC);
    let b = Side::new("127.0.0.95", RC);
    let (rq_psn, sq_psn) = (PATIENT.rq_psn, PATIENT.sq_psn);
    a.connect(&b, ConnectConfig { rq_psn, sq_psn, ..ConnectConfig::DEAD });
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(a.qp, &mut wr), 0);
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "RETRY_EXC");
    a.close();
    b.close();
}

#[test]
fn an_address_has_one_device() {
    let other = std::net::UdpSocket::bind("127.0.0.96:4791").unwrap();
    let roce: soft_rnic::Roce = "127.0.0.96".parse().unwrap();
    let error = roce.list().unwrap_err().to_string();
    assert!(error.contains("127.0.0.96:4791") && error.contains("in use"), "{error}");
    drop(other);
    assert_eq!(roce.list().as_deref(), Ok("roce:127.0.0.96"));
    assert_eq!(roce.list().as_deref(), Ok("roce:127.0.0.96"), "the same one");
    let nobodys: soft_rnic::Roce = "192.0.2.1".parse().unwrap();
    let error = nobodys.list().unwrap_err().to_string();
    assert!(error.contains("no interface here"), "{error}");
    for wrong in
        ["", "here", "127.0.0.1:4791", "127.0.0.1,loss", "127.0.0.1,loss=2", "::1,x=1", "::1,gso=1"]
    {
        assert!(wrong.parse::<soft_rnic::Roce>().is_err(), "{wrong}");
    }
}

/// Way in which a receiver ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Destroys,
    Resets,
    Fails,
}

/// Acknowledgements wait for what the program sends next: those of one that ends do not.
fn acknowledges_and_ends([a, mut b]: [Side; 2], ending: Ending) {
    let state = ibv_qp_attr_mask::IBV_QP_STATE;
    assert_eq!(post_recv(b.qp, 7, &mut b.local(8, 8)), 0);
    // The device sees that it is polled.
    for _ in 0..1_000 {
        assert!(b.net.poll_now(b.cq).is_empty());
        host::thread::yield_now();
    }
    let mut from = a.local(8, 8);
    let mut send = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
    assert_eq!(post_send(a.qp, &mut send), 0);
    assert_eq!(b.net.poll(b.cq, 1)[0].status, "SUCCESS");
    let to = |qp_state| ibv_qp_attr { qp_state, ..Default::default() };
    match ending {
        Ending::Destroys => b.net.destroy_qp(b.qp),
        Ending::Resets => {
            assert_eq!(b.net.modify(b.qp, to(ibv_qp_state::IBV_QPS_RESET), state), 0);
        }
        Ending::Fails => {
            assert_eq!(b.net.modify(b.qp, to(ibv_qp_state::IBV_QPS_ERR), state), 0);
        }
    }
    assert_eq!(a.net.poll(a.cq, 1)[0].status, "SUCCESS", "{ending:?}");
    if ending == Ending::Destroys {
        b.qp = b.net.qp_of(RC, b.cq);
    }
    a.close();
    b.close();
}

#[test]
fn a_message_is_acknowledged_although_its_queue_pair_ends() {
    for ending in [Ending::Destroys, Ending::Resets, Ending::Fails] {
        for _ in 0..20 {
            acknowledges_and_ends(pair(["127.0.0.163", "127.0.0.164"], RC), ending);
        }
    }
}

/// As above, of a process that exits.
#[test]
fn a_message_is_acknowledged_although_its_receiver_exits() {
    const ENTRY: &str = "a_message_is_acknowledged_although_its_receiver_exits";
    let [here, there] = ["127.0.0.165", "127.0.0.166"];
    let connect = |side: &Side, to: &str, number: u32| {
        let mut steps = <[_; 3]>::from(side.net.steps_of(RC, number, PATIENT));
        let to: std::net::Ipv4Addr = to.parse().unwrap();
        steps[1].0.ah_attr.grh.dgid.raw = to.to_ipv6_mapped().octets();
        for (attr, mask) in steps {
            assert_eq!(side.net.modify(side.qp, attr, mask), 0);
        }
    };
    if other::role().is_some() {
        let side = Side::new(there, RC);
        other::say(&side.number().to_string());
        connect(&side, here, other::hear().unwrap().parse().unwrap());
        assert_eq!(post_recv(side.qp, 7, &mut side.local(8, 8)), 0);
        other::say("ready");
        assert_eq!(side.net.poll(side.cq, 1)[0].status, "SUCCESS");
        std::process::exit(0);
    }
    for _ in 0..5 {
        let side = Side::new(here, RC);
        let mut other = other::Other::start(ENTRY, "receives");
        connect(&side, there, other.hear().parse().unwrap());
        other.say(&side.number().to_string());
        assert_eq!(other.hear(), "ready");
        // It is polling when the message arrives, mostly.
        let mut from = side.local(8, 8);
        let mut send = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
        assert_eq!(post_send(side.qp, &mut send), 0);
        assert_eq!(other.wait(), Some(0));
        assert_eq!(side.net.poll(side.cq, 1)[0].status, "SUCCESS");
        side.close();
    }
}

/// The thread that exits still holds the locks that it had when the signal arrived.
#[test]
fn a_process_exits_out_of_a_signal_handler() {
    extern "C" fn exits(_: libc::c_int) {
        // SAFETY: what this test is about: it is what programs do.
        unsafe { libc::exit(7) };
    }
    const ENTRY: &str = "a_process_exits_out_of_a_signal_handler";
    if other::role().is_some() {
        let [a, b] = pair(["127.0.0.167", "127.0.0.168"], UC);
        // SAFETY: the function stays; a signal 20 ms from now.
        unsafe {
            libc::signal(libc::SIGALRM, exits as *const () as libc::sighandler_t);
            let mut when: libc::itimerval = core::mem::zeroed();
            when.it_value.tv_usec = 20_000;
            libc::setitimer(libc::ITIMER_REAL, &when, core::ptr::null_mut());
        }
        loop {
            let mut from = a.local(8, 4_000);
            let mut send = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
            let _ = post_send(a.qp, &mut send);
            let _ = (a.net.poll_now(a.cq), &b);
        }
    }
    for _ in 0..10 {
        // This thread of the child has the signal, mostly in a system call of its post.
        assert_eq!(other::play(ENTRY, "exits", &[]).status.code(), Some(7));
    }
}
