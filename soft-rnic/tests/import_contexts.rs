//! What the contexts of one open device have together, and what each has of its own.

mod common;

use common::import::imported;
use common::xrc::*;
use common::*;
use verbs_sys::*;

use ibv_event_type as E;

fn is_left_out() -> bool {
    !is_softs_own("importing")
}

/// The events that have come, of the device's first context and of another one.
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
        let config = Config::default();
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
    if is_left_out() {
        return;
    }
    let [a, b] = [Xrc::new(), Xrc::new()];
    let config = Config { access: RW, ..Config::default() };
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
