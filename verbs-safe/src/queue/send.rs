//! Send queues: a ring of registered slots, staged requests, one doorbell.
//!
//! All requests of a send queue complete in order, and each is counted: request 1 is
//! the first one ever staged. Of each count, `retired <= posted <= staged <= retired +
//! depth`; of slots, which only requests with bytes take, likewise with the number of
//! slots. A slot belongs to the caller while it is neither staged nor in flight.

mod attach;
mod check;
mod completed;
mod entries;
mod epochs;
mod lent;
mod loan;
mod op;
mod places;
mod post_inline;
mod run;
#[cfg(test)]
mod tests;

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use verbs_sys::{ibv_post_send, ibv_qp, ibv_send_flags as flag, ibv_send_wr, ibv_sge};

use crate::errno::Errno;
use crate::error::{CreateQpError, PostSendError, StageError};
use crate::ids::QueueId;
use crate::queue::pinned::{Directory, Leaving};
use crate::queue::pool::PoolMemory;
use crate::queue::qp::QpInner;
use crate::queue::send::entries::{LocalRegionEntry, PeerEntry};
use crate::queue::send::epochs::Epochs;
use crate::queue::send::lent::Loans;
use crate::queue::send::op::{fill, lands};
use crate::queue::send::places::{RequestPlace, circle};
use crate::raw_array::RawArray;
use crate::transport::OpSet;

pub use entries::{PeerId, RegionId};
pub use loan::{FileLoanError, LoanError, LoanId};
pub use op::{SendFlags, SendOp};
pub use run::InRun;

/// Requests in one queue, at most; far less than `EPOCH`.
pub(crate) const MAX_REQUESTS: u64 = 1 << 24;

/// The memory of a send ring is that of a pool of slots; the queue pair holds it.
pub(crate) type SendRing = PoolMemory;

/// Limits of a send queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendLimits {
    /// Requests staged and in flight.
    pub(crate) depth: u32,
    /// Bytes handed over inline.
    pub(crate) max_inline: u32,
    /// Pieces of a request.
    pub(crate) max_parts: u32,
    /// Operations that can be staged without naming a peer.
    pub(crate) to_its_peer: OpSet,
    /// Bytes of a datagram; 0 if the queue pair does not send any.
    pub(crate) max_datagram: u32,
}

/// Bounds of the SENDs to come. Only [`open_run`](SendQueue::open_run) and
/// [`close_run`](SendQueue::close_run) write them: no length beyond a slot's gets in.
#[derive(Debug, Clone, Copy, Default)]
struct RunBounds {
    /// Up to this count of requests there is a place and a slot for each, and SENDs are offered.
    /// (Other staged requests take a place and at most one slot each; retired ones only add to
    /// both.)
    end: u64,
    /// The length of the longest one, at most a slot's.
    max_len: usize,
}

/// The send queue of a queue pair. It has one owner.
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// # let pd = context.alloc_pd()?;
/// # use verbs_safe::{ConnectAttr, CqConfig, QueuePairConfig, RecvSide};
/// # let gid = context.choose_gid(1, None)?;
/// # let cq = context.create_cq(CqConfig::new(256))?;
/// # let recv = RecvSide::Own { slots: 4, slot_bytes: 64 };
/// # let mut qp = pd.create_qp(&QueuePairConfig { recv, ..QueuePairConfig::new(&cq, &cq) }, ())?;
/// # let end = qp.control.endpoint(1, gid, 7)?;
/// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
/// # qp.recv.as_mut().unwrap().post(&[0, 1, 2, 3])?;
/// use verbs_safe::{CompletionBatch, SendOp};
/// let slot = qp.send.next_slot().expect("all are free");
/// slot[..5].copy_from_slice(b"hello");
/// qp.send.stage(SendOp::Send { len: 5 }, true)?;
/// qp.send.post()?;
/// let mut batch = CompletionBatch::new(8);
/// while qp.send.retired_total() < 1 {
///     cq.poll(&mut batch)?;
///     for completion in batch.drain() {
///         if completion.queue_id() == qp.send.queue_id() {
///             qp.send.retire(&completion)?;
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SendQueue {
    qp: Arc<QpInner>,
    ring: Arc<SendRing>,
    /// Address of the next slot to be lent and staged: slot `slots_staged` modulo their number.
    /// Like the fields below it, kept here to spare looking it up.
    slot: NonNull<u8>,
    /// Address of the last slot of the ring; the first one follows it.
    last_slot: NonNull<u8>,
    stride: usize,
    slot_bytes: u32,
    slots: u32,
    lkey: u32,
    /// Requests, linked into a circle. The low bits of a request's count are its place.
    places: RawArray<RequestPlace>,
    /// Their number, a power of two, less one.
    mask: usize,
    /// The place of the request that is staged next.
    next: *mut RequestPlace,
    id: QueueId,
    depth: u32,
    max_inline: u32,
    max_parts: u32,
    to_its_peer: OpSet,
    max_datagram: u32,
    staged: u64,
    posted: u64,
    retired: u64,
    slots_staged: u64,
    slots_retired: u64,
    /// Count of slots that had been staged, with the one that `next_slot` lent, when it last did:
    /// one more than `slots_staged`, or at most that when slots were staged since.
    slots_lent: u64,
    run: RunBounds,
    /// The first request that failed, if one did.
    failed: Option<u64>,
    epochs: Epochs,
    peers: Directory<PeerEntry>,
    regions: Directory<LocalRegionEntry>,
    loans: Loans,
    leaving: Leaving,
}

// SAFETY: requests and slots are reached through the one owner only; the rest is `Send`.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub(crate) fn new(
        qp: Arc<QpInner>,
        ring: Arc<SendRing>,
        limits: SendLimits,
    ) -> Result<SendQueue, CreateQpError> {
        let id = QueueId::next()?;
        let SendLimits { depth, max_inline, max_parts, to_its_peer, max_datagram } = limits;
        let places = depth.max(1).next_power_of_two() as usize;
        let mask = places - 1;
        let places = circle(places)?;
        let epochs = Epochs::new(&qp.uses.send_cq.cq().epoch);
        let (slot, stride) = ring.layout();
        Ok(SendQueue {
            qp,
            slot,
            last_slot: if ring.slots() > 0 { ring.slot(ring.slots() - 1) } else { slot },
            stride,
            slot_bytes: ring.slot_bytes(),
            slots: ring.slots(),
            lkey: ring.lkey(),
            ring,
            // The first request has count 1.
            next: places.at(1 & mask),
            places,
            mask,
            id,
            depth,
            max_inline,
            max_parts,
            to_its_peer,
            max_datagram,
            staged: 0,
            posted: 0,
            retired: 0,
            slots_staged: 0,
            slots_retired: 0,
            slots_lent: 0,
            run: RunBounds::default(),
            failed: None,
            epochs,
            peers: Directory::new(),
            regions: Directory::new(),
            loans: Loans::default(),
            leaving: Leaving::new(),
        })
    }

    /// The number of this queue: that of the completions of its requests.
    #[inline]
    #[must_use]
    pub fn queue_id(&self) -> QueueId {
        self.id
    }

    /// Returns how many bytes fit into a slot.
    #[inline]
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    /// Returns the count of slots.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the longest message that is sent inline, as the device granted it.
    #[inline]
    #[must_use]
    pub fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// Returns how many bytes a datagram can have: the port's active MTU. `None` if the queue pair
    /// sends no datagrams.
    #[must_use]
    pub fn max_datagram(&self) -> Option<usize> {
        (self.max_datagram > 0).then_some(self.max_datagram as usize)
    }

    /// Returns how many requests can be staged and in flight.
    #[inline]
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the count of requests that are staged and not posted yet.
    #[inline]
    #[must_use]
    pub fn staged(&self) -> u32 {
        (self.staged - self.posted) as u32
    }

    /// Returns the count of all requests that were staged: the count of the last one.
    #[inline]
    #[must_use]
    pub fn staged_total(&self) -> u64 {
        self.staged
    }

    /// Returns the count of all requests that were posted.
    #[inline]
    #[must_use]
    pub fn posted_total(&self) -> u64 {
        self.posted
    }

    /// Returns the count of all requests that were retired.
    #[inline]
    #[must_use]
    pub fn retired_total(&self) -> u64 {
        self.retired
    }

    /// The slot of the next request with bytes, to be filled; `None` when all are staged or in
    /// flight. It holds bytes of an earlier request.
    #[inline]
    pub fn next_slot(&mut self) -> Option<&mut [u8]> {
        if !self.has_slot() {
            return None;
        }
        self.slots_lent = self.slots_staged + 1;
        // SAFETY: the slot is initialised (it was mapped as zeroes) and stays mapped by
        // the ring; it is neither staged nor in flight, so that the device does not
        // touch it, and the borrow of `self` keeps it from being staged meanwhile.
        Some(unsafe { std::slice::from_raw_parts_mut(self.slot.as_ptr(), self.slot_bytes()) })
    }

    /// Stages a request, to be posted with the next [`post`](Self::post). Messages of at
    /// most [`max_inline`](Self::max_inline) bytes go inline.
    ///
    /// # Errors
    /// [`StageError`]; nothing has changed.
    #[inline]
    pub fn stage(&mut self, op: SendOp, signalled: bool) -> Result<(), StageError> {
        self.stage_with(op, SendFlags { signalled, ..SendFlags::default() })
    }

    /// As [`stage`](Self::stage), with all flags.
    ///
    /// # Errors
    /// [`StageError`]; nothing has changed.
    #[inline]
    pub fn stage_with(&mut self, op: SendOp, flags: SendFlags) -> Result<(), StageError> {
        self.check(&op, op.len())?;
        self.take_place(op, flags);
        Ok(())
    }

    /// Writes a request that was checked to the next place; its bytes are those of the
    /// next slot.
    #[inline]
    fn take_place(&mut self, op: SendOp, flags: SendFlags) -> &mut ibv_send_wr {
        let len = op.len();
        let inline = len <= self.max_inline && len > 0 && !lands(op.opcode());
        let bits = flags.to_raw() | if inline { flag::IBV_SEND_INLINE.0 } else { 0 };
        let addr = self.slot.as_ptr() as u64;
        if len > 0 {
            self.advance_slot();
        }
        self.write_place(op, bits, ibv_sge { addr, length: len, lkey: self.lkey })
    }

    /// Writes a request that was checked to the next place.
    #[inline]
    fn write_place(&mut self, op: SendOp, bits: u32, entry: ibv_sge) -> &mut ibv_send_wr {
        let count = self.staged + 1;
        // SAFETY: the place is inside, and nothing else accesses it: it holds no request
        // that is staged (there are as many places as the queue is deep), and the device
        // keeps no pointer to one that was posted.
        let place = unsafe { &mut *self.next };
        if entry.length > 0 {
            place.entry = entry;
        }
        place.slots_after = self.slots_staged;
        self.staged = count;
        // The circle is whole except while a list is being posted.
        self.next = RequestPlace::containing(place.work.next);
        let work = &mut place.work;
        work.wr_id = self.id.wr_id(count as u32);
        work.num_sge = i32::from(entry.length > 0);
        work.send_flags = bits;
        fill(work, op);
        work
    }

    /// Posts all staged requests, as one list with one doorbell; returns their number.
    ///
    /// # Errors
    /// [`PostSendError`]: requests that were not posted stay staged. `ENOMEM` is backpressure:
    /// retire some, and post again.
    #[inline]
    pub fn post(&mut self) -> Result<u32, PostSendError> {
        let staged = self.staged();
        if staged == 0 {
            return Ok(0);
        }
        if self.staged >= self.epochs.next {
            self.epochs.turn(&self.qp.uses.send_cq.cq().epoch);
        }
        let first = self.places.at(self.place(self.posted + 1));
        let last = self.places.at(self.place(self.staged));
        let mut bad = null_mut();
        // SAFETY: from the first to the last the circle links valid requests. Their slots
        // are not accessed until the requests are retired, and the queue pair holds their
        // memory until it has been destroyed.
        let result = unsafe {
            let next = std::mem::replace(&mut (*last).work.next, null_mut());
            let result = ibv_post_send(self.qp.raw(), &raw mut (*first).work, &mut bad);
            (*last).work.next = next;
            result
        };
        if result != 0 {
            return Err(self.refused(bad, Errno::from_result(result)));
        }
        self.posted = self.staged;
        Ok(staged)
    }

    pub(crate) fn ring(&self) -> &SendRing {
        &self.ring
    }

    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.qp.raw()
    }

    /// Goes on to the next slot, which exists: there is at least one.
    #[inline]
    fn advance_slot(&mut self) {
        self.slots_staged += 1;
        if self.slot == self.last_slot {
            self.slot = self.ring.slot(0);
        } else {
            // SAFETY: `self.slot` is not the last slot, so the next one lies inside the ring, too.
            self.slot = unsafe { self.slot.add(self.stride) };
        }
    }

    /// The place of a request, by its count.
    #[inline]
    fn place(&self, count: u64) -> usize {
        count as usize & self.mask
    }

    /// Accounts for the requests posted before `bad`.
    #[cold]
    fn refused(&mut self, bad: *mut ibv_send_wr, errno: Errno) -> PostSendError {
        let first = self.place(self.posted + 1);
        let staged = self.staged();
        let distance = |place: usize| place.wrapping_sub(first) & self.mask;
        // A device that does not name the bad request may have taken any of them: they count as
        // posted, because the device may read their memory.
        let posted = self
            .places
            .index_of(RequestPlace::containing(bad))
            .map(distance)
            .filter(|n| *n < staged as usize);
        let posted = posted.map_or(staged, |n| n as u32);
        self.posted += u64::from(posted);
        PostSendError { posted, errno, retry: errno == Errno::ENOMEM }
    }
}

debug_shows!(SendQueue: id, depth, staged, posted, retired);
