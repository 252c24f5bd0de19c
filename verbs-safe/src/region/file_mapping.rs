//! Mappings of the pieces of files that READs land in.

use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat, fstatfs};

use crate::errno::Errno;
use crate::error::MapError;
use crate::region::memory::{Mapping, page_bytes, round_up};

/// A shared mapping of a piece of a file, which nothing here accesses.
#[derive(Debug)]
pub struct FileMapping {
    pub(super) mapping: Mapping,
    /// It has pages in memory only.
    pub(super) in_memory: bool,
}

/// Pages of a file system's files, as the file system describes them.
struct FilePages {
    /// They are nowhere but in memory.
    in_memory: bool,
    /// Bytes of one page; mappings consist of whole pages.
    bytes: usize,
}

impl FilePages {
    fn for_file(file: &impl AsFd) -> Result<FilePages, Errno> {
        const TMPFS: u64 = 0x0102_1994;
        const HUGETLBFS: u64 = 0x9584_58f6;
        let stat = fstatfs(file)?;
        Ok(match stat.f_type as u64 & 0xffff_ffff {
            TMPFS => FilePages { in_memory: true, bytes: page_bytes() },
            // The file system's blocks are its pages. A part of a page cannot be unmapped.
            HUGETLBFS => FilePages { in_memory: true, bytes: stat.f_bsize as usize },
            _ => FilePages { in_memory: false, bytes: page_bytes() },
        })
    }
}

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
        let mapping = Mapping::of_file(file, offset, whole).map_err(failed)?;
        Ok(FileMapping { mapping, in_memory: pages.in_memory })
    }
}

#[cfg(test)]
mod tests;
