//! On-demand memory that threads take away, write, and count in, while it is accessed.
//!
//! Not on rxe0: Linux 6.1 has no on-demand memory of rxe.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use common::mw::{alloc, bind_wr, dealloc, key_of};
use common::pages::*;
use common::*;
use host::sync::SetOnDrop;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;

/// Two ends that are connected again after each failure.
struct ReconnectedEnds {
    p: QpPair,
    pages: MappedPages,
    mr: *mut ibv_mr,
}

impl ReconnectedEnds {
    fn new(n: usize) -> ReconnectedEnds {
        let p = QpPair::connect(RC, Net::new(), waits_for_pages(), waits_for_pages());
        let pages = MappedPages::new(n);
        let mr = explicit(&p.net, &pages, RW);
        ReconnectedEnds { p, pages, mr }
    }

    fn again(&self) {
        for end in [0, 1] {
            let reset = ibv_qp_state::IBV_QPS_RESET;
            assert_eq!(self.p.net.to_state(self.p.qp[end], reset), 0);
            self.p.net.poll_now(self.p.cq[end]);
        }
        for end in [0, 1] {
            self.p.net.connect(self.p.qp[end], self.p.num(1 - end), waits_for_pages());
        }
    }

    fn close(self) {
        self.p.net.dereg(self.mr);
        self.p.close();
    }
}

/// The kind of a request, its status, and those of what it has met at the other end.
type Seen = BTreeMap<(usize, &'static str, Vec<&'static str>), usize>;

/// Returns the number of kinds that have succeeded plus that of kinds that have failed.
fn outcomes(seen: &Seen) -> usize {
    let all = seen.keys().map(|(kind, status, _)| (*kind, *status == "SUCCESS"));
    all.collect::<BTreeSet<_>>().len()
}

/// The other thread ends, also where this one has failed.
#[test]
fn memory_that_goes_in_the_midst_is_an_error_and_no_signal() {
    // Fewest rounds, and more until each kind of request has been seen to succeed and to fail.
    const ROUNDS: usize = 1_500;
    const AT_MOST: usize = 5_000;
    const LEN: u32 = 40_000;
    let ends = ReconnectedEnds::new(16);
    let is_over = AtomicBool::new(false);
    let mut seen = Seen::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                ends.pages.protect(5, libc::PROT_NONE);
                ends.pages.make_writable(5);
                std::thread::yield_now();
            }
        });
        let _over = SetOnDrop(&is_over);
        for round in 0..AT_MOST {
            if round > ROUNDS && outcomes(&seen) == 12 {
                break;
            }
            let [on_demand, pinned] =
                [piece(&ends.pages, ends.mr, 0, LEN), sge(ends.p.mr[0], 0, LEN)];
            let there = sge(ends.p.mr[1], 0, LEN);
            let (op, from, to) = match round % 6 {
                0 => (W::IBV_WR_SEND, on_demand, there),
                1 => (W::IBV_WR_SEND, pinned, on_demand),
                2 => (W::IBV_WR_RDMA_WRITE, on_demand, there),
                3 => (W::IBV_WR_RDMA_WRITE_WITH_IMM, pinned, on_demand),
                4 => (W::IBV_WR_RDMA_READ, on_demand, there),
                _ => (W::IBV_WR_RDMA_READ, pinned, on_demand),
            };
            let takes_receive = matches!(op, W::IBV_WR_SEND | W::IBV_WR_RDMA_WRITE_WITH_IMM);
            if takes_receive {
                assert_eq!(post_recv(ends.p.qp[1], 2, &mut [to]), 0);
            }
            let mut sges = [from];
            assert_eq!(post_send(ends.p.qp[0], &mut rdma_wr(op, &mut sges, to)), 0);
            let status = ends.p.net.poll(ends.p.cq[0], 1)[0].status;
            // A receive request completes, with or without success, unless the request has not
            // left.
            let received = match takes_receive && status != "LOC_PROT" {
                true => ends.p.net.poll(ends.p.cq[1], 1),
                false => ends.p.net.poll_now(ends.p.cq[1]),
            };
            let received: Vec<_> = received.iter().map(|wc| wc.status).collect();
            *seen.entry((round % 6, status, received)).or_insert(0) += 1;
            if status != "SUCCESS" {
                ends.again();
            }
        }
    });
    for ((kind, status, received), times) in &seen {
        let is_local = [0, 2, 4].contains(kind);
        let allowed = match (kind, status) {
            (_, &"SUCCESS") => true,
            (1, status) => *status == "REM_OP" && received == &["LOC_PROT"],
            (3, status) => *status == "REM_ACCESS" && received == &["WR_FLUSH"],
            // Sent, or not yet: then the receive request is still posted.
            (0, status) => *status == "LOC_PROT" && ["WR_FLUSH"].starts_with(received),
            (_, status) => *status == if is_local { "LOC_PROT" } else { "REM_ACCESS" },
        };
        assert!(allowed, "{kind} {status} {received:?}: {times} times");
    }
    ends.close();
}

#[test]
fn atomics_of_one_word_do_not_lose_each_other() {
    const EACH: u64 = 500;
    let pages = MappedPages::new(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let p = QpPair::with(Net::new(), waits_for_pages(), waits_for_pages());
                let mr = explicit(&p.net, &pages, RW);
                for _ in 0..EACH {
                    let mut sges = [sge(p.mr[0], 0, 8)];
                    let to = piece(&pages, mr, 0, 8);
                    let mut wr = rdma_wr(W::IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sges, to);
                    assert_eq!(post_send(p.qp[0], &mut wr), 0);
                    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
                }
                p.net.dereg(mr);
                p.close();
            });
        }
    });
    assert_eq!(pages.bytes(0, 8), (4 * 5 * EACH).to_ne_bytes());
}

#[test]
fn a_window_of_on_demand_memory_is_on_demand() {
    let ends = ReconnectedEnds::new(2);
    const MW_BIND: u32 = ibv_access_flags::IBV_ACCESS_MW_BIND.0;
    let mr = explicit(&ends.p.net, &ends.pages, 1 | MW_BIND);
    let mw = alloc(ends.p.net.pd, ibv_mw_type::IBV_MW_TYPE_2);
    let (key, all) = (key_of(mw), piece(&ends.pages, mr, 0, 2 * PAGE as u32));
    let to = common::mw::piece(mr, 0, u64::from(all.length), 0xe);
    assert_eq!(post_send(ends.p.qp[1], &mut bind_wr(1, mw, key, to)), 0);
    assert_eq!(ends.p.net.poll(ends.p.cq[1], 1)[0].status, "SUCCESS");
    let status = |op| {
        let len = if is_atomic(op) { 8 } else { 5_000 };
        let mut sges = [sge(ends.p.mr[0], 0, len)];
        let there = ibv_sge { lkey: key, ..all };
        assert_eq!(post_send(ends.p.qp[0], &mut rdma_wr(op, &mut sges, there)), 0);
        ends.p.net.poll(ends.p.cq[0], 1)[0].status
    };
    for op in [W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_READ, W::IBV_WR_ATOMIC_FETCH_AND_ADD] {
        assert_eq!(status(op), "SUCCESS", "{op:?}");
    }
    ends.pages.unmap(1);
    assert_eq!(status(W::IBV_WR_ATOMIC_FETCH_AND_ADD), "SUCCESS");
    assert_eq!(status(W::IBV_WR_RDMA_WRITE), "REM_ACCESS");
    dealloc(mw);
    ends.p.net.dereg(mr);
    ends.close();
}
