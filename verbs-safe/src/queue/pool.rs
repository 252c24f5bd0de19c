//! Pools of receive buffers, and the messages lent from them.
//!
//! Each slot of a pool has one atomic word with its state:
//!
//! ```text
//!          post                take(completion)
//!   HOME ───────────► POSTED ───────────────────► LENT, n = 1 ◄──► n = 2, 3 … (pieces)
//!   │ ▲                ▲ │ take(failed completion)  │ │ the last piece is dropped
//!   │ └────────────────┼─┴──────────────────────────┼─┘
//!   │ gather           │ post_gathered              │ put_back, by the poster
//!   └──────────────► GATHERED ◄─────────────────────┘
//! ```
//!
//! Only the pool's one poster makes POSTED of HOME or of GATHERED, and GATHERED of
//! HOME; only the one completion of a posted receive, which cannot be copied, makes
//! LENT of POSTED; only the last holder of a message makes HOME of LENT, or, being the
//! poster as well, GATHERED. The device writes to a slot only while it is POSTED, and is
//! done with it when there is its completion: so the bytes of a LENT slot do not change,
//! and can be a slice.

mod buf;
mod home;
mod inner;
mod memory;
mod recycle;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::alloc;
use crate::error::{ForeignCompletion, MapError, TakeError};
use crate::ids::{QueueId, QueueIdsExhausted};
use crate::object::completion::Completion;
use inner::{HOME, OwnLine, POSTED, PoolInner};

pub use buf::RecvBuf;
pub(crate) use memory::{Excess, Front, PoolMemory, within};
pub use recycle::Recycle;
pub use run::RecvRun;

/// References to the pool that are taken at once, so that a message costs none.
const PREPAID: usize = 64;
/// References that a handle keeps for later messages, at most.
const MAX_PREPAID: usize = 4 * PREPAID;

/// A handle of a pool of receive buffers. Clones are handles of the same pool.
///
/// The pool's memory stays until its queue has been destroyed *and* the last message
/// lent from it has been dropped.
pub struct RecvPool<R: Recycle> {
    inner: NonNull<PoolInner<R>>,
    /// References that this handle owns besides its own, for messages to come.
    prepaid: usize,
    owns: PhantomData<PoolInner<R>>,
}

// SAFETY: a handle is a counted reference; the pool is shared by atomics, its memory
// by the states of the slots, and the recycler is `Send + Sync`.
unsafe impl<R: Recycle> Send for RecvPool<R> {}
// SAFETY: the pool is shared by atomics, its memory by the states of the slots, and the recycler is
// `Send + Sync`; `prepaid` is changed through `&mut` only.
unsafe impl<R: Recycle> Sync for RecvPool<R> {}

impl<R: Recycle> RecvPool<R> {
    pub(crate) fn new<E: From<QueueIdsExhausted> + From<MapError>>(
        memory: Arc<PoolMemory>,
        recycler: R,
    ) -> Result<RecvPool<R>, E> {
        let id = QueueId::next()?;
        let (slots, state) = (memory.slots() as usize, || AtomicU32::new(HOME));
        let states = alloc::filled("allocating a pool", slots, state)?.into();
        let refs = OwnLine(AtomicUsize::new(1));
        let (slot_bytes, (base, stride)) = (memory.slot_bytes(), memory.layout());
        let front_bytes = memory.front().bytes() as u32;
        let inner = Box::new(PoolInner {
            refs,
            id,
            slot_bytes,
            front_bytes,
            base,
            stride,
            states,
            memory,
            recycler,
        });
        Ok(RecvPool { inner: NonNull::from(Box::leak(inner)), prepaid: 0, owns: PhantomData })
    }

    #[inline]
    fn inner(&self) -> &PoolInner<R> {
        // SAFETY: the handle's own reference keeps the pool alive.
        unsafe { self.inner.as_ref() }
    }

    pub(crate) fn memory(&self) -> &Arc<PoolMemory> {
        &self.inner().memory
    }

    /// The queue's number: that of the completions of its receives.
    #[inline]
    #[must_use]
    pub fn queue_id(&self) -> QueueId {
        self.inner().id
    }

    /// Returns the count of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.memory().slots()
    }

    /// Returns how many bytes of a message fit into a slot (besides its route header, where
    /// messages are datagrams).
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.memory().slot_bytes() as usize
    }

    /// Reports whether a slot can be posted: it is neither gathered, nor posted, nor lent.
    #[must_use]
    pub fn is_home(&self, slot: u32) -> bool {
        // Acquire: as in `begin_post`.
        self.state(slot).is_some_and(|state| state.load(Ordering::Acquire) == HOME)
    }

    /// The recycler, which is notified of slots that return to the pool.
    #[must_use]
    pub fn recycler(&self) -> &R {
        &self.inner().recycler
    }

    /// The message of a completed receive. Of a WRITE with immediate it is empty.
    ///
    /// # Errors
    /// [`TakeError`]: the completion is another queue's, or the receive failed (its
    /// slot is home again then).
    #[inline]
    pub fn take(&self, completion: Completion<'_>) -> Result<RecvBuf<R>, TakeError> {
        let taken = self.begin_take(&completion)?;
        // Relaxed: the handle's own reference keeps the pool alive meanwhile.
        self.inner().refs.0.fetch_add(1, Ordering::Relaxed);
        Ok(self.lend(taken))
    }

    /// As [`take`](Self::take), for the owner of a handle: it takes references to the
    /// pool in bulk, and so costs no atomic read-modify-write for most messages.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline]
    pub fn take_prepaid(&mut self, completion: Completion<'_>) -> Result<RecvBuf<R>, TakeError> {
        let taken = self.begin_take(&completion)?;
        self.prepay(1);
        Ok(self.lend(taken))
    }

    /// As [`take_prepaid`](Self::take_prepaid), for the case that has to be fast: a
    /// message of this pool without an immediate. Of everything else (failures,
    /// immediates, completions of other queues) the completion is given back.
    ///
    /// # Errors
    /// The completion; nothing has changed.
    #[inline]
    pub fn take_plain<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<R>, Completion<'c>> {
        let Some(taken) = self.inner().plain().take(&completion, true) else {
            return Err(completion);
        };
        self.prepay(1);
        Ok(self.lend(taken))
    }

    /// Takes this number of prepaid references to the pool; first prepays more if there are too
    /// few.
    #[inline]
    fn prepay(&mut self, references: usize) {
        if self.prepaid < references {
            let more = references.max(PREPAID);
            self.add_references(more);
            self.prepaid += more;
        }
        self.prepaid -= references;
    }

    /// Adds references to the pool, for messages to come.
    #[cold]
    fn add_references(&self, count: usize) {
        // Relaxed: the handle's own reference keeps the pool alive meanwhile.
        self.inner().refs.0.fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    fn state(&self, slot: u32) -> Option<&AtomicU32> {
        self.inner().states.get(slot as usize)
    }

    /// The slot and the length of a completed receive, now LENT; or HOME, if it failed.
    #[inline]
    fn begin_take(&self, completion: &Completion<'_>) -> Result<(u32, u32), TakeError> {
        let slot = completion.low();
        let expected = self.queue_id();
        let foreign = ForeignCompletion { expected, found: completion.queue_id() };
        let state = self.state(slot).filter(|_| foreign.found == expected).ok_or(foreign)?;
        // Relaxed: a posted slot changes hands through the device, which orders it.
        if state.load(Ordering::Relaxed) != POSTED {
            return Err(TakeError::NotPosted { slot });
        }
        if let Some(error) = completion.error() {
            // Release: like every way home.
            state.store(HOME, Ordering::Release);
            return Err(TakeError::Failed { slot, error });
        }
        let Some(len) = self.message_len(completion) else {
            // Release: our accesses to the slot precede its next post.
            state.store(HOME, Ordering::Release);
            return Err(TakeError::Runt { slot, byte_len: completion.byte_len() });
        };
        // Relaxed: no other thread can change it. A plain store is enough, because this
        // receive has only one completion, and it is here.
        state.store(1, Ordering::Relaxed);
        Ok((slot, len.min(self.inner().slot_bytes)))
    }

    /// The length of a received message by the device's report; `None` if it is shorter than the
    /// header in front of a message.
    #[inline]
    fn message_len(&self, completion: &Completion<'_>) -> Option<u32> {
        if completion.is_write_imm() {
            return Some(0); // its bytes were written elsewhere
        }
        completion.byte_len().checked_sub(self.inner().front_bytes)
    }

    /// The caller has added a reference, and the slot is LENT once.
    #[inline]
    fn lend(&self, (slot, len): (u32, u32)) -> RecvBuf<R> {
        // SAFETY: the caller has checked the slot and added a reference.
        unsafe { PoolInner::message(self.inner, slot, len) }
    }
}

impl<R: Recycle> Clone for RecvPool<R> {
    fn clone(&self) -> RecvPool<R> {
        // Relaxed: the handle's own reference keeps the pool alive meanwhile.
        self.inner().refs.0.fetch_add(1, Ordering::Relaxed);
        RecvPool { inner: self.inner, prepaid: 0, owns: PhantomData }
    }
}

impl<R: Recycle> Drop for RecvPool<R> {
    fn drop(&mut self) {
        // SAFETY: the handle owns one reference, and the prepaid ones.
        unsafe { PoolInner::release(self.inner, 1 + self.prepaid) }
    }
}

impl<R: Recycle> fmt::Debug for RecvPool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvPool")
            .field("queue", &self.queue_id())
            .field("slots", &self.slots())
            .finish_non_exhaustive()
    }
}
