//! Reading shared memory in place.

use super::{RegionError, SharedRegion};

/// A piece of a [`SharedRegion`], read in place.
///
/// A peer may write to it meanwhile, so it is read by atomic loads and copies, as the region
/// itself; a slice of it is unsafe, and takes a peer that is trusted not to write.
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let pd = devices[0].open()?.alloc_pd()?;
/// use verbs_safe::{Mapping, SharedRegionConfig};
/// let region = pd.register_shared(Mapping::new(4096)?, SharedRegionConfig::default())?;
/// region.copy_in(8, b"a message")?;
/// let view = region.view(8, 9)?;
/// let mut start = [0; 4];
/// view.copy_out(0, &mut start)?;
/// assert_eq!((&start, view.words().count()), (b"a me", 2));
/// // SAFETY: no peer has the keys of this region, and no code here writes to it.
/// assert_eq!(unsafe { view.as_slice() }, b"a message");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct SharedView<'r> {
    region: &'r SharedRegion,
    offset: usize,
    len: usize,
}

impl SharedRegion {
    /// A view of `len` bytes at `offset`, in place.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn view(&self, offset: usize, len: usize) -> Result<SharedView<'_>, RegionError> {
        self.span(offset, len)?;
        Ok(SharedView { region: self, offset, len })
    }
}

impl<'r> SharedView<'r> {
    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reports whether the view is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from `at` into `to`, and fills it.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], by the offsets of the view.
    #[inline]
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> Result<(), RegionError> {
        if at > self.len || to.len() > self.len - at {
            let (len, region_len) = (to.len(), self.len);
            return Err(RegionError::OutOfBounds { offset: at, len, region_len });
        }
        self.region.copy_out(self.offset + at, to)
    }

    /// Its bytes in words of eight, the last one filled up with zeros: each is loaded when
    /// it is asked for, in the order of memory.
    pub fn words(&self) -> impl Iterator<Item = [u8; 8]> + use<'r> {
        let Self { region, offset, len } = *self;
        (0..len).step_by(8).map(move |at| {
            if len - at >= 8
                && let Ok(word) = region.load_u64(offset + at)
            {
                return word.to_ne_bytes();
            }
            // The last one, or it is not aligned.
            let mut word = [0; 8];
            let copied = region.copy_out(offset + at, &mut word[..(len - at).min(8)]);
            debug_assert!(copied.is_ok(), "a view lies inside of its region");
            word
        })
    }

    /// The bytes as a slice, without a copy.
    ///
    /// # Safety
    /// As long as the slice is used, neither this process nor a peer that has the keys of
    /// the region writes to these bytes. No code on this side can check that for a peer:
    /// the caller trusts each peer that can reach the memory like a thread of its own
    /// program.
    #[inline]
    #[must_use]
    pub unsafe fn as_slice(&self) -> &'r [u8] {
        // SAFETY: `view` has checked that the bytes lie inside; they are initialised (mappings
        // begin as zeros) and live as long as the region is borrowed. Neither this process nor a
        // peer writes to them (see # Safety).
        unsafe {
            let start = self.region.base.add(self.offset);
            std::slice::from_raw_parts(start.as_ptr(), self.len)
        }
    }
}

impl std::fmt::Debug for SharedView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedView").field("offset", &self.offset).field("len", &self.len).finish()
    }
}
