//! Deferred work: what an execution does once it has released its locks.
//!
//! An error at one queue pair takes the other along, and an overrun completion
//! queue takes all that use it. Their send queues cannot be locked while ours is:
//! the state is set at once (atomically), the flush is queued here and run by the
//! thread that caused it, after it has released its own locks.

use std::sync::{Arc, Weak};

use crate::cancellation::Uncancelled;
use crate::memory::mws::BindingEnd;
use crate::objects::state::{Cq, Qp};
use crate::reason::Cause;

/// One item of deferred work.
pub(crate) enum WorkItem {
    /// Complete, with flush errors, whatever an erroneous queue pair still holds.
    Flush(Arc<Qp>),
    /// Take the users of a dead completion queue to the error state.
    KillUsers(Arc<Cq>),
    /// Resume the requests of a send queue for memory of another process that is attached to.
    /// It is of the process with this number, which is this one for on-demand memory.
    Attach(Arc<Qp>, i32),
    /// Meet the process, of this slot, that a queue pair has something for.
    Meet(Arc<Qp>, u32),
    /// Resume a send queue that waits for this end of a window's binding, if the accesses under
    /// its key are over.
    Settle(Arc<Qp>, BindingEnd),
    /// Meet the processes that may have members of the multicast group that a queue pair has
    /// something for.
    MeetMembers(Arc<Qp>),
}

impl WorkItem {
    /// Returns the item's place in the order: what may take long is done after all else, and what
    /// may take as long as another process likes is the last.
    fn rank(&self) -> u32 {
        match self {
            WorkItem::Flush(_) | WorkItem::KillUsers(_) => 0,
            // It takes the locks of receiving sides, which are held during copies.
            WorkItem::Settle(..) => 1,
            // Processes are given time to answer.
            WorkItem::Meet(..) | WorkItem::MeetMembers(_) => 2,
            WorkItem::Attach(..) => 3,
        }
    }
}

/// The next item: of the lowest rank, the one that was added last.
fn next(items: &mut Vec<WorkItem>) -> Option<WorkItem> {
    let ranked = items.iter().enumerate().rev();
    let (at, _) = ranked.min_by_key(|(_, item)| item.rank())?;
    Some(items.remove(at))
}

/// A list of work items, usually empty: then it is a null pointer.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "one word on the stack of every post")]
pub(crate) struct DeferredWork(Option<Box<Vec<WorkItem>>>);

/// Written out so that what is empty, in every post, is dropped by one comparison inline; left to
/// itself that is a call of 18 instructions, or not, as the items grow.
impl Drop for DeferredWork {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(items) = self.0.take() {
            drop_items(items);
        }
    }
}

#[cold]
#[inline(never)]
#[allow(clippy::box_collection, reason = "as in `DeferredWork`")]
fn drop_items(items: Box<Vec<WorkItem>>) {
    drop(items);
}

impl DeferredWork {
    pub(crate) fn push(&mut self, item: WorkItem) {
        self.0.get_or_insert_default().push(item);
    }

    /// Takes over another's.
    #[inline]
    pub(crate) fn append(&mut self, other: DeferredWork) {
        let mut other = other;
        if let Some(mut items) = other.0.take() {
            self.0.get_or_insert_default().append(&mut items);
        }
    }

    /// Does them, and what they cause in turn. No lock of a queue may be held.
    #[inline]
    pub(crate) fn run(self) {
        if self.0.is_some() {
            self.run_all();
        }
    }

    #[cold]
    fn run_all(mut self) {
        let _uncancelled = Uncancelled::new();
        while let Some(item) = self.0.as_mut().and_then(|items| next(items)) {
            match item {
                WorkItem::Flush(qp) => qp.flush(&mut self),
                WorkItem::Attach(qp, pid) => qp.resume_attached(pid, &mut self),
                WorkItem::Meet(qp, slot) => qp.go_and_meet(slot, &mut self),
                WorkItem::Settle(qp, ending) => qp.settle_mws(ending, &mut self),
                WorkItem::MeetMembers(qp) => qp.go_and_meet_members(&mut self),
                WorkItem::KillUsers(cq) => {
                    let users: Vec<_> = cq.qps.lock().iter().filter_map(Weak::upgrade).collect();
                    for qp in users {
                        qp.die(Cause::CQ, &mut self);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
