//! Memory to be registered: mappings of our own, never the program's heap.
//!
//! They are pieces of one memory file of the process, where the system has memory files: a software
//! device can then map registered memory into other processes, instead of asking the kernel to copy
//! each time. The file takes one descriptor for all mappings. An unmapped piece becomes a hole, and
//! its place in the file is used again. So the file is as long as the maximum that was mapped at a
//! time, plus fragmentation. A child of fork has neither the pages nor a part in the file: dropping
//! its copies changes nothing for the parent, and its own new memory is anonymous.

mod extents;
mod file;
mod maker;

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::errno::{Errno, leaked};
use crate::error::MapError;

pub(crate) use file::map_file;
use maker::Maker;

/// A page-aligned mapping, which is zeroed and of memory that has no name.
///
/// ```
/// let mapping = verbs_safe::Mapping::new(10_000)?;
/// assert!(mapping.len() >= 10_000);
/// # Ok::<(), verbs_safe::MapError>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    piece: Option<file::FilePiece>,
    maker: Maker,
}

// SAFETY: the mapping is plain memory that this value owns; it has no accessors.
unsafe impl Send for Mapping {}
// SAFETY: the mapping is plain memory that this value owns; it has no accessors.
unsafe impl Sync for Mapping {}

/// Pages that a mapping is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// The system's pages (4 KiB on x86-64); the kernel may merge them.
    #[default]
    Normal,
    /// 2 MiB pages out of the system's pool of huge pages, which the administrator fills.
    Huge2M,
}

impl Pages {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Pages::Normal => page_bytes(),
            Pages::Huge2M => 2 << 20,
        }
    }

    fn flags(self) -> MapFlags {
        match self {
            Pages::Normal => MapFlags::PRIVATE,
            Pages::Huge2M => {
                MapFlags::PRIVATE
                    | MapFlags::from_bits_retain(libc::MAP_HUGETLB as u32)
                    | MapFlags::from_bits_retain(libc::MAP_HUGE_2MB as u32)
            }
        }
    }
}

impl Mapping {
    /// Maps at least `bytes` bytes, rounded up to whole pages (one, if `bytes` is 0).
    ///
    /// # Errors
    /// [`MapError`] with the system's reason. Plain pages of the process are pieces of one
    /// file in memory: all that are mapped at the same time have to fit into the limit of a
    /// file's length (`RLIMIT_FSIZE`, `ulimit -f`).
    pub fn new(bytes: usize) -> Result<Mapping, MapError> {
        Mapping::with_pages(bytes, Pages::Normal)
    }

    /// Maps at least `bytes` bytes of the given pages.
    ///
    /// # Errors
    /// [`MapError`]; `ENOMEM` with huge pages means that the pool is too small
    /// (`/proc/sys/vm/nr_hugepages`).
    pub fn with_pages(bytes: usize, pages: Pages) -> Result<Mapping, MapError> {
        let error = |errno| MapError::new("mapping memory", bytes, errno);
        if host::is_short() {
            return Err(error(Errno::ENOMEM));
        }
        let len = round_up(bytes.max(1), pages.bytes()).ok_or(error(Errno::ENOMEM))?;
        if pages == Pages::Normal
            && let Some(mapped) = file::FilePiece::map(len)
        {
            let (base, piece) = mapped.map_err(error)?;
            return Ok(Mapping::own(base, len, Some(piece)));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap_anonymous(null_mut(), len, protection, pages.flags()) }
            .map_err(|e| error(e.into()))?;
        let base = NonNull::new(base.cast()).ok_or(error(Errno::EINVAL))?;
        Ok(Mapping::own(base, len, None))
    }

    /// Maps `len` bytes of another file that begin at `offset`, both of whole pages. They are not
    /// zeroed, and no code accesses them.
    pub(super) fn of_file(file: impl AsFd, offset: u64, len: usize) -> Result<Mapping, Errno> {
        Ok(Mapping::own(map_file(file, offset, len)?, len, None))
    }

    /// Takes over a mapping that was just made.
    fn own(base: NonNull<u8>, len: usize, piece: Option<file::FilePiece>) -> Mapping {
        keep_out_of_children(base, len);
        Mapping { base, len, piece, maker: Maker::current() }
    }

    /// The length in bytes: whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.maker.is_current() {
            return;
        }
        // SAFETY: the mapping is this value's own, and nothing is registered on it any
        // more: a registration owns its mapping.
        if let Err(errno) = unsafe { munmap(self.base.as_ptr().cast(), self.len) } {
            leaked("a memory mapping", errno.into());
        } else if let Some(piece) = &self.piece {
            piece.give_back(self.len);
        }
    }
}

/// The size of the system's pages. (rustix reads it from the auxiliary vector, with
/// checks that do not survive valgrind.)
pub(crate) fn page_bytes() -> usize {
    // SAFETY: asking has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

pub(crate) fn round_up(bytes: usize, unit: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(unit)
}

/// After a fork, the first process that writes gets a copy of a private page: if that
/// is this process, the device keeps writing into the page that it has lost. So children do not get
/// the pages at all. (Kernels from 5.12 copy pinned pages for the child; failure to advise is then
/// harmless.)
fn keep_out_of_children(base: NonNull<u8>, len: usize) {
    // SAFETY: the advice changes nothing for this process.
    let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), len, Advice::LinuxDontFork) };
}

#[cfg(test)]
mod tests;
