//! Unreliable connections and datagrams: what arrives, what it looks like, and
//! what is dropped without a word.
//!
//! Not on apart: a completion is there when its post returns.

mod common;

use common::*;
use verbs_sys::*;

const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
const GRH: usize = 40;

fn pair(kind: ibv_qp_type) -> QpPair {
    QpPair::connect(kind, Net::new(), ConnectConfig::default(), ConnectConfig::default())
}

/// Returns the destination of datagrams to the second queue pair of a pair, with the right key.
fn to(p: &QpPair, ah: *mut ibv_ah) -> (*mut ibv_ah, u32, u32) {
    (ah, p.num(1), QKEY)
}

/// Posts all of them at once.
fn post_as_list(qp: *mut ibv_qp, wrs: &mut [ibv_send_wr]) {
    for i in (0..wrs.len()).rev() {
        wrs[i].next = wrs.get_mut(i + 1).map_or(core::ptr::null_mut(), |wr| wr);
    }
    assert_eq!(post_send(qp, &mut wrs[0]), 0);
}

#[test]
fn a_uc_connection_carries_sends_and_writes() {
    let mut p = pair(UC);
    p.buf[0][..4].copy_from_slice(b"data");
    for id in 0..3 {
        assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 64 * id as usize, 16)]), 0);
    }
    use ibv_wr_opcode as W;
    let opcodes = [
        W::IBV_WR_SEND,
        W::IBV_WR_SEND_WITH_IMM,
        W::IBV_WR_RDMA_WRITE,
        W::IBV_WR_RDMA_WRITE_WITH_IMM,
    ];
    for (id, opcode) in opcodes.into_iter().enumerate() {
        let mut sges = [sge(p.mr[0], 0, 4)];
        let mut wr = send_wr(id as u64, opcode, &mut sges, SIGNALED);
        wr.__bindgen_anon_1.imm_data = 7_u32.to_be();
        let (remote_addr, rkey) = (p.addr(1) + 1024 + id as u64 * 8, p.key(1));
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        let done = p.net.poll(p.cq[0], 1)[0];
        assert_eq!((done.id, done.status), (id as u64, "SUCCESS"));
    }
    let got = p.net.poll(p.cq[1], 3);
    let reported: Vec<_> = got.iter().map(|wc| (wc.id, wc.opcode, wc.len, wc.imm)).collect();
    let expected =
        [(0, "RECV", 4, None), (1, "RECV", 4, Some(7)), (2, "RECV_RDMA_WITH_IMM", 4, Some(7))];
    assert_eq!(reported, expected);
    for offset in [0, 64, 1024 + 16, 1024 + 24] {
        assert_eq!(&p.buf[1][offset..offset + 4], b"data", "at {offset}");
    }
    p.close();
}

#[test]
fn a_datagram_arrives_behind_its_header() {
    let mut p = pair(UD);
    let ah = p.net.ah();
    p.buf[0][..5].copy_from_slice(b"hello");
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 512)]), 0);
    let mut sges = [sge(p.mr[0], 0, 5)];
    let mut wr = datagram_wr(2, &mut sges, SIGNALED, to(&p, ah));
    wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
    wr.__bindgen_anon_1.imm_data = 9_u32.to_be();
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    let got = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((got.status, got.opcode, got.len, got.imm), ("SUCCESS", "RECV", 45, Some(9)));
    assert_eq!((got.src_qp, got.has_grh), (p.num(0), true));
    assert_eq!(&p.buf[1][GRH..GRH + 5], b"hello");
    check_ipv4_header(&p.buf[1][20..GRH], &p.net.gid);
    p.net.destroy_ah(ah);
    p.close();
}

/// The last 20 bytes in front of a datagram between IPv4 addresses.
fn check_ipv4_header(header: &[u8], gid: &ibv_gid) {
    assert_eq!(header[0], 0x45, "version 4, five words");
    assert_eq!(header[9], 17, "UDP");
    // 20 + 8 + 12 + 8 of headers, 4 of immediate, 5 padded to 8, 4 of checksum.
    assert_eq!(u16::from_be_bytes([header[2], header[3]]), 64);
    // SAFETY: bytes, whichever member was written.
    let gid = unsafe { gid.raw };
    assert_eq!(&header[12..16], &gid[12..], "from");
    assert_eq!(&header[16..20], &gid[12..], "to");
}

#[test]
fn the_header_and_the_data_are_scattered_over_the_list() {
    let mut p = pair(UD);
    let ah = p.net.ah();
    for (i, byte) in p.buf[0].iter_mut().enumerate().take(64) {
        *byte = i as u8;
    }
    let mut list = [(0, 30), (100, 12), (200, 3), (300, 100)].map(|(at, n)| sge(p.mr[1], at, n));
    assert_eq!(post_recv(p.qp[1], 1, &mut list), 0);
    let mut sges = [sge(p.mr[0], 0, 1), sge(p.mr[0], 1, 7), sge(p.mr[0], 8, 2)];
    let mut wr = datagram_wr(2, &mut sges, SIGNALED, to(&p, ah));
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[1], 1)[0].len, 50);
    // Ten bytes of the header are in the second piece, with the first two of data.
    assert_eq!(p.buf[1][110..112], [0, 1]);
    assert_eq!(p.buf[1][200..203], [2, 3, 4]);
    assert_eq!(p.buf[1][300..306], [5, 6, 7, 8, 9, 0]);
    p.net.poll(p.cq[0], 1);
    p.net.destroy_ah(ah);
    p.close();
}

#[test]
fn inline_data_are_taken_at_the_post() {
    for kind in [UC, UD] {
        let p = pair(kind);
        let ah = p.net.ah();
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 100)]), 0);
        let mut data = *b"inline";
        let (addr, length) = (data.as_mut_ptr() as u64, data.len() as u32);
        let mut sges = [ibv_sge { addr, length, lkey: 0 }];
        let flags = SIGNALED | ibv_send_flags::IBV_SEND_INLINE;
        let mut wr = datagram_wr(2, &mut sges, flags, to(&p, ah));
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        assert_eq!(p.net.poll(p.cq[1], 1)[0].status, "SUCCESS");
        let at = if kind == UD { GRH } else { 0 };
        assert_eq!(&p.buf[1][at..at + 6], b"inline");
        p.net.destroy_ah(ah);
        p.close();
    }
}

#[test]
fn one_queue_pair_serves_many_peers() {
    const PEERS: usize = 8;
    let net = Net::new();
    let cq = net.cq(256);
    let qps: Vec<_> = (0..=PEERS).map(|_| net.qp_of(UD, cq)).collect();
    let mut memory = vec![0; 64 * (PEERS + 1)];
    let mr = net.mr(&mut memory, RW);
    for (i, qp) in qps.iter().enumerate() {
        net.connect(*qp, 0, ConnectConfig::default());
        assert_eq!(post_recv(*qp, i as u64, &mut [sge(mr, 64 * i, 64)]), 0);
    }
    let ah = net.ah();
    // SAFETY: the queue pairs are alive.
    let number = |i: usize| unsafe { (*qps[i]).qp_num };
    let mut sges: Vec<_> = (0..PEERS).map(|i| [sge(mr, 0, 1 + i as u32)]).collect();
    let mut wrs: Vec<_> = sges
        .iter_mut()
        .zip(1..)
        .map(|(sge, i)| datagram_wr(100, sge, UNSIGNALED, (ah, number(i), QKEY)))
        .collect();
    post_as_list(qps[0], &mut wrs);
    let mut got = net.poll(cq, PEERS);
    got.sort_by_key(|wc| wc.id);
    for (i, wc) in got.iter().enumerate() {
        assert_eq!((wc.id, wc.qp, wc.src_qp), (i as u64 + 1, number(i + 1), number(0)));
        assert_eq!(wc.len, GRH as u32 + 1 + i as u32);
    }
    net.destroy_ah(ah);
    qps.iter().for_each(|qp| net.destroy_qp(*qp));
    net.destroy_cq(cq);
    net.dereg(mr);
    net.close();
}

#[test]
fn a_shared_queue_takes_datagrams_of_several_queue_pairs() {
    let net = Net::new();
    let cq = net.cq(64);
    let mut memory = vec![0; 4096];
    let mr = net.mr(&mut memory, RW);
    let mut attr = ibv_srq_init_attr::default();
    (attr.attr.max_wr, attr.attr.max_sge) = (16, 1);
    // SAFETY: the domain is alive.
    let srq = unsafe { (net.v.create_srq)(net.pd, &mut attr) };
    assert!(!srq.is_null());
    for id in 0..4 {
        let mut sges = [sge(mr, 256 * id as usize, 256)];
        assert_eq!(post_srq_recv(srq, id, &mut sges), 0);
    }
    let shares = ibv_qp_init_attr { srq, qp_type: UD, ..net.init_attr(cq) };
    let qps = [net.qp_with(shares), net.qp_with(shares), net.qp_of(UD, cq)];
    qps.iter().for_each(|qp| net.connect(*qp, 0, ConnectConfig::default()));
    let ah = net.ah();
    for i in 0..4 {
        // SAFETY: the queue pair is alive.
        let number = unsafe { (*qps[i % 2]).qp_num };
        let mut sges = [sge(mr, 2048, 8)];
        let mut wr = datagram_wr(9, &mut sges, UNSIGNALED, (ah, number, QKEY));
        assert_eq!(post_send(qps[2], &mut wr), 0);
        let wc = net.poll(cq, 1)[0];
        assert_eq!((wc.id, wc.qp, wc.len, wc.status), (i as u64, number, 48, "SUCCESS"));
    }
    net.destroy_ah(ah);
    qps.iter().for_each(|qp| net.destroy_qp(*qp));
    // SAFETY: nothing uses it any more.
    assert_eq!(unsafe { (net.v.destroy_srq)(srq) }, 0);
    net.destroy_cq(cq);
    net.dereg(mr);
    net.close();
}

#[test]
fn the_key_of_a_datagram_is_the_requests_or_the_senders_own() {
    const OTHER: u32 = 0x5555;
    let (a, b) =
        (ConnectConfig { qkey: OTHER, ..ConnectConfig::default() }, ConnectConfig::default());
    let p = QpPair::connect(UD, Net::new(), a, b);
    let ah = p.net.ah();
    let violations = p.net.port().qkey_viol_cntr;
    for id in 0..4 {
        assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 0, 64)]), 0);
    }
    // The top bit asks for the sender's own key, which is the wrong one here.
    for (imm, qkey) in [(1, QKEY), (2, OTHER), (3, 0x8000_0000 | QKEY), (4, QKEY)] {
        let mut wr = datagram_wr(imm, &mut [], SIGNALED, (ah, p.num(1), qkey));
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = (imm as u32).to_be();
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    assert!(p.net.poll(p.cq[0], 4).iter().all(|wc| wc.status == "SUCCESS"));
    let got: Vec<_> = p.net.poll(p.cq[1], 2).iter().map(|wc| (wc.id, wc.imm)).collect();
    assert_eq!(got, [(0, Some(1)), (1, Some(4))]);
    if is_soft() {
        assert!(p.net.port().qkey_viol_cntr >= violations + 2);
        check_own_key(&p, ah, OTHER); // rxe sends the key of the request in any case
    }
    p.net.destroy_ah(ah);
    p.close();
}

/// The other way the sender's own key is the right one.
fn check_own_key(p: &QpPair, ah: *mut ibv_ah, right: u32) {
    assert_eq!(post_recv(p.qp[0], 9, &mut [sge(p.mr[0], 0, 64)]), 0);
    let key = ibv_qp_attr { qkey: right, ..ibv_qp_attr::default() };
    assert_eq!(p.net.modify(p.qp[1], key, ibv_qp_attr_mask::IBV_QP_QKEY), 0);
    for qkey in [QKEY, 0x8000_0000] {
        let mut wr = datagram_wr(u64::from(qkey), &mut [], SIGNALED, (ah, p.num(0), qkey));
        assert_eq!(post_send(p.qp[1], &mut wr), 0);
    }
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 9);
    assert!(p.net.poll(p.cq[1], 2).iter().all(|wc| wc.status == "SUCCESS"));
    assert!(p.net.poll_now(p.cq[0]).is_empty());
}

#[test]
fn a_message_without_a_receive_request_is_lost_silently() {
    for kind in [UC, UD] {
        let p = pair(kind);
        let ah = p.net.ah();
        let send = |imm: u32| {
            let mut wr = datagram_wr(u64::from(imm), &mut [], SIGNALED, to(&p, ah));
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = imm.to_be();
            assert_eq!(post_send(p.qp[0], &mut wr), 0);
            assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        };
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
        send(1);
        assert_eq!(p.net.poll(p.cq[1], 1)[0].imm, Some(1));
        send(2);
        assert_eq!(post_recv(p.qp[1], 2, &mut [sge(p.mr[1], 0, 64)]), 0);
        send(3);
        // A device that takes its time may still have the second one under way.
        let got = p.net.poll(p.cq[1], 1)[0].imm;
        let is_later = !is_soft() || is_wired();
        assert!(got == Some(3) || (is_later && got == Some(2)), "{kind:?}: {got:?}");
        assert!(p.net.poll_now(p.cq[1]).is_empty());
        p.net.destroy_ah(ah);
        p.close();
    }
}

#[test]
fn a_too_long_or_wrongly_keyed_message_is_dropped() {
    let mut p = pair(UC);
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 4)]), 0);
    let good = (p.addr(1) + 1024, p.key(1));
    use ibv_wr_opcode as W;
    p.buf[0][..8].copy_from_slice(b"too long");
    let post = |opcode: W, len: u32, (remote_addr, rkey): (u64, u32)| {
        let mut sges = [sge(p.mr[0], 0, len)];
        let mut wr = send_wr(9, opcode, &mut sges, SIGNALED);
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    };
    if is_soft() {
        // rxe takes the responder to the error state.
        post(W::IBV_WR_SEND, 8, good);
    }
    // The receive request is still there, for one that fits.
    post(W::IBV_WR_SEND, 3, good);
    let got = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((got.id, got.status, got.len), (1, "SUCCESS", 3));
    if is_soft() {
        // As above.
        post(W::IBV_WR_RDMA_WRITE, 8, (good.0, !good.1));
        post(W::IBV_WR_RDMA_WRITE_WITH_IMM, 8, good); // nothing is posted for it
        assert_eq!(p.buf[1][1024..1032], [0; 8]);
    }
    post(W::IBV_WR_RDMA_WRITE, 8, good);
    // On a network, what was sent before may arrive later than the next receive request is posted:
    // not later than this. SAFETY: eight bytes of the buffer, which the device writes.
    while unsafe { p.buf[1].as_ptr().add(1024).cast::<[u8; 8]>().read_volatile() } != *b"too long" {
        assert!(p.net.poll_now(p.cq[1]).is_empty());
        std::thread::yield_now();
    }
    assert_eq!(post_recv(p.qp[1], 2, &mut []), 0);
    post(W::IBV_WR_RDMA_WRITE_WITH_IMM, 8, (good.0 + 8, good.1));
    assert_eq!(p.net.poll(p.cq[1], 1)[0].id, 2);
    assert_eq!(&p.buf[1][1024..1040], b"too longtoo long");
    p.close();
}

#[test]
fn a_datagram_is_at_most_a_packet_long() {
    let p = pair(UD);
    let ah = p.net.ah();
    let mtu = 128 << p.net.port().active_mtu.0;
    for id in 0..2 {
        let mut sges = [sge(p.mr[1], id as usize * 8192, GRH as u32 + mtu)];
        assert_eq!(post_recv(p.qp[1], id, &mut sges), 0);
    }
    let mut sges = [sge(p.mr[0], 0, mtu)];
    let mut wr = datagram_wr(1, &mut sges, SIGNALED, to(&p, ah));
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    assert_eq!(p.net.poll(p.cq[1], 1)[0].len, GRH as u32 + mtu);
    p.net.destroy_ah(ah);
    p.close();
}

#[test]
fn a_failed_request_stops_only_the_send_queue() {
    for kind in [UC, UD] {
        let p = pair(kind);
        let ah = p.net.ah();
        for id in 100..102 {
            assert_eq!(post_recv(p.qp[0], id, &mut [sge(p.mr[0], 0, 64)]), 0);
        }
        // A list of three, the second without a valid key.
        let mut sges = [sge(p.mr[0], 0, 8), sge(p.mr[0], 0, 8), sge(p.mr[0], 0, 8)];
        sges[1].lkey ^= 1;
        let [first, second, third] = &mut sges;
        let mut wrs = [first, second, third]
            .map(|sge| datagram_wr(0, core::slice::from_mut(sge), UNSIGNALED, to(&p, ah)));
        (0..3).for_each(|i| wrs[i].wr_id = i as u64);
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
        post_as_list(p.qp[0], &mut wrs);
        if is_rxe() {
            check_failed_by_rxe(p, ah);
            continue;
        }
        let reported: Vec<_> = p.net.poll(p.cq[0], 2).iter().map(|wc| (wc.id, wc.status)).collect();
        assert_eq!(reported, [(1, "LOC_PROT"), (2, "WR_FLUSH")]);
        assert_eq!(p.net.state(p.qp[0]), ibv_qp_state::IBV_QPS_SQE);
        assert_eq!(p.net.poll(p.cq[1], 1)[0].id, 1, "what went before arrived");
        check_receives_still(&p, ah);
        assert_eq!(p.net.to_state(p.qp[0], ibv_qp_state::IBV_QPS_RTS), 0);
        assert_eq!(post_recv(p.qp[1], 2, &mut [sge(p.mr[1], 0, 64)]), 0);
        assert_eq!(post_send(p.qp[0], &mut datagram_wr(5, &mut [], SIGNALED, to(&p, ah))), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        assert_eq!(p.net.poll(p.cq[1], 1)[0].id, 2);
        p.net.destroy_ah(ah);
        p.close();
    }
}

/// rxe knows no such state: the queue pair goes to ERR, receive requests included.
fn check_failed_by_rxe(p: QpPair, ah: *mut ibv_ah) {
    let mut reported: Vec<_> = p.net.poll(p.cq[0], 4).iter().map(|wc| (wc.id, wc.status)).collect();
    reported.sort_unstable();
    let flushed = [2, 100, 101].map(|id| (id, "WR_FLUSH"));
    assert_eq!(reported[0], (1, "LOC_QP_OP"), "a key that it does not find");
    assert_eq!(reported[1..], flushed);
    assert!(p.net.reaches(p.qp[0], ibv_qp_state::IBV_QPS_ERR));
    assert_eq!(p.net.poll(p.cq[1], 1)[0].id, 1, "what went before arrived");
    p.net.destroy_ah(ah);
    p.close();
}

/// In SQE what is posted to send is flushed, and messages are still received.
fn check_receives_still(p: &QpPair, ah: *mut ibv_ah) {
    assert_eq!(post_send(p.qp[0], &mut datagram_wr(4, &mut [], UNSIGNALED, to(p, ah))), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "WR_FLUSH");
    let mut wr = datagram_wr(6, &mut [], UNSIGNALED, (ah, p.num(0), QKEY));
    assert_eq!(post_send(p.qp[1], &mut wr), 0);
    let got = p.net.poll(p.cq[0], 1)[0];
    assert_eq!((got.id, got.status), (100, "SUCCESS"));
}

#[test]
fn a_handle_holds_its_domain_and_may_go_after_the_post() {
    let p = pair(UD);
    // SAFETY: the context is open.
    let other = unsafe { (p.net.v.alloc_pd)(p.net.ctx) };
    let ah = p.net.ah_in(other, p.net.ah_attr());
    if is_soft() {
        // SAFETY: the domain is alive.
        assert_eq!(unsafe { (p.net.v.dealloc_pd)(other) }, libc::EBUSY);
    }
    p.net.destroy_ah(ah);
    // SAFETY: nothing is left in it.
    assert_eq!(unsafe { (p.net.v.dealloc_pd)(other) }, 0);
    let ah = p.net.ah();
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
    assert_eq!(post_send(p.qp[0], &mut datagram_wr(1, &mut [], SIGNALED, to(&p, ah))), 0);
    p.net.poll(p.cq[0], 1);
    p.net.destroy_ah(ah);
    assert_eq!(p.net.poll(p.cq[1], 1)[0].status, "SUCCESS");
    p.close();
}

#[test]
fn a_datagram_send_queue_is_full_until_a_completion_is_polled() {
    let p = pair(UD);
    let ah = p.net.ah();
    let post = |flags| post_send(p.qp[0], &mut datagram_wr(1, &mut [], flags, to(&p, ah)));
    let mut posted = 0;
    while post(UNSIGNALED) == 0 {
        posted += 1;
        assert!(posted <= 1 << 16, "never full");
        if posted == 63 {
            assert_eq!(post(SIGNALED), 0);
            break;
        }
    }
    if is_soft() {
        assert_eq!(post(SIGNALED), libc::ENOMEM);
    }
    p.net.poll(p.cq[0], 1);
    assert_eq!(post(SIGNALED), 0);
    p.net.poll(p.cq[0], 1);
    p.net.destroy_ah(ah);
    p.close();
}

#[test]
fn datagrams_race_with_the_end_of_their_receiver() {
    let net = Net::new();
    let cq = net.cq(4096);
    let ah = net.ah();
    let senders: Vec<_> = (0..2).map(|_| net.qp_of(UD, cq)).collect();
    senders.iter().for_each(|qp| net.connect(*qp, 0, ConnectConfig::default()));
    for _ in 0..20 {
        let own = net.cq(64);
        let target = net.qp_of(UD, own);
        net.connect(target, 0, ConnectConfig::default());
        let mut memory = vec![0_u8; 4096];
        let mr = net.mr(&mut memory, RW);
        for id in 0..32 {
            assert_eq!(post_recv(target, id, &mut [sge(mr, 64 * id as usize, 64)]), 0);
        }
        // SAFETY: the queue pair is alive.
        let number = unsafe { (*target).qp_num };
        std::thread::scope(|scope| {
            for qp in &senders {
                let (qp, ah) = (SharedPtr(*qp), SharedPtr(ah));
                scope.spawn(move || {
                    let (qp, ah) = (qp.get(), ah.get());
                    for n in 0..60 {
                        let flags = if n == 59 { SIGNALED } else { UNSIGNALED };
                        let mut wr = datagram_wr(1, &mut [], flags, (ah, number, QKEY));
                        assert_eq!(post_send(qp, &mut wr), 0);
                    }
                });
            }
            net.destroy_qp(target);
        });
        net.dereg(mr);
        // On rxe they stay.
        assert!(
            net.poll_now(own).is_empty() || !is_soft(),
            "completions of a destroyed queue pair go, too"
        );
        net.destroy_cq(own);
        assert!(net.poll(cq, 2).iter().all(|wc| wc.status == "SUCCESS"));
    }
    senders.iter().for_each(|qp| net.destroy_qp(*qp));
    net.destroy_ah(ah);
    net.destroy_cq(cq);
    net.close();
}

/// An object of the device, which any thread may use.
struct SharedPtr<T>(*mut T);

// SAFETY: verbs may be called from any thread.
unsafe impl<T> Send for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}
