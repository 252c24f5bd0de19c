//! Messages that are lent from a pool, and their pieces.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::inner::PoolInner;
use super::recycle::Recycle;
use crate::object::grh::{GRH_BYTES, Grh};

/// Pieces of one message. Beyond it the process is ended, as the standard library's
/// `Arc` does: forgotten pieces could otherwise make the count run over.
const MAX_PIECES: u32 = 1 << 30;

/// A received message, or a piece of one: bytes in the pool that do not change until
/// the last piece is dropped. Pieces may be dropped in any order and on any thread.
/// The last drop returns the slot to the pool and notifies the [`Recycle`]r.
///
/// Pieces share the slot, as those of a reference-counted byte string do; making one
/// allocates nothing.
pub struct RecvBuf<R: Recycle = ()> {
    pub(super) pool: NonNull<PoolInner<R>>,
    at: NonNull<u8>,
    len: u32,
    pub(super) slot: u32,
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

impl<R: Recycle> PoolInner<R> {
    /// A message of `len` bytes in `slot`.
    ///
    /// # Safety
    /// There is such a slot, and it is as long; it is LENT. The caller passes on a share
    /// of it and a reference to the pool.
    #[inline]
    pub(super) unsafe fn message(pool: NonNull<PoolInner<R>>, slot: u32, len: u32) -> RecvBuf<R> {
        // SAFETY: the caller's reference keeps the pool alive, and the slot exists (see # Safety).
        let at = unsafe { pool.as_ref().slot(slot) };
        RecvBuf { pool, at, len, slot, owns: PhantomData }
    }
}

impl<R: Recycle> RecvBuf<R> {
    /// The slot of its bytes.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The route header of a datagram; `None` if it cannot be parsed, or the message is no
    /// datagram. (If the completion's [`source`](crate::Completion::source) reports no header,
    /// these are old bytes of the buffer.)
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
        // SAFETY: these bytes lie in front of the message in its slot (see `PoolMemory`), and are
        // valid as those of the message: see `deref`.
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
        // SAFETY: `slice` has checked that `at` is at most the length of this piece, which owns its
        // bytes.
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
        // SAFETY: the caller has checked that the offset is inside this piece, which owns its
        // bytes.
        let at = unsafe { self.at.add(offset) };
        RecvBuf { pool: self.pool, at, len, slot: self.slot, owns: PhantomData }
    }

    #[inline]
    pub(super) fn state(&self) -> &AtomicU32 {
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
    // Always inlined: a message stays in registers if no call takes its address. In memory it is
    // written in words and copied in larger pieces, which wait for the stores of the words: this
    // took a third of the time of a short message.
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
