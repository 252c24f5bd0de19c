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

mod home;
mod memory;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use crate::alloc;
use crate::error::{ForeignCompletion, MapError, TakeError};
use crate::ids::{QueueId, QueueIdsExhausted};
use crate::object::completion::Completion;
use crate::object::grh::{GRH_BYTES, Grh};

pub(crate) use memory::{Excess, Front, PoolMemory, within};
pub use run::RecvRun;

const HOME: u32 = 0;
const POSTED: u32 = u32::MAX;
/// On the poster's list of slots to be posted together.
const GATHERED: u32 = u32::MAX - 1;
/// Pieces of one message. Beyond it the process is ended, as the standard library's
/// `Arc` does: forgotten pieces could otherwise make the count run over.
const MAX_PIECES: u32 = 1 << 30;

/// References to the pool that are taken at once, so that a message costs none.
const PREPAID: usize = 64;
/// References that a handle keeps for later messages, at most.
const MAX_PREPAID: usize = 4 * PREPAID;

/// Is notified of each slot that returns to the pool when the last holder of its message
/// drops it: to post the slot again, for instance. Called on the thread that drops the
/// message, and must not block for long.
pub trait Recycle: Send + Sync + 'static {
    /// `slot` is home: it can be posted.
    fn recycle(&self, slot: u32);
}

/// Ignores them: the owner keeps account of slots by itself.
impl Recycle for () {
    #[inline]
    fn recycle(&self, _slot: u32) {}
}

impl<T: Recycle> Recycle for Arc<T> {
    #[inline]
    fn recycle(&self, slot: u32) {
        (**self).recycle(slot);
    }
}

struct PoolInner<R> {
    /// Count of references: one of each handle, those it has prepaid, and one of each message that
    /// is lent.
    refs: OwnLine<AtomicUsize>,
    id: QueueId,
    slot_bytes: u32,
    /// Bytes that the device puts in front of each message, and counts.
    front_bytes: u32,
    /// Address of the first slot's message; that of the next is `stride` bytes behind it.
    base: NonNull<u8>,
    stride: usize,
    states: Box<[AtomicU32]>,
    memory: Arc<PoolMemory>,
    recycler: R,
}

/// Values of a pool with which messages are found to be [plain](Completion::is_plain): a copy, so
/// that nothing is read anew for each message.
#[derive(Clone, Copy)]
struct Plain<'pool> {
    id: QueueId,
    slot_bytes: u32,
    front_bytes: u32,
    states: &'pool [AtomicU32],
}

impl Plain<'_> {
    /// The slot and the length of a message that is plain: now LENT. `None`, and nothing
    /// has changed, if it is not plain, or not of this pool, or (`also`) not wanted.
    #[inline(always)]
    fn take(self, completion: &Completion<'_>, also: bool) -> Option<(u32, u32)> {
        // Without branches: nearly always all of it holds.
        if !(completion.is_plain() & (completion.queue_id() == self.id) & also) {
            return None;
        }
        let mut len = completion.plain_len().wrapping_sub(self.front_bytes);
        if len > self.slot_bytes {
            // Too long, or (and so it has wrapped) shorter than what stands in front.
            if completion.plain_len() < self.front_bytes {
                return None;
            }
            len = self.slot_bytes;
        }
        let slot = completion.low();
        // Relaxed: as in `begin_take`.
        let state = self.states.get(slot as usize)?;
        if state.load(Ordering::Relaxed) != POSTED {
            return None;
        }
        state.store(1, Ordering::Relaxed);
        Some((slot, len))
    }
}

/// On a cache line of its own (two, for processors that fetch them in pairs): what
/// other threads change does not slow down the reading of its neighbours.
#[repr(align(128))]
struct OwnLine<T>(T);

impl<R> PoolInner<R> {
    /// Returns the address of a slot's message.
    ///
    /// # Safety
    /// There is such a slot.
    #[inline]
    unsafe fn slot(&self, slot: u32) -> NonNull<u8> {
        // SAFETY: the slot lies inside the memory that the pool holds.
        unsafe { self.base.add(slot as usize * self.stride) }
    }

    /// Returns the values that a completion is compared with, to see whether it is that of a plain
    /// message.
    #[inline]
    fn plain(&self) -> Plain<'_> {
        let PoolInner { id, slot_bytes, front_bytes, .. } = *self;
        Plain { id, slot_bytes, front_bytes, states: &self.states }
    }

    /// Gives back `count` references; with the last one the pool is freed.
    ///
    /// # Safety
    /// The caller owns `count` references, and does not use them afterwards.
    #[inline]
    unsafe fn release(pool: NonNull<PoolInner<R>>, count: usize) {
        // Release: whatever was done through these references happens before the free.
        // SAFETY: the caller's references keep the pool alive until here.
        if unsafe { pool.as_ref() }.refs.0.fetch_sub(count, Ordering::Release) == count {
            // Acquire: pairs with the releases of all other references.
            fence(Ordering::Acquire);
            // SAFETY: no reference is left; the pool came from a box.
            drop(unsafe { Box::from_raw(pool.as_ptr()) });
        }
    }
}

impl<R: Recycle> PoolInner<R> {
    /// A message of `len` bytes in `slot`.
    ///
    /// # Safety
    /// There is such a slot, and it is as long; it is LENT. The caller passes on a share
    /// of it and a reference to the pool.
    #[inline]
    unsafe fn message(pool: NonNull<PoolInner<R>>, slot: u32, len: u32) -> RecvBuf<R> {
        // SAFETY: the reference keeps the pool alive; there is such a slot.
        let at = unsafe { pool.as_ref().slot(slot) };
        RecvBuf { pool, at, len, slot, owns: PhantomData }
    }

    /// Drops a piece's share of its slot; the last one sends it home, and gives up the
    /// message's reference to the pool.
    ///
    /// # Safety
    /// The caller owns the share, and does not use it afterwards.
    #[inline(never)]
    unsafe fn give_back(pool: NonNull<PoolInner<R>>, slot: u32) {
        // SAFETY: the message's reference keeps the pool alive.
        let inner = unsafe { pool.as_ref() };
        // SAFETY: the slot was checked when the message was taken.
        let state = unsafe { inner.states.get_unchecked(slot as usize) };
        if go_home(state) {
            inner.recycler.recycle(slot);
            // SAFETY: the last piece gives up the message's reference.
            unsafe { PoolInner::release(pool, 1) };
        }
    }
}

/// Drops one share of a slot; whether it was the last, and the slot is home now.
#[inline]
fn go_home(state: &AtomicU32) -> bool {
    // Acquire: pairs with the releases of pieces dropped by other threads. If the
    // count is 1, this is the only piece, and no other thread can change that.
    if state.load(Ordering::Acquire) == 1 {
        // Release: our reads of the message happen before the slot is posted again.
        state.store(HOME, Ordering::Release);
        return true;
    }
    // Release: as above; acquire, because the last one goes home for all.
    state.fetch_sub(1, Ordering::AcqRel) == 1
}

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

    /// Takes so many of the prepaid references to the pool, and more of them if there
    /// are too few.
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
            // Release: as above.
            state.store(HOME, Ordering::Release);
            return Err(TakeError::Runt { slot, byte_len: completion.byte_len() });
        };
        // Relaxed: no other thread can change it. A plain store is enough, because this
        // receive has only one completion, and it is here.
        state.store(1, Ordering::Relaxed);
        Ok((slot, len.min(self.inner().slot_bytes)))
    }

    /// The length of a received message, as the device tells it; `None` if it is shorter
    /// than what stands in front of it.
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
        // SAFETY: the slot was checked.
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
        // SAFETY: the handle's own reference, and what it has prepaid.
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

/// A received message, or a piece of one: bytes in the pool that do not change until
/// the last piece is dropped. Pieces may be dropped in any order and on any thread.
/// The last drop returns the slot to the pool and notifies the [`Recycle`]r.
///
/// Pieces share the slot, as those of a reference-counted byte string do; making one
/// allocates nothing.
pub struct RecvBuf<R: Recycle = ()> {
    pool: NonNull<PoolInner<R>>,
    at: NonNull<u8>,
    len: u32,
    slot: u32,
    owns: PhantomData<PoolInner<R>>,
}

// SAFETY: the bytes do not change while a piece exists, the count is atomic, and the
// recycler, which any thread may come to call, is `Send + Sync`.
unsafe impl<R: Recycle> Send for RecvBuf<R> {}
// SAFETY: the bytes do not change while a piece exists, the count is atomic, and the recycler is
// `Send + Sync`.
unsafe impl<R: Recycle> Sync for RecvBuf<R> {}

impl<R: Recycle> Deref for RecvBuf<R> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie inside the slot, which is initialised (it was mapped as
        // zeroes), stays mapped by the pool that this piece holds, and is not written
        // to while it is LENT.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len as usize) }
    }
}

impl<R: Recycle> RecvBuf<R> {
    /// The slot that it lies in.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The route header of a datagram; `None` if it has none that could be understood,
    /// or is none. (Where the completion's [`source`](Completion::source) says that
    /// there was none, this is what was left in the buffer from earlier.)
    #[must_use]
    pub fn grh(&self) -> Option<Grh> {
        Grh::parse(self.grh_bytes()?)
    }

    /// The bytes in front of the message: the route header of a datagram, as it came.
    #[must_use]
    pub fn grh_bytes(&self) -> Option<&[u8; GRH_BYTES]> {
        // SAFETY: the message's reference keeps the pool alive.
        let pool = unsafe { self.pool.as_ref() };
        if pool.front_bytes as usize != GRH_BYTES {
            return None;
        }
        // SAFETY: these bytes lie in front of the message in its slot (see
        // `PoolMemory`), and are as good as those of the message: see `deref`.
        Some(unsafe { pool.slot(self.slot).sub(GRH_BYTES).cast().as_ref() })
    }

    /// A piece of this one, which shares its slot.
    ///
    /// # Panics
    /// As indexing a slice does, when the range is not inside.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> RecvBuf<R> {
        let start = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&n) => n.saturating_add(1),
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len(),
        };
        let piece = NonNull::from(&self[start..end]);
        self.share(start, piece.len() as u32)
    }

    /// Splits off the first `at` bytes: returns them, and keeps the rest.
    ///
    /// # Panics
    /// As `split_at` of a slice does, when `at` is beyond the end.
    #[must_use = "the bytes that are split off are gone from this piece"]
    pub fn split_to(&mut self, at: usize) -> RecvBuf<R> {
        let front = self.slice(..at);
        // SAFETY: `at` is inside, or `slice` would have panicked.
        self.at = unsafe { self.at.add(at) };
        self.len -= at as u32;
        front
    }

    /// Another piece of `len` bytes at `offset`, both checked.
    fn share(&self, offset: usize, len: u32) -> RecvBuf<R> {
        // Relaxed: this piece keeps the slot LENT meanwhile.
        if self.state().fetch_add(1, Ordering::Relaxed) >= MAX_PIECES {
            std::process::abort(); // see MAX_PIECES
        }
        // SAFETY: the offset is inside this piece.
        let at = unsafe { self.at.add(offset) };
        RecvBuf { pool: self.pool, at, len, slot: self.slot, owns: PhantomData }
    }

    #[inline]
    fn state(&self) -> &AtomicU32 {
        // SAFETY: the message's reference keeps the pool alive; the slot was checked
        // when the message was taken.
        unsafe { self.pool.as_ref().states.get_unchecked(self.slot as usize) }
    }
}

impl<R: Recycle> Clone for RecvBuf<R> {
    fn clone(&self) -> RecvBuf<R> {
        self.share(0, self.len)
    }
}

impl<R: Recycle> Drop for RecvBuf<R> {
    // Always: a message whose address is taken by no call stays in registers. In memory
    // it is written in words and copied in larger pieces, which wait for the words to
    // arrive: that was a third of the time of a short message.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the piece's share and reference end here.
        unsafe { PoolInner::give_back(self.pool, self.slot) }
    }
}

impl<R: Recycle> AsRef<[u8]> for RecvBuf<R> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<R: Recycle> fmt::Debug for RecvBuf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBuf").field("slot", &self.slot).field("bytes", &&**self).finish()
    }
}
