//! Messages taken from a batch of completions in one go.

use std::fmt;
use std::ptr::NonNull;

use super::RecvPool;
use super::buf::RecvBuf;
use super::inner::PoolInner;
use super::recycle::Recycle;
use crate::object::completion::CompletionBatch;

/// A message that waits to be handed out: its slot, and its length.
type RunMessage = (u32, u32);

/// Consecutive messages of one queue pair: taken from a batch of completions at once
/// ([`RecvPool::take_run`]), handed out one by one. Properties that all of them share are looked up
/// once.
///
/// It owns the messages that it has not handed out; dropping it drops them.
pub struct RecvRun<R: Recycle> {
    lent: Box<[RunMessage]>,
    /// Those of `lent` from `next` on and before `end` are messages that wait; each owns
    /// a share of its slot, and a reference to the pool. `next <= end <= lent.len()`.
    next: usize,
    end: usize,
    /// Bytes of all messages before the first one was handed out.
    taken_bytes: u64,
    /// The pool of all of them; dangling while there has been none.
    pool: NonNull<PoolInner<R>>,
}

// SAFETY: its messages are `Send`.
unsafe impl<R: Recycle> Send for RecvRun<R> {}
// SAFETY: its messages are `Sync`, and none is handed out through a shared reference.
unsafe impl<R: Recycle> Sync for RecvRun<R> {}

impl<R: Recycle> RecvRun<R> {
    /// Room for `capacity` messages: as many as the batch of completions has room for
    /// are enough.
    #[must_use]
    pub fn new(capacity: usize) -> RecvRun<R> {
        // Bounded: as the batch of completions.
        let lent = vec![(0, 0); capacity].into();
        RecvRun { lent, next: 0, end: 0, taken_bytes: 0, pool: NonNull::dangling() }
    }

    /// Returns the count of messages that wait.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.next
    }

    /// Reports whether no message waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns how many bytes all its messages had when they were taken.
    #[inline]
    #[must_use]
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Returns how many bytes the messages that wait have in all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.waiting().map(|(_, len)| u64::from(len)).sum()
    }

    /// The slots of the messages that wait.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.waiting().map(|(slot, _)| slot)
    }

    #[inline]
    fn waiting(&self) -> impl Iterator<Item = RunMessage> {
        self.lent[self.next..self.end].iter().copied()
    }

    /// Hands out the next message.
    // Always: a message that is returned through memory is copied about.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "an iterator that is filled again is none")]
    pub fn next(&mut self) -> Option<RecvBuf<R>> {
        if self.next >= self.end {
            return None;
        }
        // SAFETY: it is less than `end`, and so than the length.
        let (slot, len) = unsafe { *self.lent.get_unchecked(self.next) };
        self.next += 1;
        // SAFETY: the slot was checked when the message was taken; the share of it, and
        // the reference that keeps the pool alive, are the message's now.
        Some(unsafe { PoolInner::message(self.pool, slot, len) })
    }

    /// Drops the messages that wait.
    pub fn clear(&mut self) {
        while let Some(message) = self.next() {
            drop(message);
        }
    }
}

impl<R: Recycle> Drop for RecvRun<R> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<R: Recycle> fmt::Debug for RecvRun<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvRun").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

impl<R: Recycle> RecvPool<R> {
    /// Takes the next messages of a batch at once, at most `most` of them: those that
    /// [`take_plain`](Self::take_plain) would take, as long as they are of the same queue pair as
    /// the first. They replace the messages in `run`; the completions behind them stay in the
    /// batch. Returns their number.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # use verbs_safe::*;
    /// # let cq = context.create_cq(CqConfig::new(256))?;
    /// # let gid = context.choose_gid(1, None)?;
    /// # let recv = RecvSide::Own { slots: 4, slot_bytes: 64 };
    /// # let config = QueuePairConfig { recv, ..QueuePairConfig::new(&cq, &cq) };
    /// # let mut qp = context.alloc_pd()?.create_qp(&config, ())?;
    /// # let end = qp.control.endpoint(1, gid, 7)?;
    /// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
    /// # let recv = qp.recv.as_mut().unwrap();
    /// # recv.post(&[0, 1, 2, 3])?;
    /// # for text in [b"one", b"two"] {
    /// #     qp.send.next_slot().unwrap()[..3].copy_from_slice(text);
    /// #     qp.send.stage(SendOp::Send { len: 3 }, false)?;
    /// # }
    /// # qp.send.post()?;
    /// let (mut batch, mut run) = (CompletionBatch::new(32), RecvRun::new(32));
    /// cq.poll(&mut batch)?;
    /// assert_eq!(recv.take_run(&mut batch, u32::MAX, &mut run), 2);
    /// while let Some(message) = run.next() {
    ///     println!("{:?}", &*message);
    ///     recv.put_back(message);
    /// }
    /// assert_eq!(recv.post_gathered()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        most: u32,
        run: &mut RecvRun<R>,
    ) -> u32 {
        run.clear();
        let Some(qp_num) = batch.next_qp_num() else { return 0 };
        let plain = self.inner().plain();
        let room = run.lent.len().min(most as usize);
        let (mut taken, mut bytes) = (0, 0);
        for (completion, lent) in batch.waiting().zip(&mut run.lent[..room]) {
            let same = completion.qp_num() == qp_num;
            let Some(message) = plain.take(&completion, same) else { break };
            *lent = message;
            taken += 1;
            bytes += u64::from(message.1);
        }
        batch.popped += taken;
        self.prepay(taken);
        (run.pool, run.next, run.end, run.taken_bytes) = (self.inner, 0, taken, bytes);
        taken as u32
    }
}
