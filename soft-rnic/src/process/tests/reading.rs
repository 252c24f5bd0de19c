//! Long messages, which the receiver reads where they lie.

use super::*;
use crate::process::errand::Fetch;
use crate::process::ring::{Place, Verdict, WANTS_REPLY, reply_at};

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

/// What becomes of a message of `len` bytes that is said to lie in these pieces of the
/// sender's regions.
fn asked(peer: &mut Wild, qp: &Qp, list: &[ibv_sge], len: u64) -> Verdict {
    ask(peer, qp, list, len);
    run(peer);
    verdict(peer).unwrap()
}

fn run(peer: &mut Wild) {
    let mut after = After::default();
    peer.drain.run(&crate::device::default_device(), &mut after);
    after.run();
}

/// What the first request was answered with.
fn verdict(peer: &Wild) -> Option<Verdict> {
    reply_at(&peer.pair.outgoing, 0).unwrap().map(|reply| reply.verdict)
}

/// Sends a message of `len` bytes that is said to lie in these pieces of the sender's regions,
/// or for none, with the request.
fn ask(peer: &mut Wild, qp: &Qp, list: &[ibv_sge], len: u64) {
    let far = far(peer.pair.slot);
    peer.directory.qp(far).state.store(State::Rts as u32, Ordering::Relaxed);
    // SAFETY: the list is shorter than the ring of data.
    unsafe {
        let to = peer.rings.data().cast::<ibv_sge>();
        core::ptr::copy_nonoverlapping(list.as_ptr(), to, list.len());
    }
    let place = if list.is_empty() { Place::Body } else { Place::Regions };
    let kinds = u32::from_le_bytes([0, WANTS_REPLY, place as u8, 1]);
    let parties = u64::from(qp.num) | u64::from(far) << 32;
    let generation = qp.responder.lock().generation.into();
    let n = list.len() as u64;
    let words = [u64::from(kinds) << 32, parties, generation, len << 32, 0, n, 0, 0];
    peer.rings.scribble_request(0, words);
}

/// A piece of a region that there is none of: whoever looks for it says so.
const NOWHERE: ibv_sge = ibv_sge { addr: 0, length: 1 << 16, lkey: 0 };

fn forget_receives(qp: &Qp) {
    let mut responder = qp.responder.lock();
    qp.rq.clear(&mut qp.rq.poster.lock(), &mut responder.consumer);
    responder.min_rnr_timer = 9;
}

#[test]
fn a_message_without_a_receive_request_is_not_fetched() {
    let (_process, mut peer, qp) = known(slot(22));
    forget_receives(&qp);
    assert_eq!(asked(&mut peer, &qp, &[NOWHERE], 1 << 16), Verdict::Rnr(9));
}

#[test]
fn an_unreliable_message_without_a_receive_request_is_not_fetched_but_dropped() {
    let process = Sleeper::new();
    let mut peer = Wild::of(slot(23), process.pid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_UC, far(slot(23)));
    peer.receive_from(&qp);
    forget_receives(&qp);
    assert_eq!(asked(&mut peer, &qp, &[NOWHERE], 1 << 16), Verdict::Silence);
}

/// Its sender could have a great deal fetched, again and again.
#[test]
fn an_unreliable_message_that_is_too_long_is_not_fetched_but_dropped() {
    let process = Sleeper::new();
    let mut peer = Wild::of(slot(25), process.pid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_UC, far(slot(25)));
    peer.receive_from(&qp);
    assert_eq!(asked(&mut peer, &qp, &[NOWHERE; 2], 2 << 16), Verdict::Silence);
}

#[test]
fn no_room_is_made_for_a_message_that_is_not_as_long_as_it_says() {
    let (_process, mut peer, qp) = known(slot(24));
    let refused = ibv_wc_status::IBV_WC_LOC_PROT_ERR;
    let verdict = asked(&mut peer, &qp, &[NOWHERE], 1 << 20);
    assert_eq!(verdict, Verdict::Refused(refused));
    assert_eq!(peer.drain.sides[0].buffer.capacity(), 0);
}

/// It may be a page that its process does not fill until it likes.
#[test]
fn a_message_that_has_to_be_fetched_holds_up_no_other_process() {
    let Some(page) = unfilled::Unfilled::new() else { return };
    let addr = page.addr();
    let (done, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut slow = Wild::of(slot(26), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(26)));
        slow.receive_from(&qp);
        slow.directory.tell(1, &Told { length: 4_096, addr, ..Told::default() });
        ask(&mut slow, &qp, &[ibv_sge { addr: 0, length: 4_096, lkey: 1 }], 4_096);
        let (_process, mut other, qp) = known(slot(27));
        ask(&mut other, &qp, &[], 4);
        slow.drain.add(Arc::clone(&other.pair));
        run(&mut slow);
        let _ = done.send((verdict(&slow), verdict(&other)));
        let mut errand = slow.drain.errand().unwrap();
        run(&mut slow);
        let is_there = errand.run();
        slow.drain.is_over(*errand, is_there);
        run(&mut slow);
        let _ = done.send((verdict(&slow), verdict(&other)));
    });
    let wait = || heard.recv_timeout(Duration::from_secs(60));
    let first = wait();
    page.fill();
    assert_eq!(first, Ok((None, Some(Verdict::Done))));
    assert_eq!(wait(), Ok((Some(Verdict::Done), Some(Verdict::Done))));
}

#[test]
fn memory_that_a_peer_reads_a_message_in_is_not_given_back() {
    let (_process, peer, qp) = met(slot(21));
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
    assert_eq!(dereg(), errno::EBUSY);
    peer.rings.reads.store(2, Ordering::Relaxed);
    assert!(is_free());
}

#[test]
fn processes_that_always_have_something_to_be_fetched_have_turns() {
    let bytes = vec![7_u8; 1 << 16].leak();
    let peers = [28, 29].map(|n| {
        let mut peer = Wild::of(slot(n), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(n)));
        peer.receive_from(&qp);
        let (length, addr) = (1 << 16, bytes.as_ptr().expose_provenance() as u64);
        peer.directory.tell(1, &Told { length, addr, ..Told::default() });
        ask(&mut peer, &qp, &[ibv_sge { addr: 0, length: 1 << 16, lkey: 1 }], 1 << 16);
        (peer, qp)
    });
    let [(mut one, _), (other, _)] = peers;
    one.drain.add(Arc::clone(&other.pair));
    let mut turns = Vec::new();
    for _ in 0..4 {
        run(&mut one);
        let errand = one.drain.errand().unwrap();
        turns.push(errand.pair().slot);
        // It has the next one to be fetched at once.
        let mut sides = one.drain.sides.iter_mut();
        let side = sides.find(|side| Arc::ptr_eq(&side.pair, errand.pair())).unwrap();
        side.fetch = Fetch::Wanted(errand);
        one.drain.wants = true;
    }
    assert_eq!(turns, [slot(28), slot(29), slot(28), slot(29)]);
}
