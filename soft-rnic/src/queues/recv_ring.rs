//! The ring of posted receive requests: a receive queue's, and a shared one's.
//!
//! Two sides with a lock and cache lines each. The posting side publishes `tail`
//! once for a list; the consuming side (the delivering thread) publishes `head`. Each
//! keeps a copy of the other's index and looks again only when that says full,
//! or empty.
//!
//! `head <= tail <= head + capacity`, as counters that wrap at 2^32.

use core::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use verbs_sys::{ibv_recv_wr, ibv_sge};

use crate::lock::{Lock, Padded};
use crate::queues::queue_memory::{MemoryLender, QueueMemory};
use crate::{alloc, copy, errno};

const NO_SGE: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };

/// Distance in slots at which the consuming side fetches ahead: another processor wrote them.
const FETCH_SLOT: u32 = 16;
/// Distance in requests at which it fetches the buffers that it is going to write. By then the line
/// is ours, and the stores of a short message do not queue up behind each other's misses.
const FETCH_BUFFER: u32 = 4;

/// One posted receive request. Further entries of its scatter list are in the
/// ring's `more`.
///
/// 32 bytes, two to a cache line and never across two. A message within one thread
/// (lists of 8) then takes 44.7 ns instead of 46.1, 45.1 instead of 45.7 in another
/// series of medians; between two threads no difference was seen.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct RecvSlot {
    pub(crate) wr_id: u64,
    num_sge: u32,
    first: ibv_sge,
}

const _: () = assert!(size_of::<RecvSlot>() == 32);

/// A ring of receive requests. The memory is shared by both sides, which own
/// disjoint parts of it: `tail ..` the posting side, `head .. tail` the other.
#[derive(Debug)]
pub(crate) struct RecvRing {
    /// The domain that the buffers of all requests are in: the queue's own, whichever queue pair
    /// takes them.
    pd: u32,
    slots: QueueMemory<core::cell::UnsafeCell<RecvSlot>>,
    /// `max_sge - 1` entries a slot.
    more: Box<[core::cell::UnsafeCell<ibv_sge>]>,
    max_sge: u32,
    /// Accepted requests at a time; the ring may be longer.
    capacity: u32,
    pub(crate) poster: Padded<Lock<Poster>>,
    tail: Padded<AtomicU32>,
    head: Padded<AtomicU32>,
}

// SAFETY: slots are touched by the side that owns them only (see the struct);
// ownership passes with the release of `tail` or `head`.
unsafe impl Sync for RecvRing {}

/// Indices that the posting side knows.
#[derive(Debug, Default)]
pub(crate) struct Poster {
    tail: u32,
    head_seen: u32,
}

/// Indices that the consuming side knows; they live under the lock of that side.
#[derive(Debug, Default)]
pub(crate) struct RecvConsumer {
    head: u32,
    tail_seen: u32,
}

/// State that the queue pairs that take requests share.
#[derive(Debug, Default)]
pub(crate) struct SrqTaker {
    pub(crate) consumer: RecvConsumer,
    /// An event fires when fewer requests than this are left; 0 is disarmed.
    pub(crate) limit: u32,
}

impl RecvRing {
    /// A ring for `capacity` requests (a power of two) of `max_sge` entries, with buffers in the
    /// domain `pd`; `lender` has the memory of the requests, if there is one.
    pub(crate) fn new(
        pd: u32,
        (capacity, max_sge): (u32, u32),
        lender: Option<MemoryLender>,
    ) -> Result<RecvRing, Errno> {
        let empty =
            || core::cell::UnsafeCell::new(RecvSlot { wr_id: 0, num_sge: 0, first: NO_SGE });
        let more = capacity as usize * (max_sge.max(1) as usize - 1);
        Ok(RecvRing {
            pd,
            slots: QueueMemory::new(capacity as usize, lender, empty)?,
            more: alloc::filled(more, || core::cell::UnsafeCell::new(NO_SGE))?.into(),
            max_sge,
            capacity,
            poster: Padded::default(),
            tail: Padded::default(),
            head: Padded::default(),
        })
    }

    /// Gives memory back that a program has lent.
    ///
    /// # Safety
    /// The queue is gone: no request is posted any more, and no thread looks for one.
    pub(crate) unsafe fn give_back(&self) {
        // SAFETY: the queue is gone (see # Safety), so that no thread looks at the slots.
        unsafe { self.slots.give_back() };
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// The domain of the requests' buffers.
    #[inline]
    pub(crate) fn pd(&self) -> u32 {
        self.pd
    }

    /// Posts a list; `*bad_wr` is the first request that was not posted.
    ///
    /// # Safety
    /// `wr` heads a list of requests whose scatter lists can be read; `bad_wr` can
    /// be written.
    pub(crate) unsafe fn post(
        &self,
        poster: &mut Poster,
        wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr,
    ) -> Result<(), Errno> {
        // SAFETY: `wr` heads a valid list, and `bad_wr` can be written (see # Safety).
        unsafe { self.post_noted(poster, wr, bad_wr, |_, _| ()) }
    }

    /// [`post`](Self::post), which tells `note` of each request, with its index, before it can be
    /// taken.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn post_noted(
        &self,
        poster: &mut Poster,
        mut wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr,
        mut note: impl FnMut(u32, &ibv_recv_wr),
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        while !wr.is_null() {
            // SAFETY: a request of the caller's list.
            let request = unsafe { &*wr };
            // SAFETY: its scatter list can be read.
            if let Err(error) = unsafe { self.post_one(poster, request) } {
                // SAFETY: `bad_wr` can be written (see # Safety).
                unsafe { bad_wr.write(wr) };
                result = Err(error);
                break;
            }
            note(poster.tail.wrapping_sub(1), request);
            wr = request.next;
        }
        // Release: the slots were written before the consumer sees them.
        self.tail.store(poster.tail, Ordering::Release);
        result
    }

    /// # Safety
    /// The request's scatter list can be read.
    #[inline]
    unsafe fn post_one(&self, poster: &mut Poster, wr: &ibv_recv_wr) -> Result<(), Errno> {
        let num_sge = wr.num_sge as u32;
        if num_sge > self.max_sge || (num_sge > 0 && wr.sg_list.is_null()) {
            return Err(errno::EINVAL);
        }
        if poster.tail.wrapping_sub(poster.head_seen) >= self.capacity {
            // Acquire: the consumer is done with the slots before it frees them.
            poster.head_seen = self.head.load(Ordering::Acquire);
            if poster.tail.wrapping_sub(poster.head_seen) >= self.capacity {
                return Err(errno::ENOMEM);
            }
        }
        let index = poster.tail & (self.capacity - 1);
        // SAFETY: the slot is the posting side's; the list has `num_sge` entries.
        unsafe {
            let first = if num_sge > 0 { *wr.sg_list } else { NO_SGE };
            self.slot(poster.tail).get().write(RecvSlot { wr_id: wr.wr_id, num_sge, first });
            for i in 1..num_sge {
                let at = index * (self.max_sge - 1) + i - 1;
                self.more[at as usize].get().write(*wr.sg_list.add(i as usize));
            }
        }
        poster.tail = poster.tail.wrapping_add(1);
        Ok(())
    }

    /// Reports whether a request is posted; looks at the poster's index only when the last look
    /// does not suffice.
    #[inline]
    pub(crate) fn is_ready(&self, consumer: &mut RecvConsumer) -> bool {
        if consumer.head == consumer.tail_seen {
            // Acquire: the slots up to there have been written.
            consumer.tail_seen = self.tail.load(Ordering::Acquire);
        }
        consumer.head != consumer.tail_seen
    }

    /// Number of requests that are known to be ready; looks at the poster's index only when that is
    /// none.
    #[inline]
    pub(crate) fn known(&self, consumer: &mut RecvConsumer) -> u32 {
        self.is_ready(consumer);
        consumer.tail_seen.wrapping_sub(consumer.head)
    }

    /// The oldest request, if it has one buffer: its `wr_id`, and the buffer.
    ///
    /// # Safety
    /// There is one.
    #[inline(always)]
    pub(crate) unsafe fn plain_front(&self, consumer: &RecvConsumer) -> Option<(u64, ibv_sge)> {
        self.fetch_ahead(consumer);
        // SAFETY: a request is posted (see # Safety), and `head .. tail` belongs to the consuming
        // side.
        let slot = unsafe { &*self.slot(consumer.head).get() };
        (slot.num_sge == 1).then_some((slot.wr_id, slot.first))
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> &core::cell::UnsafeCell<RecvSlot> {
        // SAFETY: there are `capacity` slots, a power of two, at least one.
        unsafe { self.slots.get_unchecked((index & (self.capacity - 1)) as usize) }
    }

    /// The oldest request; it stays in the ring.
    #[inline]
    pub(crate) fn front(&self, consumer: &mut RecvConsumer) -> Option<RecvRequest<'_>> {
        if !self.is_ready(consumer) {
            return None;
        }
        let index = consumer.head & (self.capacity - 1);
        self.fetch_ahead(consumer);
        // SAFETY: `head .. tail` belongs to the consuming side.
        let slot = unsafe { *self.slot(consumer.head).get() };
        Some(RecvRequest { ring: self, index, slot })
    }

    #[inline(always)]
    fn fetch_ahead(&self, consumer: &RecvConsumer) {
        let at = |ahead: u32| self.slot(consumer.head.wrapping_add(ahead)).get();
        copy::will_read(at(FETCH_SLOT).cast());
        if consumer.tail_seen.wrapping_sub(consumer.head) > FETCH_BUFFER {
            // SAFETY: `head .. tail` belongs to the consuming side.
            let addr = unsafe { (*at(FETCH_BUFFER)).first.addr };
            copy::will_write(core::ptr::without_provenance(addr as usize));
        }
    }

    /// Takes the oldest request out; its slot may be filled again at once.
    #[inline]
    pub(crate) fn pop(&self, consumer: &mut RecvConsumer) {
        consumer.head = consumer.head.wrapping_add(1);
        // Release: we are done with the slot.
        self.head.store(consumer.head, Ordering::Release);
    }

    /// Requests in the ring.
    pub(crate) fn len(&self, consumer: &mut RecvConsumer) -> u32 {
        // Acquire: as in `is_ready`.
        consumer.tail_seen = self.tail.load(Ordering::Acquire);
        consumer.tail_seen.wrapping_sub(consumer.head)
    }

    /// Forgets all requests. The poster's lock keeps posts away meanwhile.
    pub(crate) fn clear(&self, poster: &mut Poster, consumer: &mut RecvConsumer) {
        consumer.head = poster.tail;
        consumer.tail_seen = poster.tail;
        poster.head_seen = poster.tail;
        self.head.store(poster.tail, Ordering::Release);
    }
}

impl RecvConsumer {
    /// Position of the request at the front: the number of those before it.
    pub(crate) fn position(&self) -> u32 {
        self.head
    }
}

/// Bytes that a receive request which is posted has room for, as far as a trace can say it.
///
/// # Safety
/// Its scatter list can be read.
pub(crate) unsafe fn recv_len(wr: &ibv_recv_wr) -> u32 {
    // SAFETY: the caller's list.
    let sge = |i| unsafe { (*wr.sg_list.add(i)).length };
    (0..wr.num_sge.max(0) as usize).fold(0, |sum: u32, i| sum.saturating_add(sge(i)))
}

/// A request at the front of a ring.
pub(crate) struct RecvRequest<'a> {
    ring: &'a RecvRing,
    index: u32,
    slot: RecvSlot,
}

impl RecvRequest<'_> {
    #[inline]
    pub(crate) fn wr_id(&self) -> u64 {
        self.slot.wr_id
    }

    /// The domain of its buffers.
    #[inline]
    pub(crate) fn pd(&self) -> u32 {
        self.ring.pd
    }

    #[inline]
    pub(crate) fn num_sge(&self) -> u32 {
        self.slot.num_sge
    }

    /// Entry `i < num_sge` of the scatter list.
    #[inline]
    pub(crate) fn sge(&self, i: u32) -> ibv_sge {
        if i == 0 {
            return self.slot.first;
        }
        let at = self.index * (self.ring.max_sge - 1) + i - 1;
        // SAFETY: the request is still in the ring (a popped one has one entry),
        // so the entry belongs to the consuming side.
        unsafe { *self.ring.more[at as usize].get() }
    }

    /// Bytes it has room for.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        (0..self.slot.num_sge).map(|i| u64::from(self.sge(i).length)).sum()
    }
}
