//! Every verb that answers an errno, -1 or a negative errno sets `errno`, too.
//!
//! Not on rxe0: NULL is refused here, and rdma-core follows it.

mod common;

use core::ffi::c_int;
use core::ptr::{null, null_mut};

use common::*;
use libc::{EBUSY, EINVAL, ENOENT};
use verbs_sys::*;

/// A call's answer, and the `errno` that it has left.
fn answer(call: impl FnOnce() -> c_int) -> (c_int, c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = 0 };
    (call(), errno())
}

/// Asserts that each call answers its errno, and sets it.
fn all_set(calls: &[(&str, c_int, (c_int, c_int))]) {
    for (name, expected, answered) in calls {
        assert_eq!(*answered, (*expected, *expected), "{name}");
    }
}

#[test]
fn verbs_without_an_object_set_errno() {
    if !is_softs_own("NULL in place of objects") {
        return;
    }
    let net = Net::new();
    let (v, later) = (&net.v, later(net.ctx));
    let (mut port, mut wc) = (ibv_port_attr::default(), ibv_wc::default());
    // SAFETY: the context is open; NULL is what the calls are to refuse.
    unsafe {
        let ops = &(*net.ctx).ops;
        let calls = [
            ("close_device", answer(|| (v.close_device)(null_mut()))),
            ("query_device", answer(|| (v.query_device)(net.ctx, null_mut()))),
            ("query_port", answer(|| (v.query_port)(null_mut(), 1, &mut port))),
            ("dealloc_pd", answer(|| (v.dealloc_pd)(null_mut()))),
            ("dereg_mr", answer(|| (v.dereg_mr)(null_mut()))),
            ("destroy_comp_channel", answer(|| (v.destroy_comp_channel)(null_mut()))),
            ("resize_cq", answer(|| (v.resize_cq)(null_mut(), 1))),
            ("destroy_cq", answer(|| (v.destroy_cq)(null_mut()))),
            ("modify_srq", answer(|| (v.modify_srq)(null_mut(), null_mut(), 0))),
            ("query_srq", answer(|| (v.query_srq)(null_mut(), null_mut()))),
            ("destroy_srq", answer(|| (v.destroy_srq)(null_mut()))),
            ("query_qp", answer(|| (v.query_qp)(null_mut(), null_mut(), 0, null_mut()))),
            ("modify_qp", answer(|| (v.modify_qp)(null_mut(), null_mut(), 0))),
            ("destroy_qp", answer(|| (v.destroy_qp)(null_mut()))),
            ("destroy_ah", answer(|| (v.destroy_ah)(null_mut()))),
            ("attach_mcast", answer(|| (v.attach_mcast)(null_mut(), null(), 0))),
            ("detach_mcast", answer(|| (v.detach_mcast)(null_mut(), null(), 0))),
            ("query_gid_ex", answer(|| v.query_gid_ex.unwrap()(net.ctx, 1, 0, null_mut(), 0, 0))),
            (
                "query_device_ex",
                answer(|| later.query_device_ex.unwrap()(net.ctx, null(), null_mut(), 0)),
            ),
            (
                "query_port, by the context",
                answer(|| {
                    later.query_port.unwrap()(net.ctx, 1, null_mut(), size_of::<ibv_port_attr>())
                }),
            ),
            ("get_srq_num", answer(|| later.get_srq_num.unwrap()(null_mut(), null_mut()))),
            ("close_xrcd", answer(|| later.close_xrcd.unwrap()(null_mut()))),
            ("dealloc_td", answer(|| later.dealloc_td.unwrap()(null_mut()))),
            ("modify_cq", answer(|| later.modify_cq.unwrap()(null_mut(), null_mut()))),
            ("query_rt_values", answer(|| later.query_rt_values.unwrap()(net.ctx, null_mut()))),
            (
                "advise_mr",
                answer(|| {
                    let advice = ib_uverbs_advise_mr_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
                    later.advise_mr.unwrap()(net.pd, advice, 0, null_mut(), 0)
                }),
            ),
            ("free_dm", answer(|| later.free_dm.unwrap()(null_mut()))),
            ("bind_mw", answer(|| ops.bind_mw.unwrap()(null_mut(), null_mut(), null_mut()))),
            ("dealloc_mw", answer(|| ops.dealloc_mw.unwrap()(null_mut()))),
            ("req_notify_cq", answer(|| ops.req_notify_cq.unwrap()(null_mut(), 0))),
            ("post_send", answer(|| ops.post_send.unwrap()(null_mut(), null_mut(), null_mut()))),
            ("post_recv", answer(|| ops.post_recv.unwrap()(null_mut(), null_mut(), null_mut()))),
            (
                "post_srq_recv",
                answer(|| ops.post_srq_recv.unwrap()(null_mut(), null_mut(), null_mut())),
            ),
        ];
        all_set(&calls.map(|(name, answered)| (name, EINVAL, answered)));
        let minus_one = [
            ("query_gid", answer(|| (v.query_gid)(net.ctx, 1, 0, null_mut()))),
            ("query_pkey", answer(|| (v.query_pkey)(net.ctx, 1, 0, null_mut()))),
            ("get_cq_event", answer(|| (v.get_cq_event)(null_mut(), null_mut(), null_mut()))),
            ("get_async_event", answer(|| (v.get_async_event)(net.ctx, null_mut()))),
        ];
        for (name, answered) in minus_one {
            assert_eq!(answered, (-1, EINVAL), "{name}");
        }
        let polled = answer(|| ops.poll_cq.unwrap()(null_mut(), 1, &mut wc));
        assert_eq!(polled, (-EINVAL, EINVAL));
    }
    net.close();
}

#[test]
fn verbs_that_refuse_set_errno() {
    if !is_softs_own("what is refused, and why") {
        return;
    }
    let net = Net::new();
    let v = &net.v;
    let (mut sends, mut gid) = (send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED), net.gid);
    let mut attr = ibv_srq_init_attr {
        srq_context: null_mut(),
        attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
    };
    // SAFETY: the context is open, and each object alive until it is destroyed.
    unsafe {
        let channel = (v.create_comp_channel)(net.ctx);
        let cq = net.cq_with(16, channel);
        let srq = (v.create_srq)(net.pd, &mut attr);
        let qp = net.qp_with(ibv_qp_init_attr { srq, ..net.init_attr(cq) });
        let mut limit = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 1 << 20 };
        let mut port = ibv_port_attr::default();
        let (mut entry, mut wc) = (ibv_gid_entry::default(), ibv_wc::default());
        let size = size_of::<ibv_gid_entry>();
        let query_gid = v.query_gid_ex.unwrap();
        all_set(&[
            ("modify_qp", EINVAL, answer(|| net.to_state(qp, ibv_qp_state::IBV_QPS_RTS))),
            ("dealloc_pd", EBUSY, answer(|| (v.dealloc_pd)(net.pd))),
            ("destroy_cq", EBUSY, answer(|| (v.destroy_cq)(cq))),
            ("destroy_srq", EBUSY, answer(|| (v.destroy_srq)(srq))),
            ("destroy_comp_channel", EBUSY, answer(|| (v.destroy_comp_channel)(channel))),
            ("resize_cq", EINVAL, answer(|| (v.resize_cq)(cq, 0))),
            (
                "modify_srq",
                EINVAL,
                answer(|| {
                    (v.modify_srq)(srq, &mut limit, ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as c_int)
                }),
            ),
            ("attach_mcast", EINVAL, answer(|| (v.attach_mcast)(qp, &gid, 0))),
            ("detach_mcast", EINVAL, answer(|| (v.detach_mcast)(qp, &gid, 0))),
            ("query_port", EINVAL, answer(|| (v.query_port)(net.ctx, 2, &mut port))),
            ("query_gid_ex", EINVAL, answer(|| query_gid(net.ctx, 1, 1, &mut entry, 0, size))),
            ("post_send", EINVAL, answer(|| post_send(qp, &mut sends))),
            ("post_recv", EINVAL, answer(|| post_recv(qp, 1, &mut []))),
        ]);
        assert_eq!(answer(|| ibv_poll_cq(cq, -1, &mut wc)), (-EINVAL, EINVAL));
        gid.raw = [0; 16];
        assert_eq!(answer(|| (v.query_gid)(net.ctx, 1, 1, &mut gid)), (-1, EINVAL));
        net.destroy_qp(qp);
        net.destroy_cq(cq);
        assert_eq!((v.destroy_srq)(srq), 0);
        assert_eq!((v.destroy_comp_channel)(channel), 0);
    }
    net.close();
}

#[test]
fn calls_of_extended_objects_set_errno() {
    if !is_softs_own("extended objects") {
        return;
    }
    let net = Net::new();
    let mut init = ibv_cq_init_attr_ex { cqe: 16, ..ibv_cq_init_attr_ex::default() };
    let mut poll = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: the context is open; a failed start leaves nothing to end.
    unsafe {
        let cq = later(net.ctx).create_cq_ex.unwrap()(net.ctx, &mut init);
        let start = (*cq).start_poll.unwrap();
        assert_eq!(answer(|| start(cq, &mut poll)), (ENOENT, ENOENT));
        poll.comp_mask = 1;
        assert_eq!(answer(|| start(cq, &mut poll)), (EINVAL, EINVAL));
        let mut attr = ibv_qp_init_attr_ex {
            send_cq: cq.cast(),
            recv_cq: cq.cast(),
            cap: net.init_attr(cq.cast()).cap,
            qp_type: ibv_qp_type::IBV_QPT_RC,
            pd: net.pd,
            comp_mask: ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
                | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0,
            send_ops_flags: ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0.into(),
            ..ibv_qp_init_attr_ex::default()
        };
        let qp = later(net.ctx).create_qp_ex.unwrap()(net.ctx, &mut attr);
        let ex = soft_rnic::qp_to_qp_ex(qp);
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_send.unwrap()(ex);
        let complete = (*ex).wr_complete.unwrap();
        assert_eq!(answer(|| complete(ex)), (EINVAL, EINVAL), "a post in RESET");
        net.destroy_qp(qp);
        net.destroy_cq(cq.cast());
    }
    net.close();
}
