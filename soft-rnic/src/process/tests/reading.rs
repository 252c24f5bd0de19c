//! Long messages, which the receiver reads where they lie.

use super::*;
use crate::process::ring::{Verdict, WANTS_REPLY, reply_at};

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

#[test]
fn a_message_without_a_receive_request_is_not_fetched() {
    let (_process, mut peer, qp) = met(slot(22));
    {
        let mut responder = qp.responder.lock();
        qp.rq.clear(&mut qp.rq.poster.lock(), &mut responder.consumer);
        responder.min_rnr_timer = 9;
    }
    // In regions that there are none of: whoever looks for them says so.
    peer.directory.qp(far(slot(22))).state.store(State::Rts as u32, Ordering::Relaxed);
    let kinds = u32::from_le_bytes([0, WANTS_REPLY, 2, 1]);
    let parties = u64::from(qp.num) | u64::from(far(slot(22))) << 32;
    let (generation, len) = (qp.responder.lock().generation, 1_u64 << 16);
    let words = [u64::from(kinds) << 32, parties, generation.into(), len << 32, 0, 1, 0, 0];
    peer.rings.scribble_request(0, words);
    let mut after = After::default();
    peer.drain.run(&crate::device::default_device(), &mut after);
    let reply = reply_at(&peer.pair.outgoing, 0).unwrap().unwrap();
    assert_eq!(reply.verdict, Verdict::Rnr(9));
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
