//! Memory of a peer that is attached to, and that it does not fill until it likes.

use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::memory::published::PublishedRegion;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::queues::outcome::WaitCause;
use crate::testing::unfilled::Unfilled;

/// A key of the peer's, of a page that is not filled.
const KEY: u32 = 1;

/// A peer that is said to be this process, and a queue pair to it.
pub(super) fn attached(n: u32, addr: u64) -> (Wild, Arc<Qp>) {
    let peer = Wild::at_slot(slot(n), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(n)));
    peer.known();
    peer.receive_from(&qp);
    let entry = peer.directory.qp(far(slot(n)));
    entry.access.store(0xf, Ordering::Relaxed);
    let published =
        PublishedRegion { length: 4_096, addr, access: 0xf, ..PublishedRegion::default() };
    peer.directory.publish(KEY, &published);
    (peer, qp)
}

/// Posts a WRITE of nothing, and one to the page.
pub(super) fn post_writes(qp: &Arc<Qp>) {
    let from = vec![7_u8; 4_096].leak();
    // SAFETY: memory that stays, and a request on a queue pair that is alive.
    unsafe {
        let mr =
            (crate::table().reg_mr)((*qp.as_abi()).pd, from.as_mut_ptr().cast(), from.len(), 1);
        let (addr, lkey) = (from.as_ptr() as u64, (*mr).lkey);
        let mut sge = ibv_sge { addr, length: 64, lkey };
        let mut wrs: [ibv_send_wr; 2] = core::mem::zeroed();
        for wr in &mut wrs {
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            wr.wr.rdma.rkey = KEY;
        }
        (wrs[1].sg_list, wrs[1].num_sge) = (&mut sge, 1);
        wrs[0].next = &mut wrs[1];
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wrs[0], &mut null_mut()), 0);
    }
}

fn run(peer: &mut Wild) -> DeferredWork {
    let mut deferred = DeferredWork::default();
    peer.progress.run(&crate::objects::device::default_device(), &mut deferred);
    deferred
}

fn within<T>(heard: &Receiver<T>) -> Option<T> {
    heard.recv_timeout(Duration::from_secs(60)).ok()
}

#[test]
fn a_poster_blocked_on_peer_memory_holds_up_no_other_thread() {
    let Some(page) = Unfilled::new() else { return };
    let (report, reports) = channel();
    let addr = page.addr();
    std::thread::spawn(move || {
        let (mut peer, qp) = attached(70, addr);
        let poster = Arc::clone(&qp);
        let poster = std::thread::spawn(move || post_writes(&poster));
        while !qp.is_in_blocking_section() {
            host::thread::yield_now();
        }
        // It answers what it was never asked, and is given up.
        peer.acknowledge(&qp, 0);
        run(&mut peer).run();
        qp.lose(&peer.pair, &mut DeferredWork::default());
        let taken = |peer: &Wild| peer.pair.outgoing.replies_read.load(Ordering::Relaxed);
        let _ = report.send((taken(&peer), statuses(&qp)));
        poster.join().unwrap();
        run(&mut peer).run();
        let _ = report.send((taken(&peer), statuses(&qp)));
    });
    let first = within(&reports);
    page.fill();
    // What is done can be seen: no thread waits for the completion queue either.
    assert_eq!(first, Some((0, vec![SUCCESS])));
    assert_eq!(within(&reports), Some((1, vec![SUCCESS])));
}

#[test]
fn taking_replies_does_not_wait_for_peer_memory() {
    let Some(page) = Unfilled::new() else { return };
    let (report, reports) = channel();
    let addr = page.addr();
    std::thread::spawn(move || {
        let (mut peer, qp) = attached(71, addr);
        post_sends(&qp, 1);
        // It has to wait for the reply.
        post_writes(&qp);
        peer.acknowledge(&qp, 0);
        let deferred = run(&mut peer);
        let _ = report.send(statuses(&qp));
        // It is left to a thread that holds nothing up.
        deferred.run();
        let _ = report.send(statuses(&qp));
    });
    let first = within(&reports);
    page.fill();
    // The message, and the WRITE of nothing.
    assert_eq!(first, Some(vec![SUCCESS; 2]));
    assert_eq!(within(&reports), Some(vec![SUCCESS]));
}

#[test]
fn a_deadline_during_a_blocked_post_is_checked_again() {
    let (_process, _peer, qp) = known(slot(72));
    let device = crate::objects::device::default_device();
    let token = device.arm(qp.num, None);
    let mut sq = qp.sq.lock();
    sq.requester.waits = Some((WaitCause::Room, token));
    let section = qp.enter_blocking();
    let (report, reports) = channel();
    let timer = Arc::clone(&qp);
    std::thread::spawn(move || {
        timer.expired(token, &mut DeferredWork::default());
        let _ = report.send(());
    });
    assert!(within(&reports).is_some(), "others have deadlines, too");
    drop(sq);
    drop(section);
    let start = host::time::now();
    while qp.sq.lock().requester.waits.is_some_and(|(_, waits)| waits == token) {
        assert!(host::time::since(start) < Duration::from_secs(60), "the deadline passes again");
        host::thread::yield_now();
    }
}
