//! Operations on another process's memory, carried out by the requester.
//!
//! It looks up whether the target permits them, and says meanwhile that it is inside: a
//! process that takes a region, a permission or a queue pair away waits until it has left.
//! A request that is not permitted is left to the target, so that only one place determines
//! statuses and events.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;

use crate::engine::execution::Execution;
use crate::engine::responder::begin::permits;
use crate::engine::responder::{on_demand, place};
use crate::limits::LONG;
use crate::memory::attach::{AttachDirection, attach};
use crate::memory::mr_table::ON_DEMAND;
use crate::memory::on_demand::bring;
use crate::memory::published::PublishedRegion;
use crate::memory::span::Spans;
use crate::objects::state::Qp;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::region::MappedWindow;
use crate::peers::process::regions::PeerRegion;
use crate::peers::process::remote::RemotePeer;
use crate::peers::process::serving::serves;
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, Wqe, WqeRef};
use crate::reason::WcReason;

use super::out::OutRing;

/// The result of an attempt to carry out an operation on memory.
pub(super) enum AccessAttempt {
    Done,
    /// The target has to say what is wrong.
    Judge,
    /// Not by this thread: others rely on it, and the memory is attached to.
    Later,
    Ended(WqeOutcome),
}

impl Qp {
    /// Carries an operation on the peer's memory out, if it is permitted.
    pub(super) fn one_sided<const XRC: bool>(
        &self,
        requester: &mut RequesterState,
        local: &Spans<'_>,
        remote: &mut RemotePeer,
        out: &mut OutRing<'_>,
        execution: &mut Execution<'_>,
        request: &WqeRef<'_>,
    ) -> AccessAttempt {
        // Others of this process may send while we copy.
        out.release();
        requester.started = true;
        let pair = out.pair;
        if pair.has_died() {
            return AccessAttempt::Ended(self.lost(requester, request.len()));
        }
        let Some(own) = self.entry() else { return AccessAttempt::Judge };
        let _inside = own.enter(pair.spares_barriers);
        let to = requester.dest_qpn;
        let Some(entry) = pair.theirs.receiver(to, self.transport as u32, self.num) else {
            return self.unheard(requester, remote, request);
        };
        let is_it = entry.generation.load(Ordering::Relaxed) == remote.generation;
        if self.transport.is_reliable() && !is_it {
            return self.unheard(requester, remote, request);
        }
        let (rights, reads) = (&entry.access, &entry.dest_rd_atomic);
        let (rights, reads) = (rights.load(Ordering::Relaxed), reads.load(Ordering::Relaxed));
        let op = request.wqe.op;
        if !permits(rights, reads, op, (request.wqe.remote_addr, request.len())) {
            return AccessAttempt::Judge;
        }
        let found = match XRC {
            false => Some(entry.pd.load(Ordering::Relaxed)),
            true => pair.theirs.pd_of_srq(request.srqn(), entry.xrcd.load(Ordering::Relaxed)),
        };
        let Some(pd) = found else { return AccessAttempt::Judge };
        let len = request.len();
        if len == 0 {
            return AccessAttempt::Done;
        }
        let asked = (pd, to);
        let found = remote.region(pair, asked, request.wqe, op.remote_access(), len);
        let Some((region, offset)) = found else { return AccessAttempt::Judge };
        if len >= LONG as u64 {
            // Others may complete, and arm, while we copy.
            execution.writer.release();
        }
        let (local, may_be_gone) = (local.as_slice(), local.on_demand);
        let gone = AccessAttempt::Ended(WqeOutcome::Failed(WcReason::LocalGone));
        if let Some(there) = region.window.as_ref().and_then(|window| window.at(offset, len)) {
            if op.is_word() && !there.ptr().addr().is_multiple_of(8) {
                return AccessAttempt::Judge;
            }
            // SAFETY: both were checked, and their owner waits until we have left;
            // programs access them atomically only.
            let done = unsafe {
                match may_be_gone {
                    false => {
                        place::access(there, local, op, request.wqe);
                        Ok(())
                    }
                    true => on_demand::access((there, false), (local, true), op, request.wqe),
                }
            };
            return done.map_or(gone, |()| AccessAttempt::Done);
        }
        if op.is_word() {
            return AccessAttempt::Judge;
        }
        let way = if op == SqOp::Read { AttachDirection::From } else { AttachDirection::Into };
        if serves() {
            return AccessAttempt::Later;
        }
        execution.writer.release();
        let _section = self.enter_blocking();
        if !pair.attaches() || !pair.is_reached() {
            return AccessAttempt::Ended(self.unattached(requester, pair, len));
        }
        let there = region.published.addr.wrapping_add(offset);
        let there_too = region.published.access & ON_DEMAND != 0;
        // SAFETY: the kernel checks `there`; `local` was checked, has `len` bytes, and is borrowed
        // under the send queue's lock, for which deregistration waits; programs access it
        // atomically only.
        match unsafe { attach(pair.pid, way, local, there, len as usize) } {
            Ok(()) => AccessAttempt::Done,
            // It is dying, or runs another program: its memory goes before the kernel says so.
            Err(Errno::SRCH) => AccessAttempt::Ended(self.lost(requester, len)),
            Err(Errno::FAULT) if !pair.has_its_memory() => {
                AccessAttempt::Ended(self.lost(requester, len))
            }
            // The target looks: it is refused, or there again.
            Err(Errno::FAULT) if there_too && bring(local, op == SqOp::Read) => {
                AccessAttempt::Judge
            }
            Err(Errno::FAULT) if may_be_gone | there_too => gone,
            Err(error) => {
                pair.refuse(error);
                AccessAttempt::Ended(self.unattached(requester, pair, len))
            }
        }
    }

    /// The peer does not receive what this queue pair sends, or was connected anew.
    #[cold]
    fn unheard(
        &self,
        requester: &mut RequesterState,
        remote: &mut RemotePeer,
        request: &WqeRef<'_>,
    ) -> AccessAttempt {
        // If nothing was done for this connection yet, the peer may be the right one now.
        remote.generation = 0;
        AccessAttempt::Ended(self.judge(requester, PeerReply::Silence, request.len()))
    }

    /// Memory that is neither mapped nor attached to.
    #[cold]
    fn unattached(
        &self,
        requester: &mut RequesterState,
        pair: &ProcessPair,
        len: u64,
    ) -> WqeOutcome {
        if pair.is_dead() || pair.has_gone() || !self.transport.is_reliable() {
            return self.lost(requester, len);
        }
        WqeOutcome::Failed(WcReason::PeerUnattached)
    }
}

impl RemotePeer {
    /// The region that a request names and the offset in it, if `qpn` of this domain lets its peer
    /// access it so.
    #[inline(always)]
    fn region(
        &mut self,
        pair: &ProcessPair,
        (pd, qpn): (u32, u32),
        wqe: &Wqe,
        access: u32,
        len: u64,
    ) -> Option<(&PeerRegion<Arc<MappedWindow>>, u64)> {
        let index = self.regions.index(pair, wqe.rkey);
        let version = pair.theirs.version_at(index, wqe.rkey)?;
        let at = self.regions.find(pair, (index, wqe.rkey), version)?;
        let published = &self.regions.at(at)?.published;
        let allowed = published.access & access == access;
        if !allowed || published.pd != pd {
            let published = *published;
            return self.region_of_mw(pair, &published, (pd, qpn), wqe, access, len);
        }
        let region = self.regions.at(at)?;
        region.published.offset(wqe.remote_addr, len).map(|offset| (region, offset))
    }

    /// [`region`](Self::region) of what may be a memory window.
    #[cold]
    fn region_of_mw(
        &mut self,
        pair: &ProcessPair,
        window: &PublishedRegion,
        (pd, qpn): (u32, u32),
        wqe: &Wqe,
        access: u32,
        len: u64,
    ) -> Option<(&PeerRegion<Arc<MappedWindow>>, u64)> {
        let mw = window.mw?;
        let is_ours = mw.pd == pd && (mw.qpn == 0 || mw.qpn == qpn);
        if window.access & access != access || !is_ours {
            return None;
        }
        let addr = window.addr.wrapping_add(window.offset(wqe.remote_addr, len)?);
        let index = self.regions.index(pair, mw.region);
        let version = pair.theirs.version_at(index, mw.region)?;
        let region = self.regions.get(pair, (index, mw.region), version)?;
        let offset = addr.wrapping_sub(region.published.addr);
        let length = region.published.length;
        (offset <= length && len <= length - offset).then_some((region, offset))
    }
}
