//! A landing ring out of which several threads receive.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::{Claimed, Receivers, Taking};
use conn_core::ring::{Geometry, RecordError};

use super::landing::{LandingMemory, LandingRing, slots};
use crate::error::LandError;
use crate::queue::send::{SendFlags, SendQueue};
use crate::region::shared::RemoteSpan;

/// Ring and claims on it: held by the owner, the claims and the messages.
struct SharedRing {
    landing: Arc<LandingMemory>,
    records: Receivers<Box<[RecordSlot]>>,
}

/// The owner's side of a [`LandingRing`] out of which several threads [claim](Claims)
/// records: it lets READs land.
///
/// ```text
///   freed <= claimed <= landed <= posted <= freed + capacity
/// ```
///
/// **Contract: for any sequence of calls, no READ is posted over a record that is claimed or can be
/// claimed.**
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
/// use conn_core::ring::{Geometry, Producer};
///
/// let geometry = Geometry::mirrored(4096, 100)?;
/// let mut source = pd.source_ring(RingConfig::mirrored(4096))?; // the peer's
/// let mut sender = Producer::new(geometry);
/// let header = sender.commit(sender.reserve(5)?, 5)?.header;
/// source.store_u64(header.offset as usize, header.word)?;
/// source.lend(8, 5)?.copy_from_slice(b"hello");
///
/// let mut ring = pd.landing_ring(RingConfig::mirrored(4096), 64)?;
/// ring.attach(&mut qp.send)?;
/// let (mut ring, claims) = ring.share(geometry).expect("nothing was taken yet");
/// let flags = SendFlags { signalled: true, ..SendFlags::default() };
/// ring.stage_read(&mut qp.send, 16, source.remote(), flags)?;
/// qp.send.post()?;
/// # let mut batch = CompletionBatch::new(8);
/// while ring.land(&qp.send, 16) < 16 {
///     cq.poll(&mut batch)?;
///     for completion in batch.drain() {
///         qp.send.retire(&completion)?;
///     }
/// }
/// std::thread::scope(|scope| {
///     scope.spawn(|| match claims.take() {
///         Ok(Claim::Bytes(message)) => assert_eq!(&*message, b"hello"),
///         other => panic!("{other:?}"),
///     });
/// });
/// assert_eq!(ring.freed(), 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: the ring has passed over all before the head of `records`, and nothing else; so READs
// are staged only over records that were claimed and freed.
pub struct SharedLandingRing {
    ring: LandingRing,
    shared: Arc<SharedRing>,
}

impl LandingRing {
    /// Lets several threads claim landed records of a ring of this shape. At most `max_held` of
    /// them can be held at once.
    ///
    /// # Errors
    /// The ring itself, if something was lent or passed over before, the shape is not its own, or
    /// memory runs out.
    // The ring is returned whole and unchanged.
    #[allow(clippy::result_large_err)]
    pub fn share(self, geometry: Geometry) -> Result<(SharedLandingRing, Claims), LandingRing> {
        let is_its_own = geometry.capacity() == self.capacity() as u64
            && geometry.is_mirrored() == self.is_mirrored();
        if self.passed() > 0 || !is_its_own {
            return Err(self);
        }
        let landing = self.landing().clone();
        let Ok(slots) = slots(landing.list.slots()) else { return Err(self) };
        let Ok(records) = Receivers::new(geometry, slots) else { return Err(self) };
        let shared = Arc::new(SharedRing { landing, records });
        Ok((SharedLandingRing { ring: self, shared: shared.clone() }, Claims { shared }))
    }
}

impl SharedLandingRing {
    /// Stages a READ: see [`LandingRing::stage_read`].
    ///
    /// # Errors
    /// [`LandError`]; nothing has changed.
    pub fn stage_read(
        &mut self,
        queue: &mut SendQueue,
        len: u32,
        remote: RemoteSpan,
        flags: SendFlags,
    ) -> Result<(), LandError> {
        self.freed();
        self.ring.stage_read(queue, len, remote, flags)
    }

    /// Takes the retired READs into account, and lets all threads claim landed records, of those
    /// sent up to `tail`. Returns the landed position.
    pub fn land(&mut self, queue: &SendQueue, tail: u64) -> u64 {
        let landed = self.ring.land(queue);
        self.shared.records.on_landed(landed, tail);
        landed
    }

    /// Up to where all bytes have landed.
    #[inline]
    #[must_use]
    pub fn landed(&self) -> u64 {
        self.ring.landed()
    }

    /// Up to where records were claimed.
    #[inline]
    #[must_use]
    pub fn claimed(&self) -> u64 {
        self.shared.records.claimed()
    }

    /// Up to where all records were claimed and given up.
    pub fn freed(&mut self) -> u64 {
        self.ring.pass(self.shared.records.head());
        self.ring.freed()
    }

    /// The word at `position`: see [`LandingRing::word`]. It is not before
    /// [`freed`](Self::freed), but others may have claimed it.
    #[inline]
    #[must_use]
    pub fn word(&self, position: u64) -> Option<u64> {
        self.ring.word(position)
    }

    /// Bytes of the ring.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

/// The receiving side: any number of threads, by reference or by clones.
#[derive(Clone)]
pub struct Claims {
    shared: Arc<SharedRing>,
}

/// Result of a thread's claim.
#[derive(Debug)]
pub enum Claim<T> {
    /// A record's payload.
    Bytes(T),
    /// No record that has landed as a whole was left.
    Nothing,
    /// As many are held as can be: give some up first.
    TooMany,
}

impl Claims {
    /// Claims the next record, which goes to no other thread.
    ///
    /// # Errors
    /// [`RecordError`]: there is no valid record. All later calls fail the same way.
    #[inline]
    pub fn take(&self) -> Result<Claim<ClaimedBytes>, RecordError> {
        Ok(match claim(&self.shared)? {
            Claim::Bytes(found) => {
                Claim::Bytes(ClaimedBytes(HeldPayload::new(self.shared.clone(), found)))
            }
            Claim::Nothing => Claim::Nothing,
            Claim::TooMany => Claim::TooMany,
        })
    }

    /// Claims the next record, shows its payload to `look`, and gives it up. It costs less
    /// than [`take`](Self::take): all threads count references to the ring there.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline]
    pub fn show<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<Claim<T>, RecordError> {
        Ok(match claim(&self.shared)? {
            Claim::Bytes(found) => {
                Claim::Bytes(look(HeldPayload::new(&*self.shared, found).bytes()))
            }
            Claim::Nothing => Claim::Nothing,
            Claim::TooMany => Claim::TooMany,
        })
    }

    /// Longest payload of a record.
    #[must_use]
    pub fn max_payload(&self) -> u32 {
        self.shared.records.geometry().max_payload()
    }
}

/// Place of a record's payload.
struct ClaimedPayload {
    at: NonNull<u8>,
    len: u32,
    claimed: Claimed,
}

/// Claims the next record of a ring.
#[inline]
fn claim(shared: &SharedRing) -> Result<Claim<ClaimedPayload>, RecordError> {
    Ok(match shared.records.take(|offset| shared.header(offset))? {
        Taking::Record(record, claimed) => {
            let (offset, len) = (record.payload.offset as usize, record.payload.len);
            match shared.landing.memory.span(offset, len as usize) {
                Some(at) => Claim::Bytes(ClaimedPayload { at, len, claimed }),
                // Records have the ring's shape, so this one lies within the ring.
                None => {
                    shared.records.free(claimed);
                    Claim::Nothing
                }
            }
        }
        Taking::Nothing => Claim::Nothing,
        Taking::Crowded => Claim::TooMany,
    })
}

impl SharedRing {
    /// The word at an offset of the ring. It is loaded atomically, because a READ may land there
    /// meanwhile: then other threads have claimed and freed the record, and the word is discarded.
    /// Acquire: the load that detects this comes after this one.
    #[inline]
    fn header(&self, offset: u64) -> u64 {
        // The caller has loaded the claim that this header belongs to.
        host::point();
        match self.landing.memory.span(offset as usize, 8) {
            Some(at) => {
                // SAFETY: the word lies within the mapping; the mapping and every record are
                // aligned to 8.
                let word = unsafe { at.cast::<AtomicU64>().as_ref() };
                u64::from_le(word.load(Ordering::Acquire))
            }
            // An offset of the ring is within it. This is no header.
            None => u64::MAX,
        }
    }
}

/// A claimed record's payload, which is given up with this.
struct HeldPayload<S: Deref<Target = SharedRing>> {
    shared: S,
    at: NonNull<u8>,
    len: u32,
    claimed: ManuallyDrop<Claimed>,
}

impl<S: Deref<Target = SharedRing>> HeldPayload<S> {
    #[inline]
    fn new(shared: S, found: ClaimedPayload) -> HeldPayload<S> {
        let ClaimedPayload { at, len, claimed } = found;
        HeldPayload { shared, at, len, claimed: ManuallyDrop::new(claimed) }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes have landed; this value alone has claimed them, and no READ is
        // staged over them until it is dropped: the head stays before them. `shared` holds
        // the memory.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len as usize) }
    }
}

impl<S: Deref<Target = SharedRing>> Drop for HeldPayload<S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is not used afterwards.
        let claimed = unsafe { ManuallyDrop::take(&mut self.claimed) };
        self.shared.records.free(claimed);
        host::point();
    }
}

/// Bytes of a [`SharedLandingRing`] that a thread has claimed: derefs to them. Dropping it
/// gives them up, on any thread and in any order. It may outlive its ring.
pub struct ClaimedBytes(HeldPayload<Arc<SharedRing>>);

// SAFETY: the bytes do not change until this is dropped, the ring's memory is shared by
// count, and freeing is by atomics.
unsafe impl Send for ClaimedBytes {}
// SAFETY: the bytes do not change until this is dropped, the ring's memory is shared by count, and
// freeing is by atomics.
unsafe impl Sync for ClaimedBytes {}

impl Deref for ClaimedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for ClaimedBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

debug_shows!(SharedLandingRing: ring);

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("claimed", &self.shared.records.claimed())
            .finish_non_exhaustive()
    }
}

debug_shows!(ClaimedBytes: len());
