//! Pages of a requester's own memory, if that is on demand.
//!
//! The lock of the send queue is held while a request is looked at, and the threads that take
//! packets need it. So a request whose pages are not there yet is not sent: a thread has them
//! brought, and then resumes the queue. A packet whose page has gone again since is left out,
//! and a response to such a page dropped: both count as lost, and the request is sent again by the
//! timer.

use std::sync::Arc;

use super::paging::{LOOKED_AT, Paging};
use crate::engine::responder::place::behind;
use crate::memory::on_demand::bring;
use crate::memory::paging::Presence;
use crate::memory::span::{MemSpan, SpanBuf, Spans};
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::peers::wire::state::{OwnPages, RoceWire};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::WqeRef;
use crate::reason::WcReason;

/// Time in nanoseconds after which a request is looked at again for which no thread was free.
pub(super) const LOOK_AGAIN_NS: u64 = 5_000_000;

/// The reason that a request is not sent.
pub(super) enum UnsentReason {
    /// Its pages are not there yet.
    Later,
    Failed(WcReason),
}

impl From<WcReason> for UnsentReason {
    fn from(reason: WcReason) -> UnsentReason {
        UnsentReason::Failed(reason)
    }
}

impl OwnPages {
    #[cold]
    fn look<'s>(
        &mut self,
        qp: &Arc<Qp>,
        pieces: &[MemSpan<'s>],
        brought: impl FnOnce() -> Vec<MemSpan<'s>>,
        is_written: bool,
    ) -> Presence {
        let device = &qp.pd.context.device;
        let Some(RoceWire { own_workers: workers, .. }) = device.wire() else {
            return Presence::Gone;
        };
        let (peer, asked) = (qp.num as i32, &mut self.asked);
        let resumes = Some((Arc::downgrade(device), qp.num));
        let mut paging = Paging { asked, workers, peer, resumes };
        let presence = paging.look_for(pieces, brought, is_written);
        self.looks_again |= presence == Presence::Unknown && self.asked.is_none();
        presence
    }
}

impl Qp {
    /// Checks that the memory of a request can be accessed, without waiting for it.
    #[inline]
    pub(super) fn check_local(
        self: &Arc<Qp>,
        requester: &RequesterState,
        request: &WqeRef<'_>,
        room: &mut SpanBuf,
        own: &mut OwnPages,
    ) -> Result<(), UnsentReason> {
        let len = request.len();
        let found = self.local_unless(requester, request, len, room, |access, mut spans| {
            self.find_on_demand(request, access, len, &mut spans)?;
            own.are_used = true;
            let (pieces, is_written) = (spans.as_slice(), request.wqe.op.is_response());
            match own.look(self, pieces, || pieces.to_vec(), is_written) {
                // Pages that are there may not permit the access.
                Presence::There if len > LOOKED_AT as u64 || bring(pieces, is_written) => Ok(spans),
                Presence::Unknown => Err(UnsentReason::Later),
                _ => Err(UnsentReason::Failed(WcReason::LocalGone)),
            }
        });
        found.map(drop)
    }

    /// Reports whether bytes of a request's memory can be copied without waiting for their pages;
    /// true also if these have gone.
    #[inline]
    pub(super) fn may_copy(
        self: &Arc<Qp>,
        local: &Spans<'_>,
        bytes: (usize, usize),
        is_written: bool,
        own: &mut OwnPages,
    ) -> bool {
        !local.on_demand || self.are_there(local, bytes, is_written, own)
    }

    #[cold]
    fn are_there(
        self: &Arc<Qp>,
        local: &Spans<'_>,
        (offset, len): (usize, usize),
        is_written: bool,
        own: &mut OwnPages,
    ) -> bool {
        let pieces = part(local, offset, len);
        // What is brought is the same for the packets beside this one.
        let from = offset - offset % LOOKED_AT;
        let brought = || part(local, from, LOOKED_AT.max(offset + len - from));
        own.look(self, &pieces, brought, is_written) != Presence::Unknown
    }

    /// Resumes requests whose pages are there, or have gone.
    pub(super) fn resume_wire(self: &Arc<Qp>) {
        let mut deferred = DeferredWork::default();
        self.run_wire(&mut self.sq.lock(), &mut deferred, false);
        deferred.run();
    }
}

/// At most `len` bytes from `offset` on.
fn part<'l>(local: &'l Spans<'_>, offset: usize, len: usize) -> Vec<MemSpan<'l>> {
    let mut left = len;
    let pieces = behind(local.as_slice(), offset).map(|piece| {
        let n = piece.len().min(left);
        left -= n;
        piece.first(n)
    });
    pieces.filter(|piece| piece.len() > 0).collect()
}
