//! The rings of a completion queue, and resizing it.
//!
//! A queue that is resized has another ring. The one that it was created with stays until the queue
//! is destroyed, because polls look into that one without a lock; any later one is looked at under
//! a lock only, and is freed by the resize that replaces it. So a queue has [`RINGS`] rings at
//! most, and only polls of a queue that was resized take a lock to find that it is empty.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::alloc::OutOfMemory;
use crate::errno;
use crate::objects::state::{Cq, CqRing, CqSlot, ExtendedCqState};
use crate::queues::queue_memory::{MemoryLender, QueueMemory};

/// Rings of a queue: that which it was created with, and that which the last resize has made.
const RINGS: usize = 2;

impl CqSlot {
    fn empty() -> CqSlot {
        CqSlot {
            wc: UnsafeCell::new([0; 6]),
            owner: UnsafeCell::new(core::ptr::null()),
            position: UnsafeCell::new(0),
            sequence: AtomicU32::new(0),
        }
    }
}

impl CqRing {
    /// A ring of `len` slots; `lender` has their memory, if there is one.
    pub(crate) fn new(len: u32, lender: Option<MemoryLender>) -> Result<CqRing, Errno> {
        Ok(CqRing { slots: QueueMemory::new(len as usize, lender, CqSlot::empty)? })
    }

    /// [`new`](Self::new) in the device's own memory.
    pub(crate) fn own(len: u32) -> Result<CqRing, OutOfMemory> {
        Ok(CqRing { slots: QueueMemory::own(len as usize, CqSlot::empty)? })
    }

    #[inline]
    pub(super) fn slot(&self, index: u32) -> &CqSlot {
        // SAFETY: the length is a power of two, so the index is masked into it.
        unsafe { self.slots.get_unchecked(index as usize & (self.slots.len() - 1)) }
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let resized = core::mem::take(self.resized_ring.get_mut());
        if !resized.is_null() {
            // SAFETY: it came from `Box::into_raw`, and no other reference is left.
            drop(unsafe { Box::from_raw(resized) });
        }
    }
}

impl Cq {
    /// The ring that completions are in.
    ///
    /// # Safety
    /// The lock of the producers or that of the consumers is held as long as the ring is used.
    #[inline]
    pub(super) unsafe fn ring(&self) -> &CqRing {
        // Relaxed: it is replaced under both locks.
        let resized = self.resized_ring.load(Ordering::Relaxed);
        // SAFETY: only a resize frees it, which has both locks when it replaces it.
        unsafe { resized.as_ref() }.unwrap_or(&self.first_ring)
    }

    /// Reports whether completions are in the ring that the queue was created with, which is never
    /// freed.
    #[inline]
    pub(super) fn has_first_ring(&self) -> bool {
        // Relaxed: a look into the first ring is harmless at any time, and one that begins after a
        // resize has returned finds that there is another.
        self.resized_ring.load(Ordering::Relaxed).is_null()
    }

    /// Reports whether the next entry is there; takes no lock, unless the queue was resized.
    #[inline]
    pub(crate) fn has_entry(&self) -> bool {
        if self.has_first_ring() { self.is_in(&self.first_ring) } else { self.has_entry_resized() }
    }

    #[cold]
    fn has_entry_resized(&self) -> bool {
        let _consumer = self.consumer.lock();
        // SAFETY: the consumers' lock is held.
        self.is_in(unsafe { self.ring() })
    }

    /// Reports whether the next entry is in a ring.
    #[inline]
    pub(super) fn is_in(&self, ring: &CqRing) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        ring.slot(head).sequence.load(Ordering::Relaxed) == head.wrapping_add(1)
    }

    /// Replaces the ring by one of `len` slots.
    pub(crate) fn resize(&self, len: u32) -> Result<(), Errno> {
        // Without a lock, as is the end of the one that is replaced: it may be the program's
        // functions that find the memory, and take it back.
        let new = CqRing::new(len, self.extended.as_ref().and_then(ExtendedCqState::lender))?;
        drop(self.replace(Box::new(new))?);
        Ok(())
    }

    /// Puts a ring where completions are from now on; the one that nobody looks at any more. It is
    /// dropped, and nothing has changed, if what is in the queue has no room there (`EINVAL`).
    fn replace(&self, new: Box<CqRing>) -> Result<Option<Box<CqRing>>, Errno> {
        // What is returned, or was given, outlives the locks.
        let _consumer = self.consumer.lock();
        let mut producer = self.producer.lock();
        // SAFETY: both locks are held.
        let (old, head) = (unsafe { self.ring() }, self.head.load(Ordering::Relaxed));
        let len = new.len();
        if producer.tail.wrapping_sub(head) > len {
            return Err(errno::EINVAL);
        }
        let mut index = head;
        while index != producer.tail {
            let (source, target) = (old.slot(index), new.slot(index));
            index = index.wrapping_add(1);
            // SAFETY: both locks are held; the new ring is ours.
            unsafe {
                *target.wc.get() = *source.wc.get();
                *target.owner.get() = *source.owner.get();
                *target.position.get() = *source.position.get();
            }
            target.sequence.store(index, Ordering::Relaxed);
        }
        producer.head_seen = head;
        // Relaxed: the ring is only looked at under one of the locks.
        let replaced = self.resized_ring.swap(Box::into_raw(new), Ordering::Relaxed);
        // SAFETY: both locks are held; callers only read it.
        unsafe { (*self.abi.get()).cqe = len as c_int };
        if let Some(check) = &self.check {
            check.resize(len);
        }
        // SAFETY: it came from `Box::into_raw`, and is only looked at under one of the locks.
        Ok((!replaced.is_null()).then(|| unsafe { Box::from_raw(replaced) }))
    }

    /// Gives memory back that a program has lent.
    ///
    /// # Safety
    /// The queue is gone: it has no queue pairs, and is not polled any more.
    pub(crate) unsafe fn give_back(&self) {
        // SAFETY: the queue is gone (see # Safety), so that no resize replaces or frees a ring
        // meanwhile.
        let resized = unsafe { self.resized_ring.load(Ordering::Relaxed).as_ref() };
        let rings: [_; RINGS] = [Some(&self.first_ring), resized];
        for ring in rings.into_iter().flatten() {
            // SAFETY: the queue is gone (see # Safety), so that no thread looks at the slots.
            unsafe { ring.slots.give_back() };
        }
    }
}
