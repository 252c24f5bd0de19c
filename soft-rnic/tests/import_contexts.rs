//! State that the contexts of one open device share, and state that each has of its own.
//!
//! Not on rxe0: it imports descriptors and handles of soft0.

mod common;

use core::ffi::c_void;
use std::sync::Mutex;

use common::import::imported;
use common::xrc::*;
use common::*;
use libc::{EBUSY, EINVAL};
use soft_rnic::{import_pd, unimport_pd};
use verbs_sys::*;

use ibv_event_type as E;

fn is_left_out() -> bool {
    !is_softs_own("importing")
}

/// The events that were raised, of the device's first context and of another one.
fn events(net: &Net, other: *mut ibv_context) -> [Vec<E>; 2] {
    [net.ctx, other].map(|context| events_of(&net.v, context))
}

fn close(net: Net, other: *mut ibv_context) {
    // SAFETY: nothing uses it any more.
    assert_eq!(unsafe { (net.v.close_device)(other) }, 0);
    net.close();
}

fn basic_srq(ctx: *mut ibv_context, pd: *mut ibv_pd) -> *mut ibv_srq {
    let mask = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD.0;
    let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    create_srq(ctx, ibv_srq_init_attr_ex { attr, comp_mask: mask, pd, ..Default::default() })
        .unwrap()
}

/// A queue pair of the newer verb, with a shared receive queue.
fn qp_ex(net: &Net, ctx: *mut ibv_context, cq: *mut ibv_cq, srq: *mut ibv_srq) -> *mut ibv_qp {
    let plain = net.init_attr(cq);
    let attr = ibv_qp_init_attr_ex {
        send_cq: cq,
        recv_cq: cq,
        srq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        comp_mask: ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0,
        pd: net.pd,
        ..Default::default()
    };
    create_qp_ex(ctx, attr).unwrap()
}

/// Each object is in the domain of the first context; what differs is the context of the call.
#[test]
fn objects_have_their_events_where_they_were_made() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let other = imported(&net);
    let cq = net.cq(64);
    let srqs = [net.ctx, other].map(|ctx| basic_srq(ctx, net.pd));
    // The queue of one, and the queue pair of the other.
    let qps = [qp_ex(&net, net.ctx, cq, srqs[1]), qp_ex(&net, other, cq, srqs[0])];
    // SAFETY: all are alive; each is destroyed once.
    unsafe {
        assert_eq!(qps.map(|qp| (*qp).context), [net.ctx, other]);
        assert_eq!(srqs.map(|srq| (*srq).context), [net.ctx, other]);
        let nums = qps.map(|qp| (*qp).qp_num);
        let config = ConnectConfig::default();
        net.connect(qps[0], nums[1], config);
        net.connect(qps[1], nums[0], config);
        let mut limit = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 1 };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as i32;
        for (i, expected) in [
            [vec![E::IBV_EVENT_SRQ_LIMIT_REACHED], vec![]],
            [vec![], vec![E::IBV_EVENT_SRQ_LIMIT_REACHED]],
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(post_srq_recv(srqs[i], 1, &mut []), 0);
            assert_eq!((net.v.modify_srq)(srqs[i], &mut limit, mask), 0);
            // The first one's queue is the second queue pair's.
            let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
            assert_eq!(post_send(qps[i], &mut wr), 0);
            assert_eq!(net.poll(cq, 2).iter().filter(|wc| wc.status == "SUCCESS").count(), 2);
            assert_eq!(events(&net, other), expected);
        }
        let last = || vec![E::IBV_EVENT_QP_LAST_WQE_REACHED];
        assert_eq!(net.to_state(qps[1], ibv_qp_state::IBV_QPS_ERR), 0);
        assert_eq!(events(&net, other), [vec![], last()]);
        assert_eq!(net.to_state(qps[0], ibv_qp_state::IBV_QPS_ERR), 0);
        assert_eq!(events(&net, other), [last(), vec![]]);
        // Those that wait go with their object, wherever they are.
        let qp = qp_ex(&net, other, cq, srqs[0]);
        net.connect(qp, nums[0], config);
        assert_eq!(net.to_state(qp, ibv_qp_state::IBV_QPS_ERR), 0);
        net.destroy_qp(qp);
        assert_eq!(events(&net, other), [vec![], vec![]]);
        qps.iter().for_each(|qp| net.destroy_qp(*qp));
        srqs.iter().for_each(|srq| assert_eq!((net.v.destroy_srq)(*srq), 0));
    }
    net.destroy_cq(cq);
    close(net, other);
}

/// A queue pair that is opened through another context has its events there, too.
#[test]
fn handles_have_their_events_where_they_were_opened() {
    if is_left_out() || is_wired() {
        return;
    }
    let [a, b] = [Xrc::new(), Xrc::new()];
    let config = ConnectConfig { access: RW, ..ConnectConfig::default() };
    a.connect(b.near(), config);
    b.connect(a.near(), config);
    let other = imported(&b.net);
    let opened = open_qp(other, b.xrcd, b.near().recv).unwrap();
    let made = create_recv(other, b.xrcd).unwrap();
    // SAFETY: all are alive.
    unsafe {
        assert_eq!([opened, made, b.recv].map(|qp| (*qp).context), [other, other, b.net.ctx]);
    }
    // There is no such receive queue.
    a.send(0, 1, 8);
    assert_eq!(a.status(), "REM_INV_REQ");
    let event = || vec![E::IBV_EVENT_QP_REQ_ERR];
    assert_eq!(events(&b.net, other), [event(), event()]);
    b.net.destroy_qp(made);
    b.net.destroy_qp(opened);
    // SAFETY: nothing uses it any more.
    assert_eq!(unsafe { (b.net.v.close_device)(other) }, 0);
    a.close();
    b.close();
}

/// Calls of a domain's allocator: the resource, and the domain that it was for.
type Calls = Mutex<Vec<(u64, usize)>>;

unsafe extern "C" fn lend(
    pd: *mut ibv_pd,
    context: *mut c_void,
    _size: usize,
    _alignment: usize,
    resource: u64,
) -> *mut c_void {
    // SAFETY: what the test has said.
    unsafe { (*context.cast::<Calls>()).lock().unwrap().push((resource, pd.addr())) };
    // The device's own memory.
    core::ptr::without_provenance_mut(usize::MAX)
}

unsafe extern "C" fn take_back(_: *mut ibv_pd, _: *mut c_void, _: *mut c_void, _: u64) {}

fn cq_in(ctx: *mut ibv_context, pd: *mut ibv_pd) -> *mut ibv_cq {
    let mut attr = ibv_cq_init_attr_ex {
        cqe: 16,
        comp_mask: ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0,
        parent_domain: pd,
        ..Default::default()
    };
    // SAFETY: the context is open, and the domain alive.
    unsafe { later(ctx).create_cq_ex.unwrap()(ctx, &mut attr).cast() }
}

/// One that was made of an imported domain is a parent domain to all contexts.
#[test]
fn a_parent_domain_is_known_to_all_contexts() {
    if is_left_out() {
        return;
    }
    let (net, strange) = (Net::new(), Net::new());
    let (other, calls) = (imported(&net), Calls::default());
    const QP: u64 = 1;
    const CQ: u64 = 5;
    // SAFETY: all objects are alive; each struct is given back once.
    unsafe {
        let pd = import_pd(other, (*net.pd).handle);
        let mut attr = ibv_parent_domain_init_attr {
            pd,
            comp_mask: 3,
            alloc: Some(lend),
            free: Some(take_back),
            pd_context: (&raw const calls).cast_mut().cast(),
            ..Default::default()
        };
        // As in rdma-core, its context is that of the domain.
        for ctx in [net.ctx, other] {
            let parent = later(ctx).alloc_parent_domain.unwrap()(ctx, &mut attr);
            assert_eq!(((*parent).context, (*parent).handle), (other, (*net.pd).handle));
            let cqs = [cq_in(net.ctx, parent), cq_in(other, parent)];
            assert_eq!(cqs.map(|cq| (*cq).context), [net.ctx, other]);
            let qp = (net.v.create_qp)(parent, &mut net.init_attr(cqs[0]));
            assert_eq!(((*qp).context, (*qp).pd), (other, parent));
            let lent = core::mem::take(&mut *calls.lock().unwrap());
            assert_eq!(lent, [CQ, CQ, QP].map(|resource| (resource, parent.addr())));
            assert!(cq_in(strange.ctx, parent).is_null());
            assert_eq!(errno(), EINVAL);
            // Its handle is that of the domain, whose structs are no parent domains.
            let plain = import_pd(net.ctx, (*parent).handle);
            assert!(plain != parent && cq_in(net.ctx, plain).is_null());
            assert_eq!(errno(), EINVAL);
            unimport_pd(plain);
            unimport_pd(parent);
            assert_eq!((net.v.dealloc_pd)(parent), EBUSY);
            net.destroy_qp(qp);
            cqs.iter().for_each(|cq| net.destroy_cq(*cq));
            assert_eq!((net.v.dealloc_pd)(net.pd), EBUSY, "it has a parent domain");
            assert_eq!((net.v.dealloc_pd)(parent), 0);
        }
        unimport_pd(pd);
    }
    strange.close();
    close(net, other);
}
