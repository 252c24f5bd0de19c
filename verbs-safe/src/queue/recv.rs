//! Posting receives.

use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_sys::{ibv_post_recv, ibv_post_srq_recv, ibv_recv_wr, ibv_sge};

use crate::alloc;
use crate::errno::Errno;
use crate::error::{MapError, PostRecvError, PostRecvReason, TakeError};
use crate::ids::QueueId;
use crate::object::completion::{Completion, CompletionBatch};
use crate::queue::pool::{RecvBuf, RecvPool, RecvRun, Recycle};
use crate::queue::qp::QpInner;
use crate::queue::srq::SharedReceiveQueue;
use crate::raw_array::RawArray;

/// Queue that receives are posted to.
pub(crate) enum RecvTarget {
    Qp(Arc<QpInner>),
    Srq(SharedReceiveQueue),
}

/// The receive queue of a queue pair, or the posting end of a shared one
/// ([`RecvPoster`]). Only its one owner can post.
///
/// Each slot of its pool has its work request ready; posting a list links those of
/// its slots, and rings the doorbell once.
pub struct RecvQueue<R: Recycle> {
    pub(crate) target: RecvTarget,
    work: RawArray<ibv_recv_wr>,
    pool: RecvPool<R>,
    /// The slots that are GATHERED, each once, in the order in which they will be posted.
    gathered: Vec<u32>,
    /// Scatter/gather entries that `work` points into.
    _entries: RawArray<ibv_sge>,
}

/// The posting end of a shared receive queue.
pub type RecvPoster<R> = RecvQueue<R>;

impl<R: Recycle> RecvQueue<R> {
    pub(crate) fn new(target: RecvTarget, pool: RecvPool<R>) -> Result<RecvQueue<R>, MapError> {
        const STEP: &str = "allocating a receive queue";
        let (memory, id) = (pool.memory(), pool.queue_id());
        let slots = 0..memory.slots();
        let entries = alloc::collected(STEP, slots.clone().map(|slot| memory.recv_sge(slot)))?;
        // A slot of no bytes needs no entry; a message must be empty then.
        let num_sge = entries.first().map_or(0, |entry| i32::from(entry.length > 0));
        let entries = RawArray::new(entries);
        let request = |slot: u32| ibv_recv_wr {
            wr_id: id.wr_id(slot),
            next: null_mut(),
            sg_list: entries.at(slot as usize),
            num_sge,
        };
        let gathered = alloc::list(STEP, memory.slots() as usize)?;
        let work = RawArray::new(alloc::collected(STEP, slots.map(request))?);
        Ok(RecvQueue { target, work, pool, gathered, _entries: entries })
    }

    /// The pool that the receives land in.
    #[must_use]
    pub fn pool(&self) -> &RecvPool<R> {
        &self.pool
    }

    /// The number of this queue: that of the completions of its receives.
    #[inline]
    #[must_use]
    pub fn queue_id(&self) -> QueueId {
        self.pool.queue_id()
    }

    /// The shared receive queue that this is the posting end of, to create queue pairs
    /// with; `None` for the receive queue of a queue pair.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedReceiveQueue> {
        match &self.target {
            RecvTarget::Qp(_) => None,
            RecvTarget::Srq(srq) => Some(srq),
        }
    }

    /// Posts receives into `slots`, in this order, as one list. Each slot has to be HOME.
    ///
    /// # Errors
    /// [`PostRecvError`]: a slot is not HOME (nothing is posted then), or the device refused; slots
    /// that it did not take are HOME again.
    #[inline]
    pub fn post(&mut self, slots: &[u32]) -> Result<(), PostRecvError> {
        let Some((&first, rest)) = slots.split_first() else { return Ok(()) };
        self.claim(first, rest).map_err(|(at, reason)| self.undo(slots, at, reason))?;
        let mut bad = null_mut();
        // SAFETY: the list has valid requests. The device owns their memory (the slots are POSTED),
        // and `self.target` holds it until the queue is destroyed.
        match unsafe { self.post_list(self.work.at(first as usize), &mut bad) } {
            0 => Ok(()),
            result => Err(self.refused(slots, bad, Errno::from_result(result))),
        }
    }

    /// The message of a completed receive, as [`RecvPool::take_prepaid`].
    ///
    /// # Errors
    /// [`TakeError`]: the completion is another queue's, or the receive failed.
    #[inline]
    pub fn take(&mut self, completion: Completion<'_>) -> Result<RecvBuf<R>, TakeError> {
        self.pool.take_prepaid(completion)
    }

    /// The message of a completed receive, as [`RecvPool::take_plain`].
    ///
    /// # Errors
    /// The completion, if it is not that of a plain message of this queue.
    #[inline]
    pub fn take_plain<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<R>, Completion<'c>> {
        self.pool.take_plain(completion)
    }

    /// Drops a message and returns its slot, as [`RecvPool::reclaim`].
    #[inline]
    pub fn reclaim(&mut self, buf: RecvBuf<R>) -> Option<u32> {
        self.pool.reclaim(buf)
    }

    /// The messages at the head of a batch, as [`RecvPool::take_run`].
    #[inline]
    pub fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        most: u32,
        run: &mut RecvRun<R>,
    ) -> u32 {
        self.pool.take_run(batch, most, run)
    }
}

/// Gathering slots, to post them together.
impl<R: Recycle> RecvQueue<R> {
    /// Drops a message, and gathers its slot: [`reclaim`](Self::reclaim) and
    /// [`gather`](Self::gather) in one step. Returns false if other pieces of the message are still
    /// held (the last of them calls the recycler), or the message is another pool's.
    // Always inlined: the message stays in registers.
    #[inline(always)]
    pub fn put_back(&mut self, buf: RecvBuf<R>) -> bool {
        let Some(slot) = self.pool.reclaim_gathered(buf) else { return false };
        self.gathered.push(slot);
        true
    }

    /// Gathers a slot that is home, to be posted with the next
    /// [`post_gathered`](Self::post_gathered); `false` if it is not home. Until then it
    /// is not home any more, so that [`post`](Self::post) refuses it.
    #[inline]
    pub fn gather(&mut self, slot: u32) -> bool {
        let gathered = self.pool.gather(slot) == Some(true);
        if gathered {
            self.gathered.push(slot);
        }
        gathered
    }

    /// Returns the count of slots that are gathered.
    #[inline]
    #[must_use]
    pub fn gathered(&self) -> u32 {
        self.gathered.len() as u32
    }

    /// Posts receives into all gathered slots, in the order of gathering, as one list; returns
    /// their number.
    ///
    /// # Errors
    /// [`PostRecvError`]: the device refused; slots that it did not take stay gathered.
    pub fn post_gathered(&mut self) -> Result<u32, PostRecvError> {
        self.pool.limit_prepaid();
        let Some(first) = self.link_gathered() else { return Ok(0) };
        let mut bad = null_mut();
        // SAFETY: the list has valid requests. The device owns their memory (`link_gathered` has
        // made the slots POSTED), and `self.target` holds it until the queue is destroyed.
        match unsafe { self.post_list(first, &mut bad) } {
            0 => {
                let posted = self.gathered.len() as u32;
                self.gathered.clear();
                Ok(posted)
            }
            result => Err(self.refused_gathered(bad, Errno::from_result(result))),
        }
    }

    /// Makes gathered slots POSTED, and links their requests into a list; returns its first.
    #[inline]
    fn link_gathered(&mut self) -> Option<*mut ibv_recv_wr> {
        let (&first, rest) = self.gathered.split_first()?;
        let first = self.work.at(first as usize);
        let mut last = first;
        for &slot in rest {
            let next = self.work.at(slot as usize);
            // SAFETY: the requests of slots that are gathered are inside, and not part
            // of another list.
            unsafe { (*last).next = next };
            last = next;
        }
        // SAFETY: `last` is the request of a slot that is gathered: it is inside, and not part of
        // another list.
        unsafe { (*last).next = null_mut() };
        // SAFETY: they are gathered, and this is the poster.
        unsafe { self.pool.post_gathered(&self.gathered) };
        Some(first)
    }

    /// Takes back the requests that the device did not take.
    #[cold]
    fn refused_gathered(&mut self, bad: *mut ibv_recv_wr, errno: Errno) -> PostRecvError {
        let posted = self.posted_before(&self.gathered, bad);
        self.gathered.drain(..posted);
        self.gathered.iter().for_each(|slot| self.pool.regather(*slot));
        PostRecvError { posted: posted as u32, reason: PostRecvReason::Refused(errno) }
    }
}

/// Posting.
impl<R: Recycle> RecvQueue<R> {
    /// Makes the slots POSTED, and links their requests into a list; where it stops, and
    /// why, if one is not home.
    #[inline]
    fn claim(&mut self, first: u32, rest: &[u32]) -> Result<(), (usize, PostRecvReason)> {
        let mut last = self.claim_one(first).map_err(|reason| (0, reason))?;
        for (i, &slot) in rest.iter().enumerate() {
            let next = self.claim_one(slot).map_err(|reason| (i + 1, reason))?;
            // SAFETY: the slot was claimed, so that its request is inside, and is not
            // part of another list.
            unsafe { (*last).next = next };
            last = next;
        }
        // SAFETY: `last` is the request of a slot that was claimed: it is inside, and not part of
        // another list.
        unsafe { (*last).next = null_mut() };
        Ok(())
    }

    /// Makes a slot POSTED; its request.
    #[inline]
    fn claim_one(&self, slot: u32) -> Result<*mut ibv_recv_wr, PostRecvReason> {
        match self.pool.begin_post(slot) {
            Some(true) => Ok(self.work.at(slot as usize)),
            Some(false) => Err(PostRecvReason::NotHome { slot }),
            None => Err(PostRecvReason::NoSuchSlot { slot }),
        }
    }

    /// Gives back the slots before the one at `at`, which could not be claimed.
    #[cold]
    fn undo(&self, slots: &[u32], at: usize, reason: PostRecvReason) -> PostRecvError {
        slots[..at].iter().for_each(|slot| self.pool.cancel_post(*slot));
        PostRecvError { posted: 0, reason }
    }

    /// # Safety
    /// `list` heads a list of valid requests; the device may own their memory.
    #[inline]
    unsafe fn post_list(&self, list: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        // SAFETY: `self.target` keeps the queue alive; `list` heads a list of valid requests, and
        // the device may own their memory (see # Safety).
        unsafe {
            match &self.target {
                RecvTarget::Qp(qp) => ibv_post_recv(qp.raw(), list, bad),
                RecvTarget::Srq(srq) => ibv_post_srq_recv(srq.inner.raw.as_ptr(), list, bad),
            }
        }
    }

    /// Takes back the requests that the device did not take: `bad` and all behind it.
    #[cold]
    fn refused(&mut self, slots: &[u32], bad: *mut ibv_recv_wr, errno: Errno) -> PostRecvError {
        let posted = self.posted_before(slots, bad);
        slots[posted..].iter().for_each(|slot| self.pool.cancel_post(*slot));
        PostRecvError { posted: posted as u32, reason: PostRecvReason::Refused(errno) }
    }

    /// Returns the count of requests of a list that were posted, if the device refused `bad`.
    #[cold]
    fn posted_before(&self, slots: &[u32], bad: *mut ibv_recv_wr) -> usize {
        let bad = self.work.index_of(bad);
        // A device that does not name the bad request may have taken any of them: they stay POSTED,
        // because the device may write to their memory.
        let position = slots.iter().position(|slot| Some(*slot as usize) == bad);
        position.unwrap_or(slots.len())
    }
}

impl<R: Recycle> fmt::Debug for RecvQueue<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvQueue").field("pool", &self.pool).finish_non_exhaustive()
    }
}
