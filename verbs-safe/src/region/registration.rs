//! Registered memory.
//!
//! There are two kinds that code sees, and a third ([`FileRegion`](crate::FileRegion))
//! that none does. The memory of pools and send rings (`PoolMemory`) can be written by work
//! that this process posts, and by nothing else, and they know from completions when its
//! bytes are theirs. A [`SharedRegion`](crate::SharedRegion) can be reached by peers at any
//! time, and is therefore never seen as a slice.

use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys::{ibv_access_flags, ibv_mr};

use crate::errno::Errno;
use crate::error::RegisterError;
use crate::object::context::{PdInner, ProtectionDomain};
use crate::object::pointer::{ObjectPtr, destroyed};
use crate::region::file_mapping::FileMapping;
use crate::region::memory::Mapping;
use crate::region::mirrored::Mirrored;

/// The memory behind a registered region.
#[derive(Debug)]
pub enum Backing {
    /// Plain pages.
    Plain(Mapping),
    /// Pages that appear twice in a row.
    Mirrored(Mirrored),
    /// A piece of a file, of a [`FileRegion`](crate::FileRegion) only.
    #[doc(hidden)]
    File(FileMapping),
}

impl Backing {
    fn base(&self) -> NonNull<u8> {
        match self {
            Backing::Plain(m) => m.base(),
            Backing::Mirrored(m) => m.base(),
            Backing::File(m) => m.mapping.base(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Backing::Plain(m) => m.len(),
            Backing::Mirrored(m) => m.len(),
            Backing::File(m) => m.mapping.len(),
        }
    }
}

impl From<Mapping> for Backing {
    fn from(mapping: Mapping) -> Backing {
        Backing::Plain(mapping)
    }
}

impl From<Mirrored> for Backing {
    fn from(mirrored: Mirrored) -> Backing {
        Backing::Mirrored(mirrored)
    }
}

/// A memory region with the memory it covers. The memory is unmapped after the
/// registration has ended, and if that fails, never.
pub(crate) struct Registration {
    mr: ObjectPtr<ibv_mr>,
    base: NonNull<u8>,
    len: usize,
    lkey: u32,
    rkey: u32,
    /// Several regions may cover parts of one mapping.
    backing: Arc<Backing>,
    pd: Arc<PdInner>,
}

// SAFETY: the memory is only handed out as raw pointers, and each use of them has its own reason;
// any thread may deregister a region.
unsafe impl Send for Registration {}
// SAFETY: the memory is only handed out as raw pointers, and each use of them has its own reason;
// the other fields do not change after the registration was made.
unsafe impl Sync for Registration {}

impl Registration {
    pub(crate) fn new(
        pd: &ProtectionDomain,
        backing: Backing,
        access: ibv_access_flags,
    ) -> Result<Registration, RegisterError> {
        let len = backing.len();
        Registration::part(pd, Arc::new(backing), 0, len, access)
    }

    /// Covers `len` bytes at `offset` of a mapping; both lie inside.
    pub(crate) fn part(
        pd: &ProtectionDomain,
        backing: Arc<Backing>,
        offset: usize,
        len: usize,
        access: ibv_access_flags,
    ) -> Result<Registration, RegisterError> {
        assert!(offset <= backing.len() && len <= backing.len() - offset, "a part lies inside");
        // SAFETY: the assertion above: the part lies inside the mapping.
        let base = unsafe { backing.base().add(offset) };
        let (table, raw) = (&pd.inner.context.table, pd.inner.raw.as_ptr());
        let access = ibv_access_flags(access.0 | pd.inner.access.0);
        // SAFETY: the registration holds the mapping, and ends before it is unmapped.
        let mr = unsafe { verbs_sys::ibv_reg_mr(table, raw, base.as_ptr().cast(), len, access) };
        let mr =
            ObjectPtr::new(mr).map_err(|errno| RegisterError::Refused { bytes: len, errno })?;
        // SAFETY: the region was just made; its keys do not change.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        Ok(Registration { mr, base, len, lkey, rkey, backing, pd: pd.inner.clone() })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }

    pub(crate) fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the region was made by this table, and is deregistered once. A queue
        // that work on it is posted to holds it until the work has been retired, or the
        // queue has been destroyed.
        let result = unsafe { (self.pd.context.table.dereg_mr)(self.mr.as_ptr()) };
        let uses = || (self.backing.clone(), self.pd.clone());
        destroyed("a memory region", Errno::check(result), uses);
    }
}
