//! Registered memory of a ring connection: rings and control blocks.

use conn_core::ring::offer::{CONTROL_BYTES, Place, TAIL_AT, WAKE_AT};
use verbs_safe::{
    Backing, Mapping, Mirrored, ProtectionDomain, RemoteAccess, RemoteSpan, SharedRegion,
    SharedRegionConfig,
};

use crate::checked;
use crate::device::{Device, DeviceError};

/// Registers memory for peers with this `access`; `what` names the operation in an error.
pub(crate) fn register(
    device: &Device,
    pd: &ProtectionDomain,
    what: &'static str,
    backing: impl Into<Backing>,
    access: RemoteAccess,
) -> Result<SharedRegion, DeviceError> {
    let config = SharedRegionConfig { access, on_demand: false };
    pd.register_shared(backing, config).map_err(|e| device.error(what, &e))
}

/// Registered memory for a ring of `capacity` bytes, that peers may reach as `access` says.
pub(crate) fn register_ring(
    device: &Device,
    pd: &ProtectionDomain,
    (capacity, is_mirrored): (u64, bool),
    access: RemoteAccess,
) -> Result<SharedRegion, DeviceError> {
    let bytes = usize::try_from(capacity).unwrap_or(usize::MAX);
    let failed = |e| device.error("map memory for a ring", &e);
    let backing: Backing = match is_mirrored {
        true => Mirrored::new(bytes).map_err(failed)?.into(),
        false => Mapping::new(bytes).map_err(failed)?.into(),
    };
    register(device, pd, "register a ring", backing, access)
}

/// Memory of `bytes` bytes that peers may reach as `access` says.
pub(crate) fn peer_memory(
    device: &Device,
    pd: &ProtectionDomain,
    bytes: u64,
    access: RemoteAccess,
) -> Result<SharedRegion, DeviceError> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mapping = Mapping::new(bytes).map_err(|e| device.error("map memory", &e))?;
    register(device, pd, "register memory", mapping, access)
}

/// The control block of one half: words that the peer writes or reads.
#[derive(Debug)]
pub(crate) struct ControlBlock(SharedRegion);

impl ControlBlock {
    pub(crate) fn new(
        device: &Device,
        pd: &ProtectionDomain,
        access: RemoteAccess,
    ) -> Result<ControlBlock, DeviceError> {
        let what = "register a control block";
        let mapping = Mapping::new(CONTROL_BYTES as usize).map_err(|e| device.error(what, &e))?;
        register(device, pd, what, mapping, access).map(ControlBlock)
    }

    /// For the peer.
    pub(crate) fn place(&self) -> Place {
        place(&self.0)
    }

    /// The words at `at`, those of [`conn_core::ring::offer`]: all that the peer wrote before
    /// them is there. `None` while it is writing them.
    #[inline]
    pub(crate) fn observe<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        checked::observe(&self.0, at as usize)
    }

    /// The word of the tail, which is news only when it differs from the last one.
    #[inline]
    pub(crate) fn tail_word(&self) -> u64 {
        u64::from_le(self.0.observe_arrival(TAIL_AT as usize).unwrap_or_default())
    }

    /// The word of the receiver's request to be woken, which is news only when it differs from
    /// the last one.
    #[inline]
    pub(crate) fn wake_word(&self) -> u64 {
        u64::from_le(self.0.observe_arrival(WAKE_AT as usize).unwrap_or_default())
    }

    /// The line of the tail.
    #[inline]
    pub(crate) fn tail_line(&self) -> [u64; 8] {
        let load = |nth| self.0.observe_arrival(TAIL_AT as usize + 8 * nth);
        std::array::from_fn(|nth| u64::from_le(load(nth).unwrap_or_default()))
    }

    /// Stores the tail, for a peer that reads it: all that was stored before it is there.
    #[inline]
    pub(crate) fn publish_tail(&self, word: u64) {
        let stored = checked::publish(&self.0, TAIL_AT as usize, word);
        debug_assert!(stored.is_ok(), "the words of a control block lie inside");
    }
}

/// Returns the place where a region begins, for the peer.
pub(crate) fn place(region: &SharedRegion) -> Place {
    let span = region.remote(0, region.len());
    span.map_or(Place { addr: 0, rkey: 0 }, |s| Place { addr: s.addr, rkey: s.rkey })
}

/// `len` bytes at `at` of the peer's memory; the caller checks that they lie inside.
#[inline]
pub(crate) fn remote(place: Place, at: u64, len: u64) -> RemoteSpan {
    RemoteSpan { addr: place.addr.wrapping_add(at), rkey: place.rkey, len }
}
