//! Atomic writes: eight bytes that are stored at once.
//!
//! Not on rxe0: Linux has atomic writes of rxe from 6.2 on.

mod common;

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use common::atomic_write::*;
use common::*;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const PD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
const SEND_OPS: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
/// Times that a word is written while another thread reads it.
const ROUNDS: u32 = 2_000;

/// The status of a request.
fn status(p: &QpPair, wr: &mut ibv_send_wr) -> &'static str {
    assert_eq!(post_send(p.qp[0], wr), 0);
    p.net.poll(p.cq[0], 1)[0].status
}

/// A pair whose requester has the newer interface, for atomic writes and no inline data.
fn pair_ex(net: Net) -> QpPair {
    let mut p = QpPair::unconnected(RC, net);
    p.net.destroy_qp(p.qp[0]);
    let ops = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE;
    let attr = p.net.init_attr(p.cq[0]);
    let mut attr = ibv_qp_init_attr_ex {
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        cap: ibv_qp_cap { max_inline_data: 0, ..attr.cap },
        qp_type: RC,
        comp_mask: PD | SEND_OPS,
        pd: p.net.pd,
        send_ops_flags: ops.0.into(),
        ..ibv_qp_init_attr_ex::default()
    };
    // SAFETY: the context is open, and the attributes' objects are alive.
    p.qp[0] = unsafe { later(p.net.ctx).create_qp_ex.unwrap()(p.net.ctx, &mut attr) };
    assert!(!p.qp[0].is_null());
    p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
    p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
    p
}

#[test]
fn the_device_says_that_it_has_them() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let net = Net::new();
    // SAFETY: zero is a valid value of every field; the struct is as long as it says.
    unsafe {
        let mut attr: ibv_device_attr_ex = core::mem::zeroed();
        let query = later(net.ctx).query_device_ex.unwrap();
        assert_eq!(query(net.ctx, core::ptr::null(), &mut attr, size_of_val(&attr)), 0);
        assert_ne!(attr.device_cap_flags_ex & 1 << 40, 0);
    }
    net.close();
}

#[test]
fn a_word_is_written_by_either_interface() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let mut p = QpPair::new();
    p.buf[0][..12].copy_from_slice(b"abcdefghijkl");
    // From two pieces, then from none that is registered.
    let mut sges = [sge(p.mr[0], 1, 3), sge(p.mr[0], 6, 5)];
    assert_eq!(post_send(p.qp[0], &mut request(&mut sges, p.addr(1) + 16, p.key(1))), 0);
    let done = p.net.poll(p.cq[0], 1)[0];
    assert_eq!((done.status, done.opcode, done.id), ("SUCCESS", "ATOMIC_WRITE", 1));
    assert_eq!(p.buf[1][15..25], *b"\0bcdghijk\0");
    let inline = *b"inlined!";
    let mut sges = [ibv_sge { addr: inline.as_ptr() as u64, length: 8, lkey: 0 }];
    let mut wr = request(&mut sges, p.addr(1) + 16, p.key(1));
    wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
    assert_eq!(status(&p, &mut wr), "SUCCESS");
    assert_eq!(p.buf[1][15..25], *b"\0inlined!\0");
    assert!(p.net.poll_now(p.cq[1]).is_empty(), "it takes no receive request");
    p.close();

    let p = pair_ex(Net::new());
    let (ex, mut value) = (p.qp[0].cast::<ibv_qp_ex>(), *b"by value");
    // SAFETY: the queue pair is alive, and was created with the interface.
    unsafe {
        (*ex).wr_start.unwrap()(ex);
        ((*ex).wr_id, (*ex).wr_flags) = (9, SIGNALED.0);
        let at = value.as_mut_ptr().cast::<c_void>();
        (*ex).wr_atomic_write.unwrap()(ex, p.key(1), p.addr(1) + 8, at);
        // It was taken by the call.
        value.fill(0);
        assert_eq!((*ex).wr_complete.unwrap()(ex), 0);
    }
    let done = p.net.poll(p.cq[0], 1)[0];
    assert_eq!((done.status, done.opcode, done.id), ("SUCCESS", "ATOMIC_WRITE", 9));
    assert_eq!(p.buf[1][8..16], *b"by value");
    // SAFETY: `ex` is alive, and was created with the interface.
    unsafe {
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_atomic_write.unwrap()(ex, p.key(1), p.addr(1) + 8, core::ptr::null());
        assert_eq!((*ex).wr_complete.unwrap()(ex), libc::EINVAL);
    }
    p.close();
}

/// Requests that are wrong, and their statuses.
#[test]
fn what_is_no_word_of_the_peers_is_refused() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let write = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    // Offset and length, the rights of the queue pair and of the region, and the status.
    for (offset, len, rights, region, expected) in [
        (0, 8, write, 1 | write, "SUCCESS"),
        (4, 8, RW, RW, "REM_INV_REQ"),
        (1, 8, RW, RW, "REM_INV_REQ"),
        (0, 0, RW, RW, "REM_INV_REQ"),
        (0, 4, RW, RW, "REM_INV_REQ"),
        (0, 16, RW, RW, "REM_INV_REQ"),
        (0, 8, RW & !write, RW, "REM_INV_REQ"),
        (0, 8, RW, RW & !write, "REM_ACCESS"),
        (64, 8, RW, RW, "REM_ACCESS"),
    ] {
        let config = ConnectConfig { access: rights, ..ConnectConfig::default() };
        let p = QpPair::with(Net::new(), config, config);
        let mut target = vec![0_u64; 8];
        // SAFETY: plain bytes.
        let bytes = unsafe { core::slice::from_raw_parts_mut(target.as_mut_ptr().cast(), 64) };
        let mr = p.net.mr(bytes, region);
        let mut sges = [sge(p.mr[0], 0, len)];
        // SAFETY: the region is alive.
        let (addr, rkey) = unsafe { ((*mr).addr as u64 + offset, (*mr).rkey) };
        let found = status(&p, &mut request(&mut sges, addr, rkey));
        assert_eq!(found, expected, "{offset} {len} {rights:#x} {region:#x}");
        p.net.dereg(mr);
        p.close();
    }
    // Aligned as the region calls it, or where it is, but not both.
    for (at, iova) in [(4, 0x1000), (0, 0x1004)] {
        let p = QpPair::new();
        // SAFETY: the memory is the pair's.
        let (mr, rkey) = unsafe {
            let at = p.buf[1].as_ptr().add(at).cast_mut();
            let mr = (p.net.v.reg_mr_iova2.unwrap())(p.net.pd, at.cast(), 64, iova, RW);
            (mr, (*mr).rkey)
        };
        let mut sges = [sge(p.mr[0], 0, 8)];
        assert_eq!(status(&p, &mut request(&mut sges, iova, rkey)), "REM_INV_REQ", "{iova:#x}");
        p.net.dereg(mr);
        p.close();
    }
    // A local key that is none.
    let p = QpPair::new();
    let mut sges = [ibv_sge { lkey: 1, ..sge(p.mr[0], 0, 8) }];
    assert_eq!(status(&p, &mut request(&mut sges, p.addr(1), p.key(1))), "LOC_PROT");
    p.close();
}

#[test]
fn other_transports_take_none() {
    if !is_softs_own("atomic writes") {
        return;
    }
    for kind in [ibv_qp_type::IBV_QPT_UC, ibv_qp_type::IBV_QPT_UD] {
        let p =
            QpPair::connect(kind, Net::new(), ConnectConfig::default(), ConnectConfig::default());
        let mut sges = [sge(p.mr[0], 0, 8)];
        let mut wr = request(&mut sges, p.addr(1), p.key(1));
        assert_eq!(post_send(p.qp[0], &mut wr), libc::EINVAL);
        p.close();
    }
}

#[test]
fn xrc_takes_them() {
    if !is_softs_own("atomic writes") {
        return;
    }
    if is_wired() {
        eprintln!("not over UDP: XRC");
        return;
    }
    let [mut a, b] = xrc::two(ConnectConfig { access: RW, ..ConnectConfig::default() });
    let far = b.near();
    a.heap[..8].copy_from_slice(b"over xrc");
    a.rdma(ATOMIC_WRITE, far.srq, 8, (far.addr + 8, far.rkey));
    assert_eq!((a.status(), &b.shared.bytes[8..16]), ("SUCCESS", &b"over xrc"[..]));
    a.rdma(ATOMIC_WRITE, far.srq, 4, (far.addr + 8, far.rkey));
    assert_eq!(a.status(), "REM_INV_REQ");
    a.close();
    b.close();
}

/// Its data are in two pieces.
#[test]
fn a_reader_sees_all_of_a_word() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let mut p = QpPair::new();
    let to = p.addr(1);
    // SAFETY: the buffer is the pair's, and allocated for more than a word.
    let shared = unsafe { word(to) };
    std::thread::scope(|scope| {
        scope.spawn(|| watch(shared, ROUNDS));
        for n in 1..=ROUNDS {
            p.buf[0][..4].copy_from_slice(&n.to_ne_bytes());
            p.buf[0][8..12].copy_from_slice(&n.to_ne_bytes());
            let mut sges = [sge(p.mr[0], 0, 4), sge(p.mr[0], 8, 4)];
            assert_eq!(status(&p, &mut request(&mut sges, to, p.key(1))), "SUCCESS");
        }
    });
    assert_eq!(shared.load(Ordering::Relaxed), doubled(ROUNDS));
    p.close();
}

/// A request of each list is a WRITE, and the next one's word says that its data are there.
#[test]
fn a_reader_that_sees_the_word_sees_what_was_written_before() {
    if !is_softs_own("atomic writes") {
        return;
    }
    const LEN: usize = 4_096;
    let mut p = QpPair::new();
    let to = p.addr(1);
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the buffer is the pair's; it is accessed atomically meanwhile.
            let (flag, data) =
                unsafe { (word(to), (1..=LEN / 8).map(|n| word(to + 8 * n as u64))) };
            let data: Vec<&AtomicU64> = data.collect();
            for n in 1..=200_u8 {
                while flag.load(Ordering::Acquire) != n.into() {
                    std::thread::yield_now();
                }
                let expected = u64::from_ne_bytes([n; 8]);
                assert!(data.iter().all(|word| word.load(Ordering::Relaxed) == expected), "{n}");
                seen.store(n.into(), Ordering::Release);
            }
        });
        for n in 1..=200_u8 {
            p.buf[0][..LEN].fill(n);
            p.buf[0][LEN..LEN + 8].copy_from_slice(&u64::from(n).to_ne_bytes());
            let (mut data, mut flag) = ([sge(p.mr[0], 0, LEN as u32)], [sge(p.mr[0], LEN, 8)]);
            let mut second = request(&mut flag, to, p.key(1));
            let mut first = request(&mut data, to + 8, p.key(1));
            (first.opcode, first.next) = (ibv_wr_opcode::IBV_WR_RDMA_WRITE, &raw mut second);
            assert_eq!(post_send(p.qp[0], &mut first), 0);
            assert!(p.net.poll(p.cq[0], 2).iter().all(|wc| wc.status == "SUCCESS"));
            while seen.load(Ordering::Acquire) != n.into() {
                std::thread::yield_now();
            }
        }
    });
    p.close();
}

/// Over the network it has a response of its own: each end has to have room for one.
#[test]
fn a_response_over_the_network_needs_room() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let statuses = if is_wired() { ["LOC_QP_OP", "REM_INV_REQ"] } else { ["SUCCESS"; 2] };
    for (end, expected) in statuses.into_iter().enumerate() {
        let mut configs = [ConnectConfig { access: RW, ..ConnectConfig::default() }; 2];
        (configs[0].rd_atomic, configs[1].dest_rd_atomic) = [(0, 4), (4, 0)][end];
        let p = QpPair::with(Net::new(), configs[0], configs[1]);
        let mut sges = [sge(p.mr[0], 0, 8)];
        let mut wr = request(&mut sges, p.addr(1), p.key(1));
        assert_eq!(status(&p, &mut wr), expected, "end {end}");
        p.close();
    }
}
