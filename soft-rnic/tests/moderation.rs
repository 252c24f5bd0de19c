//! Moderated events of completion queues (`ibv_modify_cq`).
//!
//! Not on apart: a completion is there when its post returns.
//! Not on rxe0: rxe moderates no events.

mod common;

use core::ptr::null_mut;

use common::*;
use soft_rnic::{Faults, Simulation};
use verbs_sys::*;

const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
/// Completions, and microseconds, for which the device can hold an event back.
const MAX_COUNT: u16 = 0x7fff;
const MAX_PERIOD_US: u16 = 0xfff;

/// A pair whose responder's queue has a completion channel, and is moderated.
struct Moderated {
    p: QpPair,
    channel: *mut ibv_comp_channel,
}

impl Moderated {
    fn on(net: Net, count: u16, period_us: u16) -> Moderated {
        // SAFETY: the context is open.
        let channel = unsafe { (net.v.create_comp_channel)(net.ctx) };
        assert!(!channel.is_null());
        let mut p = QpPair::unconnected(ibv_qp_type::IBV_QPT_RC, net);
        p.net.destroy_qp(p.qp[1]);
        p.net.destroy_cq(p.cq[1]);
        p.cq[1] = p.net.cq_with(64, channel);
        p.qp[1] = p.net.qp(p.cq[1]);
        for end in 0..2 {
            p.net.connect(p.qp[end], p.num(1 - end), ConnectConfig::default());
        }
        let m = Moderated { p, channel };
        assert_eq!(m.modify(1, count, period_us), 0);
        m
    }

    fn new(count: u16, period_us: u16) -> Moderated {
        Moderated::on(net(), count, period_us)
    }

    fn modify(&self, attr_mask: u32, cq_count: u16, cq_period: u16) -> i32 {
        let moderate = ibv_moderate_cq { cq_count, cq_period };
        let mut attr = ibv_modify_cq_attr { attr_mask, moderate };
        // SAFETY: the queue is alive.
        unsafe { later(self.p.net.ctx).modify_cq.unwrap()(self.p.cq[1], &mut attr) }
    }

    fn arm(&self, solicited_only: bool) {
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { ibv_req_notify_cq(self.p.cq[1], i32::from(solicited_only)) }, 0);
    }

    /// `n` messages in one list.
    fn messages(&self, n: usize, flags: ibv_send_flags) {
        let mut wrs: Vec<_> = (0..n)
            .map(|id| send_wr(id as u64, ibv_wr_opcode::IBV_WR_SEND, &mut [], flags))
            .collect();
        for i in (1..n).rev() {
            wrs[i - 1].next = &raw mut wrs[i];
        }
        for _ in 0..n {
            assert_eq!(post_recv(self.p.qp[1], 1, &mut []), 0);
        }
        assert_eq!(post_send(self.p.qp[0], &mut wrs[0]), 0);
    }

    /// Takes an event, if there is one.
    fn take(&self) -> bool {
        self.block(false);
        let code = self.event();
        self.block(true);
        code == 0
    }

    fn block(&self, blocks: bool) {
        // SAFETY: the channel is alive.
        unsafe {
            let flags = libc::fcntl((*self.channel).fd, libc::F_GETFL) & !libc::O_NONBLOCK;
            let flags = if blocks { flags } else { flags | libc::O_NONBLOCK };
            assert_eq!(libc::fcntl((*self.channel).fd, libc::F_SETFL, flags), 0);
        }
    }

    /// Takes an event, and waits for it if the channel blocks.
    fn event(&self) -> i32 {
        let (mut cq, mut user) = (null_mut(), null_mut());
        // SAFETY: the channel is alive.
        unsafe {
            let code = (self.p.net.v.get_cq_event)(self.channel, &mut cq, &mut user);
            if code == 0 {
                (self.p.net.v.ack_cq_events)(cq, 1);
            }
            code
        }
    }

    fn close(self) {
        let (v, channel) = (self.p.net.v, self.channel);
        let QpPair { net, cq, qp, mr, .. } = self.p;
        for end in 0..2 {
            net.destroy_qp(qp[end]);
            net.destroy_cq(cq[end]);
            net.dereg(mr[end]);
        }
        // SAFETY: no queue uses it any more.
        assert_eq!(unsafe { (v.destroy_comp_channel)(channel) }, 0);
        net.close();
    }
}

fn net() -> Net {
    Net::on(soft_rnic::table(), "soft0")
}

#[test]
fn an_event_comes_for_as_many_completions() {
    let m = Moderated::new(3, 0);
    // Nothing is armed: these do not count.
    m.messages(2, UNSIGNALED);
    m.arm(false);
    m.messages(2, UNSIGNALED);
    assert!(!m.take());
    // It stays armed, and the count stays.
    m.arm(false);
    m.messages(1, UNSIGNALED);
    assert!(m.take() && !m.take());
    // Once.
    m.messages(3, UNSIGNALED);
    assert!(!m.take());
    m.arm(false);
    m.messages(2, UNSIGNALED);
    assert!(!m.take());
    m.messages(1, UNSIGNALED);
    assert!(m.take());
    // More than that, in one list, are one event.
    m.arm(false);
    m.messages(7, UNSIGNALED);
    assert!(m.take() && !m.take());
    m.close();
}

/// The count begins with what the event was armed for.
#[test]
fn moderation_counts_from_the_first_solicited_completion() {
    let m = Moderated::new(2, 0);
    let solicited = ibv_send_flags::IBV_SEND_SOLICITED;
    m.arm(true);
    m.messages(3, UNSIGNALED);
    assert!(!m.take());
    m.messages(1, solicited);
    assert!(!m.take());
    m.messages(1, UNSIGNALED);
    assert!(m.take());
    m.close();
}

/// These wait for the event: without its period it would not be raised.
#[test]
fn an_event_comes_when_the_period_is_over() {
    for (count, period_us) in [(0, 1), (60, 1000), (0, MAX_PERIOD_US)] {
        let m = Moderated::new(count, period_us);
        for _ in 0..2 {
            m.arm(false);
            m.messages(2, UNSIGNALED);
            assert_eq!(m.event(), 0);
            assert!(!m.take());
        }
        m.close();
    }
}

/// Virtual time: exact.
#[test]
fn the_period_begins_with_the_first_completion() {
    let simulation = Simulation::new(1, Faults::default());
    let m = Moderated::on(Net::on(soft_rnic::table(), simulation.name()), 10, 2000);
    let since = |began: u64| simulation.now_ns() - began;
    m.arm(false);
    // Time passes, and none is raised.
    while simulation.step() {}
    let began = simulation.now_ns();
    m.messages(1, UNSIGNALED);
    assert_eq!(m.event(), 0);
    assert!((2_000_000..2_010_000).contains(&since(began)), "{}", since(began));
    // The count is reached first: the deadline then is none of the next event.
    let began = simulation.now_ns();
    m.arm(false);
    m.messages(10, UNSIGNALED);
    assert_eq!(m.event(), 0);
    assert!(since(began) < 10_000, "{}", since(began));
    let next = simulation.now_ns();
    m.arm(false);
    m.messages(1, UNSIGNALED);
    assert_eq!(m.event(), 0);
    assert!(next > began && since(next) >= 2_000_000, "{}", since(next));
    m.close();
}

#[test]
fn an_event_that_is_held_back_fires_when_moderation_changes() {
    let m = Moderated::new(10, 0);
    m.arm(false);
    m.messages(1, UNSIGNALED);
    assert!(!m.take());
    for off in [(0, 0), (1, 0), (1, 9)] {
        assert_eq!(m.modify(1, off.0, off.1), 0);
        assert_eq!(m.take(), off == (0, 0));
        // Now each event is raised at once.
        m.arm(false);
        m.messages(1, UNSIGNALED);
        assert!(m.take());
    }
    m.close();
}

#[test]
fn limits_are_reported_and_kept() {
    let m = Moderated::new(MAX_COUNT, MAX_PERIOD_US);
    let mut attr = ibv_device_attr_ex::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { ibv_query_device_ex(&m.p.net.v, m.p.net.ctx, &mut attr) }, 0);
    let caps = attr.cq_mod_caps;
    assert_eq!((caps.max_cq_count, caps.max_cq_period), (MAX_COUNT, MAX_PERIOD_US));
    assert_eq!(m.modify(1, MAX_COUNT + 1, 0), EINVAL);
    assert_eq!(m.modify(1, 1, MAX_PERIOD_US + 1), EINVAL);
    assert_eq!(m.modify(0, 1, 0), EINVAL);
    assert_eq!(m.modify(2, 1, 0), EOPNOTSUPP);
    assert_eq!(m.modify(3, 1, 0), EOPNOTSUPP);
    // SAFETY: the queue is alive.
    unsafe {
        let modify = later(m.p.net.ctx).modify_cq.unwrap();
        assert_eq!(modify(m.p.cq[1], null_mut()), EINVAL);
        assert_eq!(modify(null_mut(), &mut ibv_modify_cq_attr::default()), EINVAL);
    }
    // What is refused changes nothing.
    assert_eq!((m.modify(1, 5, 0), m.modify(1, 1, MAX_PERIOD_US + 1)), (0, EINVAL));
    m.arm(false);
    m.messages(1, UNSIGNALED);
    assert!(!m.take());
    m.close();
}

/// The other end of the connection keeps the queue's object for a while.
#[test]
fn an_event_that_is_held_back_goes_with_its_queue() {
    let m = Moderated::new(0, MAX_PERIOD_US);
    m.arm(false);
    m.messages(1, UNSIGNALED);
    m.p.net.destroy_qp(m.p.qp[1]);
    m.p.net.destroy_cq(m.p.cq[1]);
    // Many times its period.
    // SAFETY: the channel is alive.
    let mut fd = libc::pollfd { fd: unsafe { (*m.channel).fd }, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor is there.
    assert_eq!(unsafe { libc::poll(&mut fd, 1, 100) }, 0, "an event of a queue that is gone");
    let (v, channel) = (m.p.net.v, m.channel);
    let QpPair { net, cq, qp, mr, .. } = m.p;
    net.destroy_qp(qp[0]);
    net.destroy_cq(cq[0]);
    mr.into_iter().for_each(|mr| net.dereg(mr));
    // SAFETY: no queue uses it any more.
    assert_eq!(unsafe { (v.destroy_comp_channel)(channel) }, 0);
    net.close();
}
