//! The state that all handles of a pool share, with the states of its slots.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use super::memory::PoolMemory;
use super::recycle::Recycle;
use crate::ids::QueueId;
use crate::object::completion::Completion;

pub(super) const HOME: u32 = 0;
pub(super) const POSTED: u32 = u32::MAX;
/// On the poster's list of slots to be posted together.
pub(super) const GATHERED: u32 = u32::MAX - 1;

pub(super) struct PoolInner<R> {
    /// Count of references: one of each handle, those it has prepaid, and one of each message that
    /// is lent.
    pub(super) refs: OwnLine<AtomicUsize>,
    pub(super) id: QueueId,
    pub(super) slot_bytes: u32,
    /// Bytes that the device puts in front of each message, and counts.
    pub(super) front_bytes: u32,
    /// Address of the first slot's message; that of the next is `stride` bytes behind it.
    pub(super) base: NonNull<u8>,
    pub(super) stride: usize,
    pub(super) states: Box<[AtomicU32]>,
    pub(super) memory: Arc<PoolMemory>,
    pub(super) recycler: R,
}

/// Values of a pool with which messages are found to be [plain](Completion::is_plain): a copy, so
/// that nothing is read anew for each message.
#[derive(Clone, Copy)]
pub(super) struct PlainCheck<'pool> {
    id: QueueId,
    slot_bytes: u32,
    front_bytes: u32,
    states: &'pool [AtomicU32],
}

impl PlainCheck<'_> {
    /// The slot and the length of a message that is plain: now LENT. `None`, and nothing
    /// has changed, if it is not plain, or not of this pool, or (`also`) not wanted.
    #[inline(always)]
    pub(super) fn take(self, completion: &Completion<'_>, also: bool) -> Option<(u32, u32)> {
        // Without branches: nearly always all conditions hold.
        if !(completion.is_plain() & (completion.queue_id() == self.id) & also) {
            return None;
        }
        let mut len = completion.plain_len().wrapping_sub(self.front_bytes);
        if len > self.slot_bytes {
            // Too long, or shorter than the header in front of it: then `len` has wrapped.
            if completion.plain_len() < self.front_bytes {
                return None;
            }
            len = self.slot_bytes;
        }
        let slot = completion.low();
        // Relaxed: as in `RecvPool::begin_take`.
        let state = self.states.get(slot as usize)?;
        if state.load(Ordering::Relaxed) != POSTED {
            return None;
        }
        state.store(1, Ordering::Relaxed);
        Some((slot, len))
    }
}

/// A value on a cache line of its own (two, for processors that fetch lines in pairs), so that
/// writes of other threads do not slow down reads of its neighbours.
#[repr(align(128))]
pub(super) struct OwnLine<T>(pub(super) T);

impl<R> PoolInner<R> {
    /// Returns the address of a slot's message.
    ///
    /// # Safety
    /// There is such a slot.
    #[inline]
    pub(super) unsafe fn slot(&self, slot: u32) -> NonNull<u8> {
        // SAFETY: the slot exists (see # Safety), inside the memory that the pool holds.
        unsafe { self.base.add(slot as usize * self.stride) }
    }

    /// Returns the values that a completion is compared with, to see whether it is that of a plain
    /// message.
    #[inline]
    pub(super) fn plain(&self) -> PlainCheck<'_> {
        let PoolInner { id, slot_bytes, front_bytes, .. } = *self;
        PlainCheck { id, slot_bytes, front_bytes, states: &self.states }
    }

    /// Gives back `count` references; with the last one the pool is freed.
    ///
    /// # Safety
    /// The caller owns `count` references, and does not use them afterwards.
    #[inline]
    pub(super) unsafe fn release(pool: NonNull<PoolInner<R>>, count: usize) {
        // Release: accesses through these references happen before the free. SAFETY: the caller's
        // references keep the pool alive until here.
        if unsafe { pool.as_ref() }.refs.0.fetch_sub(count, Ordering::Release) == count {
            // Acquire: pairs with the releases of all other references.
            fence(Ordering::Acquire);
            // SAFETY: no reference is left; the pool came from a box.
            drop(unsafe { Box::from_raw(pool.as_ptr()) });
        }
    }
}

impl<R: Recycle> PoolInner<R> {
    /// Drops a piece's share of its slot; the last one sends it home, and gives up the
    /// message's reference to the pool.
    ///
    /// # Safety
    /// The caller owns the share, and does not use it afterwards.
    #[inline(never)]
    pub(super) unsafe fn give_back(pool: NonNull<PoolInner<R>>, slot: u32) {
        // SAFETY: the message's reference keeps the pool alive.
        let inner = unsafe { pool.as_ref() };
        // SAFETY: the slot was checked when the message was taken.
        let state = unsafe { inner.states.get_unchecked(slot as usize) };
        if go_home(state) {
            host::point();
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
    // Release: our reads of the message happen before the slot is posted again. Acquire: the last
    // piece returns the slot for all.
    state.fetch_sub(1, Ordering::AcqRel) == 1
}
