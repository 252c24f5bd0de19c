//! Values that a send queue has of its peers and of the regions that its requests refer to. Only
//! `attach` and `loan` write them: they copy them from a handle that the queue pair or the queue
//! keeps alive until no request refers to the entry.

use verbs_sys::ibv_ah;

use crate::object::pointer::ObjectPtr;
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
    pub(super) ah: ObjectPtr<ibv_ah>,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
}

/// Values of a local region that a request needs.
#[derive(Clone, Copy)]
pub(super) struct LocalRegionEntry {
    pub(super) addr: u64,
    pub(super) len: usize,
    pub(super) lkey: u32,
}
