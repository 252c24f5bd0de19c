//! Mappings of the pieces of files that READs land in.

use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::errno::{Errno, leaked};
use crate::error::MapError;
use crate::region::memory::{Maker, keep_out_of_children, page_bytes, round_up};

/// A shared mapping of a piece of a file, which nothing here accesses.
#[derive(Debug)]
pub struct FileMapping {
    base: NonNull<u8>,
    len: usize,
    /// It has pages in memory only.
    in_memory: bool,
    maker: Maker,
}

/// Pages of a file system's files, as the file system describes them.
struct FilePages {
    /// They are nowhere but in memory.
    in_memory: bool,
    /// Bytes of one, of which mappings consist.
    bytes: usize,
}

impl FilePages {
    fn for_file(file: &impl AsFd) -> Result<FilePages, Errno> {
        const TMPFS: u64 = 0x0102_1994;
        const HUGETLBFS: u64 = 0x9584_58f6;
        let stat = fstatfs(file)?;
        Ok(match stat.f_type as u64 & 0xffff_ffff {
            TMPFS => FilePages { in_memory: true, bytes: page_bytes() },
            // Its blocks are its pages. Less than a whole one cannot be unmapped.
            HUGETLBFS => FilePages { in_memory: true, bytes: stat.f_bsize as usize },
            _ => FilePages { in_memory: false, bytes: page_bytes() },
        })
    }
}

// SAFETY: the mapping is addresses that this value owns; it has no accessors.
unsafe impl Send for FileMapping {}
// SAFETY: the mapping is addresses that this value owns; it has no accessors.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    pub(crate) fn new(file: &impl AsFd, offset: u64, len: usize) -> Result<FileMapping, MapError> {
        let error = |step, errno| MapError::new(step, len, errno);
        let stat = fstat(file).map_err(|e| error("looking at a file", e.into()))?;
        let end = offset.checked_add(len as u64);
        let fits = end.is_some_and(|end| stat.st_size >= 0 && end <= stat.st_size as u64);
        let pages = FilePages::for_file(file).map_err(|e| error("looking at a file system", e))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !fits || len == 0 || !offset.is_multiple_of(pages.bytes as u64) {
            return Err(error("choosing a piece of a file", Errno::EINVAL));
        }
        let failed = |errno| error("mapping a file", errno);
        let whole = round_up(len, pages.bytes).ok_or(failed(Errno::ENOMEM))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap(null_mut(), whole, protection, MapFlags::SHARED, file, offset) }
            .map_err(|e| failed(e.into()))?;
        let base = NonNull::new(base.cast()).ok_or(failed(Errno::EINVAL))?;
        keep_out_of_children(base, whole);
        let in_memory = pages.in_memory;
        Ok(FileMapping { base, len: whole, in_memory, maker: Maker::current() })
    }

    pub(crate) fn in_memory(&self) -> bool {
        self.in_memory
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        if !self.maker.is_current() {
            return;
        }
        // SAFETY: the mapping is this value's own; a registration owns its mapping.
        if let Err(errno) = unsafe { munmap(self.base.as_ptr().cast(), self.len) } {
            leaked("a mapping of a file", errno.into());
        }
    }
}

#[cfg(test)]
mod tests;
