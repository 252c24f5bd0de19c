//! Long messages, which the receiver reads where they lie.

use super::*;
use crate::memory::published::PublishedRegion;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::peers::process::ring::{
    EntryOp, HAS_IMM, JUDGE, PayloadLocation, WANTS_REPLY, reply_at,
};
use crate::peers::process::serving::Serving;
use crate::peers::process::side::FetchState;
use crate::queues::outcome::PeerReply;
use crate::queues::qp_state::QueuePairState;
use crate::testing::unfilled::Unfilled;

/// Posts a message that is not copied before it is received; its region.
fn post_long_send(qp: &Arc<Qp>) -> *mut ibv_mr {
    let verbs = crate::table();
    let buffer = vec![0_u8; 1 << 16].leak();
    // SAFETY: memory that stays, on a queue pair that is alive.
    unsafe {
        let mr = (verbs.reg_mr)((*qp.as_abi()).pd, buffer.as_mut_ptr().cast(), buffer.len(), 1);
        let (addr, length) = (buffer.as_ptr() as u64, buffer.len() as u32);
        let mut sge = ibv_sge { addr, length, lkey: (*mr).lkey };
        let mut wr: ibv_send_wr = core::mem::zeroed();
        (wr.opcode, wr.sg_list, wr.num_sge) = (ibv_wr_opcode::IBV_WR_SEND, &mut sge, 1);
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
        mr
    }
}

/// Sends a message of `len` bytes that is said to lie in these pieces of the sender's regions, and
/// returns the answer.
fn asked(peer: &mut Wild, qp: &Qp, list: &[ibv_sge], len: u64) -> PeerReply {
    ask(peer, qp, list, len);
    run(peer);
    verdict(peer).unwrap()
}

pub(super) fn run(peer: &mut Wild) {
    let mut deferred = DeferredWork::default();
    peer.progress.run(&crate::objects::device::default_device(), &mut deferred);
    deferred.run();
}

/// Returns the answer to the first request.
pub(super) fn verdict(peer: &Wild) -> Option<PeerReply> {
    reply_at(&peer.pair.outgoing, 0).unwrap().map(|reply| reply.verdict)
}

/// Sends a message of `len` bytes that is said to lie in these pieces of the sender's regions,
/// or for none, with the request.
pub(super) fn ask(peer: &mut Wild, qp: &Qp, list: &[ibv_sge], len: u64) {
    ask_for(peer, qp, [EntryOp::Send as u8, WANTS_REPLY], list, len);
}

/// As [`ask`], for what, and with these flags.
fn ask_for(peer: &mut Wild, qp: &Qp, [what, flags]: [u8; 2], list: &[ibv_sge], len: u64) {
    let far = far(peer.pair.slot);
    peer.directory.qp(far).state.store(QueuePairState::Rts as u32, Ordering::Relaxed);
    // SAFETY: the list is shorter than the ring of data.
    unsafe {
        let to = peer.rings.data().cast::<ibv_sge>();
        core::ptr::copy_nonoverlapping(list.as_ptr(), to, list.len());
    }
    let location = if list.is_empty() { PayloadLocation::Body } else { PayloadLocation::Regions };
    let kinds = u32::from_le_bytes([what, flags, location as u8, 1]);
    let parties = u64::from(qp.num) | u64::from(far) << 32;
    let generation = qp.responder.lock().generation.into();
    let n = list.len() as u64;
    let words = [u64::from(kinds) << 32, parties, generation, len << 32, 0, n, 0, 0];
    peer.rings.scribble_request(0, words);
}

/// A piece of a region that does not exist: a fetch of it is refused.
const NOWHERE: ibv_sge = ibv_sge { addr: 0, length: 1 << 16, lkey: 0 };

pub(super) fn forget_receives(qp: &Qp) {
    let mut responder = qp.responder.lock();
    qp.rq.clear(&mut qp.rq.poster.lock(), &mut responder.consumer);
    responder.min_rnr_timer = 9;
}

#[test]
fn a_message_without_a_receive_request_is_not_fetched() {
    let (_process, mut peer, qp) = known(slot(22));
    forget_receives(&qp);
    assert_eq!(asked(&mut peer, &qp, &[NOWHERE], 1 << 16), PeerReply::Rnr(9));
}

#[test]
fn an_unreliable_message_without_a_receive_is_not_fetched() {
    let process = Sleeper::new();
    let mut peer = Wild::at_slot(slot(23), process.pid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_UC, far(slot(23)));
    peer.receive_from(&qp);
    forget_receives(&qp);
    assert_eq!(asked(&mut peer, &qp, &[NOWHERE], 1 << 16), PeerReply::Silence);
}

/// Its sender could have a great deal fetched, again and again.
#[test]
fn an_unreliable_message_that_is_too_long_is_not_fetched() {
    let process = Sleeper::new();
    let mut peer = Wild::at_slot(slot(25), process.pid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_UC, far(slot(25)));
    peer.receive_from(&qp);
    assert_eq!(asked(&mut peer, &qp, &[NOWHERE; 2], 2 << 16), PeerReply::Silence);
}

/// Its target could have pages brought that are far more than any message has.
#[test]
fn an_operation_that_is_longer_than_any_message_is_not_judged() {
    let (_process, mut peer, qp) = known(slot(75));
    let write = [EntryOp::Write as u8, WANTS_REPLY | JUDGE];
    ask_for(&mut peer, &qp, write, &[], crate::limits::MAX_MESSAGE + 1);
    run(&mut peer);
    assert_eq!(verdict(&peer), Some(PeerReply::Silence));
}

#[test]
fn no_room_is_made_for_a_message_that_is_not_as_long_as_it_says() {
    let (_process, mut peer, qp) = known(slot(24));
    let refused = WcReason::LocalGone;
    let verdict = asked(&mut peer, &qp, &[NOWHERE], 1 << 15);
    assert_eq!(verdict, PeerReply::Refused(refused));
    assert_eq!(peer.progress.sides[0].buffer.capacity(), 0);
}

/// A piece of a region that lies in no memory file: it is fetched.
fn piece_of(peer: &Wild, bytes: &'static [u8]) -> ibv_sge {
    let (length, addr) = (bytes.len() as u64, bytes.as_ptr().expose_provenance() as u64);
    peer.directory.publish(1, &PublishedRegion { length, addr, ..PublishedRegion::default() });
    ibv_sge { addr: 0, length: bytes.len() as u32, lkey: 1 }
}

/// The receive requests have room for 64 KiB.
#[test]
fn a_message_longer_than_its_receive_is_refused_unfetched() {
    let (_process, mut peer, qp) = known(slot(38));
    let sge = piece_of(&peer, vec![7_u8; 1 << 20].leak());
    ask(&mut peer, &qp, &[sge], 1 << 20);
    run(&mut peer);
    let refused = WcReason::PeerReceiveShort;
    assert_eq!(verdict(&peer), Some(PeerReply::Refused(refused)));
    assert!(matches!(peer.progress.sides[0].fetch, FetchState::Nothing));
    // After the flush of what is under way.
    let mut all = statuses(&qp);
    all.retain(|status| *status == ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    assert_eq!(all.len(), 1, "the receive request says so");
}

/// It goes nowhere: no region here has this key.
#[test]
fn a_write_with_immediate_to_an_unknown_key_is_not_fetched() {
    let (_process, mut peer, qp) = known(slot(39));
    let sge = piece_of(&peer, vec![7_u8; 1 << 16].leak());
    ask_for(&mut peer, &qp, [EntryOp::Write as u8, WANTS_REPLY | HAS_IMM], &[sge], 1 << 16);
    run(&mut peer);
    let refused = WcReason::PeerKey;
    assert_eq!(verdict(&peer), Some(PeerReply::Refused(refused)));
    assert!(matches!(peer.progress.sides[0].fetch, FetchState::Nothing));
}

/// It may be a page that its process does not fill until it likes.
#[test]
fn a_message_that_has_to_be_fetched_holds_up_no_other_process() {
    let Some(page) = Unfilled::new() else { return };
    let addr = page.addr();
    let (done, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut slow = Wild::at_slot(slot(26), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(26)));
        slow.receive_from(&qp);
        slow.directory
            .publish(1, &PublishedRegion { length: 4_096, addr, ..PublishedRegion::default() });
        ask(&mut slow, &qp, &[ibv_sge { addr: 0, length: 4_096, lkey: 1 }], 4_096);
        let (_process, mut other, qp) = known(slot(27));
        ask(&mut other, &qp, &[], 4);
        slow.progress.add(Arc::clone(&other.pair));
        run(&mut slow);
        let _ = done.send((verdict(&slow), verdict(&other)));
        let mut fetch = slow.progress.next_fetch(|_| true).unwrap();
        run(&mut slow);
        let is_there = fetch.run();
        slow.progress.is_over(*fetch, is_there);
        run(&mut slow);
        let _ = done.send((verdict(&slow), verdict(&other)));
    });
    let wait = || heard.recv_timeout(Duration::from_secs(60));
    let first = wait();
    page.fill();
    assert_eq!(first, Ok((None, Some(PeerReply::Done))));
    assert_eq!(wait(), Ok((Some(PeerReply::Done), Some(PeerReply::Done))));
}

#[test]
fn memory_that_a_peer_reads_a_message_in_is_not_given_back() {
    let (_process, peer, qp) = met(slot(7));
    let is_free = || {
        let sq = qp.sq.lock();
        sq.remote.as_deref().unwrap().reclaim(&sq.pending)
    };
    peer.rings.reads.store(1, Ordering::Relaxed);
    assert!(is_free(), "short messages were copied");
    let region = post_long_send(&qp);
    assert!(!is_free());
    // SAFETY: a region of ours, which stays if it is not given back.
    let dereg = || unsafe { (crate::table().dereg_mr)(region) };
    assert_eq!(dereg(), libc::EBUSY);
    peer.rings.reads.store(2, Ordering::Relaxed);
    assert!(is_free());
}

/// Its sender may have given the region back while the fetch waited for a thread, and use the
/// memory for something else.
#[test]
fn a_withdrawn_region_is_not_read_by_a_later_fetch() {
    for gives_back in [false, true] {
        let mut peer = Wild::at_slot(slot(74), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(74)));
        peer.receive_from(&qp);
        let sge = piece_of(&peer, vec![7_u8; 1 << 16].leak());
        ask(&mut peer, &qp, &[sge], 1 << 16);
        run(&mut peer);
        let mut fetch = peer.progress.next_fetch(|_| true).unwrap();
        if gives_back {
            peer.directory.withdraw(sge.lkey);
        }
        assert_eq!(fetch.run(), !gives_back);
        crate::objects::device::default_device().bury(&peer.pair);
    }
}

#[test]
fn processes_with_constant_fetches_take_turns() {
    let bytes = vec![7_u8; 1 << 16].leak();
    let peers = [28, 29].map(|n| {
        let mut peer = Wild::at_slot(slot(n), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(n)));
        peer.receive_from(&qp);
        let (length, addr) = (1 << 16, bytes.as_ptr().expose_provenance() as u64);
        peer.directory.publish(1, &PublishedRegion { length, addr, ..PublishedRegion::default() });
        ask(&mut peer, &qp, &[ibv_sge { addr: 0, length: 1 << 16, lkey: 1 }], 1 << 16);
        (peer, qp)
    });
    let [(mut one, _), (other, _)] = peers;
    one.progress.add(Arc::clone(&other.pair));
    let mut turns = Vec::new();
    for _ in 0..4 {
        run(&mut one);
        let fetch = one.progress.next_fetch(|_| true).unwrap();
        turns.push(fetch.pair().slot);
        // It has the next one to be fetched at once.
        let mut sides = one.progress.sides.iter_mut();
        let side = sides.find(|side| Arc::ptr_eq(&side.pair, fetch.pair())).unwrap();
        side.fetch = FetchState::Wanted(fetch);
        one.progress.wants = true;
    }
    assert_eq!(turns, [slot(28), slot(29), slot(28), slot(29)]);
}

/// Each time it has a message fetched out of a page that it never fills.
#[test]
fn a_process_met_repeatedly_keeps_few_threads_waiting() {
    let Some(page) = Unfilled::new() else { return };
    let device = crate::objects::device::default_device();
    let peers = device.peers.as_ref().unwrap();
    for _ in 0..40 {
        let mut peer = Wild::at_slot(slot(73), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(73)));
        peer.receive_from(&qp);
        let published =
            PublishedRegion { length: 4_096, addr: page.addr(), ..PublishedRegion::default() };
        peer.directory.publish(1, &published);
        ask(&mut peer, &qp, &[ibv_sge { addr: 0, length: 4_096, lkey: 1 }], 4_096);
        run(&mut peer);
        let fetch = peer.progress.next_fetch(|_| true).unwrap();
        let serving = Serving::begin();
        device.have_run(peers, fetch);
        drop(serving);
        device.bury(&peer.pair);
    }
    let threads = peers.workers.threads();
    page.fill();
    // Other tests have some, too.
    assert!(threads < 10, "{threads} threads");
}
