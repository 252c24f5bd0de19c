//! The copy of a request with on-demand memory at either end, and what comes of it if that has gone.
//!
//! The checks bring its pages, so that what is gone is refused there, as a key that is not valid is.
//! What is left to the copy is memory that a thread of the program unmaps at this very moment.

use core::sync::atomic::{AtomicU64, Ordering};

use verbs_sys::*;

use crate::engine::responder::begin::NOT_OURS;
use crate::engine::responder::datagram::grh;
use crate::engine::responder::delivery::{Begun, Delivery, Refusal};
use crate::engine::responder::place::exchange;
use crate::objects::memory::resolve_any;
use crate::objects::mr_table::{LOCAL_WRITE, ON_DEMAND};
use crate::objects::on_demand::{self, Gone, bring, copy, copy_word};
use crate::objects::pending::Reply;
use crate::objects::recv_ring::RecvRequest;
use crate::objects::span::Span;
use crate::objects::state::Srq;
use crate::objects::wqe::{Op, Wqe};

/// A piece of memory, and whether it may have gone.
pub(crate) type Piece<'m> = (Span<'m>, bool);

/// [`access`](super::place::access) where memory may have gone: that which the request names, or
/// some of `local`, if this says so.
///
/// # Safety
/// As there.
#[cold]
pub(crate) unsafe fn access(
    (there, may_be_gone): Piece<'_>,
    local: (&[Span<'_>], bool),
    op: Op,
    wqe: &Wqe,
) -> Result<(), Gone> {
    let here = local.0.iter().copied();
    // SAFETY: the caller's promise.
    let moved = unsafe {
        match op {
            Op::Read => copy(local.0, core::iter::once(there)),
            Op::Write | Op::Send => copy(&[there], here),
            Op::BindMw | Op::LocalInv => Ok(()),
            Op::AtomicWrite => return store((there, may_be_gone), local.0, wqe),
            Op::CompareSwap | Op::FetchAdd => {
                let change = |word: &AtomicU64| exchange(word, wqe);
                let old = match may_be_gone {
                    true => on_demand::exchange(there, change).map_err(|_| Gone::There)?,
                    false => change(AtomicU64::from_ptr(there.ptr().cast())),
                };
                return copy_word(local.0, old).map_err(|_| Gone::Here);
            }
        }
    };
    moved.map_err(|_| blame(local, op == Op::Read, may_be_gone))
}

/// An atomic write, of the requester's data or of what its request has of them.
///
/// # Safety
/// As [`access`].
unsafe fn store(
    (there, may_be_gone): Piece<'_>,
    local: &[Span<'_>],
    wqe: &Wqe,
) -> Result<(), Gone> {
    let mut word = wqe.compare_add;
    let here = local.iter().copied();
    // SAFETY: the caller's promise.
    unsafe { copy(&[Span::of_words(core::slice::from_mut(&mut word))], here) }
        .map_err(|_| Gone::Here)?;
    // Release: who sees the word sees what was written before it.
    let change = |at: &AtomicU64| at.swap(word, Ordering::AcqRel);
    // SAFETY: as above.
    unsafe {
        match may_be_gone {
            true => on_demand::exchange(there, change).map(drop).map_err(|_| Gone::There),
            false => Ok(drop(change(AtomicU64::from_ptr(there.ptr().cast())))),
        }
    }
}

/// Whose memory has gone.
fn blame((local, may_be_gone): (&[Span<'_>], bool), is_written: bool, there_too: bool) -> Gone {
    if may_be_gone && !(there_too && bring(local, is_written)) { Gone::Here } else { Gone::There }
}

impl<'d> Delivery<'d, '_> {
    /// The memory that a request names in an on-demand region, if there is such a region: none if
    /// its pages have gone.
    pub(super) fn target_on_demand(
        &mut self,
        op: Op,
        pd: u32,
        len: u64,
    ) -> Option<Result<Span<'d>, Refusal>> {
        let (wqe, access) = (self.message.wqe, op.remote_access() | ON_DEMAND);
        let mrs = &self.peer.pd.context.device.mrs;
        let found = mrs.check(self.room.hold(), wqe.rkey, pd, wqe.remote_addr, len, access)?;
        Some(self.bring_target(op, found))
    }

    /// Brings the pages of what a request names.
    pub(super) fn bring_target(&mut self, op: Op, target: Span<'d>) -> Result<Span<'d>, Refusal> {
        self.room.on_demand = true;
        if bring(&[target], op != Op::Read) { Ok(target) } else { Err(Refusal::Access) }
    }

    /// Checks the buffers of a receive request that may lie in on-demand regions, and brings their
    /// pages.
    #[cold]
    #[inline(never)]
    pub(super) fn fit_on_demand(&mut self, request: &RecvRequest<'_>, pd: u32) -> Option<()> {
        let (mrs, len) = (&self.peer.pd.context.device.mrs, self.len());
        let list = (0..request.num_sge()).map(|i| request.sge(i));
        resolve_any(mrs, pd, list, len, LOCAL_WRITE, &mut self.room)?;
        bring(self.room.as_slice(), true).then_some(())
    }

    /// [`place`](Self::place) of a request with on-demand memory.
    #[cold]
    #[inline(never)]
    pub(super) fn place_on_demand(&mut self, op: Op, begun: &Begun<'_>) -> Result<(), Gone> {
        // Others should not wait for the completion queue while pages are brought.
        self.writer.release();
        let (message, there_too) = (self.message, self.room.on_demand);
        let local = (message.local, message.on_demand);
        let here = message.local.iter().copied();
        // SAFETY: as in `place`.
        let moved = unsafe {
            match (begun.target, message.to) {
                (Some(target), _) => {
                    return access((target, there_too), local, op, message.wqe);
                }
                (None, _) if op != Op::Send => Ok(()),
                (None, None) => copy(self.room.as_slice(), here),
                (None, Some((to, _))) => {
                    let mut header = grh(message, to);
                    let from = core::iter::once(Span::of(&mut header)).chain(here);
                    copy(self.room.as_slice(), from)
                }
            }
        };
        moved.map_err(|_| blame(local, false, there_too))
    }

    /// Memory of a request has gone since it was checked. Over XRC, `srq` is what it has named.
    #[cold]
    #[inline(never)]
    pub(super) fn lose(&mut self, srq: Option<&Srq>, gone: Gone, begun: &Begun<'_>) -> Reply {
        if let (Gone::There, None, Some(wr_id)) = (gone, begun.target, begun.wr_id) {
            self.complete_for(srq, wr_id, NOT_OURS.0);
            return self.refuse(NOT_OURS.1, None);
        }
        // What it has taken is flushed, as if it had not.
        if let Some(wr_id) = begun.wr_id {
            self.complete_for(srq, wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
        }
        let here = ibv_wc_status::IBV_WC_LOC_PROT_ERR;
        match gone {
            Gone::There => self.reject(Refusal::Access),
            Gone::Here if begun.wr_id.is_some() => self.refuse(here, None),
            Gone::Here => Reply::Refused(here),
        }
    }

    fn complete_for(&mut self, srq: Option<&Srq>, wr_id: u64, status: ibv_wc_status) {
        match srq {
            Some(srq) => self.complete_at(srq, wr_id, status),
            None => self.complete_receive(wr_id, status),
        }
    }
}
