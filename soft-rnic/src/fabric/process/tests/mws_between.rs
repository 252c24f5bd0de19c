//! The end of a memory window's binding, and processes that are inside this one's memory: only
//! those that can use the window are waited for, for as long as they like, and by no thread.

use super::mws::{Bound, meet};
use super::*;
use crate::memory::mr_table::{LOCAL_WRITE, MW_BIND};
use crate::peers::process::outside::{INSIDE, MAX_INSIDERS};
use crate::peers::process::serving::Serving;
use crate::testing::unfilled::Unfilled;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const TYPE_1: ibv_mw_type = ibv_mw_type::IBV_MW_TYPE_1;
const TYPE_2: ibv_mw_type = ibv_mw_type::IBV_MW_TYPE_2;

/// A peer that has a queue pair, and its process.
fn peer(n: u32) -> (Sleeper, Wild) {
    let process = Sleeper::new();
    let peer = Wild::at_slot(slot(n), process.pid());
    peer.directory.use_qp(far(slot(n)));
    (process, peer)
}

/// Polls until there is a completion, for a minute at most.
fn completion(bound: &Bound) -> Option<ibv_wc_status> {
    let began = host::time::now();
    loop {
        match bound.poll() {
            None if host::time::since(began) < Duration::from_secs(60) => host::thread::yield_now(),
            status => return status,
        }
    }
}

#[test]
fn a_process_that_cannot_use_the_window_is_not_waited_for() {
    let (_process, other) = peer(60);
    let mut bound = Bound::with(RC, TYPE_2, None);
    meet(&bound.device, &other);
    let inside = other.directory.qp(far(slot(60))).enter(false);
    bound.invalidate();
    assert_eq!(completion(&bound), Some(SUCCESS));
    bound.bind();
    // SAFETY: all are alive.
    unsafe {
        assert_eq!(ibv_dealloc_mw(bound.mw), 0);
        // A region may be what it is in.
        assert_eq!((bound.v.dereg_mr)(bound.mr), libc::EBUSY);
    }
    drop(inside);
    // SAFETY: the domain is alive.
    bound.mw = unsafe { ibv_alloc_mw(bound.pd, TYPE_2) };
    bound.close();
}

#[test]
fn the_peer_is_waited_for_however_long_it_stays() {
    let (_process, peer) = peer(61);
    let bound = Bound::with(RC, TYPE_2, Some(&peer));
    let (qp, word) = (bound.object(0), peer.directory.qp(far(slot(61))));
    let inside = word.enter(false);
    let began = host::time::now();
    bound.invalidate();
    assert!(!bound.is_valid());
    // A window that goes is not waited for without end.
    // SAFETY: it is alive.
    assert_eq!(unsafe { ibv_dealloc_mw(bound.mw) }, libc::EBUSY);
    let looks = || qp.sq.lock().settling.as_ref().map_or(0, |settling| settling.looks);
    while host::time::since(began) < 2 * INSIDE || looks() < 5 {
        assert_eq!(bound.poll(), None);
        host::thread::yield_now();
    }
    assert_eq!(qp.state(), QueuePairState::Rts);
    // It leaves, and is inside for something else at once.
    drop(inside);
    let inside = word.enter(false);
    assert_eq!(completion(&bound), Some(SUCCESS));
    drop(inside);
    bound.bind();
    bound.close();
}

#[test]
fn a_peer_that_ends_is_not_waited_for() {
    let (mut process, peer) = peer(62);
    let bound = Bound::with(RC, TYPE_2, Some(&peer));
    let _inside = peer.directory.qp(far(slot(62))).enter(false);
    bound.invalidate();
    assert_eq!(bound.poll(), None);
    process.end();
    assert_eq!(completion(&bound), Some(SUCCESS));
    bound.close();
}

/// A request that waits for the end of a binding is flushed as all others, and the window is bound
/// by another queue pair when it is free.
#[test]
fn a_request_that_waits_is_flushed() {
    let (_process, peer) = peer(63);
    let bound = Bound::with(RC, TYPE_2, Some(&peer));
    let inside = peer.directory.qp(far(slot(63))).enter(false);
    bound.invalidate();
    let mut attr = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_ERR, ..ibv_qp_attr::default() };
    let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
    // SAFETY: the queue pair is alive.
    assert_eq!(unsafe { (bound.v.modify_qp)(bound.qp[0], &mut attr, mask) }, 0);
    assert_eq!(completion(&bound), Some(ibv_wc_status::IBV_WC_WR_FLUSH_ERR));
    assert!(bound.object(0).sq.lock().settling.is_none());
    drop(inside);
    bound.close();
}

/// An unreliable connection takes what any queue pair sends that is connected to it.
#[test]
fn ending_a_uc_window_waits_for_its_senders_only() {
    let (_process, other) = peer(64);
    let bound = Bound::with(UC, TYPE_2, None);
    meet(&bound.device, &other);
    let (ending, entry) = (bound.end(), other.directory.qp(far(slot(64))));
    let inside = entry.enter(false);
    let settles_if_it_sends_to = |to: u32| {
        entry.dest_qpn.store(to, Ordering::Relaxed);
        bound.device.try_settle(&ending, &mut None)
    };
    assert!(!settles_if_it_sends_to(bound.object(0).num));
    assert!(settles_if_it_sends_to(bound.object(1).num));
    drop(inside);
    bound.close();
}

#[test]
fn ending_a_type_1_window_waits_for_senders_to_its_domain_only() {
    let (_process, other) = peer(65);
    let bound = Bound::with(RC, TYPE_1, None);
    meet(&bound.device, &other);
    let (ending, entry) = (bound.end(), other.directory.qp(far(slot(65))));
    let inside = entry.enter(false);
    let settles_if_it_sends_to = |to: u32| {
        entry.dest_qpn.store(to, Ordering::Relaxed);
        bound.device.try_settle(&ending, &mut None)
    };
    let ours = bound.object(2).num;
    assert!(!settles_if_it_sends_to(ours));
    assert!(!settles_if_it_sends_to(ours + 1), "one that has gone");
    // A queue pair of another domain, or another process.
    // SAFETY: all of it is alive.
    unsafe {
        let pd = (bound.v.alloc_pd)(bound.context);
        let mut attr: ibv_qp_init_attr = core::mem::zeroed();
        (attr.send_cq, attr.recv_cq) = ((*bound.qp[0]).send_cq, (*bound.qp[0]).send_cq);
        (attr.qp_type, attr.cap.max_send_wr) = (RC, 1);
        let elsewhere = (bound.v.create_qp)(pd, &mut attr);
        assert_eq!((*elsewhere).qp_num, ours + 1);
        assert!(settles_if_it_sends_to(ours + 1));
        assert_eq!(((bound.v.destroy_qp)(elsewhere), (bound.v.dealloc_pd)(pd)), (0, 0));
    }
    bound.bind();
    let ending = bound.end();
    entry.dest_qpn.store(far(slot(64)), Ordering::Relaxed);
    assert!(bound.device.try_settle(&ending, &mut None), "it is in another process's memory");
    drop(inside);
    bound.close();
}

/// At most as many accesses as the limit says are remembered, and none is left out.
#[test]
fn accesses_beyond_the_limit_are_looked_for_later() {
    let (_process, other) = peer(66);
    let bound = Bound::with(UC, TYPE_2, None);
    meet(&bound.device, &other);
    let (ending, to) = (bound.end(), bound.object(0).num);
    let number = |n: usize| slot(66) << INDEX_BITS | n as u32;
    let mut inside: Vec<_> = (0..2 * MAX_INSIDERS + 1)
        .map(|n| {
            other.directory.use_qp(number(n));
            let entry = other.directory.qp(number(n));
            entry.dest_qpn.store(to, Ordering::Relaxed);
            entry.enter(false)
        })
        .collect();
    let mut known = None;
    for _ in 0..3 {
        assert!(!bound.device.try_settle(&ending, &mut known));
        assert!(!bound.device.try_settle(&ending, &mut known));
        inside.drain(..inside.len().min(MAX_INSIDERS));
    }
    assert!(inside.is_empty() && bound.device.try_settle(&ending, &mut known));
    bound.close();
}

/// A queue pair that is connected to a made-up peer, with a window that is bound to it: the peer,
/// and the window's key.
fn window_to(n: u32, page: Option<u64>) -> (Wild, Arc<Qp>, u32) {
    let (peer, qp) = blocking::attached(n, page.unwrap_or(0));
    let memory = vec![0_u8; 64].leak();
    // SAFETY: the verbs are used as their manual pages say; nothing is taken down again.
    let key = unsafe {
        let pd = (*qp.as_abi()).pd;
        let access = (LOCAL_WRITE | MW_BIND) as i32;
        let mr = (crate::table().reg_mr)(pd, memory.as_mut_ptr().cast(), 64, access);
        let mw = ibv_alloc_mw(pd, TYPE_2);
        let mut wr: ibv_send_wr = core::mem::zeroed();
        wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
        let (addr, rkey) = (memory.as_ptr() as u64, (*mw).rkey);
        let bind_info = ibv_mw_bind_info { mr, addr, length: 64, mw_access_flags: 2 };
        wr.__bindgen_anon_2.bind_mw =
            ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info };
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
        rkey
    };
    (peer, qp, key)
}

/// Posts the invalidation of a window, on a thread that others rely on.
fn invalidate(qp: &Arc<Qp>, key: u32) {
    let _serving = Serving::begin();
    // SAFETY: a request on a queue pair that is alive.
    unsafe {
        let mut wr: ibv_send_wr = core::mem::zeroed();
        wr.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        wr.__bindgen_anon_1.invalidate_rkey = key;
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
    }
}

/// Work behind an invalidation may wait for memory of a process that never fills it. The threads
/// that do are those of that process, as many as it may keep; other invalidations need none.
#[test]
fn work_behind_an_invalidation_delays_no_other_invalidation() {
    let Some(page) = Unfilled::new() else { return };
    let (report, reports) = std::sync::mpsc::channel();
    let addr = page.addr();
    std::thread::spawn(move || {
        let all: Vec<_> = (75..78).map(|n| window_to(n, Some(addr))).collect();
        for (_, qp, key) in &all {
            // What is posted waits, as behind a message, until the thread that serves continues.
            let token = qp.pd.context.device.arm(qp.num, None);
            qp.sq.lock().requester.waits = Some((crate::queues::outcome::WaitCause::Rnr, token));
            invalidate(qp, *key);
            blocking::post_writes(qp);
            let _serving = Serving::begin();
            let mut deferred = DeferredWork::default();
            qp.expired(token, &mut deferred);
            deferred.run();
        }
        while !all.iter().any(|(_, qp, _)| qp.is_in_blocking_section()) {
            host::thread::yield_now();
        }
        let (_peer, honest, key) = window_to(78, None);
        invalidate(&honest, key);
        let mut done = statuses(&honest);
        while done.is_empty() {
            host::thread::yield_now();
            done = statuses(&honest);
        }
        let _ = report.send(done);
        // The rest ends when the page is filled.
        core::mem::forget(all);
    });
    let done = reports.recv_timeout(Duration::from_secs(60));
    page.fill();
    assert_eq!(done, Ok(vec![SUCCESS]));
}
