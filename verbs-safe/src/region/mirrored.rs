//! Memory that appears twice in a row, so that a ring's record is always contiguous.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::errno::{Errno, leaked};
use crate::error::MapError;
use crate::limit;
use crate::region::memory::{Pages, round_up};

/// `capacity` bytes mapped twice, one copy right behind the other: the byte at
/// offset `i` is the byte at `i + capacity`. All of it, `2 * capacity` bytes, can
/// be registered as one region.
///
/// ```
/// let mirrored = verbs_safe::Mirrored::new(4096)?;
/// assert!(mirrored.capacity() >= 4096);
/// assert_eq!(mirrored.len(), 2 * mirrored.capacity());
/// # Ok::<(), verbs_safe::MapError>(())
/// ```
#[derive(Debug)]
pub struct Mirrored {
    base: NonNull<u8>,
    capacity: usize,
    file: OwnedFd,
}

// SAFETY: the mapping is plain memory that this value owns; it has no accessors.
unsafe impl Send for Mirrored {}
// SAFETY: the mapping is plain memory that this value owns; it has no accessors.
unsafe impl Sync for Mirrored {}

impl Mirrored {
    /// Maps at least `bytes` bytes (rounded up to whole pages) twice.
    ///
    /// The address range is reserved first, and both halves are mapped over the reservation, so
    /// that no other thread can take an address in between.
    ///
    /// # Errors
    /// [`MapError`]; its `step` names the call that the system refused.
    pub fn new(bytes: usize) -> Result<Mirrored, MapError> {
        Mirrored::with_pages(bytes, Pages::Normal)
    }

    /// As [`new`](Self::new), of the given pages.
    ///
    /// # Errors
    /// [`MapError`]; `ENOMEM` with huge pages means that their pool is too small
    /// (`/proc/sys/vm/nr_hugepages`).
    pub fn with_pages(bytes: usize, pages: Pages) -> Result<Mirrored, MapError> {
        let error = |step| move |errno| MapError::new(step, bytes, errno);
        let (capacity, len) = sizes(bytes, pages).ok_or(error("mirroring")(Errno::ENOMEM))?;
        let file =
            memory_file("rdma-ring", capacity, pages).map_err(error("making a memory file"))?;
        let base = reserve(len, pages).map_err(error("reserving addresses for a mirror"))?;
        // From here on dropping gives the addresses back.
        let mirrored = Mirrored { base, capacity, file };
        for half in [0, capacity] {
            mirrored.map_half(half).map_err(error("mapping half of a mirror"))?;
        }
        Ok(mirrored)
    }

    fn map_half(&self, offset: usize) -> Result<(), Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range lies in the reservation, which `self` owns.
        unsafe {
            let at = self.base.as_ptr().add(offset).cast::<c_void>();
            mmap(at, self.capacity, protection, flags, &self.file, 0)?;
        }
        Ok(())
    }

    /// The bytes of one copy: a ring's capacity.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes of both copies.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mirror is never empty")]
    pub fn len(&self) -> usize {
        2 * self.capacity
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl AsFd for Mirrored {
    /// The memory file behind both copies.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        // SAFETY: `self` owns the whole range, and a registration owns its mirror: none is left.
        if let Err(errno) = unsafe { munmap(self.base.as_ptr().cast(), self.len()) } {
            leaked("a mirrored mapping", errno.into());
        }
    }
}

fn sizes(bytes: usize, pages: Pages) -> Option<(usize, usize)> {
    let capacity = round_up(bytes.max(1), pages.bytes())?;
    Some((capacity, capacity.checked_mul(2)?))
}

/// Makes a memory file of `len` bytes that keeps its length.
pub(crate) fn memory_file(name: &str, len: usize, pages: Pages) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let kind = match pages {
        Pages::Normal => MemfdFlags::empty(),
        Pages::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
    };
    let file = memfd_create(name, flags | kind)?;
    limit::set_len(&file, len as u64)?;
    // A process that gets the descriptor cannot truncate the memory under the mappings.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Reserves addresses that begin where a page of that kind may begin.
fn reserve(len: usize, pages: Pages) -> Result<NonNull<u8>, Errno> {
    let slack = pages.bytes() - Pages::Normal.bytes();
    let whole = len.checked_add(slack).ok_or(Errno::ENOMEM)?;
    let (nothing, private) = (ProtFlags::empty(), MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    let start = unsafe { mmap_anonymous(null_mut(), whole, nothing, private) }?.cast::<u8>();
    let before = start.align_offset(pages.bytes());
    let base = start.wrapping_add(before);
    for (at, spare) in [(start, before), (base.wrapping_add(len), slack - before)] {
        if spare > 0 {
            // SAFETY: the piece is part of the reservation that was just made, outside of the part
            // that is kept. If it cannot be unmapped, only addresses are lost.
            let _ = unsafe { munmap(at.cast(), spare) };
        }
    }
    NonNull::new(base).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests;
