//! A link's receive buffers: its own, or a share of a pool.

use conn_core::pool::{BufferPool, PoolSlot};
use verbs_safe::{Completion, QueueId, RecvBuf, RecvQueue, TakeError};

use crate::send_recv::returns::SlotReturn;
use crate::send_recv::shared::Member;
use crate::send_recv::{Ended, Violation, ended_by};

/// Where the link's receive buffers come from.
#[derive(Debug)]
pub(crate) enum Source {
    Own(OwnBuffers),
    Shared(Member),
}

impl Source {
    /// The queue that receives complete as.
    pub(super) fn queue_id(&self) -> QueueId {
        match self {
            Source::Own(own) => own.queue.queue_id(),
            Source::Shared(member) => member.queue_id(),
        }
    }
}

/// A pool of the link's own, posted to its queue pair.
#[derive(Debug)]
pub(crate) struct OwnBuffers {
    queue: RecvQueue<SlotReturn>,
    pub(super) pool: BufferPool<Box<[PoolSlot]>>,
    list: Box<[u32]>,
    pub(super) posted: u64,
    pub(super) slot_bytes: usize,
}

impl OwnBuffers {
    pub(crate) fn new(
        queue: RecvQueue<SlotReturn>,
        pool: BufferPool<Box<[PoolSlot]>>,
        slot_bytes: usize,
    ) -> OwnBuffers {
        OwnBuffers { queue, pool, list: vec![0; 64].into_boxed_slice(), posted: 0, slot_bytes }
    }

    /// Posts what waits: in whole batches, or (`all`) down to the last one.
    /// Returns how many were posted.
    pub(crate) fn repost(&mut self, all: bool) -> Result<u32, Ended> {
        let mut reposted = 0;
        while self.pool.due() || (all && self.pool.waiting() > 0) {
            let count = self.pool.take_repost(&mut self.list);
            let list = &self.list[..count];
            if let Err(e) = self.queue.post(list) {
                // What was taken from the pool a moment ago goes back into it.
                let _ = self.pool.unpost(&list[e.posted as usize..]);
                return Err(Ended::Device(e.to_string()));
            }
            reposted += count as u32;
        }
        self.posted += u64::from(reposted);
        Ok(reposted)
    }
}

impl OwnBuffers {
    #[inline(always)]
    pub(super) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        let buffer = self.queue.take_plain(completion)?;
        let lent = self.pool.lend(buffer.slot());
        debug_assert!(lent.is_ok(), "a completion of a buffer that was not posted");
        Ok(buffer)
    }

    pub(super) fn take_any(
        &mut self,
        completion: Completion<'_>,
    ) -> Result<RecvBuf<SlotReturn>, Ended> {
        let buffer = self.queue.take(completion).map_err(|e| self.give_up(&e))?;
        match self.pool.lend(buffer.slot()) {
            Ok(()) => Ok(buffer),
            Err(_) => Err(Ended::Protocol(Violation::Completion)),
        }
    }

    /// A receive has failed: its buffer is home. Says what that means.
    #[cold]
    fn give_up(&mut self, error: &TakeError) -> Ended {
        if let TakeError::Failed { slot, .. } = error {
            let returned = self.pool.return_unreceived(*slot);
            debug_assert!(returned.is_ok(), "a receive has failed that was not posted");
        }
        ended_by(error)
    }

    #[inline]
    pub(super) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        // A part of a packed message is not the last one to hold its buffer.
        if let Some(slot) = self.queue.reclaim(buffer) {
            self.free(slot);
        }
    }

    #[inline]
    pub(super) fn free(&mut self, slot: u32) {
        if let Err(e) = self.pool.free(slot) {
            debug_assert!(false, "a buffer came home twice: {e}");
        }
    }
}
