//! The way to one peer.

use conn_core::multicast::{Config, Contact, MemberInfo, Place};
use verbs_safe::{
    CompletionQueue, Endpoint, QueueId, QueuePairConfig, RegionId, RemoteAccess, RemoteSpan,
    SendFlags, SendOp, SharedRegion, StageError,
};

use super::memory::RowsLayout;
use crate::device::Device;
use crate::error::ConnectError;
use crate::raw::{Link, RawEnd};
use crate::ring::memory::{peer_memory, register_ring};

/// Requests that can be under way to one peer.
pub(super) const DEPTH: u32 = 256;
/// One in this number of requests is signalled.
const SIGNAL_EVERY: u64 = 32;
/// Bytes of a slot for words of the row; as much is asked for inline.
const SLOT_BYTES: usize = conn_core::multicast::ROW_WORDS * 8;

/// One peer: the memory that it writes, and the queue pair by which it is written to.
#[derive(Debug)]
pub(super) struct GroupPeer {
    end: RawEnd,
    /// Memory that the peer writes: its row and its repair area.
    pub(super) rows: SharedRegion,
    /// And its slots.
    pub(super) slots: SharedRegion,
    layout: RowsLayout,
    /// Regions of the peer that this member writes to, once they are known: the same two.
    remote: Option<(RemoteSpan, RemoteSpan)>,
    /// The own ring and the own repair area, as the queue knows them.
    ring: RegionId,
    repair: RegionId,
    is_broken: bool,
}

impl GroupPeer {
    pub(super) fn new(
        device: &Device,
        config: &Config,
        cq: &CompletionQueue,
        own: (&SharedRegion, &SharedRegion),
        link: Link,
    ) -> Result<GroupPeer, ConnectError> {
        let (layout, core) = (RowsLayout::for_config(config), config);
        let writable = RemoteAccess { write: true, ..RemoteAccess::NONE };
        let config = QueuePairConfig {
            access: writable,
            max_send_wr: DEPTH,
            send_slots: DEPTH,
            send_slot_bytes: SLOT_BYTES,
            max_inline: SLOT_BYTES as u32,
            ..QueuePairConfig::new(cq, cq)
        };
        let mut end = RawEnd::new(device, &config, link)?;
        let rows = peer_memory(device, device.pd(), layout.bytes, writable)?;
        let shape = (core.capacity, core.is_mirrored);
        let slots = register_ring(device, device.pd(), shape, writable)?;
        let mut attach = |region| {
            let attached = end.queues.send.attach(region);
            attached.map_err(|e| device.error("attach a region", &e))
        };
        let (ring, repair) = (attach(own.0)?, attach(own.1)?);
        Ok(GroupPeer { end, rows, slots, layout, remote: None, ring, repair, is_broken: false })
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.end.endpoint()
    }

    pub(super) fn mtu_bytes(&self) -> u32 {
        self.end.mtu_bytes()
    }

    /// Returns the addresses and keys for the peer to reach this member.
    pub(super) fn contact(&self, device: &Device) -> Result<Contact, ConnectError> {
        let name = |region: &SharedRegion| {
            let span = region.remote(0, region.len());
            let span = span.map_err(|e| device.error("name a region", &e))?;
            Ok::<_, ConnectError>(Place { addr: span.addr, len: span.len, rkey: span.rkey })
        };
        let (rows, slots) = (name(&self.rows)?, name(&self.slots)?);
        let Endpoint { qp_num, psn, .. } = self.end.endpoint();
        Ok(Contact { qp_num, psn, rows, slots })
    }

    /// Joins the queue pair to the one that the peer's member info describes.
    pub(super) fn join(
        &mut self,
        info: &MemberInfo,
        contact: &Contact,
    ) -> Result<(), ConnectError> {
        let Contact { qp_num, psn, rows, slots } = *contact;
        let endpoint = Endpoint { qp_num, psn, lid: info.lid, gid: info.gid };
        self.end.join(&endpoint, info.mtu_bytes)?;
        let span = |place: Place| RemoteSpan { addr: place.addr, rkey: place.rkey, len: place.len };
        self.remote = Some((span(rows), span(slots)));
        Ok(())
    }

    pub(super) fn queue_id(&self) -> QueueId {
        self.end.queues.send.queue_id()
    }

    /// Reports whether another request can be staged.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let queue = &self.end.queues.send;
        self.is_broken || queue.staged_total() - queue.retired_total() < u64::from(DEPTH)
    }

    /// Reports whether all that was posted has completed, as far as completions show.
    pub(super) fn is_idle(&self) -> bool {
        let queue = &self.end.queues.send;
        self.is_broken || queue.staged_total() == queue.retired_total()
    }

    /// A word of the peer's row. The data that a counter covers were written before it, by
    /// writes of the same queue pair.
    #[inline]
    pub(super) fn row_word(&self, word: u8) -> u64 {
        let word = self.rows.observe_arrival(usize::from(word) * 8);
        u64::from_le(word.expect("the row is inside"))
    }

    /// A word of the header of the peer's repair area.
    pub(super) fn repair_word(&self, word: u8) -> u64 {
        let word = self.rows.load_u64(self.layout.repair + usize::from(word) * 8);
        u64::from_le(word.expect("the repair area is inside"))
    }

    pub(super) fn layout(&self) -> RowsLayout {
        self.layout
    }
}

/// Writes, which go out with the next `post`.
impl GroupPeer {
    #[inline]
    fn rows_at(&self, offset: usize, len: u32) -> Option<RemoteSpan> {
        let (rows, _) = self.remote.filter(|_| !self.is_broken)?;
        Some(part(rows, offset, len))
    }

    #[inline]
    fn slots_at(&self, offset: usize, len: u32) -> Option<RemoteSpan> {
        let (_, slots) = self.remote.filter(|_| !self.is_broken)?;
        Some(part(slots, offset, len))
    }

    #[inline]
    fn flags(&self, last: bool) -> SendFlags {
        let signalled =
            last || (self.end.queues.send.staged_total() + 1).is_multiple_of(SIGNAL_EVERY);
        SendFlags { signalled, ..SendFlags::default() }
    }

    /// Bytes of the own slot ring.
    #[inline]
    pub(super) fn write_slots(&mut self, offset: usize, len: u32) -> Result<(), StageError> {
        let Some(remote) = self.slots_at(offset, len) else { return Ok(()) };
        let flags = self.flags(false);
        self.end.queues.send.stage_at(self.ring, offset, SendOp::Write { len, remote }, flags)
    }

    /// Words of the own row. They are taken down now: see `Write::Row`.
    #[inline]
    pub(super) fn write_row(
        &mut self,
        first: u8,
        words: &[u64],
        last: bool,
    ) -> Result<(), StageError> {
        let len = words.len() as u32 * 8;
        let Some(remote) = self.rows_at(usize::from(first) * 8, len) else { return Ok(()) };
        let flags = self.flags(last);
        let queue = &mut self.end.queues.send;
        let slot = queue.next_slot().ok_or(StageError::NoSlot)?;
        for (to, word) in slot.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        queue.stage_with(SendOp::Write { len, remote }, flags)
    }

    /// The own repair, from its place among them.
    pub(super) fn write_repair(&mut self, at: usize, len: u32) -> Result<(), StageError> {
        let Some(remote) = self.rows_at(self.layout.repair, len) else { return Ok(()) };
        let flags = self.flags(false);
        self.end.queues.send.stage_at(self.repair, at, SendOp::Write { len, remote }, flags)
    }

    /// Posts staged writes; returns false if the peer cannot be written to any more.
    #[inline]
    pub(super) fn post(&mut self) -> bool {
        if self.is_broken {
            return true;
        }
        match self.end.queues.send.post() {
            Ok(_) => true,
            Err(e) => e.retry,
        }
    }

    /// A request has completed; returns true if it succeeded.
    #[inline]
    pub(super) fn retire(&mut self, completion: &verbs_safe::Completion<'_>) -> bool {
        self.end.queues.send.retire(completion).is_ok() && completion.is_success()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Nothing more is written to it.
    pub(super) fn give_up(&mut self) {
        self.is_broken = true;
    }
}

/// A part of a peer's memory. The peer may have described it wrongly: its device checks the
/// access.
#[inline]
fn part(span: RemoteSpan, offset: usize, len: u32) -> RemoteSpan {
    RemoteSpan { addr: span.addr.wrapping_add(offset as u64), len: len.into(), ..span }
}
