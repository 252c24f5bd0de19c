//! The newer send interface, called as C programs do: by the functions of the queue pair.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use core::ffi::c_void;

use common::mw::*;
use common::*;
use verbs_sys::ibv_qp_create_send_ops_flags as Ops;
use verbs_sys::*;

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EOPNOTSUPP: i32 = 95;

const PD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
const SEND_OPS: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
/// All that a reliable connection has, but for what is about windows.
const ALL: u64 = 0x7f;
const WINDOWS: u64 = 0x380;

fn attr(net: &Net, cq: *mut ibv_cq, ops: u64) -> ibv_qp_init_attr_ex {
    let plain = net.init_attr(cq);
    ibv_qp_init_attr_ex {
        send_cq: cq,
        recv_cq: cq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        comp_mask: PD | SEND_OPS,
        pd: net.pd,
        send_ops_flags: ops,
        ..ibv_qp_init_attr_ex::default()
    }
}

fn create(net: &Net, mut attr: ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, i32> {
    // SAFETY: the context is open, and the attributes' objects are alive.
    let qp = unsafe { later(net.ctx).create_qp_ex.unwrap()(net.ctx, &mut attr) };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

/// Calls a function of a queue pair.
macro_rules! wr {
    ($qp:expr, $name:ident $(, $arg:expr)*) => {
        // SAFETY: the queue pair is alive, and was created with the interface.
        unsafe {
            let ex: *mut ibv_qp_ex = soft_rnic::qp_to_qp_ex($qp);
            (*ex).$name.unwrap()(ex $(, $arg)*)
        }
    };
}

/// Sets the id and the flags of the next request.
fn set(qp: *mut ibv_qp, id: u64, flags: ibv_send_flags) {
    let ex: *mut ibv_qp_ex = qp.cast();
    // SAFETY: the queue pair is alive, and was created with the interface.
    unsafe {
        (*ex).wr_id = id;
        (*ex).wr_flags = flags.0;
    }
}

/// A connected pair whose requester has the interface, for `ops`.
fn pair(kind: ibv_qp_type, ops: u64) -> QpPair {
    let mut p = QpPair::unconnected(kind, Net::new());
    p.net.destroy_qp(p.qp[0]);
    let attr = ibv_qp_init_attr_ex { qp_type: kind, ..attr(&p.net, p.cq[0], ops) };
    p.qp[0] = create(&p.net, attr).unwrap();
    let config = ConnectConfig { access: RW, ..ConnectConfig::default() };
    p.net.connect(p.qp[0], p.num(1), config);
    p.net.connect(p.qp[1], p.num(0), config);
    p
}

#[test]
fn every_operation_does_what_the_old_interface_does() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let mut p = pair(ibv_qp_type::IBV_QPT_RC, ALL);
    let (qp, key, to) = (p.qp[0], p.key(1), p.addr(1));
    let (lkey, from) = (p.key(0), p.addr(0));
    p.buf[0][..8].copy_from_slice(b"to write");
    p.buf[1][512..520].copy_from_slice(&7_u64.to_ne_bytes());
    for id in 100..103 {
        assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 1024, 64)]), 0);
    }
    wr!(qp, wr_start);
    set(qp, 0, SIGNALED);
    wr!(qp, wr_rdma_write, key, to);
    wr!(qp, wr_set_sge, lkey, from, 8);
    set(qp, 1, UNSIGNALED);
    wr!(qp, wr_rdma_read, key, to);
    wr!(qp, wr_set_sge, lkey, from + 64, 8);
    set(qp, 2, SIGNALED);
    wr!(qp, wr_atomic_fetch_add, key, to + 512, 3);
    wr!(qp, wr_set_sge, lkey, from + 128, 8);
    set(qp, 3, SIGNALED);
    wr!(qp, wr_atomic_cmp_swp, key, to + 512, 10, 20);
    wr!(qp, wr_set_sge, lkey, from + 192, 8);
    set(qp, 4, SIGNALED);
    wr!(qp, wr_rdma_write_imm, key, to + 16, 5_u32.to_be());
    let mut parts = [sge(p.mr[0], 0, 3), sge(p.mr[0], 3, 5)];
    wr!(qp, wr_set_sge_list, 2, parts.as_mut_ptr());
    set(qp, 5, SIGNALED);
    wr!(qp, wr_send_imm, 6_u32.to_be());
    set(qp, 6, SIGNALED);
    wr!(qp, wr_send);
    wr!(qp, wr_set_sge, lkey, from, 2);
    assert!(p.net.poll_now(p.cq[0]).is_empty(), "nothing is posted before the end");
    assert_eq!(wr!(qp, wr_complete), 0);
    let done = p.net.poll(p.cq[0], 6);
    assert_eq!(done.iter().map(|wc| wc.id).collect::<Vec<_>>(), [0, 2, 3, 4, 5, 6]);
    assert!(done.iter().all(|wc| wc.status == "SUCCESS"), "{done:?}");
    let came: Vec<_> = p.net.poll(p.cq[1], 3).iter().map(|wc| (wc.imm, wc.len)).collect();
    assert_eq!(came, [(Some(5), 8), (Some(6), 0), (None, 2)]);
    assert_eq!(&p.buf[1][..8], b"to write");
    assert_eq!(&p.buf[1][16..24], b"to write");
    assert_eq!(&p.buf[0][64..72], b"to write");
    assert_eq!(p.buf[0][128..136], 7_u64.to_ne_bytes());
    assert_eq!(p.buf[0][192..200], 10_u64.to_ne_bytes());
    assert_eq!(p.buf[1][512..520], 20_u64.to_ne_bytes());
    p.close();
}

#[test]
fn inline_data_are_taken_when_they_are_given() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let p = pair(ibv_qp_type::IBV_QPT_RC, ALL);
    let qp = p.qp[0];
    let (mut one, mut two) = (*b"first", *b" and second");
    for id in 0..2 {
        assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 64 * id as usize, 64)]), 0);
    }
    let buf = |bytes: &mut [u8]| ibv_data_buf {
        addr: bytes.as_mut_ptr().cast::<c_void>(),
        length: bytes.len(),
    };
    wr!(qp, wr_start);
    set(qp, 0, SIGNALED);
    wr!(qp, wr_send);
    wr!(qp, wr_set_inline_data, one.as_mut_ptr().cast(), one.len());
    set(qp, 1, SIGNALED);
    wr!(qp, wr_send);
    let list = [buf(&mut one), buf(&mut []), buf(&mut two)];
    wr!(qp, wr_set_inline_data_list, list.len(), list.as_ptr());
    one.fill(b'x');
    two.fill(b'x');
    assert_eq!(wr!(qp, wr_complete), 0);
    assert_eq!(p.net.poll(p.cq[0], 2).len(), 2);
    assert_eq!(&p.buf[1][..5], b"first");
    assert_eq!(&p.buf[1][64..80], b"first and second");
    p.close();
}

/// Puts a batch together, in which something may be wrong.
type Fault = fn(&QpPair);

#[test]
fn a_batch_in_which_something_is_wrong_is_not_posted_at_all() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let faults: [(i32, Fault); 11] = [
        (EINVAL, |p| {
            wr!(p.qp[0], wr_send);
            let many = [sge(p.mr[0], 0, 1); 5];
            wr!(p.qp[0], wr_set_sge_list, 5, many.as_ptr());
        }),
        (EINVAL, |p| {
            wr!(p.qp[0], wr_send);
            let mut long = vec![0_u8; 65];
            wr!(p.qp[0], wr_set_inline_data, long.as_mut_ptr().cast(), 65);
        }),
        (EINVAL, |p| {
            wr!(p.qp[0], wr_rdma_read, p.key(1), p.addr(1));
            wr!(p.qp[0], wr_set_inline_data, p.addr(0) as *mut c_void, 8);
        }),
        (EINVAL, |p| {
            wr!(p.qp[0], wr_send);
            wr!(p.qp[0], wr_set_sge, p.key(0), p.addr(0), 1);
            wr!(p.qp[0], wr_set_sge, p.key(0), p.addr(0), 1);
        }),
        (EINVAL, |p| {
            wr!(p.qp[0], wr_send);
            wr!(p.qp[0], wr_set_ud_addr, core::ptr::null_mut(), 1, 1);
        }),
        (ENOMEM, |p| {
            for _ in 0..64 {
                wr!(p.qp[0], wr_send);
            }
        }),
        // Not among the operations of the creation, and not among the device's.
        (EOPNOTSUPP, |p| wr!(p.qp[0], wr_send_imm, 1)),
        (EOPNOTSUPP, |p| wr!(p.qp[0], wr_local_inv, 1)),
        (EOPNOTSUPP, |p| wr!(p.qp[0], wr_send_tso, core::ptr::null_mut(), 1, 1)),
        (EOPNOTSUPP, |p| wr!(p.qp[0], wr_bind_mw, core::ptr::null_mut(), 1, core::ptr::null())),
        (EOPNOTSUPP, |p| wr!(p.qp[0], wr_atomic_write, 1, 1, core::ptr::null())),
    ];
    let ops = Ops::IBV_QP_EX_WITH_SEND | Ops::IBV_QP_EX_WITH_RDMA_READ;
    let p = pair(ibv_qp_type::IBV_QPT_RC, ops.0.into());
    for id in 0..2 {
        assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 0, 64)]), 0);
    }
    for (error, fault) in faults {
        wr!(p.qp[0], wr_start);
        set(p.qp[0], 1, SIGNALED);
        wr!(p.qp[0], wr_send);
        wr!(p.qp[0], wr_set_sge, p.key(0), p.addr(0), 8);
        fault(&p);
        assert_eq!(wr!(p.qp[0], wr_complete), error);
        assert_eq!(wr!(p.qp[0], wr_complete), EINVAL, "it is over");
    }
    wr!(p.qp[0], wr_start);
    wr!(p.qp[0], wr_send);
    wr!(p.qp[0], wr_abort);
    wr!(p.qp[0], wr_send);
    wr!(p.qp[0], wr_start);
    assert_eq!(wr!(p.qp[0], wr_complete), 0, "nothing");
    // What is posted now is the first that was, and the queue has all its places.
    for id in 10..12 {
        wr!(p.qp[0], wr_start);
        set(p.qp[0], id, SIGNALED);
        wr!(p.qp[0], wr_send);
        assert_eq!(wr!(p.qp[0], wr_complete), 0);
    }
    assert_eq!(p.net.poll(p.cq[0], 2).iter().map(|wc| wc.id).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(p.net.poll(p.cq[1], 2).iter().map(|wc| wc.id).collect::<Vec<_>>(), [0, 1]);
    p.close();
}

#[test]
fn a_batch_for_which_there_is_no_room_is_not_posted() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let p = pair(ibv_qp_type::IBV_QPT_RC, ALL);
    for id in 0..64 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
    }
    // Their places are free when a completion of a later request is polled.
    let batch = |n: u64| {
        wr!(p.qp[0], wr_start);
        for id in 0..n {
            set(p.qp[0], id, if id + 1 == n { SIGNALED } else { UNSIGNALED });
            wr!(p.qp[0], wr_send);
        }
        wr!(p.qp[0], wr_complete)
    };
    assert_eq!(batch(40), 0);
    assert_eq!(batch(25), ENOMEM);
    assert_eq!(batch(24), 0);
    assert_eq!(p.net.poll(p.cq[1], 64).len(), 64, "none of the 25 arrived");
    p.close();
}

/// The requester of the pair has the window.
#[test]
fn windows_are_bound_and_invalidated() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let p = pair(ibv_qp_type::IBV_QPT_RC, WINDOWS);
    let (qp, mut bytes) = (p.qp[0], vec![0_u8; 64]);
    let mr = p.net.mr(&mut bytes, BINDABLE);
    let mw = alloc(p.net.pd, TYPE_2);
    let [a, b] = [1, 2].map(|tag| key_of(mw) & !0xff | tag);
    let info = piece(mr, 0, 64, WRITE);
    assert_eq!(post_recv(p.qp[1], 7, &mut []), 0);
    assert_eq!(post_recv(p.qp[0], 8, &mut []), 0);
    wr!(qp, wr_start);
    set(qp, 1, SIGNALED);
    wr!(qp, wr_bind_mw, mw, a, &info);
    set(qp, 2, SIGNALED);
    wr!(qp, wr_local_inv, a);
    set(qp, 3, SIGNALED);
    wr!(qp, wr_bind_mw, mw, b, &info);
    assert_eq!(wr!(qp, wr_complete), 0);
    let done: Vec<_> = p.net.poll(p.cq[0], 3).iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(done, [(1, "SUCCESS"), (2, "SUCCESS"), (3, "SUCCESS")]);
    let mut sges = [sge(p.mr[1], 0, 8)];
    let mut write = send_wr(4, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
    let remote_addr = bytes.as_ptr() as u64;
    write.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey: b };
    assert_eq!(p.status(1, &mut write), "SUCCESS");
    assert_eq!(p.status(1, &mut inv_wr(5, ibv_wr_opcode::IBV_WR_SEND_WITH_INV, b)), "SUCCESS");
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 8);
    p.net.dereg(mr);
    // The other end has none of its keys.
    wr!(qp, wr_start);
    set(qp, 6, SIGNALED);
    wr!(qp, wr_send_inv, b);
    assert_eq!(wr!(qp, wr_complete), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "REM_ACCESS");
    wr!(qp, wr_start);
    wr!(qp, wr_bind_mw, mw, a, core::ptr::null());
    assert_eq!(wr!(qp, wr_complete), EINVAL);
    dealloc(mw);
    p.close();
}

#[test]
fn a_queue_pair_is_created_only_for_operations_of_its_transport() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let net = Net::new();
    let cq = net.cq(16);
    let cases = [
        (ibv_qp_type::IBV_QPT_RC, ALL | WINDOWS | 1 << 12),
        (ibv_qp_type::IBV_QPT_UC, 0x18f),
        (ibv_qp_type::IBV_QPT_UD, 0xc),
    ];
    for (qp_type, has) in cases {
        for bit in (0..14).chain([63]) {
            let attr = ibv_qp_init_attr_ex { qp_type, ..attr(&net, cq, 1 << bit) };
            match create(&net, attr) {
                Ok(qp) => {
                    assert_ne!(has & 1 << bit, 0, "{bit}");
                    // SAFETY: the queue pair is alive.
                    assert_eq!(unsafe { soft_rnic::qp_to_qp_ex(qp) }, qp.cast());
                    net.destroy_qp(qp);
                }
                Err(error) => assert_eq!((error, has & 1 << bit), (EOPNOTSUPP, 0), "{bit}"),
            }
        }
    }
    let refused = [
        (EOPNOTSUPP, ibv_qp_init_attr_ex { comp_mask: 0x7f, ..attr(&net, cq, ALL) }),
        (EINVAL, ibv_qp_init_attr_ex { comp_mask: SEND_OPS, ..attr(&net, cq, ALL) }),
    ];
    for (error, attr) in refused {
        assert_eq!(create(&net, attr), Err(error));
    }
    let plain = create(&net, ibv_qp_init_attr_ex { comp_mask: PD, ..attr(&net, cq, ALL) }).unwrap();
    // SAFETY: the queue pair is alive.
    assert!(unsafe { soft_rnic::qp_to_qp_ex(plain) }.is_null(), "it has the old interface only");
    net.destroy_qp(plain);
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn datagrams_go_where_their_addresses_say() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    let p = pair(ibv_qp_type::IBV_QPT_UD, Ops::IBV_QP_EX_WITH_SEND.0.into());
    let (qp, ah) = (p.qp[0], p.net.ah());
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
    wr!(qp, wr_start);
    set(qp, 7, SIGNALED);
    wr!(qp, wr_send);
    wr!(qp, wr_set_ud_addr, ah, p.num(1), QKEY);
    wr!(qp, wr_set_sge, p.key(0), p.addr(0), 8);
    // One without an address: none of both is sent.
    wr!(qp, wr_send);
    assert_eq!(wr!(qp, wr_complete), EINVAL);
    wr!(qp, wr_start);
    set(qp, 8, SIGNALED);
    wr!(qp, wr_send);
    wr!(qp, wr_set_ud_addr, ah, p.num(1), QKEY);
    wr!(qp, wr_set_sge, p.key(0), p.addr(0), 8);
    assert_eq!(wr!(qp, wr_complete), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 8);
    let came = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((came.id, came.src_qp, came.len), (1, p.num(0), 48));
    p.net.destroy_ah(ah);
    p.close();
}

#[test]
fn threads_take_turns() {
    if !is_softs_own("the newer send interface") {
        return;
    }
    const EACH: u64 = 16;
    let p = pair(ibv_qp_type::IBV_QPT_RC, ALL);
    for id in 0..4 * EACH {
        assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 0, 64)]), 0);
    }
    /// The queue pair, for threads.
    #[derive(Clone, Copy)]
    struct SharedQp(*mut ibv_qp);
    // SAFETY: verbs may be called from any thread.
    unsafe impl Send for SharedQp {}
    let qp = SharedQp(p.qp[0]);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let SharedQp(qp) = { qp };
                for i in 0..EACH {
                    wr!(qp, wr_start);
                    for part in 0..2 {
                        set(qp, 1000 * thread + 2 * i + part, SIGNALED);
                        std::thread::yield_now();
                        wr!(qp, wr_send);
                    }
                    assert_eq!(wr!(qp, wr_complete), 0);
                }
            });
        }
    });
    let ids: Vec<u64> = p.net.poll(p.cq[0], 4 * EACH as usize).iter().map(|wc| wc.id).collect();
    for pair in ids.chunks(2) {
        assert_eq!(pair[0] + 1, pair[1], "a batch stays together: {ids:?}");
    }
    p.close();
}
