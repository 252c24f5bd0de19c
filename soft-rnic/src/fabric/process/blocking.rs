//! Threads that wait for another process's memory, and those that others rely on.
//!
//! A thread that posts an operation on memory that is attached to holds the send queue meanwhile,
//! and the other process may let it wait there (see `deferred_fetch`). A thread that serves all
//! processes, or all queue pairs, continues without that queue, and never performs such an
//! operation itself: it leaves it to a thread that no other relies on. The same goes for pages of
//! on-demand memory of this process's own.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use host::sync::Mutex;

use crate::engine::execution::Execution;
use crate::lock::Guard;
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::state::{Qp, Sq};
use crate::peers::process::serving::{BLOCKED_RETRY_NS, BlockingFlags, Serving, serves};
use crate::queues::outcome::WaitCause;

use super::out::OutRing;

/// While it lives, the holder of the send queue is in a blocking section.
pub(super) struct BlockingSection<'q>(&'q Qp);

impl Drop for BlockingSection<'_> {
    fn drop(&mut self) {
        let BlockingFlags { is_inside, missed, .. } = &self.0.blocking;
        // SeqCst: either we see `missed`, or the thread that has set it sees that we are back.
        is_inside.store(false, Ordering::SeqCst);
        if missed.load(Ordering::SeqCst)
            && missed.swap(false, Ordering::SeqCst)
            && let Some(peers) = &self.0.pd.context.device.peers
        {
            peers.wake_progress_thread();
        }
    }
}

impl Qp {
    /// The holder of the send queue is going to wait for another process's memory, or for pages.
    pub(super) fn enter_blocking(&self) -> BlockingSection<'_> {
        // Release: what the holder has looked up before, it has seen (`Device::end_lookups`).
        self.blocking.is_inside.store(true, Ordering::Release);
        BlockingSection(self)
    }

    /// A request's own memory may be on demand, and slow to be paged in. A thread that others rely
    /// on leaves the queue to another one; any other thread lets go of what others need, and may
    /// wait.
    #[cold]
    pub(super) fn begin_paging(
        self: &Arc<Qp>,
        out: Option<&mut OutRing<'_>>,
        execution: &mut Execution<'_>,
    ) -> Option<BlockingSection<'_>> {
        if serves() {
            let own = std::process::id().cast_signed();
            execution.deferred.push(WorkItem::Attach(Arc::clone(self), own));
            return None;
        }
        if let Some(out) = out {
            out.release();
        }
        execution.writer.release();
        Some(self.enter_blocking())
    }

    #[cfg(test)]
    pub(super) fn is_in_blocking_section(&self) -> bool {
        self.blocking.is_inside.load(Ordering::Relaxed)
    }

    /// The send queue, unless its holder is in a blocking section: then the progress thread looks
    /// again when it is back.
    pub(crate) fn sq_unless_blocked(&self) -> Option<Guard<'_, Sq>> {
        self.sq.lock_unless(|| {
            if !self.blocking.is_inside.load(Ordering::Relaxed) {
                return false;
            }
            self.blocking.missed.store(true, Ordering::SeqCst);
            // SeqCst: as in `BlockingSection`.
            self.blocking.is_inside.load(Ordering::SeqCst)
        })
    }

    /// Resumes what is pending, which waits for memory of another process, or of this one: on a
    /// thread of its own if others rely on this one.
    #[cold]
    pub(crate) fn resume_attached(self: &Arc<Qp>, pid: i32, deferred: &mut DeferredWork) {
        let Some(peers) = self.pd.context.device.peers.as_ref().filter(|_| serves()) else {
            self.run_pending(&mut self.sq.lock(), deferred, false);
            return;
        };
        // AcqRel: the thread that runs it sees what was pending when it was last put off.
        if self.blocking.is_left.swap(true, Ordering::AcqRel) {
            return;
        }
        let (waiter, deferred) = (Arc::clone(self), Arc::new(Mutex::new(DeferredWork::default())));
        let left = Arc::clone(&deferred);
        let wait = move || {
            waiter.blocking.is_left.swap(false, Ordering::AcqRel);
            waiter.run_pending(&mut waiter.sq.lock(), &mut left.lock(), false);
        };
        let rest = move || {
            // What waits for another process is left to other threads.
            let _serving = Serving::begin();
            core::mem::take(&mut *deferred.lock()).run();
        };
        let reservation = peers.workers.reserve(pid);
        if !reservation.is_some_and(|it| it.run(wait, rest)) {
            self.blocking.is_left.store(false, Ordering::Relaxed);
            self.resume_later();
        }
    }

    /// Without a thread: the timer tries again.
    #[cold]
    fn resume_later(&self) {
        let Some(mut sq) = self.sq_unless_blocked() else { return };
        if sq.requester.waits.is_none() {
            let token = self.pd.context.device.arm(self.num, Some(BLOCKED_RETRY_NS));
            sq.requester.waits = Some((WaitCause::Delay, token));
        }
    }
}
