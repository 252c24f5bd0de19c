//! A link's receive buffers: its own, or a share of a pool.

use conn_core::pool::PoolCounts;
use verbs_safe::{Completion, CompletionBatch, QueueId, RecvBuf, RecvQueue, RecvRun, TakeError};

use crate::doorbell;
use crate::error::{CloseReason, close_reason};
use crate::send_recv::shared::PoolMember;
use crate::send_recv::shared::SlotReturn;

/// Source of the link's receive buffers.
#[derive(Debug)]
pub(crate) enum BufferSource {
    Own(OwnBuffers),
    Shared(PoolMember),
}

impl BufferSource {
    /// The queue that receives complete as.
    pub(super) fn queue_id(&self) -> QueueId {
        match self {
            BufferSource::Own(own) => own.queue.queue_id(),
            BufferSource::Shared(member) => member.queue_id(),
        }
    }
}

/// A pool of the link's own, posted to its queue pair. The queue knows which buffer is
/// where, and gathers the ones that wait to be posted again.
#[derive(Debug)]
pub(crate) struct OwnBuffers {
    queue: RecvQueue<SlotReturn>,
    /// Does not include the buffers that were freed since it was last booked.
    counts: PoolCounts,
    pub(super) posted: u64,
    pub(super) slot_bytes: usize,
}

impl OwnBuffers {
    /// All buffers of `queue` are home, and wait to be posted.
    pub(crate) fn new(
        mut queue: RecvQueue<SlotReturn>,
        counts: PoolCounts,
        slot_bytes: usize,
    ) -> OwnBuffers {
        for slot in 0..counts.buffers() {
            queue.gather(slot);
        }
        OwnBuffers { queue, counts, posted: 0, slot_bytes }
    }

    /// Posts waiting buffers, if enough have gathered or `all` is set. Returns the number posted.
    pub(crate) fn repost(&mut self, all: bool) -> Result<u32, CloseReason> {
        self.book();
        if !self.counts.due() && !all {
            return Ok(0);
        }
        let waiting = self.queue.gathered();
        let posted = doorbell::post_gathered(&mut self.queue);
        let reposted = waiting - self.queue.gathered();
        let booked = self.counts.repost(reposted);
        debug_assert!(booked.is_ok(), "what was gathered was waiting");
        self.posted += u64::from(reposted);
        posted.map_err(|e| CloseReason::Device(e.to_string()))
    }

    /// Books the buffers that were freed.
    fn book(&mut self) {
        let booked = self.counts.free(self.freed());
        debug_assert!(booked.is_ok(), "what was gathered was lent");
    }

    /// Returns the number of buffers that were freed and are not booked yet.
    fn freed(&self) -> u32 {
        self.queue.gathered() - self.counts.waiting()
    }

    /// Buffers that wait to be posted again.
    pub(super) fn waiting(&self) -> u32 {
        self.queue.gathered()
    }

    /// Buffers with the application.
    pub(super) fn lent(&self) -> u32 {
        self.counts.lent() - self.freed()
    }

    /// Buffers with the device.
    pub(super) fn posted_now(&self) -> u32 {
        self.counts.posted()
    }

    pub(super) fn registered_bytes(&self) -> u64 {
        u64::from(self.counts.buffers()) * self.slot_bytes as u64
    }
}

impl OwnBuffers {
    #[inline]
    pub(super) fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        most: u32,
        run: &mut RecvRun<SlotReturn>,
    ) -> u32 {
        let taken = self.queue.take_run(batch, most, run);
        self.lend(taken);
        taken
    }

    pub(super) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        let buffer = self.queue.take_plain(completion)?;
        self.lend(1);
        Ok(buffer)
    }

    pub(super) fn take_any(
        &mut self,
        completion: Completion<'_>,
    ) -> Result<RecvBuf<SlotReturn>, CloseReason> {
        let buffer = self.queue.take(completion).map_err(|e| self.give_up(&e))?;
        self.lend(1);
        Ok(buffer)
    }

    #[inline]
    fn lend(&mut self, n: u32) {
        let lent = self.counts.lend(n);
        debug_assert!(lent.is_ok(), "a completion of a buffer that was not posted");
    }

    /// Frees the buffer of a failed receive. Returns the reason for which the connection ends.
    #[cold]
    fn give_up(&mut self, error: &TakeError) -> CloseReason {
        if let TakeError::Failed { slot, .. } = error
            && self.queue.gather(*slot)
        {
            let returned = self.counts.return_unreceived(1);
            debug_assert!(returned.is_ok(), "a receive has failed that was not posted");
        }
        close_reason(error)
    }

    /// A part of a packed message is not the last one to hold its buffer: the last one
    /// comes by way of `free`.
    #[inline(always)]
    pub(super) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        self.queue.put_back(buffer);
    }

    pub(super) fn free(&mut self, slot: u32) {
        let gathered = self.queue.gather(slot);
        debug_assert!(gathered, "a buffer came home twice");
    }
}
