//! Memory that another process can access is not copied by plain loads and stores.

use super::*;
use crate::memory::span::plain;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::peers::process::ring::{EntryOp, PayloadLocation, WANTS_REPLY, reply_at};
use crate::queues::outcome::PeerReply;

/// Only this process accesses it.
const PRIVATE: i32 = 1;

/// A peer, and a queue pair to it whose receive buffers no peer may access.
fn private(n: u32) -> (Wild, Arc<Qp>) {
    let peer = Wild::at_slot(slot(n), rustix::process::getpid());
    let qp = connected_with(ibv_qp_type::IBV_QPT_RC, far(slot(n)), PRIVATE);
    peer.known();
    peer.receive_from(&qp);
    (peer, qp)
}

/// Takes a message of 100 bytes that lies there; the bytes that were copied plainly.
fn taken(peer: &mut Wild, qp: &Qp, location: PayloadLocation, pieces: u64) -> usize {
    let kinds = u32::from_le_bytes([EntryOp::Send as u8, WANTS_REPLY, location as u8, 1]);
    let parties = u64::from(qp.num) | u64::from(far(peer.pair.slot)) << 32;
    let generation = qp.responder.lock().generation.into();
    let words = [u64::from(kinds) << 32, parties, generation, 100 << 32, 0, pieces, 0, 0];
    peer.rings.scribble_request(0, words);
    plain::bytes();
    let mut deferred = DeferredWork::default();
    peer.progress.run(&crate::objects::device::default_device(), &mut deferred);
    deferred.run();
    let reply = reply_at(&peer.pair.outgoing, 0).unwrap().unwrap();
    assert_eq!(reply.verdict, PeerReply::Done);
    plain::bytes()
}

#[test]
fn a_message_in_its_senders_ring_is_not_copied_plainly() {
    let (mut peer, qp) = private(34);
    assert_eq!(taken(&mut peer, &qp, PayloadLocation::Data, 0), 0);
}

#[test]
fn a_message_in_its_senders_regions_is_not_copied_plainly() {
    let (mut peer, qp) = private(35);
    let file = windows::memory(4096);
    peer.directory.publish(1, &windows::whole(&file));
    let sge = ibv_sge { addr: 0, length: 100, lkey: 1 };
    // SAFETY: the entry is shorter than the ring of data.
    unsafe { peer.rings.data().cast::<ibv_sge>().write(sge) };
    assert_eq!(taken(&mut peer, &qp, PayloadLocation::Regions, 1), 0);
}

/// The bytes that are copied plainly when `len` are posted, out of a region with these flags.
fn posted(qp: &Arc<Qp>, opcode: ibv_wr_opcode, len: u32, access: i32) -> usize {
    let from = vec![7_u8; 4_096].leak();
    // SAFETY: memory that stays; the queue pair is alive.
    let mr = unsafe {
        let pd = (*qp.as_abi()).pd;
        (crate::table().reg_mr)(pd, from.as_mut_ptr().cast(), from.len(), access)
    };
    posted_from(qp, opcode, len, (mr, from.as_ptr() as u64))
}

/// [`posted`] out of this region, from this address on.
fn posted_from(
    qp: &Arc<Qp>,
    opcode: ibv_wr_opcode,
    len: u32,
    (mr, addr): (*mut ibv_mr, u64),
) -> usize {
    plain::bytes();
    // SAFETY: a request on a queue pair that is alive, as the region is.
    unsafe {
        let mut sge = ibv_sge { addr, length: len, lkey: (*mr).lkey };
        let mut wr: ibv_send_wr = core::mem::zeroed();
        (wr.opcode, wr.sg_list, wr.num_sge) = (opcode, &mut sge, 1);
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
    }
    plain::bytes()
}

#[test]
fn what_a_write_with_immediate_sends_is_not_copied_plainly() {
    let (_peer, qp) = private(36);
    for len in [16, 40, 4_000] {
        let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
        assert_eq!(posted(&qp, write, len, PRIVATE), 0, "{len} bytes");
    }
}

#[test]
fn memory_open_to_peers_is_not_copied_plainly() {
    let (_peer, qp) = private(37);
    let send = ibv_wr_opcode::IBV_WR_SEND;
    // What is the device's while it is posted may be.
    assert_eq!(posted(&qp, send, 16, PRIVATE), 16);
    for access in [3, 5] {
        assert_eq!(posted(&qp, send, 16, access), 0, "access {access}");
    }
}

/// Another region of the same memory may be open to peers, and the program copies to it at any time.
#[test]
fn device_memory_is_never_copied_plainly() {
    use crate::objects::dm::{alloc_dm, reg_dm_mr};
    let (_peer, qp) = private(48);
    // SAFETY: the verbs are used as their manual pages say; nothing is taken down again.
    let mr = unsafe {
        let pd = (*qp.as_abi()).pd;
        let mut attr = ibv_alloc_dm_attr { length: 4_096, log_align_req: 0, comp_mask: 0 };
        let dm = alloc_dm((*pd).context, &mut attr);
        let access = PRIVATE as u32 | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
        reg_dm_mr(pd, dm, 0, 4_096, access)
    };
    for len in [16, 40, 4_000] {
        let send = ibv_wr_opcode::IBV_WR_SEND;
        assert_eq!(posted_from(&qp, send, len, (mr, 0)), 0, "{len} bytes");
    }
}
