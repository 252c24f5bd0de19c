//! A ring that peers read.

use verbs_sys::ibv_access_flags;

use crate::error::{RegionError, RegisterError};
use crate::object::context::ProtectionDomain;
use crate::region::shared::{RemoteSpan, SharedRegion};
use crate::ring::{RingConfig, RingMemory};

/// A ring that peers may READ, and that only its one owner writes to, in place.
///
/// The owner tells the peer in another region how much of it is finished: see
/// [`SharedRegion::publish_tail`](crate::SharedRegion::publish_tail).
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let pd = devices[0].open()?.alloc_pd()?;
/// use verbs_safe::RingConfig;
/// let mut ring = pd.source_ring(RingConfig::mirrored(1 << 16))?;
/// ring.lend((1 << 16) - 2, 5)?.copy_from_slice(b"hello"); // it may cross the end
/// assert_eq!(ring.lend(0, 3)?, b"llo");
/// let span = ring.remote(); // to be sent to the peer
/// assert_eq!(span.len, 2 << 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SourceRing(RingMemory);

impl ProtectionDomain {
    /// A ring for peers to read.
    ///
    /// # Errors
    /// [`RegisterError`]: there is no such memory (and which step of making it failed), or
    /// the device refused it.
    pub fn source_ring(&self, config: RingConfig) -> Result<SourceRing, RegisterError> {
        use ibv_access_flags as f;
        let access = f(f::IBV_ACCESS_LOCAL_WRITE.0 | f::IBV_ACCESS_REMOTE_READ.0);
        Ok(SourceRing(RingMemory::new(self, config, access)?))
    }
}

impl SourceRing {
    /// Bytes of the ring.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Reports whether the ring is mapped twice in a row.
    #[inline]
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.0.is_mirrored
    }

    /// Returns the span for a peer to read the ring: both copies if it is mirrored.
    #[must_use]
    pub fn remote(&self) -> RemoteSpan {
        let (addr, rkey) = (self.0.base.as_ptr() as u64, self.0.registration.rkey());
        RemoteSpan { addr, rkey, len: self.0.len() as u64 }
    }

    /// `len` bytes at `offset`, to be filled: no more than the capacity.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn lend(&mut self, offset: usize, len: usize) -> Result<&mut [u8], RegionError> {
        let Some(at) = self.0.span(offset, len) else {
            return Err(self.outside(offset, len));
        };
        // SAFETY: `span` found the bytes inside the mapping, which was made with zeroes in it; none
        // appears twice, since they are at most one copy; `self` is borrowed for all of it. Neither
        // a peer nor work of this process writes there: the ring is registered for remote reads
        // only, and no request can name it.
        Ok(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) })
    }

    /// Copies all of `from` to `offset`: as [`lend`](Self::lend) and a copy, without a function
    /// call for short messages.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), RegionError> {
        copy_short(self.lend(offset, from.len())?, from);
        Ok(())
    }

    /// `len` bytes at `offset`, as they are: no more than the capacity.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    pub fn bytes(&self, offset: usize, len: usize) -> Result<&[u8], RegionError> {
        let at = self.0.span(offset, len).ok_or_else(|| self.outside(offset, len))?;
        // SAFETY: `span` found the bytes inside the mapping, which was made with zeroes in it and
        // which `self.0` keeps; nothing writes there without `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(at.as_ptr(), len) })
    }

    /// Stores a word at `offset`, in little-endian order: a record's header.
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not aligned to 8.
    #[inline]
    pub fn store_u64(&mut self, offset: usize, value: u64) -> Result<(), RegionError> {
        let Some(at) = self.0.span(offset, 8) else {
            return Err(self.outside(offset, 8));
        };
        if !offset.is_multiple_of(8) {
            return Err(RegionError::Misaligned { offset, alignment: 8 });
        }
        // SAFETY: `span` found the word inside the mapping, which `self.0` keeps; `offset` is a
        // multiple of 8, and the mapping is aligned to pages. The borrow of `self` is of all of it.
        unsafe { at.cast::<u64>().write(value.to_le()) };
        Ok(())
    }

    /// Gives the ring over to several threads, which fill it by atomic stores: this lends
    /// nothing any more. (Peers may read it as before; take its address and key for them
    /// from [`remote`](Self::remote) first.)
    #[must_use]
    pub fn share(&mut self) -> SharedRegion {
        // With a capacity of 0, no slice is made from now on; earlier ones are gone, since they
        // borrowed `self`.
        self.0.capacity = 0;
        SharedRegion::from_registration(self.0.registration.clone())
    }

    /// Prefetches the line at `offset`, any offset, for a write: a line that a peer on another
    /// processor has read takes a while to be fetched again.
    #[inline(always)]
    pub fn will_fill(&self, offset: usize) {
        let line = self.0.base.as_ptr().wrapping_add(offset);
        // SAFETY: the instruction accesses nothing that the program can see, and ignores
        // addresses without memory; processors without it skip it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
    }

    #[cold]
    fn outside(&self, offset: usize, len: usize) -> RegionError {
        RegionError::OutOfBounds { offset, len, region_len: self.0.len() }
    }
}

/// Copies a message that is probably short, to as many bytes: of the shortest ones the first
/// and the last part, which overlap, without a call.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    match from.len() {
        8..16 => copy_ends::<8>(to, from),
        16..=32 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        to.first_chunk_mut::<N>().into_iter().for_each(|to| *to = *first);
        to.last_chunk_mut::<N>().into_iter().for_each(|to| *to = *last);
    }
}

debug_shows!(SourceRing: capacity(), is_mirrored());
