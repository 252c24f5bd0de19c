//! Two messages of a few bytes in one entry of the ring.

use super::*;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::peers::process::ring::{
    Broken, EntryOp, HAS_IMM, JUDGE, PayloadLocation, RequestWriter, RingRequest, SOLICITED,
    WANTS_REPLY, is_request_at, read_request, reply_at,
};
use crate::queues::outcome::PeerReply;

/// The entry of two messages, of 16 bytes and 3.
fn halves() -> RingRequest {
    let (what, flags) = (EntryOp::Send, WANTS_REPLY);
    let (number, len, body) = (6, 16, [1, 2, 3, 4]);
    let mut request = RingRequest { what, flags, number, len, body, ..RingRequest::default() };
    request.join(3, true);
    request
}

/// Puts a request into a ring, and returns what is read of its entry.
fn read(request: &RingRequest) -> Result<RingRequest, Broken> {
    let rings: Mapped<Rings> = Mapped::create("test").unwrap();
    let mut requests = RequestWriter::default();
    requests.put(&rings, request, None);
    assert!(requests.publish(&rings));
    let mut read = RingRequest::default();
    assert!(read_request(&rings, 0, &mut read)?);
    Ok(read)
}

#[test]
fn an_entry_of_two_is_read_as_one_message_after_the_other() {
    let mut read = read(&halves()).unwrap();
    let said = |r: &RingRequest| (r.location, r.number, r.len, r.flags, [r.body[0], r.body[1]]);
    assert_eq!(said(&read), (PayloadLocation::Body, 6, 16, WANTS_REPLY, [1, 2]));
    assert!(!read.is_second() && read.go_on() && read.is_second());
    assert_eq!(said(&read), (PayloadLocation::Body, 7, 3, WANTS_REPLY | SOLICITED, [3, 4]));
    assert!(!read.go_on());
}

#[test]
fn malformed_halves_of_a_request_are_refused() {
    let halves = halves();
    let wrong = [
        RingRequest { what: EntryOp::Write, ..halves },
        RingRequest { what: EntryOp::Datagram, ..halves },
        RingRequest { flags: 0, ..halves },
        RingRequest { flags: WANTS_REPLY | HAS_IMM, ..halves },
        RingRequest { flags: WANTS_REPLY | JUDGE, ..halves },
        RingRequest { len: 0, ..halves },
        RingRequest { len: 17, ..halves },
        RingRequest { imm: 0, ..halves },
        RingRequest { imm: 17, ..halves },
        RingRequest { imm: 1 << 30 | 3, ..halves },
    ];
    for request in wrong {
        assert!(read(&request).is_err(), "{request:?}");
    }
}

#[test]
fn both_messages_of_an_entry_are_received_and_answered_as_one() {
    let (_process, mut peer, qp) = known(slot(30));
    let kinds = u32::from_le_bytes([0, WANTS_REPLY, PayloadLocation::Halves as u8, 1]);
    let parties = u64::from(qp.num) | u64::from(far(slot(30))) << 32;
    let generation = qp.responder.lock().generation.into();
    let words = [u64::from(kinds) << 32, parties, generation, 5 | 16 << 32, 1, 2, 3, 4];
    peer.rings.scribble_request(0, words);
    let mut deferred = DeferredWork::default();
    peer.progress.run(&crate::objects::device::default_device(), &mut deferred);
    deferred.run();
    let reply = reply_at(&peer.pair.outgoing, 0).unwrap().unwrap();
    assert_eq!((reply.verdict, reply.number), (PeerReply::Done, 1));
    assert_eq!(received(&qp), [16, 5]);
    assert_eq!(peer.pair.outgoing.requests_read.load(Ordering::Relaxed), 1);
}

/// The lengths of what a queue pair has received.
fn received(qp: &Arc<Qp>) -> Vec<u32> {
    // SAFETY: the queue is alive; zeroes are completions.
    unsafe {
        let mut wcs: [ibv_wc; 16] = core::mem::zeroed();
        let n = ibv_poll_cq((*qp.as_abi()).recv_cq, 16, wcs.as_mut_ptr());
        wcs[..n as usize].iter().map(|wc| wc.byte_len).collect()
    }
}

#[test]
fn short_messages_of_a_list_share_entries() {
    let (_process, peer, qp) = met(slot(31));
    let ring = &peer.pair.outgoing;
    let entries = || (0..100).take_while(|at| is_request_at(ring, *at)).count();
    let before = entries();
    let bytes = [7_u8; 32].to_vec().leak();
    // SAFETY: memory that stays, and a list of requests on a queue pair that is alive.
    unsafe {
        let pd = (*qp.as_abi()).pd;
        let mr = (crate::table().reg_mr)(pd, bytes.as_mut_ptr().cast(), bytes.len(), 1);
        let (addr, lkey) = (bytes.as_ptr() as u64, (*mr).lkey);
        let mut sge = [16, 16, 17, 16, 16].map(|length| ibv_sge { addr, length, lkey });
        let mut wrs: [ibv_send_wr; 5] = core::mem::zeroed();
        for (i, sge) in sge.iter_mut().enumerate().rev() {
            let next = wrs.get_mut(i + 1).map_or(null_mut(), core::ptr::from_mut);
            wrs[i].next = next;
            (wrs[i].sg_list, wrs[i].num_sge) = (sge, 1);
            wrs[i].opcode = ibv_wr_opcode::IBV_WR_SEND;
        }
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wrs[0], &mut null_mut()), 0);
    }
    assert_eq!(entries() - before, 3);
}

/// The thread that executes them stops now and then, and it stops between entries.
#[test]
fn no_message_of_an_entry_is_executed_twice() {
    let (_process, mut peer, qp) = known(slot(32));
    let parties = u64::from(qp.num) | u64::from(far(slot(32))) << 32;
    let generation = u64::from(qp.responder.lock().generation);
    let (mut number, entries) = (0, 601);
    for at in 0..entries {
        // The first one is alone.
        let (location, second) =
            if at == 0 { (PayloadLocation::Body, 0) } else { (PayloadLocation::Halves, 8) };
        let kinds = u32::from_le_bytes([0, WANTS_REPLY, location as u8, 1]);
        let numbered = generation | number << 32;
        let words = [u64::from(kinds) << 32, parties, numbered, second | 8 << 32, 1, 2, 3, 4];
        peer.rings.scribble_request(at, words);
        number += if at == 0 { 1 } else { 2 };
    }
    let mut deferred = DeferredWork::default();
    while peer.progress.run(&crate::objects::device::default_device(), &mut deferred) {}
    deferred.run();
    let replies = (0..).map_while(|at| reply_at(&peer.pair.outgoing, at).unwrap());
    let replies: Vec<_> = replies.collect();
    assert!(replies.iter().all(|reply| reply.verdict == PeerReply::Done), "{replies:?}");
    assert_eq!(u64::from(replies.last().unwrap().number) + 1, number);
    let lens = core::iter::repeat_with(|| received(&qp)).take_while(|lens| !lens.is_empty());
    assert_eq!(lens.flatten().count() as u64, number);
}
