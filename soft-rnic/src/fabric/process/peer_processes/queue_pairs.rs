//! Queue pairs that other processes reach: what is published of one, and which process it meets.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, ResponderState, Sq};
use crate::queues::outcome::WaitCause;
use crate::queues::qp_state::{QpTransport, QueuePairState};

use crate::peers::process::directory::{ProcessDirectory, QpEntry, slot_of};
use crate::peers::process::peer_not_found;
use crate::peers::process::remote::RemotePeer;

impl Qp {
    /// Publishes a new queue pair.
    pub(crate) fn publish_qp(&self) {
        let Some(entry) = self.entry() else { return };
        entry.transport.store(self.transport.far_end() as u32, Ordering::Relaxed);
        entry.pd.store(self.pd.id, Ordering::Relaxed);
        let xrcd = self.target.as_ref().map_or(0, |target| target.xrcd.domain.id);
        entry.xrcd.store(xrcd, Ordering::Relaxed);
        if let Some(peers) = &self.pd.context.device.peers {
            peers.use_entry(self.num);
        }
        self.publish_state();
    }

    /// It is connected anew; both locks are held.
    pub(crate) fn connect(&self, sq: &mut Sq, responder: &mut ResponderState) {
        responder.generation = responder.generation.wrapping_add(1).max(1);
        responder.number = 0;
        let device = &self.pd.context.device;
        let Some(peers) = &device.peers else { return };
        let to = sq.requester.dest_qpn;
        let is_here = sq.requester.reaches_us && device.loops_by_memory();
        let foreign = self.transport != QpTransport::Ud && is_here && peers.is_foreign(to);
        sq.remote = foreign.then(|| Box::new(RemotePeer::new(to, responder.generation as u8)));
        if let Some(entry) = self.entry() {
            // Others find it when the state is published.
            entry.psn.store(responder.psn, Ordering::Relaxed);
            entry.generation.store(responder.generation, Ordering::Relaxed);
        }
    }

    /// Publishes what others may do with it; both locks are held.
    pub(crate) fn publish_connection(&self, responder: &ResponderState) {
        let Some(entry) = self.entry() else { return };
        entry.dest_qpn.store(responder.dest_qpn, Ordering::Relaxed);
        entry.access.store(responder.access, Ordering::Relaxed);
        entry.dest_rd_atomic.store(responder.max_dest_rd_atomic.into(), Ordering::Relaxed);
    }

    /// Meets the process that a transition names, if it names one.
    pub(crate) fn meet_for(&self, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        let device = &self.pd.context.device;
        let Some(peers) = &device.peers else { return Ok(()) };
        let to_rtr = mask & ibv_qp_attr_mask::IBV_QP_STATE.0 != 0
            && attr.qp_state == ibv_qp_state::IBV_QPS_RTR;
        if to_rtr && self.transport == QpTransport::Ud {
            // Any process may send to it.
            return device.start_progress_thread();
        }
        // SAFETY: bytes, whichever member was written.
        let gid = unsafe { attr.ah_attr.grh.dgid.raw };
        let is_here = device.loops_by_memory()
            && (mask & ibv_qp_attr_mask::IBV_QP_AV.0 == 0 || gid == device.gid());
        let named = is_here && mask & ibv_qp_attr_mask::IBV_QP_DEST_QPN.0 != 0;
        if named && peers.is_foreign(attr.dest_qp_num) && attr.dest_qp_num <= 0x00ff_ffff {
            let slot = slot_of(attr.dest_qp_num);
            // A process may not have answered our introduction yet.
            if !device.meet(slot)? && peers.rendezvous.lock().awaits(slot).is_none() {
                peer_not_found::note_absent(slot);
            }
        }
        Ok(())
    }

    /// Publishes the state of this queue pair.
    pub(crate) fn publish_state(&self) {
        let Some(entry) = self.entry() else { return };
        loop {
            let state = self.state();
            entry.state.store(state as u32, Ordering::SeqCst);
            // Another thread may have published an older state since: the last one looks again.
            if self.state() == state {
                return;
            }
        }
    }

    /// Returns the entry in which others look it up.
    pub(crate) fn entry(&self) -> Option<&QpEntry> {
        self.pd.context.device.peers.as_ref()?.entry(self.num)
    }

    /// The process that this queue pair's peer is in has been met, or is not there.
    pub(crate) fn met(self: &Arc<Qp>, is_there: bool, deferred: &mut DeferredWork) {
        let mut sq = self.sq.lock();
        if !matches!(sq.requester.waits, Some((WaitCause::Meeting, _))) {
            return;
        }
        sq.requester.waits = None;
        sq.requester.peer_not_found = !is_there;
        self.run_pending(&mut sq, deferred, false);
    }

    /// Meets the process that the head of the send queue is for.
    pub(crate) fn go_and_meet(self: &Arc<Qp>, slot: u32, deferred: &mut DeferredWork) {
        let device = &self.pd.context.device;
        let is_there = if self.transport.is_reliable() {
            device.meet(slot) == Ok(true)
        } else {
            device.meet_with_backoff(slot)
        };
        self.met(is_there, deferred);
    }
}

/// Reports whether a queue pair in this published state receives.
fn receives(state: u32) -> bool {
    [QueuePairState::Rtr, QueuePairState::Rts, QueuePairState::Sqd, QueuePairState::Sqe]
        .iter()
        .any(|s| *s as u32 == state)
}

impl ProcessDirectory {
    /// The queue pair with a number, if it receives now what `from` sends.
    pub(crate) fn receiver(&self, qpn: u32, transport: u32, from: u32) -> Option<&QpEntry> {
        let entry = self.qp(qpn);
        // Acquire: the rest was published before the state.
        let open = receives(entry.state.load(Ordering::Acquire));
        let same = entry.transport.load(Ordering::Relaxed) == transport;
        let ours = entry.dest_qpn.load(Ordering::Relaxed) == from;
        // An unreliable connection accepts any sender.
        let takes = ours || transport == crate::queues::qp_state::QpTransport::Uc as u32;
        (open && same && takes).then_some(entry)
    }
}
