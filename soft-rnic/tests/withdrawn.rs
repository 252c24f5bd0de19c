//! Events of objects that are destroyed go with them: their descriptors have no input then.
//!
//! Not on rxe0: rxe raises few of these events.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;

use common::*;
use verbs_sys::*;

/// True if a descriptor has input, or gets some within this time.
fn has_input(fd: c_int, milliseconds: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor.
    unsafe { libc::poll(&mut poll, 1, milliseconds) == 1 }
}

fn wait_for_input(fd: c_int) {
    assert!(has_input(fd, PATIENCE.as_millis() as c_int), "no event has arrived");
}

/// The asynchronous events have gone with the only object that had some.
fn no_events_are_left(net: &Net) {
    // SAFETY: the context is open.
    assert!(!has_input(unsafe { (*net.ctx).async_fd }, 0));
    assert_eq!(net.async_events(), []);
}

fn wait_for_event(net: &Net) {
    // SAFETY: the context is open.
    wait_for_input(unsafe { (*net.ctx).async_fd });
}

/// A queue pair with receives that complete now: it goes to the error state.
fn flush(net: &Net, qp: *mut ibv_qp, receives: u64) {
    let ((attr, mask), ..) = net.steps(0, ConnectConfig::default());
    assert_eq!(net.modify(qp, attr, mask), 0);
    (0..receives).for_each(|id| assert_eq!(post_recv(qp, id, &mut []), 0));
    assert_eq!(net.to_state(qp, ibv_qp_state::IBV_QPS_ERR), 0);
}

fn create_srq(net: &Net) -> *mut ibv_srq {
    let mut attr = ibv_srq_init_attr {
        srq_context: null_mut(),
        attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
    };
    // SAFETY: the domain is alive.
    let srq = unsafe { (net.v.create_srq)(net.pd, &mut attr) };
    assert!(!srq.is_null());
    srq
}

/// Two queues have an event each; one of them is destroyed, then the other one.
#[test]
fn an_event_of_a_channel_goes_with_its_completion_queue() {
    if !is_softs_own("events that are withdrawn") {
        return;
    }
    let net = Net::new();
    // SAFETY: the context is open; each object is destroyed once.
    unsafe {
        for destroyed_first in [0, 1] {
            let channel = (net.v.create_comp_channel)(net.ctx);
            let fd = (*channel).fd;
            let cq = [(); 2].map(|()| net.cq_with(16, channel));
            let qp = cq.map(|cq| net.qp(cq));
            for i in 0..2 {
                assert_eq!(ibv_req_notify_cq(cq[i], 0), 0);
                flush(&net, qp[i], 1);
            }
            wait_for_input(fd);
            let stays = 1 - destroyed_first;
            net.destroy_qp(qp[destroyed_first]);
            net.destroy_cq(cq[destroyed_first]);
            let (mut got, mut user) = (null_mut(), null_mut());
            assert_eq!((net.v.get_cq_event)(channel, &mut got, &mut user), 0);
            assert_eq!(got, cq[stays]);
            (net.v.ack_cq_events)(got, 1);
            assert!(!has_input(fd, 0), "that was the only one");
            assert_eq!(ibv_req_notify_cq(cq[stays], 0), 0);
            net.destroy_qp(qp[stays]);
            net.destroy_cq(cq[stays]);
            assert_eq!((net.v.destroy_comp_channel)(channel), 0);
        }
    }
    net.close();
}

#[test]
fn a_channel_without_an_event_has_no_input() {
    if !is_softs_own("events that are withdrawn") {
        return;
    }
    let net = Net::new();
    // SAFETY: the context is open; each object is destroyed once.
    unsafe {
        let channel = (net.v.create_comp_channel)(net.ctx);
        let fd = (*channel).fd;
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let cq = net.cq_with(16, channel);
        let qp = net.qp(cq);
        assert_eq!(ibv_req_notify_cq(cq, 0), 0);
        flush(&net, qp, 1);
        wait_for_input(fd);
        net.destroy_qp(qp);
        net.destroy_cq(cq);
        assert!(!has_input(fd, 0));
        let (mut got, mut user) = (null_mut(), null_mut());
        assert_eq!((net.v.get_cq_event)(channel, &mut got, &mut user), -1);
        assert_eq!(errno(), libc::EAGAIN);
        assert_eq!((net.v.destroy_comp_channel)(channel), 0);
    }
    net.close();
}

#[test]
fn the_event_of_an_overrun_goes_with_its_completion_queue() {
    if !is_softs_own("events that are withdrawn") {
        return;
    }
    let net = Net::new();
    let cq = net.cq(1);
    // SAFETY: the queue is alive.
    let entries = unsafe { (*cq).cqe } as u64;
    let qp = net.qp(cq);
    flush(&net, qp, entries + 1);
    wait_for_event(&net);
    net.destroy_qp(qp);
    net.destroy_cq(cq);
    no_events_are_left(&net);
    net.close();
}

#[test]
fn the_event_of_a_queue_pair_goes_with_it() {
    if !is_softs_own("events that are withdrawn") {
        return;
    }
    let net = Net::new();
    let (cq, srq) = (net.cq(16), create_srq(&net));
    let qp = net.qp_with(ibv_qp_init_attr { srq, ..net.init_attr(cq) });
    // Nothing more is taken from the shared queue: `LAST_WQE_REACHED`.
    flush(&net, qp, 0);
    wait_for_event(&net);
    net.destroy_qp(qp);
    no_events_are_left(&net);
    net.destroy_cq(cq);
    // SAFETY: the test is done with it.
    assert_eq!(unsafe { (net.v.destroy_srq)(srq) }, 0);
    net.close();
}

#[test]
fn the_event_of_a_limit_goes_with_its_shared_queue() {
    if !is_softs_own("events that are withdrawn") {
        return;
    }
    let net = Net::new();
    let (cq, srq) = (net.cq(64), create_srq(&net));
    let qp = [net.qp(cq), net.qp_with(ibv_qp_init_attr { srq, ..net.init_attr(cq) })];
    net.connect(qp[0], qp_num(qp[1]), ConnectConfig::default());
    net.connect(qp[1], qp_num(qp[0]), ConnectConfig::default());
    assert_eq!(post_srq_recv(srq, 1, &mut []), 0);
    let mut limit = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 1 };
    let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as c_int;
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { (net.v.modify_srq)(srq, &mut limit, mask) }, 0);
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(qp[0], &mut wr), 0);
    assert!(net.poll(cq, 2).iter().all(|wc| wc.status == "SUCCESS"));
    wait_for_event(&net);
    qp.iter().for_each(|qp| net.destroy_qp(*qp));
    // SAFETY: no queue pair uses it.
    assert_eq!(unsafe { (net.v.destroy_srq)(srq) }, 0);
    no_events_are_left(&net);
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn the_event_of_an_xrc_queue_pair_goes_with_its_handle() {
    if !is_softs_own("events that are withdrawn") || is_wired() {
        return;
    }
    let [a, b] = xrc::two(xrc::patient());
    // No queue has this number: an invalid request.
    a.send(0, 1, 8);
    assert_eq!(a.status(), "REM_INV_REQ");
    wait_for_event(&b.net);
    b.net.destroy_qp(b.recv);
    no_events_are_left(&b.net);
    let b = xrc::Xrc { recv: xrc::create_recv(b.net.ctx, b.xrcd).unwrap(), ..b };
    a.close();
    b.close();
}
