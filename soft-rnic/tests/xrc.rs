//! Extended reliable connections, within the process and between two.
//!
//! Only on soft0: rxe has no XRC.

mod common;

use core::ptr::null_mut;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::other::{Other, hear, role, say};
use common::xrc::*;
use common::*;
use soft_rnic::{Faults, Simulation};
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const EBADF: i32 = 9;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

#[test]
fn the_device_says_that_it_has_it() {
    let net = Net::new();
    let mut attr = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut attr) }, 0);
    assert_ne!(attr.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_XRC.0, 0);
    net.close();
}

#[test]
fn every_operation_goes_through_the_queue_that_it_names() {
    let [mut a, b] = two(patient());
    post_four(&b);
    send_all(&mut a, b.near());
    check_received(&b, a.near());
    // SAFETY: the memory is alive; the device writes it meanwhile.
    operate(&mut a, b.near(), |at| unsafe { b.shared.bytes.as_ptr().add(at).read_volatile() });
    a.close();
    b.close();
}

#[test]
fn one_connection_serves_several_queues_each_with_its_domain() {
    let [a, b] = two(patient());
    // SAFETY: the context is open.
    let pd = unsafe { (b.net.v.alloc_pd)(b.net.ctx) };
    let cq = b.net.cq(16);
    let srq = create_srq(b.net.ctx, srq_attr(pd, b.xrcd, cq)).unwrap();
    let mut bytes = vec![0_u8; 64];
    let mr = b.net.mr_in(pd, &mut bytes, RW);
    let (first, second) = (b.near().srq, srq_num(srq));
    assert_eq!(post_srq_recv(srq, 20, &mut [sge(mr, 0, 32)]), 0);
    b.post_recv(10, 0, 32);
    a.send(second, 1, 8);
    a.send(first, 1, 8);
    assert_eq!(a.statuses(), ["SUCCESS"; 2]);
    assert_eq!(b.received().id, 10);
    let wc = b.net.poll(cq, 1)[0];
    assert_eq!((wc.id, wc.qp), (20, b.near().recv));
    // A key is of the queue's domain, or of none.
    // SAFETY: the region is alive.
    let key = unsafe { (*mr).rkey };
    a.rdma(W::IBV_WR_RDMA_WRITE, second, 8, (bytes.as_ptr() as u64, key));
    assert_eq!(a.status(), "SUCCESS");
    a.rdma(W::IBV_WR_RDMA_WRITE, first, 8, (bytes.as_ptr() as u64, key));
    assert_eq!(a.status(), "REM_ACCESS");
    // SAFETY: each is alive, and destroyed once.
    unsafe {
        assert_eq!((b.net.v.dealloc_pd)(pd), EBUSY);
        assert_eq!((b.net.v.destroy_cq)(cq), EBUSY);
        assert_eq!((b.net.v.destroy_srq)(srq), 0);
        b.net.dereg(mr);
        b.net.destroy_cq(cq);
        assert_eq!((b.net.v.dealloc_pd)(pd), 0);
    }
    a.close();
    b.close();
}

#[test]
fn an_xrc_request_to_an_unusable_queue_is_invalid() {
    let basic = |net: &Net| {
        let mut attr = ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the domain is alive.
        unsafe { (net.v.create_srq)(net.pd, &mut attr) }
    };
    for case in ["none", "large", "basic", "other", "write", "empty write", "read"] {
        let [a, b] = two(patient());
        let (near, srq) = (b.near(), basic(&b.net));
        b.post_recv(0, 0, 64);
        match case {
            "none" => a.send(0, 1, 8),
            "large" => a.send(u32::MAX, 1, 8192),
            "basic" => a.send(srq_num(srq), 1, 8),
            // In its own domain, it is one that takes messages.
            "other" => a.send(a.near().srq, 1, 8),
            "write" => a.rdma(W::IBV_WR_RDMA_WRITE, 0, 8, (near.addr, near.rkey)),
            "empty write" => a.rdma(W::IBV_WR_RDMA_WRITE, a.near().srq, 0, (near.addr, near.rkey)),
            _ => a.rdma(W::IBV_WR_RDMA_READ, a.near().srq, 8, (near.addr, near.rkey)),
        }
        assert_eq!(a.status(), "REM_INV_REQ", "{case}");
        assert!(b.net.reaches(b.recv, ibv_qp_state::IBV_QPS_ERR), "{case}");
        assert_eq!(b.net.async_events(), [ibv_event_type::IBV_EVENT_QP_REQ_ERR], "{case}");
        assert_eq!(b.net.poll_now(b.cq[1]), [], "{case}");
        // SAFETY: the test is done with it.
        assert_eq!(unsafe { (b.net.v.destroy_srq)(srq) }, 0);
        a.close();
        b.close();
    }
}

#[test]
fn a_message_waits_for_a_receive_request_or_fails_without_one() {
    let [a, b] = two(patient());
    a.send(b.near().srq, 1, 8);
    a.rdma(W::IBV_WR_RDMA_WRITE_WITH_IMM, b.near().srq, 8, (b.near().addr, b.near().rkey));
    assert_eq!(a.net.poll_now(a.cq[0]), []);
    b.post_recv(1, 0, 64);
    b.post_recv(2, 0, 64);
    assert_eq!(a.statuses(), ["SUCCESS"; 2]);
    let ids: Vec<_> = b.net.poll(b.cq[1], 2).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [1, 2]);
    a.close();
    b.close();
    let [a, b] = two(ConnectConfig { rnr_retry: 0, ..patient() });
    a.send(b.near().srq, 1, 8);
    assert_eq!(a.status(), "RNR_RETRY_EXC");
    a.close();
    b.close();
}

#[test]
fn a_message_that_does_not_fit_completes_in_error_at_both_ends() {
    let [a, b] = two(patient());
    b.post_recv(5, 0, 8);
    a.send(b.near().srq, 0, 100_000);
    assert_eq!(a.status(), "REM_INV_REQ");
    let wc = b.received();
    assert_eq!((wc.id, wc.status, wc.qp), (5, "LOC_LEN", b.near().recv));
    a.close();
    b.close();
}

#[test]
fn the_newer_interface_names_queues_too() {
    let [a, b] = two(patient());
    let near = b.near();
    let plain = a.net.init_attr(a.cq[0]);
    let new = |kind, ops| {
        create_qp_ex(
            a.net.ctx,
            ibv_qp_init_attr_ex {
                send_cq: a.cq[0],
                recv_cq: a.cq[0],
                cap: plain.cap,
                qp_type: kind,
                comp_mask: ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
                    | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0,
                pd: a.net.pd,
                send_ops_flags: ops,
                ..ibv_qp_init_attr_ex::default()
            },
        )
    };
    let qp = new(ibv_qp_type::IBV_QPT_XRC_SEND, 0x7f).unwrap();
    let rc = new(ibv_qp_type::IBV_QPT_RC, 0x7f).unwrap();
    let recv = create_recv(b.net.ctx, b.xrcd).unwrap();
    // SAFETY: all of it is alive; the queue pairs have the interface.
    unsafe {
        a.net.connect(qp, (*recv).qp_num, patient());
        b.net.connect(recv, (*qp).qp_num, patient());
        a.net.connect(rc, (*rc).qp_num, patient());
        b.post_recv(3, 0, 64);
        let ex = soft_rnic::qp_to_qp_ex(qp);
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_flags = SIGNALED.0;
        (*ex).wr_send.unwrap()(ex);
        (*ex).wr_set_xrc_srqn.unwrap()(ex, near.srq);
        (*ex).wr_set_sge.unwrap()(ex, (*a.mr[1]).lkey, (*a.mr[1]).addr as u64, 8);
        (*ex).wr_rdma_write.unwrap()(ex, near.rkey, near.addr);
        (*ex).wr_set_xrc_srqn.unwrap()(ex, near.srq);
        (*ex).wr_set_sge.unwrap()(ex, (*a.mr[1]).lkey, (*a.mr[1]).addr as u64, 8);
        assert_eq!((*ex).wr_complete.unwrap()(ex), 0);
        let other = soft_rnic::qp_to_qp_ex(rc);
        (*other).wr_start.unwrap()(other);
        (*other).wr_send.unwrap()(other);
        (*other).wr_set_xrc_srqn.unwrap()(other, near.srq);
        assert_eq!((*other).wr_complete.unwrap()(other), EINVAL);
        assert_eq!(a.statuses(), ["SUCCESS"; 2]);
        assert_eq!((b.received().id, b.near().srq), (3, near.srq));
    }
    [qp, rc].iter().for_each(|qp| a.net.destroy_qp(*qp));
    b.net.destroy_qp(recv);
    a.close();
    b.close();
}

#[test]
fn a_file_names_a_domain_for_all_contexts() {
    let (net, other) = (Net::new(), Net::new());
    let file = tempfile();
    let (fd, create) = (file.as_raw_fd(), libc::O_CREAT);
    assert_eq!(open_xrcd(net.ctx, fd, 0), Err(EAGAIN), "there is none");
    let first = open_xrcd(net.ctx, fd, create | libc::O_EXCL).unwrap();
    assert_eq!(open_xrcd(net.ctx, fd, create | libc::O_EXCL), Err(EINVAL), "there is one");
    let same = open_xrcd(other.ctx, fd, 0).unwrap();
    let another = open_xrcd(other.ctx, -1, create).unwrap();
    let qp = create_recv(net.ctx, first).unwrap();
    // SAFETY: the queue pair is alive.
    let num = unsafe { (*qp).qp_num };
    let opened = open_qp(other.ctx, same, num).unwrap();
    assert_eq!(open_qp(other.ctx, another, num), Err(EINVAL), "another domain");
    assert_eq!(open_qp(net.ctx, same, num), Err(EINVAL), "another context");
    assert_eq!((close_xrcd(first), close_xrcd(same), close_xrcd(another)), (EBUSY, EBUSY, 0));
    net.destroy_qp(qp);
    assert_eq!((close_xrcd(first), close_xrcd(same)), (0, EBUSY));
    other.destroy_qp(opened);
    assert_eq!(close_xrcd(same), 0);
    assert_eq!(open_xrcd(net.ctx, fd, 0), Err(EAGAIN), "it has gone with its last handle");
    assert_eq!(open_xrcd(net.ctx, 1 << 20, create), Err(EBADF));
    assert_eq!(open_xrcd(net.ctx, -2, create), Err(EBADF));
    let with = |comp_mask| {
        open_xrcd_with(net.ctx, ibv_xrcd_init_attr { comp_mask, fd: -1, oflags: create })
    };
    assert_eq!([0, 1, 2, 7].map(with), [EINVAL, EINVAL, EINVAL, EOPNOTSUPP].map(Err));
    net.close();
    other.close();
}

/// A file without a name.
fn tempfile() -> std::os::fd::OwnedFd {
    use rustix::fs::{MemfdFlags, memfd_create};
    memfd_create("domain", MemfdFlags::CLOEXEC).unwrap()
}

#[test]
fn opened_handles_share_a_queue_pair_and_keep_it_alive() {
    let [a, b] = two(patient());
    let (num, user) = (b.near().recv, &raw const *b.shared.bytes);
    let attr = ibv_qp_open_attr {
        comp_mask: 15,
        qp_num: num,
        xrcd: b.xrcd,
        qp_context: user.cast_mut().cast(),
        qp_type: ibv_qp_type::IBV_QPT_XRC_RECV,
    };
    let opened = open_qp_with(b.net.ctx, attr).unwrap();
    // SAFETY: both are alive.
    unsafe {
        assert_eq!(((*opened).qp_num, (*opened).qp_context), (num, user.cast_mut().cast()));
        assert_eq!(((*opened).state, (*opened).pd), (ibv_qp_state::IBV_QPS_RTS, null_mut()));
    }
    assert_eq!(b.net.query(opened).dest_qp_num, a.near().send);
    b.post_recv(1, 0, 64);
    let first = Xrc { recv: opened, ..b };
    first.net.destroy_qp(b.recv);
    a.send(first.near().srq, 1, 8);
    assert_eq!((a.status(), first.received().qp), ("SUCCESS", num));
    let second = open_qp(first.net.ctx, first.xrcd, num).unwrap();
    assert_eq!(first.net.to_state(second, ibv_qp_state::IBV_QPS_ERR), 0);
    assert_eq!(first.net.state(opened), ibv_qp_state::IBV_QPS_ERR);
    first.net.destroy_qp(second);
    let (ctx, xrcd) = (first.net.ctx, first.xrcd);
    first.net.destroy_qp(opened);
    assert_eq!(open_qp(ctx, xrcd, num), Err(EINVAL), "it went with its last handle");
    let first = Xrc { recv: create_recv(ctx, xrcd).unwrap(), ..first };
    first.close();
    a.close();
}

#[test]
fn each_handle_gets_an_event() {
    let [a, b] = two(patient());
    let opened = open_qp(b.net.ctx, b.xrcd, b.near().recv).unwrap();
    a.send(0, 1, 8);
    assert_eq!(a.status(), "REM_INV_REQ");
    assert_eq!(b.net.async_events(), [ibv_event_type::IBV_EVENT_QP_REQ_ERR; 2]);
    b.net.destroy_qp(opened);
    a.close();
    b.close();
}

#[test]
fn what_is_no_receive_queue_pair_cannot_be_opened() {
    let [a, b] = two(patient());
    let (ctx, xrcd) = (b.net.ctx, b.xrcd);
    let good = ibv_qp_open_attr {
        comp_mask: 11,
        qp_num: b.near().recv,
        xrcd,
        qp_context: null_mut(),
        qp_type: ibv_qp_type::IBV_QPT_XRC_RECV,
    };
    b.net.destroy_qp(open_qp_with(ctx, good).unwrap());
    let with = |attr| open_qp_with(ctx, attr);
    for comp_mask in [3, 9, 10] {
        assert_eq!(with(ibv_qp_open_attr { comp_mask, ..good }), Err(EINVAL));
    }
    assert_eq!(with(ibv_qp_open_attr { comp_mask: 27, ..good }), Err(EOPNOTSUPP));
    let qp_type = ibv_qp_type::IBV_QPT_XRC_SEND;
    assert_eq!(with(ibv_qp_open_attr { qp_type, ..good }), Err(EINVAL));
    assert_eq!(with(ibv_qp_open_attr { xrcd: null_mut(), ..good }), Err(EINVAL));
    assert_eq!(open_qp(ctx, xrcd, b.near().send), Err(EINVAL));
    assert_eq!(open_qp(ctx, xrcd, b.near().recv ^ 0x1000), Err(EINVAL));
    if crosses_processes() {
        assert_eq!(open_qp(ctx, xrcd, b.near().recv ^ 0x80_0000), Err(EOPNOTSUPP), "elsewhere");
    }
    a.close();
    b.close();
}

#[test]
fn objects_without_what_they_need_are_refused() {
    let [a, b] = two(patient());
    let (net, other) = (&b.net, &a.net);
    let attr = net.init_attr(b.cq[0]);
    let plain = |attr: ibv_qp_init_attr| {
        let mut attr = attr;
        // SAFETY: the attributes' objects are alive.
        let qp = unsafe { (net.v.create_qp)(net.pd, &mut attr) };
        if qp.is_null() { errno() } else { 0 }
    };
    let qp_type = ibv_qp_type::IBV_QPT_XRC_RECV;
    assert_eq!(plain(ibv_qp_init_attr { qp_type, ..attr }), EINVAL, "no domain");
    assert_eq!(plain(ibv_qp_init_attr { srq: b.srq, ..attr }), EINVAL, "not a basic queue");
    assert_eq!(create_recv(net.ctx, null_mut()), Err(EINVAL));
    assert_eq!(create_recv(net.ctx, a.xrcd), Err(EINVAL), "another context");
    let with_ops = ibv_qp_init_attr_ex {
        qp_type,
        comp_mask: ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0
            | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0,
        xrcd: b.xrcd,
        ..ibv_qp_init_attr_ex::default()
    };
    assert_eq!(create_qp_ex(net.ctx, with_ops), Err(EOPNOTSUPP));
    let srq = |pd, xrcd, cq| create_srq(net.ctx, srq_attr(pd, xrcd, cq));
    assert_eq!(srq(net.pd, a.xrcd, b.cq[1]), Err(EINVAL));
    assert_eq!(srq(net.pd, b.xrcd, a.cq[1]), Err(EINVAL));
    assert_eq!(srq(other.pd, b.xrcd, b.cq[1]), Err(EINVAL));
    assert_eq!(srq(net.pd, b.xrcd, null_mut()), Err(EINVAL));
    let good = srq_attr(net.pd, b.xrcd, b.cq[1]);
    for missing in [4, 8] {
        let comp_mask = XRC_SRQ & !missing;
        assert_eq!(create_srq(net.ctx, ibv_srq_init_attr_ex { comp_mask, ..good }), Err(EINVAL));
    }
    a.close();
    b.close();
}

#[test]
fn neither_end_has_a_receive_queue_and_one_has_no_send_queue() {
    let [a, b] = two(patient());
    let mut sges = [sge(b.mr[1], 0, 8)];
    assert_eq!(post_recv(b.send, 1, &mut sges), EINVAL);
    assert_eq!(post_recv(b.send, 1, &mut []), ENOMEM);
    assert_eq!(post_recv(b.recv, 1, &mut sges), EINVAL);
    assert_eq!(post_send(b.recv, &mut send_wr(1, W::IBV_WR_SEND, &mut sges, SIGNALED)), EINVAL);
    // SAFETY: both are alive.
    unsafe {
        assert_eq!(((*b.send).recv_cq, (*b.recv).recv_cq), (null_mut(), null_mut()));
        assert_eq!(((*b.send).send_cq, (*b.recv).send_cq), (b.cq[0], null_mut()));
    }
    a.close();
    b.close();
}

#[test]
fn xrc_transitions_need_only_the_attributes_of_their_end() {
    use ibv_qp_attr_mask as M;
    let (a, b) = (Xrc::new(), Xrc::new());
    for qp in [b.send, b.recv] {
        // SAFETY: the queue pair is alive.
        let kind = unsafe { (*qp).qp_type };
        let (init, rtr, rts) = b.net.steps_of(kind, a.near().recv, patient());
        let (_, rtr_of_rc, rts_of_rc) = b.net.steps(a.near().recv, patient());
        assert_eq!(b.net.modify(qp, init.0, init.1), 0);
        for (step, of_rc, needed) in
            [(rtr, rtr_of_rc, M::IBV_QP_RQ_PSN), (rts, rts_of_rc, M::IBV_QP_SQ_PSN)]
        {
            let without = M(step.1.0 & !needed.0);
            assert_eq!(b.net.modify(qp, step.0, without), EINVAL, "{kind:?}");
            assert_eq!(b.net.modify(qp, step.0, step.1 | M::IBV_QP_QKEY), EINVAL, "{kind:?}");
            assert_eq!(b.net.modify(qp, of_rc.0, of_rc.1), 0, "{kind:?}");
        }
    }
    assert_eq!(b.net.query(b.send).max_dest_rd_atomic, 0);
    assert_eq!((b.net.query(b.recv).retry_cnt, b.net.query(b.recv).max_rd_atomic), (0, 0));
    a.close();
    b.close();
}

#[test]
fn a_queue_that_is_destroyed_takes_nothing_any_more() {
    const LEN: usize = BYTES;
    for round in 0..20 {
        let [a, b] = two(patient());
        for id in 0..64 {
            b.post_recv(id, 0, LEN as u32);
        }
        let (srqn, begun) = (b.near().srq, AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                loop {
                    begun.fetch_add(1, Ordering::Relaxed);
                    a.send(srqn, 1, LEN as u32);
                    let status = a.status();
                    if status != "SUCCESS" {
                        return status;
                    }
                }
            });
            while begun.load(Ordering::Relaxed) <= round % 4 {
                std::thread::yield_now();
            }
            // SAFETY: the test is done with it.
            assert_eq!(unsafe { (b.net.v.destroy_srq)(b.srq) }, 0);
            // The memory is the program's again, where a message under way would end, too.
            let last = b.shared.bytes.as_ptr_range().end.cast_mut().wrapping_sub(1);
            // SAFETY: within the memory, which is this thread's.
            unsafe { last.write_volatile(9) };
            assert_eq!(sender.join().unwrap(), "REM_INV_REQ");
            // SAFETY: `last` is within `b.shared`, which is this thread's.
            assert_eq!(unsafe { last.read_volatile() }, 9);
        });
        let srq = create_srq(b.net.ctx, srq_attr(b.net.pd, b.xrcd, b.cq[1])).unwrap();
        assert_ne!(srq_num(srq), srqn);
        Xrc { srq, ..b }.close();
        a.close();
    }
}

#[test]
fn a_completion_queue_that_overflows_takes_the_receiver_along() {
    let [a, b] = two(patient());
    let cq = b.net.cq(1);
    let srq = create_srq(b.net.ctx, srq_attr(b.net.pd, b.xrcd, cq)).unwrap();
    for id in 0..2 {
        assert_eq!(post_srq_recv(srq, id, &mut [sge(b.mr[0], 0, 64)]), 0);
        a.send(srq_num(srq), 1, 8);
        assert_eq!(a.status(), "SUCCESS");
    }
    assert!(b.net.reaches(b.recv, ibv_qp_state::IBV_QPS_ERR));
    let events = b.net.async_events();
    assert!(events.contains(&ibv_event_type::IBV_EVENT_CQ_ERR), "{events:?}");
    assert!(events.contains(&ibv_event_type::IBV_EVENT_QP_FATAL), "{events:?}");
    // SAFETY: the test is done with it.
    assert_eq!(unsafe { (b.net.v.destroy_srq)(srq) }, 0);
    b.net.destroy_cq(cq);
    a.close();
    b.close();
}

#[test]
fn the_limit_of_a_queue_raises_its_event() {
    let [a, b] = two(patient());
    b.post_recv(1, 0, 64);
    b.post_recv(2, 0, 64);
    let mut attr = ibv_srq_attr { srq_limit: 2, ..ibv_srq_attr::default() };
    // SAFETY: the queue is alive.
    let code = unsafe {
        (b.net.v.modify_srq)(b.srq, &mut attr, ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as i32)
    };
    assert_eq!((code, b.net.async_events().len()), (0, 0));
    a.send(b.near().srq, 1, 8);
    assert_eq!(a.status(), "SUCCESS");
    assert_eq!(b.net.async_events(), [ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED]);
    a.close();
    b.close();
}

/// Runs messages, writes and reads on a simulated schedule, and returns their completions.
fn simulate(seed: u64) -> Vec<(u64, &'static str)> {
    let faults =
        Faults { delay: 0.2, rnr: 0.2, lost_response: 0.2, late_read: 0.3, ..Faults::default() };
    let simulation = Simulation::new(seed, faults);
    let on = || Xrc::on(Net::on(soft_rnic::table(), simulation.name()));
    let (mut a, b) = (on(), on());
    // About retries: the simulated faults use up some, in virtual time.
    let config = ConnectConfig { timeout: 14, retry_cnt: 7, ..patient() };
    a.connect(b.near(), config);
    b.connect(a.near(), config);
    let near = b.near();
    for id in 0..16 {
        b.post_recv(id, 64 * id as usize, 64);
        a.heap[0] = id as u8;
        let op = [W::IBV_WR_SEND, W::IBV_WR_RDMA_WRITE_WITH_IMM][id as usize % 2];
        a.rdma(op, near.srq, 8, (near.addr + 1024, near.rkey));
        let mut sges = [sge(a.mr[1], 64, 8)];
        let mut read = send_wr(100 + id, W::IBV_WR_RDMA_READ, &mut sges, SIGNALED);
        let (remote_addr, rkey) = (near.addr, near.rkey);
        read.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        a.post(near.srq, &mut read);
    }
    let mut seen = Vec::new();
    while simulation.step() {
        seen.extend(a.net.poll_now(a.cq[0]).iter().map(|wc| (wc.id, wc.status)));
        seen.extend(b.net.poll_now(b.cq[1]).iter().map(|wc| (1000 + wc.id, wc.status)));
    }
    seen.extend(a.net.poll_now(a.cq[0]).iter().map(|wc| (wc.id, wc.status)));
    seen.extend(b.net.poll_now(b.cq[1]).iter().map(|wc| (1000 + wc.id, wc.status)));
    a.close();
    b.close();
    seen
}

#[test]
fn faults_of_a_simulation_lose_nothing_and_repeat_nothing() {
    for seed in 0..50 {
        let seen = simulate(seed);
        assert!(seen.iter().all(|(_, status)| *status == "SUCCESS"), "{seed}: {seen:?}");
        let received: Vec<_> = seen.iter().filter(|(id, _)| *id >= 1000).map(|s| s.0).collect();
        assert_eq!(received, (1000..1016).collect::<Vec<_>>(), "{seed}");
        assert_eq!(seen.len(), 48, "{seed}: {seen:?}");
        assert_eq!(seen, simulate(seed), "the same seed");
    }
}

#[test]
fn the_other_process() {
    match role().as_deref() {
        None => {}
        Some("target") => be_target(),
        Some(other) => panic!("{other}"),
    }
}

/// Receives, and tells of its memory.
fn be_target() {
    let end = Xrc::new();
    post_four(&end);
    let far = join_as_other(&end, patient());
    while let Some(line) = hear() {
        match line.as_str() {
            "received" => {
                check_received(&end, far);
                say("yes");
            }
            "post" => {
                end.post_recv(9, 0, 64);
                say("posted");
            }
            at => say(&end.shared.bytes[at.parse::<usize>().unwrap()].to_string()),
        }
    }
    end.close();
}

/// The device that reaches other processes.
fn crosses_processes() -> bool {
    provider().1 == "soft0"
}

#[test]
fn every_operation_goes_to_another_process() {
    if !crosses_processes() {
        return;
    }
    let mut other = Other::start("the_other_process", "target");
    let mut a = Xrc::new();
    let far = join(&a, &mut other, patient());
    send_all(&mut a, far);
    other.say("received");
    assert_eq!(other.hear(), "yes");
    operate(&mut a, far, |at| {
        other.say(&at.to_string());
        other.hear().parse().unwrap()
    });
    // No receive request is left.
    a.send(far.srq, 1, 8);
    other.say("post");
    assert_eq!((other.hear().as_str(), a.status()), ("posted", "SUCCESS"));
    assert_eq!(open_qp(a.net.ctx, a.xrcd, far.recv), Err(EOPNOTSUPP), "it is in that process");
    drop(other);
    a.close();
}

#[test]
fn another_process_refuses_what_names_no_queue_there() {
    if !crosses_processes() {
        return;
    }
    for opcode in [W::IBV_WR_SEND, W::IBV_WR_RDMA_WRITE, W::IBV_WR_ATOMIC_FETCH_AND_ADD] {
        let mut other = Other::start("the_other_process", "target");
        let a = Xrc::new();
        let far = join(&a, &mut other, patient());
        a.rdma(opcode, far.srq ^ 1, 8, (far.addr, far.rkey));
        assert_eq!(a.status(), "REM_INV_REQ", "{opcode:?}");
        drop(other);
        a.close();
    }
}

#[test]
fn what_is_on_its_way_to_a_process_that_dies_fails() {
    if !crosses_processes() {
        return;
    }
    let mut other = Other::start("the_other_process", "target");
    let a = Xrc::new();
    let far = join(&a, &mut other, patient());
    // The receives are for four.
    for _ in 0..4 {
        a.send(far.srq, 1, 8);
        assert_eq!(a.status(), "SUCCESS");
    }
    a.send(far.srq, 0, 100_000);
    other.signal(libc::SIGKILL);
    assert_eq!(a.status(), "RETRY_EXC");
    other.wait();
    a.close();
}
