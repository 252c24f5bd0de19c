//! Completion queues.
//!
//! A ring of 64-byte slots, each with a sequence number of its own: an entry is
//! there when its slot's number is the index expected plus one, so a poll reads
//! the very line that it wants and no shared index, and an empty queue is polled
//! without any lock (unless it was resized: see `rings`). Producers hold one lock, consumers
//! another; consumers publish `head` once for a poll, and producers look at it only when their copy
//! says full. Of what is appended under one hold of the lock, the oldest entry gets its number
//! last: it makes all of them visible.
//!
//! Arming happens under the producers' lock, which orders it with completions: a
//! completion is either before it (and does not fire) or after it (and does).
//! There is no fence on the fast path for it.
//!
//! Tried and left out, because the rate between two threads stayed what it was
//! (16 bytes, lists of 8: 61 to 64 ns a message; nearly all samples of the sender's
//! processor are inside the post): messages of up to 24 bytes in the completion's
//! own line, laid down by the poll (and 1 to 2 ns more within one thread); a pause
//! after an empty poll; fetching 8 or 16 slots ahead instead of 4; neighbouring
//! entries in different pages, against prefetching by the processor.
//!
//! Two threads, 16 bytes, lists of 8: 48 ns a message where the machine's two
//! processors share a cache, 175 ns where they do not; it changes by the minute, and
//! UCX's shared memory goes along (50 and 130 ns). In the first case three quarters of
//! the sender's samples are inside the post, most of them at the stores to the payload
//! and to the completion: it waits for their lines. Tried and left out, each run in
//! turn with the version without it: the oldest entry written as a whole when it is
//! published (no difference, and 190 ns instead of 175 in the second case); fetching
//! the receive slots that a list of reposts is going to write (47.5 to 53 ns against
//! 48.5 to 53, 170 against 173, and 0.5 ns more within one thread).
//!
//! An overrun kills the queue: what was in it can be polled, what arrived later is lost, and the
//! queue pairs that use it go to the error state.

mod filling;
mod moderation;
pub(crate) mod producer;
mod rings;

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use host::plant::{Plant, is_planted};
use host::sync::Mutex;
use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::event::Acks;
use crate::lock::{Guard, Lock, Padded};
use crate::objects::cq::producer::{ArmState, CqProducer};
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::in_arc::InArc;
use crate::objects::state::{
    CompChannel, Context, Cq, CqRing, Element, ExtendedCqState, Qp, QueuedEvent, Slack,
};
use crate::objects::users::Users;
use crate::queues::queue_memory::{MemoryLender, Resource};
use crate::reason::WcReason;
use crate::trace::completions::CqTrace;

pub(crate) use filling::Filling;

/// A completion as a producer hands it in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CqEntry {
    pub(crate) wr_id: u64,
    pub(crate) failure: Option<WcReason>,
    pub(crate) opcode: ibv_wc_opcode,
    pub(crate) byte_len: u32,
    pub(crate) imm: u32,
    pub(crate) flags: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    /// Wakes an arming for solicited completions only.
    pub(crate) solicited: bool,
}

impl ExtendedCqState {
    /// The allocator that lends memory to a queue, if there is one.
    pub(crate) fn lender(&self) -> Option<MemoryLender> {
        self.domain.as_ref().and_then(|domain| domain.lender(Resource::Cq))
    }
}

impl CqProducer {
    /// Reports whether a completion that the next event waits for was published.
    fn fires(&self) -> bool {
        match self.armed {
            ArmState::Any => true,
            ArmState::Solicited => self.notable,
            ArmState::No | ArmState::Watched => false,
        }
    }

    /// Writes an entry into the next slot, which is free.
    #[inline(always)]
    fn append(&mut self, ring: &CqRing, words: [u64; 6], owner: *const Qp, position: u32) {
        let index = self.tail;
        let slot = ring.slot(index);
        // Consumers read the slot last: fetch it before it is needed.
        crate::copy::will_write(core::ptr::from_ref(ring.slot(index.wrapping_add(4))).cast());
        self.tail = index.wrapping_add(1);
        // SAFETY: the slot is free, and the producers' lock is held.
        unsafe {
            *slot.wc.get() = words;
            *slot.owner.get() = owner;
            *slot.position.get() = position;
        }
        // Consumers do not get here before the oldest unpublished entry has its number.
        if index != self.published {
            // Release: as in `publish`.
            slot.sequence.store(self.tail, Ordering::Release);
        }
    }
}

impl Cq {
    pub(crate) fn new(
        context: Arc<Context>,
        channel: Option<Arc<CompChannel>>,
        ring: CqRing,
        user: *mut c_void,
        extended: Option<ExtendedCqState>,
    ) -> Cq {
        let len = ring.len();
        let has_times = extended.as_ref().is_some_and(|extended| extended.has_times);
        let trace = context.tracer.as_ref().and_then(|tracer| CqTrace::new(tracer, len));
        let armed = ArmState::none(has_times || trace.is_some());
        let ignores_overrun = extended.as_ref().is_some_and(|extended| extended.ignores_overrun);
        let check = context.check_cq(if ignores_overrun { u32::MAX } else { len });
        // SAFETY: zero is a valid value of every field.
        let mut abi: ibv_cq_ex = unsafe { core::mem::zeroed() };
        abi.context = context.as_abi();
        abi.channel = channel.as_ref().map_or(core::ptr::null_mut(), CompChannel::as_abi);
        abi.cq_context = user;
        abi.cqe = len as c_int;
        abi.handle = Cq::HANDLE;
        Cq {
            abi: UnsafeCell::new(abi),
            slack: Slack::default(),
            is_plain: context.device.is_synchronous()
                && !has_times
                && trace.is_none()
                && check.is_none(),
            context,
            channel,
            first_ring: ring,
            resized_ring: AtomicPtr::default(),
            dead: AtomicBool::new(false),
            producer: Padded(Lock::new(CqProducer { armed, ..CqProducer::default() })),
            consumer: Padded::default(),
            head: Padded::default(),
            users: Users::default(),
            qps: Mutex::default(),
            channel_acks: Acks::default(),
            async_acks: Acks::default(),
            extended,
            trace,
            check,
            moderation: Mutex::default(),
        }
    }

    /// The `handle` of every one: none is found by it.
    pub(crate) const HANDLE: u32 = 1;

    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `cq` is NULL or a live completion queue of ours.
    #[inline]
    pub(crate) unsafe fn from_abi<'a>(cq: *mut ibv_cq) -> Result<InArc<'a, Cq>, Errno> {
        // SAFETY: `cq` is NULL or live (see # Safety), and every completion queue lives in an
        // `Arc`.
        unsafe { InArc::new(cq.cast::<Cq>()) }.ok_or(errno::EINVAL)
    }

    pub(crate) fn as_abi(self: &Arc<Cq>) -> *mut ibv_cq {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// Takes up to `out.len` completions.
    ///
    /// # Safety
    /// `wc` has room for `len`.
    #[inline]
    pub(crate) unsafe fn poll(&self, wc: *mut ibv_wc, len: u32) -> u32 {
        if self.has_first_ring() && !self.is_in(&self.first_ring) {
            return 0;
        }
        let _consumer = self.consumer.lock();
        // SAFETY: the consumers' lock is held.
        let ring = unsafe { self.ring() };
        let head = self.head.load(Ordering::Relaxed);
        let mut n = 0;
        while n < len {
            let index = head.wrapping_add(n);
            let slot = ring.slot(index);
            // Acquire: the entry, and what the device wrote for it, is there.
            if slot.sequence.load(Ordering::Acquire) != index.wrapping_add(1) {
                break;
            }
            // SAFETY: the entry is the consumer's until `head` passes it; the
            // owner lives while its entries are in the ring.
            unsafe {
                wc.add(n as usize).cast::<[u64; 6]>().write_unaligned(*slot.wc.get());
                if let Some(owner) = (*slot.owner.get()).as_ref() {
                    // Relaxed: a count that guards no memory.
                    owner.freed.store(*slot.position.get(), Ordering::Relaxed);
                }
            }
            n += 1;
        }
        // Release: the entries have been read.
        self.head.store(head.wrapping_add(n), Ordering::Release);
        n
    }

    /// Writes a completion into the next slot, unpublished; the caller holds the
    /// producers' lock.
    #[inline]
    fn push(
        self: &Arc<Cq>,
        producer: &mut CqProducer,
        completion: &CqEntry,
        owner: Option<(&Qp, u32)>,
        deferred: &mut DeferredWork,
    ) {
        if producer.overrun {
            return;
        }
        // SAFETY: the producers' lock is held.
        let ring = unsafe { self.ring() };
        if producer.tail.wrapping_sub(producer.head_seen) >= ring.len() {
            // Acquire: consumers have read the slots before that.
            producer.head_seen = self.head.load(Ordering::Acquire);
            if producer.tail.wrapping_sub(producer.head_seen) >= ring.len() {
                return self.overrun(producer, owner, deferred);
            }
        }
        // Errors wake an arming for solicited completions only, too.
        producer.notable |= completion.solicited || completion.failure.is_some();
        let (qp, position) = owner.map_or((core::ptr::null(), 0), |(qp, p)| (&raw const *qp, p));
        producer.append(ring, completion.words(), qp, position);
    }

    /// Makes what was appended visible, by the sequence number of the oldest: a
    /// consumer that waits for it then finds all of them, and does not pull each
    /// slot's line away while the next is being written.
    #[inline]
    fn publish(self: &Arc<Cq>, producer: &mut CqProducer) {
        if producer.published == producer.tail {
            return;
        }
        // One look for all that is rare: a queue of neither kind takes no instruction more.
        if producer.armed != ArmState::No {
            return self.publish_watched(producer);
        }
        self.make_visible(producer);
        producer.notable = false;
    }

    /// [`publish`](Self::publish), where completions get a time, are traced, or an event is waited
    /// for.
    #[cold]
    #[inline(never)]
    fn publish_watched(self: &Arc<Cq>, producer: &mut CqProducer) {
        if self.has_times() {
            self.stamp(producer);
        }
        if let Some(trace) = &self.trace {
            self.tell(producer, trace);
        }
        let first = producer.published;
        self.make_visible(producer);
        match producer.is_moderated {
            false => self.notify(producer),
            true => self.notify_moderated(producer, first),
        }
        producer.notable = false;
    }

    #[inline(always)]
    fn make_visible(&self, producer: &mut CqProducer) {
        // SAFETY: the producers' lock is held.
        let oldest = unsafe { self.ring() }.slot(producer.published);
        // Release: the entries are complete, and so are the data they announce.
        oldest.sequence.store(producer.published.wrapping_add(1), Ordering::Release);
        producer.published = producer.tail;
        host::notify_changed(self, 1);
    }

    /// Reports whether completions get a time.
    pub(crate) fn has_times(&self) -> bool {
        self.extended.as_ref().is_some_and(|extended| extended.has_times)
    }

    /// Gives what is about to become visible its time.
    fn stamp(&self, producer: &CqProducer) {
        // SAFETY: the producers' lock is held.
        let (ring, now) = (unsafe { self.ring() }, crate::clock::now());
        let mut index = producer.published;
        while index != producer.tail {
            // SAFETY: consumers do not get here before the oldest has its number, and the
            // producers' lock is held.
            unsafe { (*ring.slot(index).wc.get())[5] = now };
            index = index.wrapping_add(1);
        }
    }

    /// Traces what is about to become visible.
    fn tell(&self, producer: &CqProducer, trace: &CqTrace) {
        // SAFETY: the producers' lock is held.
        let (ring, mut index) = (unsafe { self.ring() }, producer.published);
        while index != producer.tail {
            let slot = ring.slot(index);
            // SAFETY: as in `stamp`.
            unsafe {
                let position = (!(*slot.owner.get()).is_null()).then(|| *slot.position.get());
                trace.came(&*slot.wc.get(), position);
            }
            index = index.wrapping_add(1);
            trace.produced(index);
        }
    }

    /// Fires the event that was armed, if what was published is what it waits for.
    fn notify(self: &Arc<Cq>, producer: &mut CqProducer) {
        if producer.fires() && !is_planted(Plant::LostWakeup) {
            self.fire(producer);
        }
    }

    /// Fires the event that was armed.
    fn fire(self: &Arc<Cq>, producer: &mut CqProducer) {
        producer.armed = ArmState::none(self.has_times() || self.trace.is_some());
        if let Some(channel) = &self.channel {
            channel.events.push(Arc::clone(self));
        }
    }

    /// The queue dies: nothing is appended any more. One that ignores it only lacks a completion,
    /// whose slot in the send queue is free: no poll will say so.
    #[cold]
    fn overrun(
        self: &Arc<Cq>,
        producer: &mut CqProducer,
        owner: Option<(&Qp, u32)>,
        deferred: &mut DeferredWork,
    ) {
        if self.extended.as_ref().is_some_and(|extended| extended.ignores_overrun) {
            if let Some((qp, position)) = owner {
                // Relaxed: a count that guards no memory. A poll of an older completion takes it
                // back, until a younger one is polled.
                qp.freed.store(position, Ordering::Relaxed);
            }
            return;
        }
        producer.overrun = true;
        if let Some(trace) = &self.trace {
            trace.overran();
        }
        if let Some(check) = &self.check {
            check.overran();
        }
        // Relaxed: a poll that misses it finds out the next time.
        self.dead.store(true, Ordering::Relaxed);
        let element = Element::Cq(Arc::clone(self));
        let event_type = ibv_event_type::IBV_EVENT_CQ_ERR;
        self.context.events.push(QueuedEvent { element, event_type });
        deferred.push(WorkItem::KillUsers(Arc::clone(self)));
    }

    /// Removes the entries of a queue pair that is destroyed or reset, as a card's
    /// driver does. Afterwards nothing here refers to it.
    pub(crate) fn purge(&self, qp_num: u32) {
        let _consumer = self.consumer.lock();
        let producer = self.producer.lock();
        // SAFETY: both locks are held.
        let ring = unsafe { self.ring() };
        let head = self.head.load(Ordering::Relaxed);
        // Kept entries move towards the tail, youngest first.
        let mut to = producer.tail;
        let mut from = producer.tail;
        while from != head {
            from = from.wrapping_sub(1);
            let (source, target) = (ring.slot(from), ring.slot(to.wrapping_sub(1)));
            // SAFETY: both locks are held.
            unsafe {
                if (*source.wc.get())[3] >> 32 == u64::from(qp_num) {
                    continue;
                }
                to = to.wrapping_sub(1);
                *target.wc.get() = *source.wc.get();
                *target.owner.get() = *source.owner.get();
                *target.position.get() = *source.position.get();
            }
        }
        // Release: as in `poll`.
        self.head.store(to, Ordering::Release);
        if let Some(trace) = &self.trace {
            // Relaxed: a count that guards no memory.
            trace.consumed(|| self.head.load(Ordering::Relaxed));
        }
    }

    /// Completions that can be polled.
    pub(crate) fn unpolled(&self) -> u32 {
        let producer = self.producer.lock();
        // Relaxed: a poll that is under way may still count.
        producer.tail.wrapping_sub(self.head.load(Ordering::Relaxed))
    }

    /// Marks and forgets a queue pair's use of this queue.
    pub(crate) fn detach(&self, qp: &Qp) {
        let gone = |weak: &Weak<Qp>| core::ptr::eq(weak.as_ptr(), qp);
        self.qps.lock().retain(|weak| !gone(weak));
        self.users.leave();
    }

    pub(crate) fn attach(&self, qp: &Arc<Qp>) {
        self.users.add();
        self.qps.lock().push(Arc::downgrade(qp));
    }
}

impl CqEntry {
    /// The words of the `ibv_wc`. Whole words, so that a poll right after it can
    /// be served from the processor's store buffer.
    #[inline]
    fn words(&self) -> [u64; 6] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (status, vendor_err) = WcReason::ends(self.failure);
        [
            self.wr_id,
            pair(status.0, self.opcode.0),
            pair(vendor_err, self.byte_len),
            pair(self.imm, self.qp_num),
            pair(self.src_qp, self.flags),
            0,
        ]
    }
}

/// At most one completion queue's producer lock, kept from one completion to the
/// next if they go to the same queue; what was appended is visible when it is let
/// go.
#[derive(Default)]
pub(crate) struct CqWriter<'a> {
    current: Option<(&'a Arc<Cq>, Guard<'a, CqProducer>)>,
}

impl<'a> CqWriter<'a> {
    /// Appends a completion. `owner` is given for those of a send queue.
    #[inline]
    pub(crate) fn push(
        &mut self,
        cq: &'a Arc<Cq>,
        completion: &CqEntry,
        owner: Option<(&Qp, u32)>,
        deferred: &mut DeferredWork,
    ) {
        cq.push(self.hold(cq), completion, owner, deferred);
    }

    /// Takes a queue's producers' lock, unless it is held.
    #[inline]
    fn hold(&mut self, cq: &'a Arc<Cq>) -> &mut CqProducer {
        if !self.current.as_ref().is_some_and(|(held, _)| Arc::ptr_eq(held, cq)) {
            // Never two: the old one goes first.
            self.release();
        }
        let (_, producer) = self.current.get_or_insert_with(|| (cq, cq.producer.lock()));
        producer
    }

    /// Publishes what was appended and lets go of the lock.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some((cq, mut producer)) = self.current.take() {
            cq.publish(&mut producer);
        }
    }
}

impl Drop for CqWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}
