//! Requests over XRC at their destination: each names a shared receive queue of the domain that
//! the queue pair is in. It takes its receive request there, and the memory that it names is in
//! that queue's protection domain: the queue pair has none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::responder::ResponderSession;
use crate::engine::responder::delivery::RequestDelivery;
use crate::objects::cq::{CqEntry, CqWriter};
use crate::objects::state::{Srq, XrcSrq};
use crate::reason::Cause;

impl ResponderSession<'_> {
    /// The queue that a request names, if it is in the domain.
    pub(super) fn named(&self, srqn: u32) -> Option<Arc<Srq>> {
        let domain = self.peer.target.as_ref().map(|target| target.xrcd.domain.id);
        let is_ours = |xrc: &XrcSrq| Some(xrc.xrcd.domain.id) == domain;
        let found = self.peer.pd.context.device.xrc.find(srqn);
        found.filter(|srq| srq.xrc.as_ref().is_some_and(is_ours))
    }
}

impl<'d, const XRC: usize> RequestDelivery<'d, '_, XRC> {
    #[inline(always)]
    pub(super) fn named(&self) -> Option<&'d Arc<Srq>> {
        self.named.first().copied().flatten()
    }

    /// The shared queue that the receive request is taken from, if it is not the queue pair's own.
    #[inline(always)]
    pub(super) fn srq(&self) -> Option<&'d Arc<Srq>> {
        self.named().or(self.peer.srq.as_ref())
    }

    /// Completes a receive request at the queue's completion queue. Where that is dead, the queue
    /// pair goes with it, as one that uses a dead queue itself.
    #[cold]
    pub(super) fn complete_at(&mut self, srq: &Srq, completion: &CqEntry) {
        let Some(XrcSrq { cq, .. }) = &srq.xrc else { return };
        // The writer's queue may be this one, and never are two locked.
        self.writer.release();
        let mut writer = CqWriter::default();
        writer.push(cq, completion, None, self.deferred);
        drop(writer);
        // Relaxed: a thread that misses it sees it at the next message.
        if cq.dead.load(Ordering::Relaxed) {
            self.peer.die(Cause::CQ, self.deferred);
        }
    }
}
