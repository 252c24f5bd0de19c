//! A ring that our own READs land in.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use conn_core::ring::free::{FreeFront, FreeList, Lent, RecordSlot};
use verbs_sys::ibv_access_flags;

use crate::alloc;
use crate::error::{AttachError, LandError, LendError, MapError, RegisterError};
use crate::ids::QueueId;
use crate::object::context::ProtectionDomain;
use crate::queue::send::{RegionId, SendFlags, SendOp, SendQueue};
use crate::region::shared::RemoteSpan;
use crate::ring::{RingConfig, RingMemory};

/// Memory of a ring, and the list of its frees: held by the ring and all that is lent from it.
pub(super) struct LandingMemory {
    pub(super) memory: RingMemory,
    pub(super) list: FreeList<Box<[RecordSlot]>>,
}

/// Most handles kept for later messages.
const SPARES: usize = 32;

/// A ring that READs of one send queue land in, and that nothing else can write to. It has one
/// owner; any thread may free bytes that the ring lends.
///
/// Its bytes have positions, which count from the beginning and never wrap; the byte at
/// `position` lies at `position % capacity`. READs land one behind the other, and bytes
/// are lent, or passed over, in the same order:
///
/// ```text
///   freed <= passed <= landed <= posted <= freed + capacity
///
///        freed  | lent or given up |  landed  | on its way |   free
///   ------------+------------------+----------+------------+----------
///             freed              passed     landed       posted
/// ```
///
/// **Contract: for any sequence of calls, no READ is posted over bytes that are lent or visible.**
/// No READ ever lands on the bytes of a forgotten [`RingBytes`].
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// # let pd = context.alloc_pd()?;
/// # use verbs_safe::*;
/// # let gid = context.choose_gid(1, None)?;
/// # let cq = context.create_cq(CqConfig::new(256))?;
/// # let config = QueuePairConfig { access: RemoteAccess::ALL, ..QueuePairConfig::new(&cq, &cq) };
/// # let mut qp = pd.create_qp(&config, ())?;
/// # let end = qp.control.endpoint(1, gid, 7)?;
/// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
/// let mut source = pd.source_ring(RingConfig::mirrored(4096))?; // the peer's
/// source.lend(8, 5)?.copy_from_slice(b"hello");
///
/// let mut ring = pd.landing_ring(RingConfig::mirrored(4096), 64)?;
/// ring.attach(&mut qp.send)?;
/// let flags = SendFlags { signalled: true, ..SendFlags::default() };
/// ring.stage_read(&mut qp.send, 16, source.remote(), flags)?;
/// qp.send.post()?;
/// # let mut batch = CompletionBatch::new(8);
/// while ring.land(&qp.send) < 16 {
///     cq.poll(&mut batch)?;
///     for completion in batch.drain() {
///         qp.send.retire(&completion)?;
///     }
/// }
/// let message = ring.lend(8, 5, 16)?;
/// assert_eq!((&*message, ring.freed()), (&b"hello"[..], 0));
/// drop(message); // on any thread
/// assert_eq!(ring.freed(), 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: as drawn above; all but `freed` and `posted` are multiples of 8 only if the caller
// makes them so, and lent pieces end at multiples of 8.
pub struct LandingRing {
    inner: Arc<LandingMemory>,
    base: NonNull<u8>,
    mask: u64,
    /// The queue that the READs are posted to, and the number that it has given the ring's memory.
    queue: Option<(QueueId, RegionId)>,
    /// Staged READs: their count, and the position behind their bytes.
    reads: VecDeque<(u64, u64)>,
    front: FreeFront,
    freed: u64,
    passed: u64,
    landed: u64,
    posted: u64,
    spares: Vec<Arc<LandingMemory>>,
}

// SAFETY: the ring owns a share of the memory that `base` points into, and hands out its bytes as
// the invariant permits; the rest is `Send`.
unsafe impl Send for LandingRing {}
// SAFETY: through `&LandingRing` landed bytes are read, and nothing is changed.
unsafe impl Sync for LandingRing {}

/// Slots for lent pieces. Their number may depend on a peer's request.
pub(super) fn slots(count: u32) -> Result<Box<[RecordSlot]>, MapError> {
    let slots = alloc::filled("allocating a free list", count as usize, RecordSlot::new)?;
    Ok(slots.into_boxed_slice())
}

impl ProtectionDomain {
    /// A ring for READs to land in. At most `max_held` pieces, a power of two, are held at once.
    ///
    /// # Errors
    /// [`RegisterError`]: the memory could not be made (the error names the step), the device
    /// refused it, or `max_held` is no power of two.
    pub fn landing_ring(
        &self,
        config: RingConfig,
        max_held: u32,
    ) -> Result<LandingRing, RegisterError> {
        let list = FreeList::new(slots(max_held)?).map_err(|_| RegisterError::MaxHeld(max_held))?;
        let memory = RingMemory::new(self, config, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE)?;
        let (base, mask) = (memory.base, memory.capacity as u64 - 1);
        Ok(LandingRing {
            inner: Arc::new(LandingMemory { memory, list }),
            base,
            mask,
            queue: None,
            reads: VecDeque::new(),
            front: FreeFront::new(),
            freed: 0,
            passed: 0,
            landed: 0,
            posted: 0,
            spares: Vec::with_capacity(SPARES),
        })
    }
}

/// Reading into it.
impl LandingRing {
    /// Bytes of the ring.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.memory.capacity
    }

    /// Reports whether the ring is mapped twice in a row.
    #[inline]
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.inner.memory.is_mirrored
    }

    /// Ties the ring to the queue that its READs will be posted to, for good.
    ///
    /// # Errors
    /// [`AttachError`]: the ring is another domain's, or tied already.
    pub fn attach(&mut self, queue: &mut SendQueue) -> Result<(), AttachError> {
        if self.queue.is_some() {
            return Err(AttachError::Attached);
        }
        let region = queue.attach_registration(&self.inner.memory.registration)?;
        self.queue = Some((queue.queue_id(), region));
        Ok(())
    }

    /// Stages a READ of `len` bytes from the beginning of `remote` to
    /// [`posted`](Self::posted), which moves behind them.
    ///
    /// # Errors
    /// [`LandError`]: the bytes are not free, or would not be contiguous; or the queue
    /// does not take it. Nothing has changed.
    pub fn stage_read(
        &mut self,
        queue: &mut SendQueue,
        len: u32,
        remote: RemoteSpan,
        flags: SendFlags,
    ) -> Result<(), LandError> {
        let region = match self.queue {
            Some((id, region)) if id == queue.queue_id() => region,
            _ => return Err(LandError::OtherQueue),
        };
        let free = self.freed() + self.mask + 1 - self.posted;
        if u64::from(len) > free {
            return Err(LandError::NotFree { len, free });
        }
        let offset = (self.posted & self.mask) as usize;
        if self.inner.memory.span(offset, len as usize).is_none() {
            return Err(LandError::CrossesEnd { len, left: self.mask + 1 - offset as u64 });
        }
        queue.stage_at(region, offset, SendOp::Read { len, remote }, flags)?;
        self.posted += u64::from(len);
        self.reads.push_back((queue.staged_total(), self.posted));
        Ok(())
    }

    /// Takes in which READs have been retired, and returns up to where all bytes have
    /// landed. Bytes behind a READ that has failed never land; of another queue, this
    /// learns nothing.
    pub fn land(&mut self, queue: &SendQueue) -> u64 {
        if self.queue.is_none_or(|(id, _)| id != queue.queue_id()) {
            return self.landed;
        }
        while let Some(&(count, end)) = self.reads.front()
            && queue.has_succeeded(count)
        {
            self.landed = end;
            self.reads.pop_front();
        }
        self.landed
    }

    /// Up to where READs were staged.
    #[inline]
    #[must_use]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Up to where all bytes have landed, as far as [`land`](Self::land) has seen.
    #[inline]
    #[must_use]
    pub fn landed(&self) -> u64 {
        self.landed
    }

    pub(super) fn landing(&self) -> &Arc<LandingMemory> {
        &self.inner
    }

    /// Up to where bytes were lent or passed over.
    #[inline]
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed
    }
}

/// Handing out.
impl LandingRing {
    /// The `len` bytes at `position`. `None` if they have not landed, are not ahead of the
    /// [passed](Self::passed) position, or are not contiguous.
    #[inline]
    #[must_use]
    pub fn view(&self, position: u64, len: u32) -> Option<&[u8]> {
        let at = self.seen(position, len)?;
        // SAFETY: `seen` found the bytes inside the mapping, and no READ lands on them until they
        // are given up, from which the borrow of `self` keeps them.
        Some(unsafe { std::slice::from_raw_parts(at.as_ptr(), len as usize) })
    }

    /// The word at `position`, in little-endian order: a record's header. `None` as for
    /// [`view`](Self::view), or where it is not aligned to 8.
    #[inline]
    #[must_use]
    pub fn word(&self, position: u64) -> Option<u64> {
        let at = self.seen(position, 8).filter(|_| position.is_multiple_of(8))?;
        // SAFETY: `seen` found the word inside the mapping, and no READ lands on it meanwhile;
        // `position` is a multiple of 8, and the mapping is aligned to pages.
        Some(u64::from_le(unsafe { at.cast::<u64>().read() }))
    }

    /// Returns the address of `len` bytes at `position`, which no READ will land on until they are
    /// given up: they have landed and are not passed, so that they are not freed, and READs are
    /// staged only to bytes that are freed, a capacity later.
    #[inline]
    fn seen(&self, position: u64, len: u32) -> Option<NonNull<u8>> {
        let is_here = position >= self.passed
            && position <= self.landed
            && u64::from(len) <= self.landed - position;
        let offset = (position & self.mask) as usize;
        if !is_here || offset + len as usize > self.inner.memory.len() {
            return None;
        }
        // SAFETY: the offset is within the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    /// Frees all bytes before `position` that are not lent. Does nothing if `position` is not ahead
    /// of the passed one, or has not landed.
    #[inline]
    pub fn pass(&mut self, position: u64) {
        if position > self.passed && position <= self.landed {
            self.passed = position;
        }
    }

    /// Lends the `len` bytes at `position`, and passes over all before `end`: these are free when
    /// the lent bytes and all pieces lent before are freed.
    ///
    /// # Errors
    /// [`LendError`]; nothing has changed.
    #[inline]
    pub fn lend(&mut self, position: u64, len: u32, end: u64) -> Result<RingBytes, LendError> {
        let fits = end >= position && end - position >= u64::from(len) && end <= self.landed;
        // A piece of no bytes could end where the one before it did.
        if !fits || !end.is_multiple_of(8) || end == self.passed {
            return Err(LendError::NotLanded);
        }
        let at = self.seen(position, len).ok_or(LendError::NotLanded)?;
        if !self.can_lend() {
            return Err(LendError::TooMany);
        }
        let lent = self.front.lend(&self.inner.list, end).map_err(|_| LendError::TooMany)?;
        let ring = self.spares.pop().unwrap_or_else(|| self.inner.clone());
        self.passed = end;
        Ok(RingBytes { ring, at, len, lent: ManuallyDrop::new(lent) })
    }

    /// Frees lent bytes on the owner's thread: as dropping them, without atomic read-modify-writes.
    /// Bytes of another ring are dropped.
    #[inline]
    pub fn free(&mut self, bytes: RingBytes) {
        if !Arc::ptr_eq(&self.inner, &bytes.ring) {
            return;
        }
        let (ring, lent) = bytes.take_apart();
        // The list accepts it: the bytes are this ring's.
        let _ = self.front.free(&self.inner.list, lent);
        if self.spares.len() < SPARES {
            self.spares.push(ring);
        }
    }

    /// Up to where all bytes were given up: READs may be staged up to a capacity beyond.
    #[inline]
    pub fn freed(&mut self) -> u64 {
        let head = self.front.head(&self.inner.list);
        // With nothing lent, all passed bytes are free; else those before the first lent piece.
        self.freed = if self.front.lent() == 0 { self.passed } else { self.freed.max(head) };
        self.freed
    }

    /// Reports whether one more piece can be lent.
    #[inline]
    pub fn can_lend(&mut self) -> bool {
        self.front.lent() < self.inner.list.slots() || {
            // Some may have been freed meanwhile.
            self.freed();
            self.front.lent() < self.inner.list.slots()
        }
    }

    /// Reports whether nothing is lent.
    #[inline]
    pub fn is_home(&mut self) -> bool {
        self.front.head(&self.inner.list);
        self.front.lent() == 0
    }
}

/// Bytes of a [`LandingRing`] that are lent: derefs to them. Dropping it gives them up,
/// on any thread and in any order. It may outlive its ring.
pub struct RingBytes {
    ring: Arc<LandingMemory>,
    at: NonNull<u8>,
    len: u32,
    lent: ManuallyDrop<Lent>,
}

// SAFETY: the bytes do not change until this is dropped, the ring's memory is shared by
// count, and freeing is by atomics.
unsafe impl Send for RingBytes {}
// SAFETY: the bytes do not change until this is dropped, the ring's memory is shared by count, and
// freeing is by atomics.
unsafe impl Sync for RingBytes {}

impl RingBytes {
    #[inline]
    fn take_apart(self) -> (Arc<LandingMemory>, Lent) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: both are taken once: `this` is not dropped, and not used any more.
        unsafe { (std::ptr::read(&raw const this.ring), ManuallyDrop::take(&mut this.lent)) }
    }
}

impl Deref for RingBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes have landed, and no READ is staged over them until this is
        // dropped; the ring's memory is held.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len as usize) }
    }
}

impl AsRef<[u8]> for RingBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for RingBytes {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is not used afterwards; `take_apart` keeps this from running.
        let lent = unsafe { ManuallyDrop::take(&mut self.lent) };
        // The list accepts it: the slot is its own.
        let _ = self.ring.list.free(lent);
        host::point();
    }
}

debug_shows!(LandingRing: capacity(), is_mirrored(), freed, passed, landed, posted);

debug_shows!(RingBytes: len);
