//! Long messages, which the receiver reads where they lie.

use super::*;

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
