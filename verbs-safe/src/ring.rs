//! Rings that are read over the network (Buffered Read).
//!
//! ```text
//!        SourceRing                            LandingRing
//!   filled here, by its owner            READs of our own land here
//!   peers may READ it, no more   <----   and nothing else does
//! ```
//!
//! No peer can write to either, so both lend slices. A source lends `&mut [u8]` as any buffer does;
//! a concurrent READ by a peer is the peer's risk. A landing ring permits READs only where no bytes
//! are lent, and none have landed that were not freed.

mod landing;
mod shared;
mod source;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys::ibv_access_flags;

use crate::errno::Errno;
use crate::error::{MapError, RegisterError};
use crate::object::context::ProtectionDomain;
use crate::region::memory::{Mapping, Pages};
use crate::region::mirrored::Mirrored;
use crate::region::registration::{Backing, Registration};

pub use landing::{LandingRing, RingBytes};
pub use shared::{Claim, ClaimedBytes, Claims, SharedLandingRing};
pub use source::SourceRing;

/// The memory of a ring.
///
/// ```
/// use verbs_safe::{Pages, RingConfig};
/// let config = RingConfig { pages: Pages::Huge2M, ..RingConfig::mirrored(2 << 20) };
/// # let _ = config;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    /// Its bytes: a power of two. A mirrored ring is made of whole pages.
    pub capacity: usize,
    /// True if it is mapped twice in a row, so that bytes across its end are contiguous.
    pub is_mirrored: bool,
    /// Pages that it is made of.
    pub pages: Pages,
}

impl RingConfig {
    /// A ring of `capacity` bytes that is mapped twice in a row.
    #[must_use]
    pub fn mirrored(capacity: usize) -> RingConfig {
        RingConfig { capacity, is_mirrored: true, pages: Pages::Normal }
    }

    /// A ring of `capacity` bytes that is mapped once.
    #[must_use]
    pub fn plain(capacity: usize) -> RingConfig {
        RingConfig { is_mirrored: false, ..RingConfig::mirrored(capacity) }
    }
}

/// The registered memory of a ring, made here: no other code can access it, as a holder
/// of a descriptor of it could.
struct RingMemory {
    registration: Arc<Registration>,
    base: NonNull<u8>,
    capacity: usize,
    is_mirrored: bool,
}

// SAFETY: `registration` is `Send`, and keeps the memory; each use of `base` has its own reason.
unsafe impl Send for RingMemory {}
// SAFETY: `registration` is `Sync`, and keeps the memory; each use of `base` has its own reason.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    fn new(
        pd: &ProtectionDomain,
        config: RingConfig,
        access: ibv_access_flags,
    ) -> Result<RingMemory, RegisterError> {
        let RingConfig { capacity, is_mirrored, .. } = config;
        let registration = Arc::new(Registration::new(pd, backing(config)?, access)?);
        Ok(RingMemory { base: registration.base(), registration, capacity, is_mirrored })
    }

    /// Bytes that can be reached from the base: both copies, where it is mirrored.
    #[inline]
    fn len(&self) -> usize {
        if self.is_mirrored { 2 * self.capacity } else { self.capacity }
    }

    /// The address of `len` bytes at `offset`. At most the capacity, so that no byte appears twice
    /// in the mirror.
    #[inline]
    fn span(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let fits = len <= self.capacity && offset <= self.len() && len <= self.len() - offset;
        // SAFETY: `offset` is not beyond the end of the mapping.
        fits.then(|| unsafe { self.base.add(offset) })
    }
}

/// Maps the memory; a mirror that would be longer than the ring is refused.
fn backing(config: RingConfig) -> Result<Backing, MapError> {
    let RingConfig { capacity, is_mirrored, pages } = config;
    let refused = |step| MapError::new(step, capacity, Errno::EINVAL);
    if !capacity.is_power_of_two() {
        return Err(refused("making a ring (a power of two)"));
    }
    if !is_mirrored {
        return Ok(Mapping::with_pages(capacity, pages)?.into());
    }
    let mirrored = Mirrored::with_pages(capacity, pages)?;
    if mirrored.capacity() != capacity {
        return Err(refused("mirroring (in whole pages)"));
    }
    Ok(mirrored.into())
}
