//! Regions and windows as other processes know them.

/// Entry of a memory region, or of a memory window, that a process publishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PublishedRegion {
    pub(crate) version: u32,
    pub(crate) pd: u32,
    pub(crate) access: u32,
    pub(crate) iova: u64,
    pub(crate) length: u64,
    pub(crate) addr: u64,
    pub(crate) file: Option<InFile>,
    pub(crate) mw: Option<PublishedMw>,
}

/// Fields that only a memory window has. Its `pd` as a region is 0, and it is in no file: its
/// region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedMw {
    pub(crate) pd: u32,
    /// The queue pair that it is bound to: only its peer may name it; 0 for all of the domain.
    pub(crate) qpn: u32,
    /// The key of the region that it is bound to.
    pub(crate) region: u32,
}

/// Position of a region in a memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFile {
    /// The descriptor in the region's process.
    pub(crate) fd: u32,
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    pub(crate) split: u64,
    pub(crate) second: u64,
}

impl PublishedRegion {
    /// The offset in the region of `addr .. addr + len`, if it covers them.
    #[inline]
    pub(crate) fn offset(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.wrapping_sub(self.iova);
        (offset <= self.length && len <= self.length - offset).then_some(offset)
    }
}
