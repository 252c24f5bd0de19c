//! Long messages that arrive in parts.

use super::reading::{ask, forget_receives, run, verdict};
use super::*;
use crate::memory::published::PublishedRegion;
use crate::peers::process::side::PART;
use crate::queues::outcome::PeerReply;

const LEN: usize = 3 * PART + 1_234;

fn content() -> &'static [u8] {
    (0..LEN).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect::<Vec<_>>().leak()
}

/// A message of two pieces, which lie in no memory file, to a queue pair that has one receive
/// request; its memory.
fn sent(peer: &mut Wild, qp: &Arc<Qp>) -> &'static [u8] {
    peer.receive_from(qp);
    let bytes = content();
    let (length, addr) = (LEN as u64, bytes.as_ptr().expose_provenance() as u64);
    peer.directory.publish(1, &PublishedRegion { length, addr, ..PublishedRegion::default() });
    let first = PART + 77;
    let piece =
        |from: usize, to: usize| ibv_sge { addr: from as u64, length: (to - from) as u32, lkey: 1 };
    ask(peer, qp, &[piece(0, first), piece(first, LEN)], LEN as u64);
    bytes
}

/// Posts a receive request of two pieces of a buffer that nothing else uses.
fn receive(qp: &Arc<Qp>) -> *const u8 {
    let verbs = crate::table();
    let buffer = vec![0_u8; LEN + 5].leak();
    // SAFETY: memory that stays, on a queue pair that is alive.
    unsafe {
        let mr = (verbs.reg_mr)((*qp.as_abi()).pd, buffer.as_mut_ptr().cast(), buffer.len(), 1);
        let (addr, lkey, first) = (buffer.as_ptr() as u64, (*mr).lkey, 2 * PART - 99);
        let piece = |from: usize, to: usize| ibv_sge {
            addr: addr + from as u64,
            length: (to - from) as u32,
            lkey,
        };
        let mut list = [piece(0, first), piece(first, buffer.len())];
        let sg_list = list.as_mut_ptr();
        let mut wr = ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list, num_sge: 2 };
        assert_eq!(ibv_post_recv(qp.as_abi(), &mut wr, &mut null_mut()), 0);
    }
    buffer.as_ptr()
}

/// # Safety
/// The buffer of a [`receive`] request, which nothing writes to now.
unsafe fn received(buffer: *const u8) -> &'static [u8] {
    // SAFETY: `buffer` is that of a `receive` request, of `LEN + 5` bytes, and nothing writes to it
    // now: this function's contract (see # Safety). `receive` has leaked it.
    unsafe { core::slice::from_raw_parts(buffer, LEN + 5) }
}

/// Has the next part fetched and placed; false if there is none.
fn step(peer: &mut Wild) -> bool {
    run(peer);
    let Some(mut fetch) = peer.progress.next_fetch(|_| true) else { return false };
    assert!(fetch.run());
    assert!(fetch.bytes.capacity() <= PART, "{} bytes for a part", fetch.bytes.capacity());
    peer.progress.is_over(*fetch, true);
    true
}

#[test]
fn a_long_message_arrives_in_parts_and_completes_with_the_last() {
    let mut peer = Wild::at_slot(slot(76), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(76)));
    forget_receives(&qp);
    let buffer = receive(&qp);
    let bytes = sent(&mut peer, &qp);
    let mut parts = 0;
    while step(&mut peer) {
        assert_eq!((verdict(&peer), statuses(&qp)), (None, vec![]));
        parts += 1;
    }
    assert_eq!((parts, verdict(&peer)), (LEN.div_ceil(PART), Some(PeerReply::Done)));
    assert_eq!(statuses(&qp), [ibv_wc_status::IBV_WC_SUCCESS]);
    // SAFETY: the message is there.
    let got = unsafe { received(buffer) };
    assert!(got[..LEN] == *bytes && got[LEN..] == [0; 5]);
}

#[test]
fn a_message_begins_anew_if_another_receive_request_is_there() {
    let mut peer = Wild::at_slot(slot(77), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(77)));
    forget_receives(&qp);
    receive(&qp);
    let bytes = sent(&mut peer, &qp);
    // Two parts are placed.
    (0..3).for_each(|_| assert!(step(&mut peer)));
    forget_receives(&qp);
    let buffer = receive(&qp);
    while step(&mut peer) {}
    assert_eq!(verdict(&peer), Some(PeerReply::Done));
    // SAFETY: the message is there.
    assert!(unsafe { received(buffer) }[..LEN] == *bytes);
}

/// The request lies in memory of its sender.
#[test]
fn a_length_changed_during_transfer_harms_only_its_message() {
    for len in [1_u64, PART as u64 + 1, LEN as u64 - 1] {
        let mut peer = Wild::at_slot(slot(78), rustix::process::getpid());
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(78)));
        forget_receives(&qp);
        let buffer = receive(&qp);
        sent(&mut peer, &qp);
        (0..3).for_each(|_| assert!(step(&mut peer)));
        ask(&mut peer, &qp, &[ibv_sge { addr: 0, length: len as u32, lkey: 1 }], len);
        while step(&mut peer) {}
        assert!(verdict(&peer).is_some(), "it ends");
        // SAFETY: nothing is under way.
        assert_eq!(unsafe { received(buffer) }[LEN..], [0; 5]);
        crate::objects::device::default_device().bury(&peer.pair);
    }
}

/// Any sender's message may take the receive request at the front.
#[test]
fn a_message_of_an_unreliable_connection_comes_as_a_whole() {
    let mut peer = Wild::at_slot(slot(79), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_UC, far(slot(79)));
    forget_receives(&qp);
    let buffer = receive(&qp);
    let bytes = sent(&mut peer, &qp);
    run(&mut peer);
    let mut fetch = peer.progress.next_fetch(|_| true).unwrap();
    assert_eq!(fetch.part, (0, LEN));
    assert!(fetch.run());
    // SAFETY: nothing is under way.
    assert!(unsafe { received(buffer) }[..LEN].iter().all(|byte| *byte == 0));
    peer.progress.is_over(*fetch, true);
    run(&mut peer);
    assert_eq!(statuses(&qp), [ibv_wc_status::IBV_WC_SUCCESS]);
    // SAFETY: the message is there.
    assert!(unsafe { received(buffer) }[..LEN] == *bytes);
}
