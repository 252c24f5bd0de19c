//! Registered memory that is a piece of a file.

use std::fmt;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use verbs_sys::ibv_access_flags;

use crate::context::ProtectionDomain;
use crate::errno::{Errno, leaked};
use crate::error::{MapError, RegisterError};
use crate::memory::{Maker, keep_out_of_children, page_bytes, round_up};
use crate::region::{Backing, Registration};

/// A piece of a file that READs of ours can land in: what they bring is in the file, and
/// was nowhere else before.
///
/// Its bytes are not to be seen here. Others may write to the file at any time, or cut it
/// off, and an access to a mapping of a file that has become shorter ends the process
/// (SIGBUS). So no code of this process accesses the mapping; the file's own reading and
/// writing show what is in it, and have errors. What a device does: one of the kernel's has
/// the pages pinned, and writes to what was the file's where somebody has cut that off;
/// with on-demand paging, and on `soft0` (where the kernel copies), the request ends with
/// an error of the local memory (`LOC_PROT`). A provider's library may hand over a few
/// bytes by the processor, so that there is a [shortest READ](Self::MIN_READ_BYTES).
///
/// No peer can reach it. It is [lent](crate::SendQueue::lend_file) to the queue that reads.
pub struct FileRegion {
    data: Arc<Registration>,
    len: usize,
}

impl FileRegion {
    /// The shortest READ that may land in a file, in bytes.
    pub const MIN_READ_BYTES: u32 = 4096;

    /// Bytes of the file that it covers.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        &self.data
    }
}

impl fmt::Debug for FileRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRegion").field("len", &self.len).finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Registers `len` bytes at `offset` of a file that is open for reading and writing, to
    /// be read into. There is room for them in the file already (`fallocate`): a device
    /// does not write beyond its end, and a hole that the disk has no room for is an error
    /// of the request.
    ///
    /// # Errors
    /// [`RegisterError::Map`]: it is no file of that length, or `offset` (a multiple of the
    /// system's pages, or of its file system's huge ones) or `len` (at least 1) cannot be. [`RegisterError::Refused`]: the
    /// device. One of the kernel's that does not page on demand gets files in memory only
    /// (tmpfs, hugetlbfs), whose pages may be pinned: those of a file on a disk may be
    /// written out and taken for clean while the device goes on writing to them (Linux 6.5
    /// and later refuses to pin such).
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let pd = devices[0].open()?.alloc_pd()?;
    /// let path = std::env::temp_dir().join(format!("region-{}", std::process::id()));
    /// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// # std::fs::remove_file(&path)?;
    /// file.set_len(1 << 20)?;
    /// let region = pd.register_file(&file, 4096, 100_000)?;
    /// assert_eq!(region.len(), 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_file(
        &self,
        file: impl AsFd,
        offset: u64,
        len: usize,
    ) -> Result<FileRegion, RegisterError> {
        let mapping = FileMapping::new(&file, offset, len)?;
        let may_be_pinned = mapping.in_memory && self.context().is_kernels();
        let mapping = Arc::new(Backing::File(mapping));
        let register = |access| Registration::part(self, mapping.clone(), 0, len, access);
        let local = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let on_demand = ibv_access_flags(local.0 | ibv_access_flags::IBV_ACCESS_ON_DEMAND.0);
        let data = match register(on_demand) {
            // What the kernel registers otherwise, it pins.
            Err(RegisterError::Refused { .. }) if may_be_pinned => register(local)?,
            other => other?,
        };
        Ok(FileRegion { data: Arc::new(data), len })
    }
}

/// A shared mapping of a piece of a file, which nothing here accesses.
#[derive(Debug)]
pub struct FileMapping {
    base: NonNull<u8>,
    len: usize,
    /// It has pages in memory only.
    in_memory: bool,
    maker: Maker,
}

/// What a file system says of its files' pages.
struct Pages {
    /// They are nowhere but in memory.
    in_memory: bool,
    /// Bytes of one, of which mappings consist.
    bytes: usize,
}

impl Pages {
    fn of(file: &impl AsFd) -> Result<Pages, Errno> {
        const TMPFS: u64 = 0x0102_1994;
        const HUGETLBFS: u64 = 0x9584_58f6;
        let stat = fstatfs(file)?;
        Ok(match stat.f_type as u64 & 0xffff_ffff {
            TMPFS => Pages { in_memory: true, bytes: page_bytes() },
            // Its blocks are its pages. Less than a whole one cannot be unmapped.
            HUGETLBFS => Pages { in_memory: true, bytes: stat.f_bsize as usize },
            _ => Pages { in_memory: false, bytes: page_bytes() },
        })
    }
}

// SAFETY: the mapping is addresses that this value owns; it has no accessors.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    fn new(file: &impl AsFd, offset: u64, len: usize) -> Result<FileMapping, MapError> {
        let error = |step, errno| MapError { step, bytes: len, errno };
        let stat = fstat(file).map_err(|e| error("looking at a file", e.into()))?;
        let end = offset.checked_add(len as u64);
        let fits = end.is_some_and(|end| stat.st_size >= 0 && end <= stat.st_size as u64);
        let pages = Pages::of(file).map_err(|e| error("looking at a file system", e))?;
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
        Ok(FileMapping { base, len: whole, in_memory, maker: Maker::this() })
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
        if !self.maker.is_this() {
            return;
        }
        // SAFETY: the mapping is this value's own; a registration owns its mapping.
        if let Err(errno) = unsafe { munmap(self.base.as_ptr().cast(), self.len) } {
            leaked("a mapping of a file", errno.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn files_in_memory_are_told_from_others_and_huge_pages_from_small_ones() {
        let memory = Pages::of(&memfd_create("small", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        assert!(memory.in_memory);
        assert_eq!(memory.bytes, page_bytes());
        let other = Pages::of(&std::fs::File::open("/proc/self/status").unwrap()).unwrap();
        assert!(!other.in_memory);
        // A kernel without huge pages has no such files.
        let Ok(huge) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
            return;
        };
        let huge = Pages::of(&huge).unwrap();
        assert!(huge.in_memory);
        assert!(huge.bytes > page_bytes() && huge.bytes.is_power_of_two(), "{}", huge.bytes);
    }
}
