//! What a send queue knows of its peers and of the regions that its requests refer to. Only
//! `attach` and `loan` write these values: they copy them from a handle that the queue pair
//! or the queue keeps alive until no request refers to the entry.

use std::ptr::NonNull;

use verbs_sys::ibv_ah;

use crate::queue::pinned::Entry;

/// A peer of a datagram queue pair. See [`SendQueue::add_peer`](crate::SendQueue::add_peer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId(pub(super) Entry);

/// A region that a send queue's requests can refer to. See [`SendQueue::attach`](crate::SendQueue::attach).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub(super) Entry);

/// What a datagram needs to know of its peer.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) ah: NonNull<ibv_ah>,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
}

// SAFETY: verbs on an address handle may be called from any thread.
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

/// What a request needs to know of a local region.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub(super) addr: u64,
    pub(super) len: usize,
    pub(super) lkey: u32,
}
