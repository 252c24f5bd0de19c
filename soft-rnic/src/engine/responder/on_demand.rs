//! The copy of a request with on-demand memory at either end, and its result if that memory has
//! gone.
//!
//! The checks bring its pages, so that what is gone is refused there, as a key that is not valid
//! is. What is left to the copy is memory that a thread of the program unmaps at this very moment.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::engine::responder::datagram::grh;
use crate::engine::responder::delivery::{
    BUFFERS_GONE, Begun, DeliveryRefusal, LATER, PayloadState, RequestDelivery, SENDER_LOST, Unfit,
};
use crate::engine::responder::place::exchange;
use crate::memory::lists::resolve_any;
use crate::memory::mr_table::LOCAL_WRITE;
use crate::memory::on_demand;
use crate::memory::on_demand::{GoneSide, OnDemandPiece, bring, copy, copy_word};
use crate::memory::paging::{Presence, presence};
use crate::memory::span::MemSpan;
use crate::queues::outcome::PeerReply;
use crate::queues::recv_ring::RecvRequest;
use crate::queues::wqe::{SqOp, Wqe};
use crate::reason::WcReason;

/// [`access`](super::place::access) where memory may have gone: that which the request names, or
/// some of `local`, if this says so.
///
/// # Safety
/// As there.
#[cold]
pub(crate) unsafe fn access(
    (there, may_be_gone): OnDemandPiece<'_>,
    local: (&[MemSpan<'_>], bool),
    op: SqOp,
    wqe: &Wqe,
) -> Result<(), GoneSide> {
    let here = local.0.iter().copied();
    // SAFETY: both sides fit the request, and programs access them atomically only (see # Safety).
    let moved = unsafe {
        match op {
            SqOp::Read => copy(local.0, core::iter::once(there)),
            SqOp::Write | SqOp::Send => copy(&[there], here),
            SqOp::BindMw | SqOp::LocalInv => Ok(()),
            SqOp::AtomicWrite => return store((there, may_be_gone), local.0, wqe),
            SqOp::CompareSwap | SqOp::FetchAdd => {
                let old = change((there, may_be_gone), |word| exchange(word, wqe))?;
                return copy_word(local.0, old).map_err(|_| GoneSide::Here);
            }
        }
    };
    moved.map_err(|_| blame(local, op == SqOp::Read, may_be_gone))
}

/// An atomic write, of the requester's data or of what its request has of them.
///
/// # Safety
/// As [`access`].
unsafe fn store(
    there: OnDemandPiece<'_>,
    local: &[MemSpan<'_>],
    wqe: &Wqe,
) -> Result<(), GoneSide> {
    let mut word = wqe.compare_add;
    let here = local.iter().copied();
    // SAFETY: `local` fits the request (see # Safety), and `word` is a local variable.
    unsafe { copy(&[MemSpan::from_words(core::slice::from_mut(&mut word))], here) }
        .map_err(|_| GoneSide::Here)?;
    // Release: a reader that sees the word sees what was written before it.
    let put = |at: &AtomicU64| at.swap(word, Ordering::AcqRel);
    // SAFETY: `there` was checked under a lock that the caller holds and deregistration waits for; it is an
    // aligned word, which programs access atomically only (see # Safety).
    unsafe { change(there, put) }.map(drop)
}

/// Changes a word that a request names, and returns what was there; the word may have gone, if
/// `may_be_gone`.
///
/// # Safety
/// It was checked, under a lock that deregistration waits for, and is at a multiple of eight;
/// programs access it atomically only.
pub(crate) unsafe fn change(
    (word, may_be_gone): OnDemandPiece<'_>,
    change: impl FnOnce(&AtomicU64) -> u64,
) -> Result<u64, GoneSide> {
    // SAFETY: `word` was checked under a lock that deregistration waits for, is at a multiple of
    // eight, and programs access it atomically only: this function's contract (see # Safety).
    unsafe {
        match may_be_gone {
            true => on_demand::exchange(word, change).map_err(|_| GoneSide::There),
            false => Ok(change(AtomicU64::from_ptr(word.ptr().cast()))),
        }
    }
}

/// Returns the side that has lost its memory.
fn blame(
    (local, may_be_gone): (&[MemSpan<'_>], bool),
    is_written: bool,
    there_too: bool,
) -> GoneSide {
    if may_be_gone && !(there_too && bring(local, is_written)) {
        GoneSide::Here
    } else {
        GoneSide::There
    }
}

impl<'d, const XRC: usize> RequestDelivery<'d, '_, XRC> {
    /// [`carry_out`](Self::carry_out) of a request whose own memory may have gone.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_out_on_demand(&mut self) -> PeerReply {
        let op = self.message.wqe.op;
        let begun = match self.begin_on_demand(op) {
            Ok(begun) => begun,
            Err(refusal) => return self.reject(refusal),
        };
        self.finish(op, &begun)
    }

    /// The checks of a request whose own memory may have gone. What it carries or asks for is in
    /// its place then, and only then a receive request is taken: what the requester has lost is no
    /// matter of its peer's.
    fn begin_on_demand(&mut self, op: SqOp) -> Result<Begun<'d>, DeliveryRefusal> {
        self.data = if op == SqOp::Send { PayloadState::MayBeGone } else { PayloadState::Unread };
        let Begun { wr_id, target } = self.begin(op)?;
        if let Some(target) = target {
            self.writer.release();
            let (there, local) = ((target, false), (self.message.local, true));
            // SAFETY: as in `reach_on_demand`.
            unsafe { access(there, local, op, self.message.wqe) }
                .map_err(|_| DeliveryRefusal::Lost)?;
        }
        if wr_id.is_none() || op == SqOp::Send {
            return Ok(Begun { wr_id, target: None });
        }
        self.data = PayloadState::AtHand;
        Ok(Begun { wr_id: Some(self.take_receive(false)?), target: None })
    }

    /// [`takes`](Self::takes) of a message whose data are not at hand.
    #[cold]
    #[inline(never)]
    pub(super) fn takes_rare(&mut self) -> Result<bool, DeliveryRefusal> {
        if self.data == PayloadState::Unread {
            return Ok(false);
        }
        self.check_filled();
        self.fill(false).map_err(|_| DeliveryRefusal::Lost)?;
        self.room.clear();
        Ok(true)
    }

    /// Carries an operation on on-demand memory out, so that nothing is left to be placed. It is
    /// judged only if what it carries is not there.
    pub(super) fn reach_on_demand(
        &mut self,
        op: SqOp,
        target: MemSpan<'d>,
    ) -> Result<(), DeliveryRefusal> {
        match presence(self.message.pages, &[target], op != SqOp::Read) {
            Presence::There => {}
            Presence::Gone => return Err(DeliveryRefusal::Denied(WcReason::PeerGone)),
            Presence::Unknown => return Err(DeliveryRefusal::Later),
        }
        let message = self.message;
        // The value that an atomic write stores may be part of its request.
        if message.local.is_empty() && op != SqOp::AtomicWrite {
            return Ok(());
        }
        self.writer.release();
        let local = (message.local, message.on_demand);
        // SAFETY: both were checked; programs access them atomically only.
        let done = unsafe { access((target, true), local, op, message.wqe) };
        done.map_err(|gone| match gone {
            GoneSide::Here => DeliveryRefusal::Lost,
            GoneSide::There => DeliveryRefusal::Denied(WcReason::PeerGone),
        })
    }

    /// Checks the buffers of a receive request that may lie in on-demand regions, and fills them,
    /// so that nothing is left to be placed.
    #[cold]
    #[inline(never)]
    pub(super) fn fit_on_demand(&mut self, request: &RecvRequest<'_>) -> Result<(), Unfit> {
        let (mrs, len) = (&self.peer.pd.context.device.mrs, self.len());
        let list = (0..request.num_sge()).map(|i| request.sge(i));
        let found = resolve_any(mrs, request.pd(), list, len, LOCAL_WRITE, &mut self.room);
        let unfit = |it: &Self| (it.check_buffer(request), WcReason::PeerReceiveBuffer);
        found.ok_or_else(|| unfit(self))?;
        match presence(self.message.pages, self.room.as_slice(), true) {
            Presence::There => {}
            Presence::Gone => return Err(unfit(self)),
            Presence::Unknown => return Err(LATER),
        }
        if self.data == PayloadState::Unread {
            return Ok(());
        }
        let filled = self.fill(true);
        self.room.clear();
        filled.map_err(|gone| if gone == GoneSide::Here { SENDER_LOST } else { BUFFERS_GONE })
    }

    /// Copies a message to its buffers, which may have gone.
    fn fill(&mut self, may_be_gone: bool) -> Result<(), GoneSide> {
        // Others should not wait for the completion queue while pages are brought.
        self.writer.release();
        let message = self.message;
        let here = message.local.iter().copied();
        // SAFETY: as in `place`.
        let moved = unsafe {
            match message.to {
                None => copy(self.room.as_slice(), here),
                Some((to, _)) => {
                    let mut header = grh(message, to, self.peer.pd.context.device.gid());
                    let from = core::iter::once(MemSpan::from_slice(&mut header)).chain(here);
                    copy(self.room.as_slice(), from)
                }
            }
        };
        moved.map_err(|_| blame((message.local, message.on_demand), false, may_be_gone))
    }
}
