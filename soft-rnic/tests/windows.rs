//! Memory windows of both types, within the process.
//!
//! Not on rxe0: memory windows have soft0's statuses.

mod common;

use common::mw::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

fn is_left_out() -> bool {
    !is_softs_own("memory windows, with statuses of its own")
}

/// A window of type 2 in the pair's domain, bound by its second end with this tag.
fn bound(p: &QpPair, to: ibv_mw_bind_info) -> (*mut ibv_mw, u32) {
    let mw = alloc(p.net.pd, TYPE_2);
    let key = ibv_inc_rkey(key_of(mw));
    assert_eq!(p.bind(mw, key, to), "SUCCESS");
    (mw, key)
}

#[test]
fn a_window_permits_what_it_was_bound_for_and_no_more() {
    if is_left_out() {
        return;
    }
    let mut p = QpPair::bindable();
    p.buf[0][..8].copy_from_slice(b"new data");
    let (mw, key) = bound(&p, piece(p.mr[1], 64, 64, WRITE | READ | ATOMIC));
    let at = p.addr(1) + 64;
    assert_eq!(p.write(at + 56, key), "SUCCESS");
    assert_eq!(&p.buf[1][120..128], b"new data");
    p.buf[1][64..72].copy_from_slice(&7_u64.to_ne_bytes());
    assert_eq!(p.rdma(W::IBV_WR_RDMA_READ, at, key), "SUCCESS");
    assert_eq!(p.buf[0][..8], 7_u64.to_ne_bytes());
    assert_eq!(p.rdma(W::IBV_WR_ATOMIC_FETCH_AND_ADD, at, key), "SUCCESS");
    assert_eq!(p.buf[1][64..72], 12_u64.to_ne_bytes());
    dealloc(mw);
    p.close();

    let outside = [(0, WRITE), (-1, WRITE), (57, WRITE), (64, WRITE), (0, READ), (0, ATOMIC)];
    for (offset, has) in outside {
        let p = QpPair::bindable();
        let access = if offset == 0 { (WRITE | READ | ATOMIC) & !has } else { has };
        let (mw, key) = bound(&p, piece(p.mr[1], 64, 64, access));
        let op = match has {
            WRITE => W::IBV_WR_RDMA_WRITE,
            READ => W::IBV_WR_RDMA_READ,
            _ => W::IBV_WR_ATOMIC_FETCH_AND_ADD,
        };
        let at = p.addr(1).wrapping_add(64).wrapping_add_signed(offset);
        assert_eq!(p.rdma(op, at, key), "REM_ACCESS", "{offset} {has}");
        assert_eq!(p.net.state(p.qp[1]), ibv_qp_state::IBV_QPS_ERR);
        dealloc(mw);
        p.close();
    }
}

#[test]
fn the_key_of_a_window_is_none_for_local_memory() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE | READ));
    let mut sges = [ibv_sge { addr: p.addr(1), length: 8, lkey: key }];
    let mut wr = send_wr(1, W::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(p.status(1, &mut wr), "LOC_PROT");
    dealloc(mw);
    p.close();
}

#[test]
fn a_zero_based_window_is_addressed_from_its_first_byte() {
    if is_left_out() {
        return;
    }
    let mut p = QpPair::bindable();
    p.buf[0][..8].copy_from_slice(b"new data");
    let (mw, key) = bound(&p, piece(p.mr[1], 640, 64, WRITE | ZERO_BASED));
    assert_eq!(p.write(0, key), "SUCCESS");
    assert_eq!(p.write(56, key), "SUCCESS");
    assert_eq!((&p.buf[1][640..648], &p.buf[1][696..704]), (&b"new data"[..], &b"new data"[..]));
    assert_eq!(p.write(57, key), "REM_ACCESS");
    dealloc(mw);
    p.close();
}

/// Also where the call names the address of the memory, as the macro of the C header does.
#[test]
fn a_zero_based_region_is_addressed_from_its_first_byte() {
    if is_left_out() {
        return;
    }
    let mut p = QpPair::bindable();
    p.buf[0][..8].copy_from_slice(b"new data");
    let at = p.buf[1][640..].as_mut_ptr();
    // SAFETY: `p.buf` owns the memory, and lives until the regions are deregistered below.
    let all = unsafe {
        let by_name = p.net.v.reg_mr_iova2.unwrap();
        let plain = (p.net.v.reg_mr)(p.net.pd, at.cast(), 64, (RW | ZERO_BASED) as i32);
        [plain, by_name(p.net.pd, at.cast(), 64, at as u64, RW | ZERO_BASED)]
    };
    for mr in all {
        p.buf[1][640..].fill(0);
        assert!(!mr.is_null());
        // SAFETY: this test owns the region, and deregisters it below.
        let key = unsafe { (*mr).rkey };
        assert_eq!([p.write(0, key), p.write(56, key)], ["SUCCESS"; 2]);
        assert_eq!(
            (&p.buf[1][640..648], &p.buf[1][696..704]),
            (&b"new data"[..], &b"new data"[..])
        );
        p.net.dereg(mr);
    }
    p.close();
}

#[test]
fn a_type_2_window_is_bound_again_after_an_invalidation() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let (first, second) = (piece(p.mr[1], 0, 64, WRITE), piece(p.mr[1], 64, 64, WRITE));
    let (mw, key) = bound(&p, first);
    assert_eq!(p.local_inv(key), "SUCCESS");
    let next = ibv_inc_rkey(key);
    assert_eq!((next ^ key) & !0xff, 0, "the tag alone is the program's");
    // What else a program asks for is not taken.
    assert_eq!(p.bind(mw, next ^ 0xffff_ff00, second), "SUCCESS");
    assert_eq!(key_of(mw), next, "the program finds the key that it has chosen");
    assert_eq!(p.write(p.addr(1) + 64, next), "SUCCESS");
    // The same key as before, for other memory.
    assert_eq!(p.local_inv(next), "SUCCESS");
    assert_eq!(p.bind(mw, next, first), "SUCCESS");
    assert_eq!(p.write(p.addr(1), next), "SUCCESS");
    assert_eq!(p.bind(mw, ibv_inc_rkey(next), first), "MW_BIND", "it is bound");
    dealloc(mw);
    p.close();
}

#[test]
fn keys_that_no_longer_hold_are_refused() {
    if is_left_out() {
        return;
    }
    let ended: [fn(&QpPair, *mut ibv_mw, u32); 3] = [
        |p, mw, key| {
            assert_eq!(p.local_inv(key), "SUCCESS");
            dealloc(mw);
        },
        |_, mw, _| dealloc(mw),
        |p, mw, key| {
            assert_eq!(p.local_inv(key), "SUCCESS");
            let to = piece(p.mr[1], 0, 64, WRITE);
            assert_eq!(p.bind(mw, ibv_inc_rkey(key), to), "SUCCESS");
            dealloc(mw);
        },
    ];
    for end in ended {
        for invalidates in [false, true] {
            let p = QpPair::bindable();
            let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
            end(&p, mw, key);
            match invalidates {
                false => assert_eq!(p.write(p.addr(1), key), "REM_ACCESS"),
                true => assert_eq!(p.local_inv(key), "MW_BIND"),
            }
            p.close();
        }
    }
}

/// Posts the binding of a window of type 1 by an end, and takes its completion.
fn bind_1(p: &QpPair, end: usize, mw: *mut ibv_mw, bind_info: ibv_mw_bind_info) -> &'static str {
    let mut bind = ibv_mw_bind { wr_id: 9, send_flags: SIGNALED.0, bind_info };
    // SAFETY: all of it is alive.
    assert_eq!(unsafe { ibv_bind_mw(p.qp[end], mw, &mut bind) }, 0);
    let done = p.net.poll(p.cq[end], 1)[0];
    assert_eq!((done.id, done.opcode), (9, "BIND_MW"));
    done.status
}

#[test]
fn rebinding_a_type_1_window_changes_its_key() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let mw = alloc(p.net.pd, TYPE_1);
    let mut keys = vec![key_of(mw)];
    for i in 0..8 {
        assert_eq!(bind_1(&p, 1, mw, piece(p.mr[1], 64 * i, 64, WRITE)), "SUCCESS");
        assert_eq!(p.write(p.addr(1) + 64 * i, key_of(mw)), "SUCCESS");
        keys.push(key_of(mw));
    }
    let different: std::collections::HashSet<_> = keys.iter().map(|key| key >> 8).collect();
    assert_eq!(different.len(), keys.len(), "the upper bits, too: {keys:x?}");
    // Any end of the domain may use it.
    assert_eq!(bind_1(&p, 0, mw, piece(p.mr[1], 0, 64, WRITE)), "SUCCESS");
    assert_eq!(p.write(p.addr(1), key_of(mw)), "SUCCESS");
    let last = key_of(mw);
    assert_eq!(bind_1(&p, 1, mw, nothing()), "SUCCESS");
    // SAFETY: the region is alive.
    assert_eq!(unsafe { (p.net.v.dereg_mr)(p.mr[1]) }, 0, "nothing is bound to it");
    assert_eq!(p.write(p.addr(1), last), "REM_ACCESS");
    dealloc(mw);
    for end in 0..2 {
        p.net.destroy_qp(p.qp[end]);
        p.net.destroy_cq(p.cq[end]);
    }
    p.net.dereg(p.mr[0]);
    p.net.close();
}

#[test]
fn old_keys_and_invalidations_of_type_1_windows_are_refused() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let mw = alloc(p.net.pd, TYPE_1);
    assert_eq!(bind_1(&p, 1, mw, piece(p.mr[1], 0, 64, WRITE)), "SUCCESS");
    let old = key_of(mw);
    assert_eq!(bind_1(&p, 1, mw, piece(p.mr[1], 0, 64, WRITE)), "SUCCESS");
    assert_eq!(p.write(p.addr(1), old), "REM_ACCESS");
    dealloc(mw);
    p.close();
    let p = QpPair::bindable();
    let mw = alloc(p.net.pd, TYPE_1);
    assert_eq!(bind_1(&p, 1, mw, piece(p.mr[1], 0, 64, WRITE)), "SUCCESS");
    assert_eq!(p.local_inv(key_of(mw)), "MW_BIND");
    dealloc(mw);
    p.close();
}

#[test]
fn no_queue_pair_of_another_domain_uses_a_window_of_type_1() {
    if is_left_out() {
        return;
    }
    let (p, other) = (QpPair::bindable(), QpPair::new());
    let mw = alloc(p.net.pd, TYPE_1);
    assert_eq!(bind_1(&p, 1, mw, piece(p.mr[1], 0, 64, WRITE)), "SUCCESS");
    assert_eq!(other.write(p.addr(1), key_of(mw)), "REM_ACCESS");
    assert_eq!(p.write(p.addr(1), key_of(mw)), "SUCCESS");
    dealloc(mw);
    other.close();
    p.close();
}

/// A second pair in the domain of the first, whose ends share its completion queues.
fn second(p: &QpPair) -> [*mut ibv_qp; 2] {
    let qp = [p.net.qp(p.cq[0]), p.net.qp(p.cq[1])];
    // SAFETY: the queue pairs are alive.
    let num = qp.map(|qp| unsafe { (*qp).qp_num });
    p.net.connect(qp[0], num[1], ConnectConfig::default());
    p.net.connect(qp[1], num[0], ConnectConfig::default());
    qp
}

#[test]
fn no_other_queue_pair_uses_or_invalidates_a_window_of_type_2() {
    if is_left_out() {
        return;
    }
    type Try = fn(&QpPair, u32) -> &'static str;
    let tries: [(Try, &str); 3] = [
        (|p, key| p.write(p.addr(1), key), "REM_ACCESS"),
        (|p, key| p.local_inv(key), "MW_BIND"),
        (
            |p, key| {
                assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
                p.status(0, &mut inv_wr(1, W::IBV_WR_SEND_WITH_INV, key))
            },
            "REM_ACCESS",
        ),
    ];
    for (what, status) in tries {
        let mut p = QpPair::bindable();
        let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
        let other = second(&p);
        let first = core::mem::replace(&mut p.qp, other);
        assert_eq!(what(&p, key), status);
        let other = core::mem::replace(&mut p.qp, first);
        other.into_iter().for_each(|qp| p.net.destroy_qp(qp));
        assert_eq!(p.write(p.addr(1), key), "SUCCESS", "it is bound still");
        dealloc(mw);
        p.close();
    }
}

/// Waits for a message, and returns what its receiver learns of it.
fn received(p: &QpPair) -> (&'static str, u32, u32) {
    let mut wc = ibv_wc::default();
    let end = std::time::Instant::now() + PATIENCE;
    // SAFETY: the queue is alive; there is room for one.
    while unsafe { ibv_poll_cq(p.cq[1], 1, &mut wc) } == 0 {
        assert!(std::time::Instant::now() < end);
        std::thread::yield_now();
    }
    // SAFETY: an integer, whichever it is.
    let key = unsafe { wc.__bindgen_anon_1.invalidated_rkey };
    (wc_status_name(wc.status), wc.wc_flags, key)
}

#[test]
fn a_message_invalidates_a_window_of_its_target_queue_pair() {
    if is_left_out() {
        return;
    }
    let mut p = QpPair::bindable();
    let (mw, mut key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
    // Short, copied, and read where it lies between processes.
    for len in [0_u32, 8, 32, 1000, 20_000] {
        p.buf[0][..len as usize].fill(len as u8 | 1);
        let mut into = vec![0_u8; 32_768];
        let mr = p.net.mr(&mut into, 1);
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(mr, 0, 32_768)]), 0);
        let mut sges = [sge(p.mr[0], 0, len)];
        let mut wr = inv_wr(1, W::IBV_WR_SEND_WITH_INV, key);
        (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), 1);
        assert_eq!(p.status(0, &mut wr), "SUCCESS");
        let flags = ibv_wc_flags::IBV_WC_WITH_INV.0;
        assert_eq!(received(&p), ("SUCCESS", flags, key), "{len}");
        p.net.dereg(mr);
        assert!(into[..len as usize].iter().all(|byte| *byte == len as u8 | 1));
        assert!(into[len as usize..].iter().all(|byte| *byte == 0));
        // It is free: no invalidation of its own is needed.
        key = ibv_inc_rkey(key);
        assert_eq!(p.bind(mw, key, piece(p.mr[1], 0, 64, WRITE)), "SUCCESS");
        assert_eq!(p.write(p.addr(1), key), "SUCCESS");
    }
    assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
    assert_eq!(p.status(0, &mut inv_wr(1, W::IBV_WR_SEND_WITH_INV, key)), "SUCCESS");
    assert_eq!(received(&p).0, "SUCCESS");
    assert_eq!(p.write(p.addr(1), key), "REM_ACCESS");
    dealloc(mw);
    p.close();
}

#[test]
fn a_message_with_a_key_that_is_no_window_s_is_refused() {
    if is_left_out() {
        return;
    }
    for case in 0..4 {
        let p = QpPair::bindable();
        let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
        let key = match case {
            0 => p.key(1),
            1 => key ^ 1,
            2 => 0,
            _ => {
                assert_eq!(p.local_inv(key), "SUCCESS");
                key
            }
        };
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
        assert_eq!(p.status(0, &mut inv_wr(1, W::IBV_WR_SEND_WITH_INV, key)), "REM_ACCESS");
        assert_eq!(received(&p).0, "REM_INV_REQ", "{case}");
        assert!(p.net.reaches(p.qp[1], ibv_qp_state::IBV_QPS_ERR));
        dealloc(mw);
        p.close();
    }
}

#[test]
fn requests_take_effect_in_the_order_of_their_list() {
    if is_left_out() {
        return;
    }
    let mut p = QpPair::bindable();
    p.buf[0][..8].copy_from_slice(b"new data");
    let mw = alloc(p.net.pd, TYPE_2);
    let [a, b] = [1, 2].map(|tag| key_of(mw) & !0xff | tag);
    let (first, second) = (piece(p.mr[1], 0, 64, WRITE), piece(p.mr[1], 64, 64, WRITE));
    let mut from = [sge(p.mr[1], 4096, 8)];
    let mut read = send_wr(4, W::IBV_WR_RDMA_READ, &mut from, SIGNALED);
    let (remote_addr, rkey) = (p.addr(0), p.key(0));
    read.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    let mut last = inv_wr(5, W::IBV_WR_LOCAL_INV, b);
    last.send_flags |= ibv_send_flags::IBV_SEND_FENCE.0;
    let mut list = [
        bind_wr(1, mw, a, first),
        inv_wr(2, W::IBV_WR_LOCAL_INV, a),
        bind_wr(3, mw, b, second),
        read,
        last,
        bind_wr(6, mw, a, second),
    ];
    assert_eq!(post_list(p.qp[1], &mut list), 0);
    let done: Vec<_> =
        p.net.poll(p.cq[1], 6).iter().map(|wc| (wc.id, wc.status, wc.opcode)).collect();
    let expected = [
        (1, "SUCCESS", "BIND_MW"),
        (2, "SUCCESS", "LOCAL_INV"),
        (3, "SUCCESS", "BIND_MW"),
        (4, "SUCCESS", "RDMA_READ"),
        (5, "SUCCESS", "LOCAL_INV"),
        (6, "SUCCESS", "BIND_MW"),
    ];
    assert_eq!(done, expected);
    assert_eq!(&p.buf[1][4096..4104], b"new data");
    assert_eq!(p.write(p.addr(1) + 64, a), "SUCCESS");
    assert_eq!(p.write(p.addr(1), a), "REM_ACCESS");
    dealloc(mw);
    p.close();
}

#[test]
fn what_is_behind_a_message_that_is_not_received_waits() {
    if is_left_out() {
        return;
    }
    let p =
        QpPair::with(Net::new(), ConnectConfig::PATIENT, ConnectConfig::PATIENT).with_bindable();
    let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
    let mut send = send_wr(1, W::IBV_WR_SEND, &mut [], SIGNALED);
    send.sg_list = core::ptr::null_mut();
    let mut list = [send, inv_wr(2, W::IBV_WR_LOCAL_INV, key), bind_wr(3, mw, key, nothing())];
    list[2].__bindgen_anon_2.bind_mw.bind_info = piece(p.mr[1], 64, 64, WRITE);
    assert_eq!(post_list(p.qp[1], &mut list), 0);
    assert_eq!(p.write(p.addr(1), key), "SUCCESS");
    assert_eq!(p.net.poll_now(p.cq[1]), []);
    assert_eq!(post_recv(p.qp[0], 7, &mut []), 0);
    let done: Vec<_> = p.net.poll(p.cq[1], 3).iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(done, [(1, "SUCCESS"), (2, "SUCCESS"), (3, "SUCCESS")]);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 7);
    assert_eq!(p.write(p.addr(1) + 64, key), "SUCCESS");
    assert_eq!(p.write(p.addr(1), key), "REM_ACCESS");
    dealloc(mw);
    p.close();
}

#[test]
fn a_request_that_fails_flushes_those_behind_it() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let mw = alloc(p.net.pd, TYPE_2);
    let mut list = [
        inv_wr(1, W::IBV_WR_LOCAL_INV, key_of(mw)),
        bind_wr(2, mw, key_of(mw), piece(p.mr[1], 0, 64, WRITE)),
    ];
    assert_eq!(post_list(p.qp[1], &mut list), 0);
    let done: Vec<_> = p.net.poll(p.cq[1], 2).iter().map(|wc| wc.status).collect();
    assert_eq!(done, ["MW_BIND", "WR_FLUSH"]);
    dealloc(mw);
    p.close();
}

#[test]
fn a_region_stays_while_windows_are_bound_to_it() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
    let rereg = p.net.v.rereg_mr.unwrap();
    let access = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as i32;
    let (none, no_pd) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: all of it is alive.
    unsafe {
        assert_eq!((p.net.v.dereg_mr)(p.mr[1]), EBUSY);
        let code = rereg(p.mr[1], access, no_pd, none, 0, RW as i32);
        assert_eq!((code, errno()), (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0, EBUSY));
        assert_eq!((p.net.v.dealloc_pd)(p.net.pd), EBUSY);
    }
    assert_eq!(p.write(p.addr(1), key), "SUCCESS");
    assert_eq!(p.local_inv(key), "SUCCESS");
    let plain = (RW | BINDABLE) as i32;
    // SAFETY: `p.mr[1]` is alive.
    assert_eq!(unsafe { rereg(p.mr[1], access, no_pd, none, 0, plain) }, 0);
    let to = piece(p.mr[1], 0, 64, WRITE);
    assert_eq!(p.bind(mw, key, to), "SUCCESS");
    // SAFETY: `p.mr[1]` is alive.
    assert_eq!(unsafe { (p.net.v.dereg_mr)(p.mr[1]) }, EBUSY);
    dealloc(mw);
    p.close();
}

#[test]
fn a_queue_pair_that_ends_takes_its_bindings_along() {
    if is_left_out() {
        return;
    }
    for destroys in [false, true] {
        let mut p = QpPair::bindable();
        let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
        match destroys {
            false => assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_RESET), 0),
            true => p.net.destroy_qp(p.qp[1]),
        }
        let qp = second(&p);
        if destroys {
            p.qp[1] = p.net.qp(p.cq[1]);
        }
        let first = core::mem::replace(&mut p.qp, qp);
        assert_eq!(p.bind(mw, key, piece(p.mr[1], 64, 64, WRITE)), "SUCCESS");
        assert_eq!(p.write(p.addr(1) + 64, key), "SUCCESS");
        p.qp.into_iter().for_each(|qp| p.net.destroy_qp(qp));
        // SAFETY: the region is alive, and its memory stays.
        assert_eq!(unsafe { (p.net.v.dereg_mr)(p.mr[1]) }, 0);
        p.qp = first;
        dealloc(mw);
        p.qp.into_iter().for_each(|qp| p.net.destroy_qp(qp));
        p.cq.into_iter().for_each(|cq| p.net.destroy_cq(cq));
        p.net.dereg(p.mr[0]);
        p.net.close();
    }
}

#[test]
fn what_a_region_does_not_permit_no_window_does() {
    if is_left_out() {
        return;
    }
    let mw_bind = BINDABLE & !1;
    let cases: [(u32, u32, u64, u64); 13] = [
        // The region's access, the window's, offset and length.
        (RW, WRITE, 0, 64),
        (mw_bind, WRITE, 0, 64),
        (mw_bind, ATOMIC, 0, 64),
        (BINDABLE | ZERO_BASED, WRITE, 0, 64),
        (BINDABLE, WRITE, 1, 4096),
        (BINDABLE, WRITE, 4097, 1),
        (BINDABLE, WRITE, u64::MAX, 8),
        (BINDABLE, WRITE, 0, u64::MAX),
        (BINDABLE, WRITE, 0, 0),
        (BINDABLE, 0x10, 0, 64),
        (BINDABLE, 0x40, 0, 64),
        (BINDABLE, 0x100 | WRITE, 0, 64),
        (BINDABLE, WRITE, 5000, 8),
    ];
    for (region, access, offset, length) in cases {
        let p = QpPair::new();
        let mut bytes = vec![0_u8; 4096];
        let mr = p.net.mr(&mut bytes, region);
        let mw = alloc(p.net.pd, TYPE_2);
        let mut to = piece(mr, 0, length, access);
        // As requests name it.
        to.addr = if region & ZERO_BASED != 0 { 0 } else { to.addr.wrapping_add(offset) };
        let case = format!("{region:#x} {access:#x} {offset} {length}");
        assert_eq!(p.bind(mw, key_of(mw), to), "MW_BIND", "{case}");
        assert!(p.net.reaches(p.qp[1], ibv_qp_state::IBV_QPS_ERR));
        p.net.dereg(mr);
        dealloc(mw);
        p.close();
    }
    // All of the region, and reading, need no more than what they do not write.
    let p = QpPair::new();
    let mut bytes = vec![0_u8; 4096];
    let mr = p.net.mr(&mut bytes, mw_bind);
    let (mw, key) = bound(&p, piece(mr, 0, 4096, READ | 1));
    let at = bytes.as_ptr() as u64;
    assert_eq!(p.rdma(W::IBV_WR_RDMA_READ, at + 4088, key), "SUCCESS");
    dealloc(mw);
    p.net.dereg(mr);
    p.close();
}

#[test]
fn all_three_are_of_one_domain() {
    if is_left_out() {
        return;
    }
    for case in 0..2 {
        let p = QpPair::bindable();
        // SAFETY: the context is open.
        let pd = unsafe { (p.net.v.alloc_pd)(p.net.ctx) };
        let mut bytes = vec![0_u8; 64];
        let foreign = p.net.mr_in(pd, &mut bytes, BINDABLE);
        let mw = alloc(if case == 0 { pd } else { p.net.pd }, TYPE_2);
        let mr = if case == 0 { p.mr[1] } else { foreign };
        assert_eq!(p.bind(mw, key_of(mw), piece(mr, 0, 64, WRITE)), "MW_BIND");
        let one = alloc(p.net.pd, TYPE_1);
        let bind_info = piece(foreign, 0, 64, WRITE);
        let mut bind = ibv_mw_bind { wr_id: 1, send_flags: 0, bind_info };
        // SAFETY: all of it is alive.
        assert_eq!(unsafe { ibv_bind_mw(p.qp[0], one, &mut bind) }, EPERM);
        dealloc(one);
        dealloc(mw);
        p.net.dereg(foreign);
        // SAFETY: nothing is in it.
        assert_eq!(unsafe { (p.net.v.dealloc_pd)(pd) }, 0);
        p.close();
    }
}

#[test]
fn what_makes_no_sense_is_not_posted() {
    if is_left_out() {
        return;
    }
    let p = QpPair::bindable();
    let null = core::ptr::null_mut();
    // SAFETY: the domain is alive.
    assert!(unsafe { ibv_alloc_mw(p.net.pd, ibv_mw_type(3)) }.is_null());
    assert_eq!(errno(), EINVAL);
    let to = piece(p.mr[1], 0, 64, WRITE);
    assert_eq!(post_send(p.qp[1], &mut bind_wr(1, null, 1, to)), EINVAL);
    let no_mr =
        ibv_mw_bind_info { mr: core::ptr::null_mut(), addr: 1, length: 1, mw_access_flags: 0 };
    let [one, two] = [TYPE_1, TYPE_2].map(|kind| alloc(p.net.pd, kind));
    let before = key_of(one);
    let zero_based = piece(p.mr[1], 0, 64, WRITE | ZERO_BASED);
    // SAFETY: the context is open.
    let bind_mw = unsafe { (*p.net.ctx).ops.bind_mw }.unwrap();
    for (mw, bind_info) in [(one, no_mr), (one, zero_based), (two, to), (null, to)] {
        let mut bind = ibv_mw_bind { wr_id: 1, send_flags: 0, bind_info };
        // SAFETY: all of it is alive, or NULL.
        assert_eq!(unsafe { bind_mw(p.qp[1], mw, &mut bind) }, EINVAL);
    }
    // SAFETY: `p.qp[1]` and `one` are alive; the third argument is NULL.
    assert_eq!(unsafe { bind_mw(p.qp[1], one, core::ptr::null_mut()) }, EINVAL);
    assert_eq!(key_of(one), before, "a failed call changes nothing");
    for (kind, refused) in [
        (ibv_qp_type::IBV_QPT_UC, &[W::IBV_WR_SEND_WITH_INV][..]),
        (
            ibv_qp_type::IBV_QPT_UD,
            &[W::IBV_WR_SEND_WITH_INV, W::IBV_WR_BIND_MW, W::IBV_WR_LOCAL_INV],
        ),
    ] {
        let other =
            QpPair::connect(kind, Net::new(), ConnectConfig::default(), ConnectConfig::default());
        for opcode in refused {
            let mut wr = bind_wr(1, two, 1, to);
            wr.opcode = *opcode;
            assert_eq!(post_send(other.qp[0], &mut wr), EINVAL, "{opcode:?}");
        }
        other.close();
    }
    [one, two].into_iter().for_each(dealloc);
    // SAFETY: as documented.
    assert_eq!(unsafe { (*p.net.ctx).ops.dealloc_mw.unwrap()(null) }, EINVAL);
    p.close();
}

#[test]
fn a_queued_binding_of_a_window_that_is_gone_fails() {
    if is_left_out() {
        return;
    }
    // A device of its own, whose slots no other test takes.
    let name = soft_rnic::distant(std::time::Duration::from_nanos(2_777));
    let config = ConnectConfig::default();
    let p = QpPair::with(Net::on(soft_rnic::table(), &name), config, config).with_bindable();
    let mw = alloc(p.net.pd, TYPE_2);
    let key = key_of(mw);
    // SAFETY: the windows are alive.
    let place = |mw: *mut ibv_mw| unsafe { (*mw).handle };
    let first = place(mw);
    assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_SQD), 0);
    assert_eq!(post_send(p.qp[1], &mut bind_wr(1, mw, key, piece(p.mr[1], 0, 64, WRITE))), 0);
    dealloc(mw);
    // Another one in its place, which is reused when others have been used.
    let other = loop {
        let other = alloc(p.net.pd, TYPE_2);
        if place(other) == first {
            break other;
        }
        dealloc(other);
    };
    assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_RTS), 0);
    assert_eq!(p.net.poll(p.cq[1], 1)[0].status, "MW_BIND");
    dealloc(other);
    p.close();
}

#[test]
fn as_many_windows_exist_as_the_device_says() {
    if is_left_out() {
        return;
    }
    // A device of its own: other tests' windows count as well.
    let name = soft_rnic::distant(std::time::Duration::from_nanos(1_777));
    let net = Net::on(soft_rnic::table(), &name);
    let mut attr = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut attr) }, 0);
    let flags = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW
        | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    assert_eq!(attr.device_cap_flags & flags.0, flags.0);
    assert_eq!(attr.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0, 0);
    assert!(attr.max_mw > 0);
    let next = || {
        // SAFETY: the domain is alive.
        let mw = unsafe { ibv_alloc_mw(net.pd, TYPE_2) };
        (!mw.is_null()).then_some(mw)
    };
    let all: Vec<_> = core::iter::from_fn(next).take(attr.max_mw as usize + 1).collect();
    assert_eq!(errno(), 12);
    assert_eq!(all.len(), attr.max_mw as usize);
    let keys: std::collections::HashSet<_> = all.iter().map(|mw| key_of(*mw) >> 8).collect();
    assert_eq!(keys.len(), all.len());
    all.into_iter().for_each(dealloc);
    net.close();
}

#[test]
fn an_unreliable_connection_binds_and_invalidates_too() {
    if is_left_out() {
        return;
    }
    let config = ConnectConfig::default();
    let p = QpPair::connect(ibv_qp_type::IBV_QPT_UC, Net::new(), config, config).with_bindable();
    let mut p = p;
    p.buf[0][..8].copy_from_slice(b"new data");
    let (mw, key) = bound(&p, piece(p.mr[1], 0, 64, WRITE));
    // What was written is there when a message that was sent behind it has arrived.
    let write = |p: &QpPair| {
        assert_eq!(p.write(p.addr(1), key), "SUCCESS", "there is no reply");
        assert_eq!(post_recv(p.qp[1], 7, &mut []), 0);
        let mut behind = send_wr(8, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut behind), 0);
        assert_eq!(p.cq.map(|cq| p.net.poll(cq, 1)[0].status), ["SUCCESS"; 2]);
    };
    write(&p);
    assert_eq!(&p.buf[1][..8], b"new data");
    assert_eq!(p.local_inv(key), "SUCCESS");
    p.buf[0][..8].copy_from_slice(b"too late");
    write(&p);
    assert_eq!(&p.buf[1][..8], b"new data");
    dealloc(mw);
    p.close();
}

/// Whatever is delayed, repeated or overtaken: each binding is used, and is over with the message
/// behind it.
#[test]
fn bindings_keep_their_order_on_a_simulated_device_with_faults() {
    let (delay, rnr, lost_response, late_read) = (0.2, 0.2, 0.2, 0.3);
    let faults = soft_rnic::Faults { delay, rnr, lost_response, late_read, ..Default::default() };
    for seed in 0..32 {
        let simulation = soft_rnic::Simulation::new(seed, faults);
        let net = Net::on(soft_rnic::table(), simulation.name());
        // About retries: the simulated faults use up some, in virtual time.
        let config = ConnectConfig { timeout: 14, retry_cnt: 7, ..ConnectConfig::PATIENT };
        let mut p = QpPair::with(net, config, config).with_bindable();
        let mw = alloc(p.net.pd, TYPE_2);
        for tag in 1..5_u32 {
            let key = key_of(mw) & !0xff | tag;
            let at = p.addr(1) + 64 * u64::from(tag);
            let to = piece(p.mr[1], 64 * u64::from(tag), 64, WRITE | READ);
            assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
            assert_eq!(p.bind(mw, key, to), "SUCCESS", "{seed}");
            p.buf[0][..8].copy_from_slice(&u64::from(tag).to_ne_bytes());
            let there = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: at, rkey: key };
            let (mut from, mut into) = ([sge(p.mr[0], 0, 8)], [sge(p.mr[0], 64, 8)]);
            let mut write = send_wr(1, W::IBV_WR_RDMA_WRITE, &mut from, SIGNALED);
            let mut read = send_wr(2, W::IBV_WR_RDMA_READ, &mut into, SIGNALED);
            (write.wr.rdma, read.wr.rdma) = (there, there);
            let last = inv_wr(3, W::IBV_WR_SEND_WITH_INV, key);
            assert_eq!(post_list(p.qp[0], &mut [write, read, last]), 0);
            let done: Vec<_> = p.net.poll(p.cq[0], 3).iter().map(|wc| (wc.id, wc.status)).collect();
            assert_eq!(done, [(1, "SUCCESS"), (2, "SUCCESS"), (3, "SUCCESS")], "{seed}");
            assert_eq!(p.net.poll(p.cq[1], 1)[0].status, "SUCCESS");
            assert_eq!(p.buf[0][64..72], u64::from(tag).to_ne_bytes());
        }
        assert_eq!(p.write(p.addr(1), key_of(mw) & !0xff | 4), "REM_ACCESS");
        dealloc(mw);
        p.close();
    }
}

#[test]
fn windows_of_type_1_are_used_over_xrc_but_not_bound_there() {
    if is_left_out() || is_wired() {
        return;
    }
    let [a, b] = xrc::two(ConnectConfig::default());
    let cq = b.net.cq(8);
    let qp = [b.net.qp(cq), b.net.qp(cq)];
    // SAFETY: the queue pairs are alive.
    let num = qp.map(|qp| unsafe { (*qp).qp_num });
    b.net.connect(qp[0], num[1], ConnectConfig::default());
    let mut bytes = vec![0_u8; 64];
    let mr = b.net.mr(&mut bytes, BINDABLE);
    let mw = alloc(b.net.pd, TYPE_1);
    let bind_info = piece(mr, 0, 64, READ);
    let mut bind = ibv_mw_bind { wr_id: 1, send_flags: SIGNALED.0, bind_info };
    // SAFETY: all of it is alive.
    assert_eq!(unsafe { ibv_bind_mw(qp[0], mw, &mut bind) }, 0);
    assert_eq!(b.net.poll(cq, 1)[0].status, "SUCCESS");
    let there = (bytes.as_ptr() as u64, key_of(mw));
    let status = |op| {
        a.rdma(op, b.near().srq, 8, there);
        a.net.poll(a.cq[0], 1)[0].status
    };
    assert_eq!(status(W::IBV_WR_RDMA_READ), "SUCCESS");
    for opcode in [W::IBV_WR_SEND_WITH_INV, W::IBV_WR_BIND_MW, W::IBV_WR_LOCAL_INV] {
        let mut wr = bind_wr(1, mw, 1, bind_info);
        wr.opcode = opcode;
        assert_eq!(post_send(a.send, &mut wr), EINVAL, "{opcode:?}");
    }
    assert_eq!(status(W::IBV_WR_RDMA_WRITE), "REM_ACCESS");
    dealloc(mw);
    qp.into_iter().for_each(|qp| b.net.destroy_qp(qp));
    b.net.destroy_cq(cq);
    b.net.dereg(mr);
    a.close();
    b.close();
}
