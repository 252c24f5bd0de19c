//! A connection's share of a pool.

use std::sync::atomic::Ordering;

use verbs_safe::{Completion, CompletionBatch, QueueId, RecvBuf, RecvPool, RecvRun, TakeError};

use super::posting::NOBODY;
use super::{Reposting, SharedPool, lock};
use crate::send_recv::returns::SlotReturn;
use crate::send_recv::{Ended, ended_by};

/// A connection's share of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    shared: SharedPool,
    /// A handle of its own, which takes references to the pool in bulk.
    pool: RecvPool<SlotReturn>,
    index: u32,
    received: u64,
    settled: u64,
    /// Buffers freed on the receiver's thread, gathered for one doorbell.
    own: Vec<u32>,
    /// Whether they are gathered, or go the way of all others.
    gathers: bool,
    has_left: bool,
    /// Whether the receiver has announced its sleep.
    sleeps: bool,
}

impl Member {
    /// A share of `shared`, which has been booked as that of member `index`.
    pub(super) fn new(shared: SharedPool, index: u32) -> Member {
        let inner = &shared.owner.inner;
        // Relaxed: nobody posts for a member that is not there yet.
        let seen = inner.reposted[index as usize].load(Ordering::Relaxed);
        let gathers = inner.config.reposting == Reposting::Combining;
        Member {
            pool: shared.owner.pool.clone(),
            shared,
            index,
            received: seen,
            settled: seen,
            own: Vec::new(),
            gathers,
            has_left: false,
            sleeps: false,
        }
    }

    /// The queue that receives complete as.
    pub(crate) fn queue_id(&self) -> QueueId {
        self.pool.queue_id()
    }

    pub(crate) fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        most: u32,
        run: &mut RecvRun<SlotReturn>,
    ) -> u32 {
        let taken = self.pool.take_run(batch, most, run);
        let inner = &self.shared.owner.inner;
        run.slots().for_each(|slot| inner.set_origin(slot, self.index));
        self.received += u64::from(taken);
        taken
    }

    pub(crate) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        let buffer = self.pool.take_plain(completion)?;
        self.book(buffer.slot());
        Ok(buffer)
    }

    pub(crate) fn take_any(
        &mut self,
        completion: Completion<'_>,
    ) -> Result<RecvBuf<SlotReturn>, Ended> {
        let buffer = self.pool.take_prepaid(completion).map_err(|e| self.give_up(&e))?;
        match self.has_left {
            true => self.shared.owner.inner.set_origin(buffer.slot(), NOBODY),
            false => self.book(buffer.slot()),
        }
        Ok(buffer)
    }

    /// A receive has failed: its buffer is home, and goes back to where all take them
    /// from. Says what that means.
    #[cold]
    fn give_up(&mut self, error: &TakeError) -> Ended {
        if let Some(slot) = error.slot() {
            // No message of ours was in it.
            self.shared.owner.inner.set_origin(slot, NOBODY);
            self.shared.owner.inner.post(&[slot]);
        }
        ended_by(error)
    }

    #[inline]
    fn book(&mut self, slot: u32) {
        self.shared.owner.inner.set_origin(slot, self.index);
        self.received += 1;
    }

    /// Takes a buffer back on the receiver's thread. That of another's message is not
    /// gathered: its receiver may wait for it before we gather another one.
    #[inline]
    pub(crate) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        if !self.gathers || !self.shared.owner.inner.is_origin(buffer.slot(), self.index) {
            return drop(buffer);
        }
        if let Some(slot) = self.pool.reclaim(buffer) {
            self.own.push(slot);
            if self.own.len() >= self.shared.owner.inner.config.repost_batch as usize {
                self.post_own();
            }
        }
    }

    fn post_own(&mut self) {
        self.shared.owner.inner.post(&self.own);
        self.own.clear();
    }

    /// Buffers of ours that were posted again since the last call.
    pub(crate) fn take_reposted(&mut self, idle: bool) -> Result<u32, Ended> {
        if idle && !self.own.is_empty() {
            self.post_own();
        }
        let inner = &self.shared.owner.inner;
        if inner.failed.load(Ordering::Acquire) {
            return Err(Ended::Device("the shared receive queue takes no buffers".into()));
        }
        // Acquire: the posts lie before the credits that we grant for them. SeqCst: it
        // is also the last look before a sleep, after the announcement, against
        // `Sleepers::wake`.
        let reposted = inner.reposted[self.index as usize].load(Ordering::SeqCst);
        let fresh = reposted - self.settled;
        self.settled = reposted;
        Ok(fresh as u32)
    }

    pub(crate) fn has_outstanding(&self) -> bool {
        self.received != self.settled
    }

    /// Says that the receiver is about to sleep: it looks at
    /// [`take_reposted`](Member::take_reposted) once more after this.
    pub(crate) fn announce_sleep(&mut self) {
        if !std::mem::replace(&mut self.sleeps, true) {
            self.shared.owner.inner.sleepers.announce();
        }
    }

    pub(crate) fn retract_sleep(&mut self) {
        if std::mem::replace(&mut self.sleeps, false) {
            self.shared.owner.inner.sleepers.retract();
        }
    }
}

impl Member {
    /// Gives the share back, once: its buffers are for others when the last message
    /// in them was freed. What still comes after this is nobody's.
    pub(crate) fn leave(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        self.gathers = false;
        if !self.own.is_empty() {
            self.post_own();
        }
        lock(&self.shared.owner.inner.ledger).leave(self.index, self.received);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.retract_sleep();
        self.leave();
    }
}
