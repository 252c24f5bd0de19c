//! The poster's side: slots that return, and are posted again.

use std::sync::atomic::Ordering;

use super::buf::RecvBuf;
use super::inner::{GATHERED, HOME, POSTED, PoolInner};
use super::recycle::Recycle;
use super::{MAX_PREPAID, PREPAID, RecvPool};

/// Home.
impl<R: Recycle> RecvPool<R> {
    /// Drops a message, and returns its slot without calling the recycler: for the owner of the
    /// poster, when it has finished a message itself. `None` where other pieces of the message are
    /// still held (the last of them calls the recycler), or the message is another pool's.
    // Always: a message that is passed on in registers is not put together in memory.
    #[inline(always)]
    pub fn reclaim(&mut self, buf: RecvBuf<R>) -> Option<u32> {
        let slot = self.reclaim_as(buf, HOME)?;
        self.limit_prepaid();
        Some(slot)
    }

    /// As [`reclaim`](Self::reclaim), but the slot is GATHERED. Only the poster calls it,
    /// and puts the slot on its list.
    #[inline(always)]
    pub(crate) fn reclaim_gathered(&mut self, buf: RecvBuf<R>) -> Option<u32> {
        self.reclaim_as(buf, GATHERED)
    }

    /// Drops a message and sets its slot to `state`, if this is the only piece.
    #[inline(always)]
    fn reclaim_as(&mut self, buf: RecvBuf<R>, state: u32) -> Option<u32> {
        let (word, slot) = (buf.state(), buf.slot);
        // Acquire: pairs with the releases of pieces dropped by other threads.
        if buf.pool != self.inner || word.load(Ordering::Acquire) != 1 {
            return None; // dropped, as any other
        }
        // Release: our reads of the message happen before the slot is posted again.
        word.store(state, Ordering::Release);
        std::mem::forget(buf); // its reference to the pool is ours now
        self.prepaid += 1;
        Some(slot)
    }

    /// Gives references back if far too many are kept.
    #[inline]
    pub(crate) fn limit_prepaid(&mut self) {
        if self.prepaid > MAX_PREPAID {
            let surplus = self.prepaid - (MAX_PREPAID - PREPAID);
            self.prepaid -= surplus;
            // SAFETY: these are prepaid references; the handle's own one remains.
            unsafe { PoolInner::release(self.inner, surplus) };
        }
    }
}

/// Out.
impl<R: Recycle> RecvPool<R> {
    /// Makes POSTED of HOME; `false` if the slot is not home. Only the poster calls it.
    #[inline]
    pub(crate) fn begin_post(&self, slot: u32) -> Option<bool> {
        self.leave_home(slot, POSTED)
    }

    /// Makes something else of HOME; `false` if the slot is not home.
    #[inline]
    fn leave_home(&self, slot: u32, to: u32) -> Option<bool> {
        let state = self.state(slot)?;
        // Acquire: the last holder's reads of the message happen before the device
        // writes to the slot again.
        let home = state.load(Ordering::Acquire) == HOME;
        if home {
            // Relaxed: no other thread changes the state of a slot that is HOME.
            state.store(to, Ordering::Relaxed);
        }
        Some(home)
    }

    /// Makes HOME of POSTED: the device did not take the request.
    pub(crate) fn cancel_post(&self, slot: u32) {
        if let Some(state) = self.state(slot) {
            // Release: like every way home.
            state.store(HOME, Ordering::Release);
        }
    }

    /// Makes GATHERED of HOME; `false` if the slot is not home. Only the poster calls it,
    /// and puts the slot on its list.
    #[inline]
    pub(crate) fn gather(&self, slot: u32) -> Option<bool> {
        self.leave_home(slot, GATHERED)
    }

    /// Makes POSTED of GATHERED, of all these slots.
    ///
    /// # Safety
    /// The slots are GATHERED (and so there are such slots). Only the poster calls it.
    #[inline]
    pub(crate) unsafe fn post_gathered(&self, slots: &[u32]) {
        let states = &*self.inner().states;
        for &slot in slots {
            // SAFETY: the slots exist (see # Safety).
            let state = unsafe { states.get_unchecked(slot as usize) };
            // Relaxed: only the poster changes the state of a slot that is GATHERED.
            state.store(POSTED, Ordering::Relaxed);
        }
    }

    /// Makes GATHERED of POSTED: the device did not take the request.
    pub(crate) fn regather(&self, slot: u32) {
        if let Some(state) = self.state(slot) {
            // Relaxed: the device refused the request, so only the poster accesses the slot.
            state.store(GATHERED, Ordering::Relaxed);
        }
    }
}
