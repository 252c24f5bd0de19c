//! conn-core's ring over the memory of this process: its machines say where, this copies
//! there.

use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conn_core::ring::free::{FreeFront, FreeList, RecordSlot};
use conn_core::ring::*;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::CAPACITY;

/// The tail, or the head, in a cache line of its own (two, for they are fetched in pairs).
#[repr(align(128))]
#[derive(Default)]
struct CacheLine(AtomicU64);

#[derive(Default)]
struct RingCounters {
    tail: CacheLine,
    head: CacheLine,
}

/// One end's view of what both have.
#[derive(Clone)]
struct EndView {
    memory: NonNull<u8>,
    counters: Arc<RingCounters>,
}

// SAFETY: of the memory, the sender touches what lies beyond the tail, and the receiver what
// lies before it and behind the head.
unsafe impl Send for EndView {}

impl EndView {
    #[inline]
    fn payload(&self, span: Span) -> *mut [u8] {
        let first = self.memory.as_ptr().wrapping_add(span.offset as usize);
        slice_from_raw_parts_mut(first, span.len as usize)
    }

    #[inline]
    fn header(&self, offset: u64) -> *mut u64 {
        self.memory.as_ptr().wrapping_add(offset as usize).cast()
    }
}

/// The sending end.
pub(crate) struct OurSender {
    ring: Producer,
    shared: EndView,
}

impl OurSender {
    /// No room, as far as was known.
    #[cold]
    fn push_again(&mut self, len: u32) -> Option<(Span, Committed)> {
        // Acquire: the receiver has read what lies there.
        let head = self.shared.counters.head.0.load(Ordering::Acquire);
        self.ring.on_head(head).expect("an honest head");
        self.ring.push(len).ok()
    }
}

impl super::BenchSender for OurSender {
    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> bool {
        let len = message.len() as u32;
        let (payload, Committed { header, skip }) = match self.ring.push(len) {
            Ok(pushed) => pushed,
            Err(_) => match self.push_again(len) {
                Some(pushed) => pushed,
                None => return false,
            },
        };
        // SAFETY: `tail` is not published, so the receiver does not read here; `memory` is never
        // freed.
        unsafe { self.shared.header(header.offset).write(header.word.to_le()) };
        if let Some(skip) = skip {
            // SAFETY: `tail` is not published, so the receiver does not read here; `memory` is
            // never freed.
            unsafe { self.shared.header(skip.offset).write(skip.word.to_le()) };
        }
        let payload = self.shared.payload(payload);
        // SAFETY: `payload` has the length of `message`, for which it was pushed; `tail` is not
        // published, so the receiver does not read here; `memory` is never freed.
        unsafe { message.as_ptr().copy_to_nonoverlapping(payload.cast(), message.len()) };
        // Release: the record is written.
        self.shared.counters.tail.0.store(self.ring.tail(), Ordering::Release);
        true
    }
}

/// The receiving end; frees in order.
pub(crate) struct OurReceiver {
    ring: Consumer,
    shared: EndView,
}

impl OurReceiver {
    /// The next record.
    #[inline(always)]
    fn take(&mut self) -> Option<Record> {
        if self.ring.next_header().is_none() {
            self.look_at_tail();
        }
        let offset = self.ring.next_header()?;
        // SAFETY: published, and not freed.
        let word = u64::from_le(unsafe { self.shared.header(offset).read() });
        match self.ring.take(word).expect("an honest record") {
            Taken::Record(record) => Some(record),
            _ => self.take_next(),
        }
    }

    /// After something was skipped.
    #[cold]
    fn take_next(&mut self) -> Option<Record> {
        self.take()
    }

    #[inline(always)]
    fn look_at_tail(&mut self) {
        // Acquire: what was published is in memory.
        let tail = self.shared.counters.tail.0.load(Ordering::Acquire);
        self.ring.on_tail_landed(tail).expect("an honest tail");
    }

    #[inline]
    fn tell_head(&mut self) {
        if let Some(head) = self.ring.head_due() {
            self.ring.mark_told(head);
            // Release: all before it was read.
            self.shared.counters.head.0.store(head, Ordering::Release);
        }
    }
}

impl super::BenchReceiver for OurReceiver {
    #[inline(always)]
    fn receive(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        let Some(record) = self.take() else { return false };
        // SAFETY: published, and not freed.
        look(unsafe { &*self.shared.payload(record.payload) });
        self.ring.on_all_freed();
        self.tell_head();
        true
    }
}

/// The receiving end whose messages may be freed in any order, and by any thread.
pub(crate) struct AnyOrderReceiver {
    receiver: OurReceiver,
    front: FreeFront,
    list: FreeList<Box<[RecordSlot]>>,
}

impl super::BenchReceiver for AnyOrderReceiver {
    #[inline(always)]
    fn receive(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        let Some(record) = self.receiver.take() else { return false };
        let lent = self.front.lend(&self.list, record.end).expect("no more than one is held");
        // SAFETY: published, and not freed.
        look(unsafe { &*self.receiver.shared.payload(record.payload) });
        self.list.free(lent).expect("this list's");
        let head = self.front.head(&self.list);
        self.receiver.ring.on_freed(head);
        self.receiver.tell_head();
        true
    }
}

fn ends(geometry: Geometry, memory: NonNull<u8>) -> (OurSender, OurReceiver) {
    let shared = EndView { memory, counters: Arc::default() };
    let config = ConsumerConfig { head_threshold: geometry.capacity() / 4 };
    let receiver = OurReceiver { ring: Consumer::new(geometry, config), shared: shared.clone() };
    (OurSender { ring: Producer::new(geometry), shared }, receiver)
}

fn plain<const MOST: usize>() -> (OurSender, OurReceiver) {
    let geometry = Geometry::plain(CAPACITY as u64, MOST as u32).expect("a ring");
    // Words, so that headers are aligned. It stays until the process ends.
    let memory = Vec::leak(vec![0u64; CAPACITY / 8]);
    ends(geometry, NonNull::from(memory).cast())
}

/// Memory that is mapped once.
pub(crate) struct PlainRing;

impl<const MOST: usize> super::BenchRing<MOST> for PlainRing {
    const NAME: &'static str = "conn-core";
    type Sender = OurSender;
    type Receiver = OurReceiver;

    fn new() -> (OurSender, OurReceiver) {
        plain::<MOST>()
    }
}

/// The same with frees in any order.
pub(crate) struct AnyOrderRing;

impl<const MOST: usize> super::BenchRing<MOST> for AnyOrderRing {
    const NAME: &'static str = "conn-core-any-order";
    type Sender = OurSender;
    type Receiver = AnyOrderReceiver;

    fn new() -> (OurSender, AnyOrderReceiver) {
        let (sender, receiver) = plain::<MOST>();
        let slots = (0..64).map(|_| RecordSlot::new()).collect();
        let list = FreeList::new(slots).expect("a power of two");
        (sender, AnyOrderReceiver { receiver, front: FreeFront::new(), list })
    }
}

/// Memory that is mapped twice in a row.
pub(crate) struct MirroredRing;

impl<const MOST: usize> super::BenchRing<MOST> for MirroredRing {
    const NAME: &'static str = "conn-core-mirrored";
    type Sender = OurSender;
    type Receiver = OurReceiver;

    fn new() -> (OurSender, OurReceiver) {
        let geometry = Geometry::mirrored(CAPACITY as u64, MOST as u32).expect("a ring");
        ends(geometry, mirror().expect("two mappings"))
    }
}

/// It stays until the process ends.
fn mirror() -> Result<NonNull<u8>, Box<dyn std::error::Error>> {
    let file = verbs_safe::Mirrored::new(CAPACITY)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, and two over it.
    unsafe {
        let base = mmap_anonymous(null_mut(), 2 * CAPACITY, protection, MapFlags::PRIVATE)?;
        for half in [base, base.byte_add(CAPACITY)] {
            mmap(half, CAPACITY, protection, MapFlags::SHARED | MapFlags::FIXED, &file, 0)?;
        }
        Ok(NonNull::new_unchecked(base).cast())
    }
}
