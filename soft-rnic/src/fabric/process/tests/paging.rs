//! On-demand memory of this process whose pages are slow to be paged in, or gone.

use std::sync::mpsc::channel;

use super::reading::{forget_receives, verdict};
use super::*;
use crate::memory::mr_table::ON_DEMAND;
use crate::memory::published::PublishedRegion;
use crate::peers::process::ring::{EntryOp, JUDGE, PayloadLocation, WANTS_REPLY, reply_at};
use crate::peers::process::serving::Serving;
use crate::peers::process::side::DeferredFetch;
use crate::queues::outcome::{PeerReply, WaitCause};
use crate::testing::unfilled::Unfilled;

const PAGE: usize = 4_096;
const REMOTE: u32 = 0xe;

/// A peer, and a queue pair to it without receive requests.
fn alone(n: u32, kind: ibv_qp_type) -> (Wild, Arc<Qp>) {
    let peer = Wild::at_slot(slot(n), rustix::process::getpid());
    let qp = connected_to(kind, far(slot(n)));
    peer.receive_from(&qp);
    forget_receives(&qp);
    (peer, qp)
}

/// Registers memory on demand.
fn on_demand(qp: &Arc<Qp>, addr: u64, len: usize) -> u32 {
    // SAFETY: memory that may be anything; the domain is alive.
    unsafe {
        let (pd, access) = ((*qp.as_abi()).pd, (1 | REMOTE | ON_DEMAND) as i32);
        let mr = (crate::table().reg_mr)(pd, addr as *mut _, len, access);
        mr.as_ref().unwrap().lkey
    }
}

/// Posts a receive request into on-demand memory.
fn receive(qp: &Arc<Qp>, wr_id: u64, addr: u64, len: usize) {
    let mut sge = ibv_sge { addr, length: len as u32, lkey: on_demand(qp, addr, len) };
    let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
    // SAFETY: the queue pair is alive; the region is on demand.
    assert_eq!(unsafe { ibv_post_recv(qp.as_abi(), &mut wr, &mut null_mut()) }, 0);
}

/// The peer's next request, of its queue pair's connection.
fn ask(
    peer: &mut Wild,
    qp: &Qp,
    kinds: (EntryOp, u8, PayloadLocation),
    len: usize,
    body: [u64; 4],
) {
    let far = far(peer.pair.slot);
    peer.directory.qp(far).state.store(QueuePairState::Rts as u32, Ordering::Relaxed);
    let kinds = u32::from_le_bytes([kinds.0 as u8, kinds.1 | WANTS_REPLY, kinds.2 as u8, 1]);
    let parties = u64::from(qp.num) | u64::from(far) << 32;
    let generation = u64::from(qp.responder.lock().generation) | u64::from(peer.index) << 32;
    let [a, b, c, d] = body;
    let words = [u64::from(kinds) << 32, parties, generation, (len as u64) << 32, a, b, c, d];
    peer.rings.scribble_request(peer.index, words);
    peer.index += 1;
}

/// A message of eight bytes, each of them this one.
fn send(peer: &mut Wild, qp: &Qp, byte: u8) {
    let word = u64::from_ne_bytes([byte; 8]);
    ask(peer, qp, (EntryOp::Send, 0, PayloadLocation::Body), 8, [word, 0, 0, 0]);
}

fn run(peer: &mut Wild) {
    super::reading::run(peer);
}

/// Returns the work that has to be done before the request proceeds.
fn left(peer: &mut Wild) -> Option<Box<DeferredFetch>> {
    run(peer);
    assert_eq!(peer.pair.outgoing.requests_read.load(Ordering::Relaxed), 0);
    peer.progress.next_fetch(|_| true)
}

fn verdicts(peer: &Wild, n: u32) -> Vec<PeerReply> {
    (0..n).map_while(|nth| reply_at(&peer.pair.outgoing, nth).unwrap()).map(|r| r.verdict).collect()
}

/// The completions of receive requests.
fn received(qp: &Arc<Qp>) -> Vec<(u64, ibv_wc_status)> {
    // SAFETY: the queue is alive; zeroes are completions.
    unsafe {
        let mut wcs: [ibv_wc; 16] = core::mem::zeroed();
        let n = ibv_poll_cq((*qp.as_abi()).recv_cq, 16, wcs.as_mut_ptr());
        wcs[..n as usize].iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

fn bytes(addr: u64, len: usize) -> Vec<u8> {
    let at = core::ptr::with_exposed_provenance::<u8>(addr as usize);
    // SAFETY: memory that stays, and that nothing writes to now.
    unsafe { core::slice::from_raw_parts(at, len) }.to_vec()
}

/// Memory that stays.
fn memory(len: usize) -> u64 {
    vec![0_u8; len].leak().as_mut_ptr().expose_provenance() as u64
}

const PROT: ibv_wc_status = ibv_wc_status::IBV_WC_LOC_PROT_ERR;

/// The requests of one queue pair keep their order.
#[test]
fn other_processes_are_served_while_a_page_is_not_there() {
    let Some(page) = Unfilled::new() else { return };
    let (report, reports) = channel();
    let addr = page.addr();
    std::thread::spawn(move || {
        let (mut peer, qp) = alone(80, ibv_qp_type::IBV_QPT_RC);
        let (mut other, other_qp) = alone(81, ibv_qp_type::IBV_QPT_RC);
        peer.progress.add(Arc::clone(&other.pair));
        receive(&qp, 1, addr, 8);
        receive(&qp, 2, memory(PAGE), 8);
        (0..2).for_each(|nth| receive(&other_qp, nth, memory(PAGE), 8));
        (7..9).for_each(|byte| send(&mut peer, &qp, byte));
        send(&mut other, &other_qp, 1);
        run(&mut peer);
        // Each of them needs pages: the one's stay away.
        let mut fetches = [(); 2].map(|()| {
            let fetch = peer.progress.next_fetch(|_| true).unwrap();
            run(&mut peer);
            fetch
        });
        fetches.sort_by_key(|fetch| fetch.pair().slot == other.pair.slot);
        let [mut slow, mut quick] = fetches;
        let waiter = std::thread::spawn(move || (slow.run(), slow));
        let is_there = quick.run();
        peer.progress.is_over(*quick, is_there);
        run(&mut peer);
        let _ = report.send((verdicts(&other, 2), verdicts(&peer, 2), received(&qp)));
        let (is_there, slow) = waiter.join().unwrap();
        peer.progress.is_over(*slow, is_there);
        run(&mut peer);
        let mut next = peer.progress.next_fetch(|_| true).unwrap();
        assert!(next.run());
        peer.progress.is_over(*next, true);
        run(&mut peer);
        let _ = report.send((verdicts(&other, 2), verdicts(&peer, 2), received(&qp)));
    });
    let within = || reports.recv_timeout(Duration::from_secs(60)).ok();
    let first = within();
    page.fill();
    let done = PeerReply::Done;
    assert_eq!(first, Some((vec![done], vec![], vec![])));
    let both = vec![(1, SUCCESS), (2, SUCCESS)];
    assert_eq!(within(), Some((vec![done], vec![done; 2], both)));
    assert_eq!(bytes(addr, 9), [[7; 8].as_slice(), &[0]].concat());
}

#[test]
fn a_message_waits_until_its_pages_are_there_or_gone() {
    for (is_there, kind) in [true, false]
        .into_iter()
        .flat_map(|is| [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_UC].map(|kind| (is, kind)))
    {
        let (mut peer, qp) = alone(82, kind);
        let addr = memory(PAGE);
        receive(&qp, 3, addr, 8);
        send(&mut peer, &qp, 9);
        let fetch = left(&mut peer).expect("its pages are asked for");
        assert_eq!((verdict(&peer), received(&qp)), (None, vec![]), "nothing has happened yet");
        peer.progress.is_over(*fetch, is_there);
        run(&mut peer);
        let (reply, status) = match is_there {
            true => (PeerReply::Done, SUCCESS),
            false => (PeerReply::Refused(WcReason::PeerReceiveBuffer), PROT),
        };
        assert_eq!((verdict(&peer), received(&qp)), (Some(reply), vec![(3, status)]));
        assert_eq!(bytes(addr, 8), [if is_there { 9 } else { 0 }; 8]);
        crate::objects::device::default_device().bury(&peer.pair);
    }
}

/// The pages that were brought for one receive request say nothing of another one.
#[test]
fn another_receive_request_has_pages_of_its_own() {
    let (mut peer, qp) = alone(83, ibv_qp_type::IBV_QPT_RC);
    receive(&qp, 1, memory(PAGE), 8);
    send(&mut peer, &qp, 9);
    let fetch = left(&mut peer).unwrap();
    forget_receives(&qp);
    let addr = memory(PAGE);
    receive(&qp, 2, addr, 8);
    peer.progress.is_over(*fetch, true);
    let fetch = left(&mut peer).expect("the pages of the other one");
    peer.progress.is_over(*fetch, true);
    run(&mut peer);
    assert_eq!((received(&qp), bytes(addr, 8)), (vec![(2, SUCCESS)], vec![9; 8]));
}

/// Its pages are as many as its sender likes.
#[test]
fn a_judged_operation_leaves_its_pages_to_another_thread() {
    for (what, is_there) in [EntryOp::Write, EntryOp::Read, EntryOp::FetchAdd, EntryOp::AtomicWrite]
        .into_iter()
        .flat_map(|what| [true, false].map(|is| (what, is)))
    {
        let is_word = matches!(what, EntryOp::FetchAdd | EntryOp::AtomicWrite);
        let len = if is_word { 8 } else { 3 * PAGE };
        let (mut peer, qp) = alone(84, ibv_qp_type::IBV_QPT_RC);
        let addr = memory(4 * PAGE).next_multiple_of(8);
        let key = on_demand(&qp, addr, 3 * PAGE);
        let body = [addr, 5, 0, key.into()];
        ask(&mut peer, &qp, (what, JUDGE, PayloadLocation::Body), len, body);
        let fetch = left(&mut peer).expect("its pages are asked for");
        assert_eq!(verdict(&peer), None);
        peer.progress.is_over(*fetch, is_there);
        run(&mut peer);
        let reply = match is_there {
            false => PeerReply::Refused(WcReason::PeerGone),
            true if is_word => PeerReply::Done,
            true => PeerReply::Again,
        };
        assert_eq!(verdict(&peer), Some(reply), "{what:?}");
        assert_eq!(bytes(addr, 1), [if is_word && is_there { 5 } else { 0 }]);
        crate::objects::device::default_device().bury(&peer.pair);
    }
}

/// Pages are brought first, and are still known to be there when the data are.
#[test]
fn a_fetch_into_on_demand_memory_waits_for_pages_and_data() {
    const LEN: usize = 1 << 16;
    let (mut peer, qp) = alone(85, ibv_qp_type::IBV_QPT_RC);
    let (addr, content) = (memory(LEN), vec![6_u8; LEN].leak());
    receive(&qp, 1, addr, LEN);
    let from = content.as_ptr().expose_provenance() as u64;
    let published =
        PublishedRegion { length: LEN as u64, addr: from, ..PublishedRegion::default() };
    peer.directory.publish(1, &published);
    let sge = ibv_sge { addr: 0, length: LEN as u32, lkey: 1 };
    // SAFETY: the entry is shorter than the ring of data.
    unsafe { peer.rings.data().cast::<ibv_sge>().write(sge) };
    ask(&mut peer, &qp, (EntryOp::Send, 0, PayloadLocation::Regions), LEN, [0, 1, 0, 0]);
    for nth in 0..2 {
        let mut fetch = left(&mut peer).unwrap_or_else(|| panic!("{nth}"));
        assert_eq!(fetch.pages.is_some(), nth == 0);
        assert!(fetch.run());
        peer.progress.is_over(*fetch, true);
    }
    run(&mut peer);
    assert_eq!((verdict(&peer), received(&qp)), (Some(PeerReply::Done), vec![(1, SUCCESS)]));
    assert!(bytes(addr, LEN) == *content);
}

/// Its ring goes with it: nothing is put off.
#[test]
fn what_a_process_has_left_is_taken_at_once() {
    let (mut peer, qp) = alone(86, ibv_qp_type::IBV_QPT_RC);
    let addr = memory(PAGE);
    receive(&qp, 1, addr, 8);
    send(&mut peer, &qp, 9);
    let (pair, mut deferred) = (Arc::clone(&peer.pair), DeferredWork::default());
    peer.progress.run_out(&crate::objects::device::default_device(), &pair, &mut deferred);
    deferred.run();
    assert_eq!((received(&qp), bytes(addr, 8)), (vec![(1, SUCCESS)], vec![9; 8]));
}

/// Posts a signalled SEND out of on-demand memory.
fn post_send_from(qp: &Arc<Qp>, addr: u64) {
    let mut sge = ibv_sge { addr, length: 64, lkey: on_demand(qp, addr, PAGE) };
    // SAFETY: a request on a queue pair that is alive.
    unsafe {
        let mut wr: ibv_send_wr = core::mem::zeroed();
        (wr.opcode, wr.sg_list, wr.num_sge) = (ibv_wr_opcode::IBV_WR_SEND, &mut sge, 1);
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
    }
}

/// A peer that takes what a queue pair sends.
fn sender(n: u32) -> (Wild, Arc<Qp>) {
    let (peer, qp) = alone(n, ibv_qp_type::IBV_QPT_RC);
    peer.known();
    (peer, qp)
}

#[test]
fn replies_are_taken_while_a_poster_waits_for_a_page_of_its_own() {
    let Some(page) = Unfilled::new() else { return };
    let (report, reports) = channel();
    let addr = page.addr();
    std::thread::spawn(move || {
        let (mut peer, qp) = sender(87);
        post_sends(&qp, 1);
        let poster = Arc::clone(&qp);
        let poster = std::thread::spawn(move || post_send_from(&poster, addr));
        while !qp.is_in_blocking_section() {
            host::thread::yield_now();
        }
        peer.acknowledge(&qp, 0);
        run(&mut peer);
        let _ = report.send(statuses(&qp));
        poster.join().unwrap();
        run(&mut peer);
        let _ = report.send(statuses(&qp));
    });
    let within = || reports.recv_timeout(Duration::from_secs(60)).ok();
    let first = within();
    page.fill();
    assert_eq!(first, Some(vec![]), "the reply is for a queue that is held");
    assert_eq!(within(), Some(vec![SUCCESS]));
}

#[test]
fn a_serving_thread_leaves_a_request_that_waits_for_pages() {
    let Some(page) = Unfilled::new() else { return };
    let (report, reports) = channel();
    let addr = page.addr();
    std::thread::spawn(move || {
        let (mut peer, qp) = sender(88);
        let token = crate::objects::device::default_device().arm(qp.num, None);
        qp.sq.lock().requester.waits = Some((WaitCause::Delay, token));
        post_send_from(&qp, addr);
        let mut deferred = DeferredWork::default();
        let serving = Serving::begin();
        {
            let mut sq = qp.sq.lock();
            sq.requester.waits = None;
            qp.run_pending(&mut sq, &mut deferred, false);
        }
        deferred.run();
        let _ = report.send(statuses(&qp));
        drop(serving);
        while qp.sq.lock().remote.as_ref().is_none_or(|remote| remote.sent == 0) {
            host::thread::yield_now();
        }
        peer.acknowledge(&qp, 0);
        run(&mut peer);
        let _ = report.send(statuses(&qp));
    });
    let within = || reports.recv_timeout(Duration::from_secs(60)).ok();
    let first = within();
    page.fill();
    assert_eq!((first, within()), (Some(vec![]), Some(vec![SUCCESS])));
}
