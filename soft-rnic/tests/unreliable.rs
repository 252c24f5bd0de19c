//! Unreliable connections and datagrams: what arrives, what it looks like, and
//! what is dropped without a word.

mod common;

use common::*;
use verbs_sys::*;

const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
const GRH: usize = 40;

fn pair(kind: ibv_qp_type) -> Pair {
    Pair::of(kind, Net::new(), Config::default(), Config::default())
}

/// Where the second queue pair of a pair is, with the right key.
fn to(p: &Pair, ah: *mut ibv_ah) -> (*mut ibv_ah, u32, u32) {
    (ah, p.num(1), QKEY)
}

#[test]
fn a_connection_carries_sends_and_writes_with_and_without_immediate() {
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
    let told: Vec<_> = got.iter().map(|wc| (wc.id, wc.opcode, wc.len, wc.imm)).collect();
    let expected =
        [(0, "RECV", 4, None), (1, "RECV", 4, Some(7)), (2, "RECV_RDMA_WITH_IMM", 4, Some(7))];
    assert_eq!(told, expected);
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
