//! Registered memory that is a piece of a file.

use std::os::fd::AsFd;
use std::sync::Arc;

use verbs_sys::ibv_access_flags;

use crate::error::RegisterError;
use crate::object::context::ProtectionDomain;
use crate::region::file_mapping::FileMapping;
use crate::region::registration::{Backing, Registration};

/// A piece of a file that local READs land in, without a copy in between.
///
/// Its bytes are not accessible here. Another process may write to the file or truncate it
/// at any time, and an access to a mapping beyond the end of its file ends the process
/// (SIGBUS). So no code of this process accesses the mapping; read and write the file
/// itself, which reports errors. If the file is truncated, a kernel device still writes to
/// the pinned pages that were the file's; with on-demand paging, and on `soft0` (where the
/// kernel copies), the request fails with an error of the local memory (`LOC_PROT`). A
/// provider's library may store a few bytes with the processor, so that there is a
/// [shortest READ](Self::MIN_READ_BYTES).
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

debug_shows!(FileRegion: len);

impl ProtectionDomain {
    /// Registers `len` bytes at `offset` of a file that is open for reading and writing, for READs
    /// to land in. Allocate the bytes in the file before (`fallocate`): a device does not write
    /// beyond its end, and a hole without room on the disk is an error of the request.
    ///
    /// # Errors
    /// [`RegisterError::Map`]: it is no regular file, or shorter, `offset` is no multiple of the
    /// page size (of huge pages on hugetlbfs), or `len` is 0. [`RegisterError::Refused`]: the
    /// device refused. A kernel device without on-demand paging takes only files in memory (tmpfs,
    /// hugetlbfs), because it pins their pages. Pinned pages of a file on a disk may be written out
    /// and taken for clean while the device still writes to them; Linux 6.5 and later refuses to
    /// pin such pages.
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
            // Without on-demand paging, the kernel pins the pages.
            Err(RegisterError::Refused { .. }) if may_be_pinned => register(local)?,
            other => other?,
        };
        Ok(FileRegion { data: Arc::new(data), len })
    }
}
