//! Values that a send queue has of its peers and of the regions that its requests refer to. Only
//! `attach` and `loan` write them: they copy them from a handle that the queue pair or the queue
//! keeps alive until no request refers to the entry.

use std::ptr::NonNull;

use verbs_sys::ibv_ah;

use crate::queue::pinned::Entry;

/// A peer of a datagram queue pair. See [`SendQueue::add_peer`](crate::SendQueue::add_peer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId(pub(super) Entry);

/// A region that a send queue's requests can refer to. See
/// [`SendQueue::attach`](crate::SendQueue::attach).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub(super) Entry);

/// Values of a peer that a datagram needs.
#[derive(Clone, Copy)]
pub(super) struct PeerEntry {
    pub(super) ah: NonNull<ibv_ah>,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
}

// SAFETY: any thread may call verbs on an address handle.
unsafe impl Send for PeerEntry {}
// SAFETY: several threads may call verbs on one address handle at once; the rest is numbers.
unsafe impl Sync for PeerEntry {}

/// Values of a local region that a request needs.
#[derive(Clone, Copy)]
pub(super) struct LocalRegionEntry {
    pub(super) addr: u64,
    pub(super) len: usize,
    pub(super) lkey: u32,
}
