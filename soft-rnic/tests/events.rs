//! Completion channels, overruns, limit events, acknowledgements, and timers.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use core::ptr::null_mut;
use std::sync::Barrier;

use common::*;
use verbs_sys::*;

/// A pair whose responder has a completion channel.
struct Channelled {
    p: QpPair,
    channel: *mut ibv_comp_channel,
}

impl Channelled {
    fn new() -> Channelled {
        let net = Net::new();
        // SAFETY: the context is open.
        let channel = unsafe { (net.v.create_comp_channel)(net.ctx) };
        assert!(!channel.is_null());
        let cq = [net.cq(64), net.cq_with(64, channel)];
        let qp = [net.qp(cq[0]), net.qp(cq[1])];
        let mut buf = [vec![0; 4096], vec![0; 4096]];
        let mr = [net.mr(&mut buf[0], RW), net.mr(&mut buf[1], RW)];
        let p = QpPair { net, cq, qp, mr, buf };
        p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
        p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
        Channelled { p, channel }
    }

    fn arm(&self, solicited_only: bool) {
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { ibv_req_notify_cq(self.p.cq[1], i32::from(solicited_only)) }, 0);
    }

    /// One event, acknowledged; false if there is none (`EAGAIN`).
    fn take(&self, ack: bool) -> bool {
        let (mut cq, mut user) = (null_mut(), null_mut());
        // SAFETY: the channel is alive.
        unsafe {
            let flags = libc::fcntl((*self.channel).fd, libc::F_GETFL);
            libc::fcntl((*self.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            if (self.p.net.v.get_cq_event)(self.channel, &mut cq, &mut user) != 0 {
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
                return false;
            }
            assert_eq!(cq, self.p.cq[1]);
            if ack {
                (self.p.net.v.ack_cq_events)(cq, 1);
            }
        }
        true
    }

    fn is_readable(&self) -> bool {
        // SAFETY: the channel is alive.
        let fd = unsafe { (*self.channel).fd };
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    fn message(&self, flags: ibv_send_flags) {
        assert_eq!(post_recv(self.p.qp[1], 1, &mut []), 0);
        let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], flags | SIGNALED);
        assert_eq!(post_send(self.p.qp[0], &mut wr), 0);
        // It has arrived when it is answered.
        assert_eq!(self.p.net.poll(self.p.cq[0], 1)[0].status, "SUCCESS");
    }

    fn close(self) {
        let v = self.p.net.v;
        let QpPair { net, cq, qp, mr, .. } = self.p;
        for end in 0..2 {
            net.destroy_qp(qp[end]);
            net.destroy_cq(cq[end]);
            net.dereg(mr[end]);
        }
        // SAFETY: its queue is gone.
        assert_eq!(unsafe { (v.destroy_comp_channel)(self.channel) }, 0);
        net.close();
    }
}

#[test]
fn an_arming_raises_one_event_for_a_later_completion() {
    let c = Channelled::new();
    c.message(UNSIGNALED);
    assert!(!c.is_readable(), "not armed");
    c.arm(false);
    assert!(!c.take(true), "the completion arrived before the arming");
    c.message(UNSIGNALED);
    assert!(c.is_readable());
    c.message(UNSIGNALED);
    assert!(c.take(true));
    assert!(!c.take(true), "one event for one arming");
    assert_eq!(c.p.net.poll(c.p.cq[1], 3).len(), 3);
    c.close();
}

#[test]
fn a_solicited_arming_ignores_other_successful_completions() {
    let c = Channelled::new();
    c.arm(true);
    c.message(UNSIGNALED);
    assert!(!c.is_readable());
    c.message(ibv_send_flags::IBV_SEND_SOLICITED);
    assert!(c.take(true));
    c.arm(true);
    assert_eq!(post_recv(c.p.qp[1], 9, &mut []), 0);
    assert_eq!(c.p.net.to_state(c.p.qp[1], ibv_qp_state::IBV_QPS_ERR), 0);
    assert!(c.take(true), "a flushed receive is an error");
    c.close();
}

#[test]
fn an_arming_for_anything_is_not_weakened() {
    let c = Channelled::new();
    c.arm(false);
    c.arm(true);
    c.message(UNSIGNALED);
    assert!(c.take(true));
    c.close();
}

#[test]
fn a_blocked_thread_is_woken_and_no_wakeup_is_lost() {
    const ROUNDS: u64 = 300;
    let c = Channelled::new();
    let shared = SendPtr(&c);
    // No more messages under way than the completion queue has room for.
    let (seen, acknowledged) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let c = shared.get();
            for _ in 0..ROUNDS {
                assert_eq!(wait_for_message(c), 1);
                seen.send(()).unwrap();
            }
        });
        for round in 0..ROUNDS {
            if round >= 8 {
                acknowledged.recv().unwrap();
            }
            let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
            assert_eq!(post_recv(c.p.qp[1], 1, &mut []), 0);
            assert_eq!(post_send(c.p.qp[0], &mut wr), 0);
            assert_eq!(c.p.net.poll(c.p.cq[0], 1)[0].status, "SUCCESS");
        }
    });
    c.close();
}

/// The way of a program that sleeps: poll, arm, poll again, block.
fn wait_for_message(c: &Channelled) -> usize {
    loop {
        if let n @ 1.. = poll_one(c) {
            return n;
        }
        c.arm(false);
        if let n @ 1.. = poll_one(c) {
            return n;
        }
        let (mut cq, mut user) = (null_mut(), null_mut());
        // SAFETY: the channel is alive, and blocks.
        unsafe {
            assert_eq!((c.p.net.v.get_cq_event)(c.channel, &mut cq, &mut user), 0);
            (c.p.net.v.ack_cq_events)(cq, 1);
        }
    }
}

fn poll_one(c: &Channelled) -> usize {
    let mut wc = ibv_wc::default();
    // SAFETY: room for one.
    unsafe { ibv_poll_cq(c.p.cq[1], 1, &mut wc) as usize }
}

/// Lets a scoped thread use what verbs permit from any thread.
#[derive(Clone, Copy)]
struct SendPtr<'a, T>(&'a T);

// SAFETY: verbs may be called from any thread.
unsafe impl<T> Send for SendPtr<'_, T> {}

impl<'a, T> SendPtr<'a, T> {
    fn get(self) -> &'a T {
        self.0
    }
}

#[test]
fn destroying_a_queue_waits_for_its_event_acknowledgement() {
    let c = Channelled::new();
    c.arm(false);
    c.message(UNSIGNALED);
    assert!(c.take(false));
    c.p.net.destroy_qp(c.p.qp[1]);
    let (barrier, done) = (Barrier::new(2), core::sync::atomic::AtomicBool::new(false));
    let shared = SendPtr(&c);
    std::thread::scope(|scope| {
        let (barrier, done) = (&barrier, &done);
        scope.spawn(move || {
            let c = shared.get();
            barrier.wait();
            c.p.net.destroy_cq(c.p.cq[1]);
            done.store(true, core::sync::atomic::Ordering::SeqCst);
        });
        barrier.wait();
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert!(!done.load(core::sync::atomic::Ordering::SeqCst), "not acknowledged yet");
        // SAFETY: the queue is alive, for the event is not acknowledged.
        unsafe { (c.p.net.v.ack_cq_events)(c.p.cq[1], 1) };
    });
    c.p.net.destroy_qp(c.p.qp[0]);
    c.p.net.destroy_cq(c.p.cq[0]);
    for mr in c.p.mr {
        c.p.net.dereg(mr);
    }
    // SAFETY: its queue is gone.
    assert_eq!(unsafe { (c.p.net.v.destroy_comp_channel)(c.channel) }, 0);
    c.p.net.close();
}

#[test]
fn destroying_a_queue_discards_only_its_own_events() {
    let c = Channelled::new();
    let second = c.p.net.cq_with(16, c.channel);
    let qp = c.p.net.qp(second);
    let ((init, mask), ..) = c.p.net.steps(1, ConnectConfig::default());
    assert_eq!(c.p.net.modify(qp, init, mask), 0);
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { ibv_req_notify_cq(second, 0) }, 0);
    assert_eq!(post_recv(qp, 1, &mut []), 0);
    assert_eq!(c.p.net.to_state(qp, ibv_qp_state::IBV_QPS_ERR), 0);
    assert!(c.is_readable());
    c.p.net.destroy_qp(qp);
    c.p.net.destroy_cq(second);
    assert!(!c.take(true), "its event is gone");
    c.arm(false);
    c.message(UNSIGNALED);
    assert!(c.take(true));
    c.close();
}

/// A responder with a shared receive queue.
fn shared_pair(requests: u32) -> (QpPair, *mut ibv_srq) {
    let net = Net::new();
    // SAFETY: the domain is alive; zero is a valid value of every field.
    let srq = unsafe {
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        attr.attr.max_wr = requests;
        attr.attr.max_sge = 2;
        (net.v.create_srq)(net.pd, &mut attr)
    };
    let cq = [net.cq(64), net.cq(64)];
    let mut attr = net.init_attr(cq[1]);
    attr.srq = srq;
    let qp = [net.qp(cq[0]), net.qp_with(attr)];
    let mut buf = [vec![7; 8192], vec![0; 8192]];
    let mr = [net.mr(&mut buf[0], RW), net.mr(&mut buf[1], RW)];
    let p = QpPair { net, cq, qp, mr, buf };
    p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
    p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
    (p, srq)
}

fn post_srq(srq: *mut ibv_srq, id: u64, sges: &mut [ibv_sge]) -> i32 {
    let mut wr = ibv_recv_wr {
        wr_id: id,
        next: null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as i32,
    };
    // SAFETY: the tests keep the memory.
    unsafe { ibv_post_srq_recv(srq, &mut wr, &mut null_mut()) }
}

fn close_shared(p: QpPair, srq: *mut ibv_srq) {
    let QpPair { net, cq, qp, mr, .. } = p;
    net.destroy_qp(qp[0]);
    net.destroy_qp(qp[1]);
    // SAFETY: no queue pair uses it.
    assert_eq!(unsafe { (net.v.destroy_srq)(srq) }, 0);
    for end in 0..2 {
        net.destroy_cq(cq[end]);
        net.dereg(mr[end]);
    }
    net.close();
}

#[test]
fn the_limit_event_of_a_shared_queue_comes_once_for_an_arming() {
    let (p, srq) = shared_pair(8);
    assert_eq!(post_recv(p.qp[1], 1, &mut []), 22, "its receives are the shared queue's");
    for id in 0..4 {
        assert_eq!(post_srq(srq, id, &mut [sge(p.mr[1], 0, 8)]), 0);
    }
    let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 3 };
    let limit = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as i32;
    let query = |attr: &mut ibv_srq_attr| {
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { (p.net.v.query_srq)(srq, attr) }, 0);
    };
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { (p.net.v.modify_srq)(srq, &mut attr, limit) }, 0);
    query(&mut attr);
    assert_eq!((attr.srq_limit, attr.max_wr >= 8, attr.max_sge >= 2), (3, true, true));
    let send = || {
        let mut sges = [sge(p.mr[0], 0, 8)];
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    };
    send();
    assert!(p.net.async_events().is_empty(), "three are left");
    send();
    assert_eq!(p.net.async_events(), [ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED]);
    send();
    assert!(p.net.async_events().is_empty(), "one-shot");
    query(&mut attr);
    assert_eq!(attr.srq_limit, 0);
    close_shared(p, srq);
}

#[test]
fn the_limit_event_comes_in_the_middle_of_a_list() {
    for limit in 1..5 {
        let (p, srq) = shared_pair(8);
        for id in 0..5 {
            assert_eq!(post_srq(srq, id, &mut [sge(p.mr[1], 0, 8)]), 0);
        }
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as i32;
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { (p.net.v.modify_srq)(srq, &mut attr, mask) }, 0);
        let mut sges = [sge(p.mr[0], 0, 8)];
        let mut last = send_wr(3, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
        let mut wrs = [ibv_send_wr { send_flags: 0, ..last }; 2];
        (wrs[0].next, wrs[1].next) = (&raw mut wrs[1], &raw mut last);
        assert_eq!(post_send(p.qp[0], &mut wrs[0]), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        let events = p.net.async_events();
        assert_eq!(events.len(), usize::from(limit > 2), "two are left of five, limit {limit}");
        close_shared(p, srq);
    }
}

#[test]
fn a_shared_queue_feeds_and_survives_its_queue_pairs() {
    let (p, srq) = shared_pair(4);
    let mut sges = [sge(p.mr[1], 0, 3), sge(p.mr[1], 100, 5000)];
    assert_eq!(post_srq(srq, 5, &mut sges), 0);
    assert_eq!(post_srq(srq, 6, &mut []), 0);
    let mut sges = [sge(p.mr[0], 0, 5000)];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    let wc = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((wc.id, wc.status, wc.len), (5, "SUCCESS", 5000));
    assert!(p.buf[1][..3].iter().chain(&p.buf[1][100..5097]).all(|&b| b == 7));
    assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_ERR), 0);
    let last = [ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED];
    // rxe has no such event.
    assert_eq!(p.net.async_events(), last[usize::from(is_rxe())..]);
    assert!(p.net.poll_now(p.cq[1]).is_empty(), "the shared queue is not flushed");
    close_shared(p, srq);
}

#[test]
fn a_responder_that_comes_up_in_time_is_found() {
    // Over a network it is found as soon as it is connected, before its receive is posted.
    let p = QpPair::with(Net::new(), ConnectConfig::PATIENT, ConnectConfig::PATIENT);
    assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_RESET), 0);
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    p.net.connect(p.qp[1], p.num(0), ConnectConfig::PATIENT);
    assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
    // With a receive posted before the retry it succeeds.
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    p.close();
}
