//! Pages of on-demand memory that are slow to be paged in, on devices of the network: the threads
//! that take packets do not wait for them.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::pages::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
/// Long enough for a busy machine: a thread that waits for a page waits for ever.
const LONG: Duration = Duration::from_secs(60);

const FOR_EVER: ConnectConfig =
    ConnectConfig { access: RW, rq_psn: 0xff_fff0, sq_psn: 0xff_fff0, ..ConnectConfig::PATIENT };

/// An end on a device of its own.
struct PagingEnd {
    ip: String,
    net: Net,
    cq: *mut ibv_cq,
}

impl PagingEnd {
    fn new(ip: &str) -> PagingEnd {
        let net = wired::open(ip);
        let cq = net.cq(64);
        PagingEnd { ip: ip.to_owned(), net, cq }
    }

    /// Packets that the peer has to send again because what they need is not there.
    fn not_ready(&self) -> u64 {
        wired::counted(&self.ip).not_ready
    }

    fn close(self) {
        self.net.destroy_cq(self.cq);
        self.net.close();
    }
}

/// Queue pairs of two ends that are connected to each other.
fn pair([a, b]: [&PagingEnd; 2], kind: ibv_qp_type, config: ConnectConfig) -> [*mut ibv_qp; 2] {
    let qps = [a.net.qp_of(kind, a.cq), b.net.qp_of(kind, b.cq)];
    for (end, peer, to) in [(0, b, qps[1]), (1, a, qps[0])] {
        for (attr, mask) in <[_; 3]>::from(peer.net.steps_of(kind, qp_num(to), config)) {
            assert_eq!([a, b][end].net.modify(qps[end], attr, mask), 0);
        }
    }
    qps
}

/// Runs a test that would wait for ever if it fails, in a thread of its own.
fn within_time(test: impl FnOnce() + Send + 'static) {
    let (report, reports) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = report.send(());
    });
    match reports.recv_timeout(LONG) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("a thread waits for a page"),
        // It has ended, or failed.
        _ => thread.join().unwrap(),
    }
}

/// Looks, as programs do, until something is so.
fn until(what: impl Fn() -> bool, ends: [&PagingEnd; 2]) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LONG);
        ends.iter().for_each(|end| assert!(end.net.poll_now(end.cq).is_empty()));
    }
}

/// Messages of another connection between the same devices.
fn others_go_on([a, b]: [&PagingEnd; 2], qps: [*mut ibv_qp; 2]) {
    for _ in 0..20 {
        assert_eq!(post_recv(qps[1], 2, &mut []), 0);
        assert_eq!(post_send(qps[0], &mut send_wr(3, W::IBV_WR_SEND, &mut [], SIGNALED)), 0);
        assert_eq!(statuses(&a.net.poll(a.cq, 1)), [(3, "SUCCESS")]);
        assert_eq!(statuses(&b.net.poll(b.cq, 1)), [(2, "SUCCESS")]);
    }
}

fn statuses(all: &[Wc]) -> Vec<(u64, &'static str)> {
    all.iter().map(|wc| (wc.id, wc.status)).collect()
}

const ALL: [W; 5] = [
    W::IBV_WR_SEND,
    W::IBV_WR_RDMA_WRITE,
    W::IBV_WR_RDMA_WRITE_WITH_IMM,
    W::IBV_WR_RDMA_READ,
    W::IBV_WR_ATOMIC_FETCH_AND_ADD,
];

#[test]
fn a_page_that_is_slow_to_come_delays_its_request_alone() {
    within_time(|| {
        for op in ALL {
            let ends = ["127.31.5.1", "127.31.5.2"].map(PagingEnd::new);
            let [a, b] = ends.each_ref();
            let (pages, len) =
                (MappedPages::new(3), if is_atomic(op) { 8 } else { 2 * PAGE as u32 });
            let Some(held_back) = pages.hold_back() else { return };
            let mr = explicit(&b.net, &pages, RW);
            let mut bytes = vec![3; len as usize];
            let local = a.net.mr(&mut bytes, RW);
            let (slow, quick) = (pair([a, b], RC, FOR_EVER), pair([a, b], RC, FOR_EVER));
            let (mut from, to) = ([sge(local, 0, len)], piece(&pages, mr, PAGE / 2 + 8, len));
            let takes_receive = matches!(op, W::IBV_WR_SEND | W::IBV_WR_RDMA_WRITE_WITH_IMM);
            if takes_receive {
                assert_eq!(post_recv(slow[1], 7, &mut [to]), 0);
            }
            let before = b.not_ready();
            assert_eq!(post_send(slow[0], &mut rdma_wr(op, &mut from, to)), 0);
            until(|| b.not_ready() > before + 2, [a, b]);
            others_go_on([a, b], quick);
            until(|| b.not_ready() > before + 4, [a, b]);
            drop(held_back);
            assert_eq!(statuses(&a.net.poll(a.cq, 1)), [(1, "SUCCESS")], "{op:?}");
            if takes_receive {
                assert_eq!(statuses(&b.net.poll(b.cq, 1)), [(7, "SUCCESS")], "{op:?}");
            }
            let there = pages.bytes(PAGE / 2 + 8, len as usize);
            match op {
                W::IBV_WR_RDMA_READ => assert_eq!(bytes, there),
                W::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    assert_eq!((there, bytes), (5_u64.to_ne_bytes().to_vec(), vec![0; 8]));
                }
                _ => assert!(there.iter().all(|byte| *byte == 3), "{op:?}"),
            }
            slow.into_iter().chain(quick).zip([a, b, a, b]).for_each(|(qp, end)| {
                end.net.destroy_qp(qp);
            });
            a.net.dereg(local);
            b.net.dereg(mr);
            ends.into_iter().for_each(PagingEnd::close);
        }
    });
}

#[test]
fn a_peer_gives_up_on_absent_pages_after_its_retries() {
    within_time(|| {
        for op in ALL {
            let ends = ["127.31.5.3", "127.31.5.4"].map(PagingEnd::new);
            let [a, b] = ends.each_ref();
            let pages = MappedPages::new(1);
            let Some(held_back) = pages.hold_back() else { return };
            let mr = explicit(&b.net, &pages, RW);
            let mut bytes = vec![3; 8];
            let local = a.net.mr(&mut bytes, RW);
            // About retries: there are two, and the page is never paged in.
            let qps = pair([a, b], RC, ConnectConfig { rnr_retry: 2, ..FOR_EVER });
            let (mut from, to) = ([sge(local, 0, 8)], piece(&pages, mr, 8, 8));
            let takes_receive = matches!(op, W::IBV_WR_SEND | W::IBV_WR_RDMA_WRITE_WITH_IMM);
            if takes_receive {
                assert_eq!(post_recv(qps[1], 7, &mut [to]), 0);
            }
            assert_eq!(post_send(qps[0], &mut rdma_wr(op, &mut from, to)), 0);
            let is = statuses(&a.net.poll(a.cq, 1));
            assert_eq!(is, [(1, "RNR_RETRY_EXC")], "{op:?}");
            // The receive request that was taken is flushed; nothing that ends waits for the page.
            assert_eq!(b.net.to_state(qps[1], ibv_qp_state::IBV_QPS_ERR), 0);
            if takes_receive {
                assert_eq!(statuses(&b.net.poll(b.cq, 1)), [(7, "WR_FLUSH")], "{op:?}");
            }
            qps.into_iter().zip([a, b]).for_each(|(qp, end)| end.net.destroy_qp(qp));
            b.net.dereg(mr);
            drop(held_back);
            assert_eq!(pages.bytes(0, PAGE), [0; PAGE], "{op:?}");
            a.net.dereg(local);
            ends.into_iter().for_each(PagingEnd::close);
        }
    });
}

/// Neither the post nor what takes acknowledgements waits; requests keep their order.
#[test]
fn a_requester_sends_when_its_own_pages_are_there() {
    within_time(|| {
        for op in ALL {
            let ends = ["127.31.5.7", "127.31.5.8"].map(PagingEnd::new);
            let [a, b] = ends.each_ref();
            let (pages, len) =
                (MappedPages::new(3), if is_atomic(op) { 8 } else { 2 * PAGE as u32 });
            let Some(held_back) = pages.hold_back() else { return };
            let mut bytes = vec![3; len as usize + 8];
            let (mr, there) = (explicit(&a.net, &pages, RW), b.net.mr(&mut bytes, RW));
            // About retries: no timer has the queue looked at again.
            let slow = pair([a, b], RC, ConnectConfig { timeout: 0, ..FOR_EVER });
            let quick = pair([a, b], RC, FOR_EVER);
            let start = bytes.as_ptr().align_offset(8);
            let mut to = sge(there, start, len);
            // SAFETY: the region is alive.
            to.lkey = unsafe { (*there).rkey };
            (0..3).for_each(|id| assert_eq!(post_recv(slow[1], id, &mut [to]), 0));
            let mut from = [piece(&pages, mr, PAGE / 2 + 8, len)];
            let mut wr = rdma_wr(op, &mut from, to);
            let mut before = send_wr(0, W::IBV_WR_SEND, &mut [], SIGNALED);
            let mut behind = send_wr(2, W::IBV_WR_SEND, &mut [], SIGNALED);
            (before.next, wr.next) = (&mut wr, &mut behind);
            assert_eq!(post_send(slow[0], &mut before), 0);
            assert_eq!(statuses(&a.net.poll(a.cq, 1)), [(0, "SUCCESS")]);
            assert_eq!(statuses(&b.net.poll(b.cq, 1)), [(0, "SUCCESS")]);
            others_go_on([a, b], quick);
            others_go_on([b, a], [quick[1], quick[0]]);
            drop(held_back);
            let done = statuses(&a.net.poll(a.cq, 2));
            assert_eq!(done, [(1, "SUCCESS"), (2, "SUCCESS")], "{op:?}");
            let here = pages.bytes(PAGE / 2 + 8, len as usize);
            match op {
                W::IBV_WR_RDMA_READ => assert_eq!(here, vec![3; len as usize]),
                W::IBV_WR_ATOMIC_FETCH_AND_ADD => assert_eq!(here, [3; 8]),
                _ => assert_eq!(bytes[start..][..len as usize], here),
            }
            slow.into_iter().chain(quick).zip([a, b, a, b]).for_each(|(qp, end)| {
                end.net.destroy_qp(qp);
            });
            a.net.dereg(mr);
            b.net.dereg(there);
            ends.into_iter().for_each(PagingEnd::close);
        }
    });
}

/// A response to a page that has gone since its READ was sent is dropped, and asked for again.
#[test]
fn a_response_waits_for_the_page_that_it_goes_to() {
    within_time(|| {
        let ends = ["127.31.5.9", "127.31.5.10"].map(PagingEnd::new);
        let [a, b] = ends.each_ref();
        let (pages, far) = (MappedPages::new(1), MappedPages::new(1));
        let Some(far_held_back) = far.hold_back() else { return };
        pages.fill(0, PAGE, 1);
        let (mr, there) = (explicit(&a.net, &pages, RW), explicit(&b.net, &far, RW));
        let (slow, quick) = (pair([a, b], RC, FOR_EVER), pair([a, b], RC, FOR_EVER));
        let (mut to, from) = ([piece(&pages, mr, 0, 64)], piece(&far, there, 0, 64));
        let before = b.not_ready();
        let mut wr = rdma_wr(W::IBV_WR_RDMA_READ, &mut to, from);
        assert_eq!(post_send(slow[0], &mut wr), 0);
        until(|| b.not_ready() > before, [a, b]);
        // It was sent. Now its landing place goes, and the page that it reads is paged in.
        pages.map(0);
        let Some(held_back) = pages.hold_back() else { return };
        drop(far_held_back);
        far.fill(0, 64, 7);
        // The response has been dropped when it is asked for again.
        until(|| wired::counted(&b.ip).duplicates > 0, [a, b]);
        others_go_on([a, b], quick);
        drop(held_back);
        assert_eq!(statuses(&a.net.poll(a.cq, 1)), [(1, "SUCCESS")]);
        assert_eq!(pages.bytes(0, 64), [7; 64]);
        slow.into_iter().chain(quick).zip([a, b, a, b]).for_each(|(qp, end)| {
            end.net.destroy_qp(qp);
        });
        a.net.dereg(mr);
        b.net.dereg(there);
        ends.into_iter().for_each(PagingEnd::close);
    });
}

/// Messages without acknowledgements are lost while a page is not there; the queue pair still
/// works.
#[test]
fn unreliable_messages_to_pages_that_are_not_there_are_dropped() {
    within_time(|| {
        for kind in [UC, UD] {
            let ends = ["127.31.5.5", "127.31.5.6"].map(PagingEnd::new);
            let [a, b] = ends.each_ref();
            let (pages, other) = (MappedPages::new(1), MappedPages::new(1));
            other.fill(0, 64, 3);
            let Some(held_back) = pages.hold_back() else { return };
            let [mr, local] = [(b, &pages), (a, &other)].map(|(at, p)| explicit(&at.net, p, RW));
            let qps = pair([a, b], kind, FOR_EVER);
            let ah = a.net.ah_in(a.net.pd, b.net.ah_attr());
            let grh = if kind == UD { 40 } else { 0 };
            assert_eq!(post_recv(qps[1], 7, &mut [piece(&pages, mr, 8, grh + 64)]), 0);
            let mut from = [piece(&other, local, 0, 64)];
            let mut wr = match kind {
                UD => datagram_wr(1, &mut from, SIGNALED, (ah, qp_num(qps[1]), QKEY)),
                _ => send_wr(1, W::IBV_WR_SEND, &mut from, SIGNALED),
            };
            let came = || wired::counted(&b.ip).received;
            let before = came();
            assert_eq!(post_send(qps[0], &mut wr), 0);
            assert_eq!(statuses(&a.net.poll(a.cq, 1)), [(1, "SUCCESS")]);
            until(|| came() > before, [a, b]);
            assert!(b.net.poll_now(b.cq).is_empty(), "{kind:?}");
            drop(held_back);
            pages.fill(0, 1, 1);
            assert_eq!(post_send(qps[0], &mut wr), 0);
            assert_eq!(statuses(&a.net.poll(a.cq, 1)), [(1, "SUCCESS")]);
            assert_eq!(statuses(&b.net.poll(b.cq, 1)), [(7, "SUCCESS")], "{kind:?}");
            assert_eq!(pages.bytes(8 + grh as usize, 64), [3; 64]);
            a.net.destroy_ah(ah);
            qps.into_iter().zip([a, b]).for_each(|(qp, end)| end.net.destroy_qp(qp));
            a.net.dereg(local);
            b.net.dereg(mr);
            ends.into_iter().for_each(PagingEnd::close);
        }
    });
}
