//! Registered memory that peers can reach at any time.

mod view;
pub(crate) mod words;

pub use view::SharedView;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use verbs_sys::ibv_access_flags;

use crate::attr::OdpCaps;
use crate::error::{RegionError, RegisterError};
use crate::object::context::ProtectionDomain;
use crate::region::registration::{Backing, Registration};

/// Access that peers have to a region, or through a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteAccess {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
    /// FETCH_AND_ADD and CMP_AND_SWP.
    pub atomic: bool,
}

impl RemoteAccess {
    /// Nothing.
    pub const NONE: RemoteAccess = RemoteAccess { read: false, write: false, atomic: false };
    /// Everything.
    pub const ALL: RemoteAccess = RemoteAccess { read: true, write: true, atomic: true };

    /// The mask of the verbs; it includes local writes, which remote ones need.
    pub(crate) fn to_raw(self) -> ibv_access_flags {
        use ibv_access_flags as f;
        let mut mask = f::IBV_ACCESS_LOCAL_WRITE.0;
        mask |= if self.read { f::IBV_ACCESS_REMOTE_READ.0 } else { 0 };
        mask |= if self.write { f::IBV_ACCESS_REMOTE_WRITE.0 } else { 0 };
        mask |= if self.atomic { f::IBV_ACCESS_REMOTE_ATOMIC.0 } else { 0 };
        f(mask)
    }
}

/// Parameters of the registration of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedRegionConfig {
    /// Access that peers have to it.
    pub access: RemoteAccess,
    /// Registered without pinning its pages, where the device offers that.
    pub on_demand: bool,
}

/// A span of a peer's memory: the address, length and key that the peer tells others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSpan {
    /// Address of its first byte, in the peer's address space.
    pub addr: u64,
    /// The key of the peer's region.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u64,
}

/// Registered memory that a peer can read or write at any time.
///
/// Because a peer may write at any time, it is never a slice: it is accessed by atomic loads and
/// stores, and copied in and out. In a copy, every aligned 8-byte word is whole; two words may be
/// of different times. [`observe_arrival`](Self::observe_arrival) and
/// [`publish_tail`](Self::publish_tail) order them. Where a copy into the region begins or ends
/// within a word, an atomic exchange keeps the rest of the word. In a mirrored region, the two
/// copies of a word are different places to the compiler: use one of them for a word that is both
/// stored and loaded by this process.
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let pd = devices[0].open()?.alloc_pd()?;
/// use verbs_safe::{Mapping, RemoteAccess, SharedRegionConfig};
/// let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
/// let region = pd.register_shared(Mapping::new(4096)?, config)?;
/// region.store_u64(8, 42)?;
/// let mut bytes = [0; 8];
/// region.copy_out(8, &mut bytes)?;
/// assert_eq!(u64::from_ne_bytes(bytes), 42);
/// let span = region.remote(0, 4096)?; // to be sent to the peer
/// # let _ = span;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedRegion {
    registration: Arc<Registration>,
    /// Those of the registration, kept here to spare following the pointer.
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: `registration` is `Send`, and keeps the memory, which is reached by atomics, and in bulk
// by the processor's own accesses (`words`).
unsafe impl Send for SharedRegion {}
// SAFETY: `registration` is `Sync`, and keeps the memory, which is reached by atomics, and in bulk
// by the processor's own accesses (`words`).
unsafe impl Sync for SharedRegion {}

impl ProtectionDomain {
    /// Registers memory for peers: a [`Mapping`](crate::Mapping) or a
    /// [`Mirrored`](crate::Mirrored) one. Relaxed ordering is never asked for, so
    /// that memory can be polled where the device writes in order.
    ///
    /// # Errors
    /// [`RegisterError`]: the device refused, or has no on-demand paging.
    pub fn register_shared(
        &self,
        backing: impl Into<Backing>,
        config: SharedRegionConfig,
    ) -> Result<SharedRegion, RegisterError> {
        let mut access = config.access.to_raw();
        if config.on_demand {
            self.require_on_demand(config.access)?;
            access.0 |= ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
        }
        Ok(SharedRegion::from_registration(Registration::new(self, backing.into(), access)?))
    }

    fn require_on_demand(&self, access: RemoteAccess) -> Result<(), RegisterError> {
        let context = self.context();
        match missing_paging(context.attr()?.odp, access) {
            None => Ok(()),
            Some(missing) => Err(RegisterError::NoOnDemandPaging {
                device: context.device_name().to_owned(),
                missing,
            }),
        }
    }
}

fn missing_paging(odp: OdpCaps, access: RemoteAccess) -> Option<&'static str> {
    match access {
        _ if !odp.supported => Some("anything"),
        a if a.read && !odp.read => Some("reads"),
        a if a.write && !odp.write => Some("writes"),
        a if a.atomic && !odp.atomic => Some("atomics"),
        _ => None,
    }
}

impl SharedRegion {
    /// Its base is aligned to 8.
    pub(crate) fn from_registration(registration: impl Into<Arc<Registration>>) -> SharedRegion {
        let registration = registration.into();
        let (base, len) = (registration.base(), registration.len());
        SharedRegion { registration, base, len }
    }

    /// Its length in bytes (of both copies, where it is mirrored).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        &self.registration
    }

    /// The memory behind it.
    #[must_use]
    pub fn backing(&self) -> &Backing {
        self.registration.backing()
    }

    /// Returns the span for a peer to access `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    pub fn remote(&self, offset: usize, len: usize) -> Result<RemoteSpan, RegionError> {
        let at = self.span(offset, len)?;
        Ok(RemoteSpan { addr: at.as_ptr() as u64, rkey: self.registration.rkey(), len: len as u64 })
    }

    /// Loads the word at `offset`: relaxed, see [`observe_arrival`](Self::observe_arrival).
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not aligned to 8.
    #[inline]
    pub fn load_u64(&self, offset: usize) -> Result<u64, RegionError> {
        let word = self.word(offset)?;
        host::watch(word);
        Ok(word.load(Ordering::Relaxed))
    }

    /// Stores a word at `offset`: relaxed, see [`publish_tail`](Self::publish_tail).
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not aligned to 8.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RegionError> {
        let word = self.word(offset)?;
        word.store(value, Ordering::Relaxed);
        host::notify_changed(word, 8);
        Ok(())
    }

    /// Stores the word that tells a *peer that reads* that all before it is there.
    ///
    /// The release orders every earlier store of this thread before this one, for
    /// every observer of this one: a peer's READ goes through the memory that the
    /// processors share, so that the device sees the stores in the order that they see.
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not aligned to 8.
    #[inline]
    pub fn publish_tail(&self, offset: usize, value: u64) -> Result<(), RegionError> {
        let word = self.word(offset)?;
        word.store(value, Ordering::Release);
        host::notify_changed(word, 8);
        host::point();
        Ok(())
    }

    /// Loads a word by which a *peer that writes* tells that all before it has
    /// arrived.
    ///
    /// The acquire orders every later load of this thread after this one. Only a
    /// device that delivers the bytes of an operation in order
    /// ([`QpControl::data_in_order`](crate::QpControl::data_in_order)), or a
    /// separate, later WRITE of this word, makes that enough.
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not aligned to 8.
    #[inline]
    pub fn observe_arrival(&self, offset: usize) -> Result<u64, RegionError> {
        let word = self.word(offset)?;
        host::watch(word);
        Ok(word.load(Ordering::Acquire))
    }

    /// Loads the byte at `offset`, as [`observe_arrival`](Self::observe_arrival) loads a
    /// word: to wait for the last byte of a message that a peer writes. With a device
    /// that writes in order, all before it is there then.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let pd = devices[0].open()?.alloc_pd()?;
    /// # use verbs_safe::*;
    /// let region = pd.register_shared(Mapping::new(4096)?, SharedRegionConfig::default())?;
    /// region.publish_byte(63, b'A')?; // here as the peer would
    /// while region.observe_byte(63)? != b'A' {
    ///     std::hint::spin_loop();
    /// }
    /// region.fill(0, 64, 0)?; // for the next message
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn observe_byte(&self, offset: usize) -> Result<u8, RegionError> {
        self.span(offset, 1)?;
        let word = self.word_at(offset & !7);
        host::watch(word.as_ptr().cast::<u8>().wrapping_add(offset & 7));
        Ok(word.load(Ordering::Acquire).to_ne_bytes()[offset & 7])
    }

    /// Stores the byte at `offset`, as [`publish_tail`](Self::publish_tail) stores a word.
    /// That costs an atomic exchange of its word.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn publish_byte(&self, offset: usize, value: u8) -> Result<(), RegionError> {
        self.span(offset, 1)?;
        self.store_part(offset..offset + 1, &[value], Ordering::Release);
        host::point();
        Ok(())
    }

    /// Orders all earlier stores of this thread before all later ones, for a device
    /// that reads: for records of several words that are published by one store.
    pub fn publish_fence() {
        fence(Ordering::Release);
    }

    /// Copies from `offset` into `to`, and fills it.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), RegionError> {
        self.span(offset, to.len())?;
        let (head, words, tail) = words_of(offset, to.len());
        let mut rest = to;
        self.load_part(head, &mut rest);
        let (middle, last) = rest.split_at_mut(words.len());
        // SAFETY: `span` has checked the range; `words` is aligned, and as long as `middle`.
        unsafe { words::load(middle, self.base.as_ptr().add(words.start)) };
        rest = last;
        self.load_part(tail, &mut rest);
        Ok(())
    }

    /// Copies all of `from` to `offset`.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), RegionError> {
        self.span(offset, from.len())?;
        let (head, words, tail) = words_of(offset, from.len());
        let (first, rest) = from.split_at(head.len());
        let (middle, last) = rest.split_at(words.len());
        self.store_part(head, first, Ordering::Relaxed);
        // SAFETY: `span` has checked the range; `words` is aligned, and as long as `middle`.
        unsafe { words::store(self.base.as_ptr().add(words.start), middle) };
        self.store_part(tail, last, Ordering::Relaxed);
        Ok(())
    }

    /// Fills `len` bytes at `offset` with `value`.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), RegionError> {
        self.span(offset, len)?;
        let (head, words, tail) = words_of(offset, len);
        let bytes = [value; 8];
        self.store_part(head.clone(), &bytes[..head.len()], Ordering::Relaxed);
        let word = u64::from_ne_bytes(bytes);
        words.step_by(8).for_each(|at| self.word_at(at).store(word, Ordering::Relaxed));
        self.store_part(tail.clone(), &bytes[..tail.len()], Ordering::Relaxed);
        Ok(())
    }

    /// The address of `len` bytes at `offset`, all of them inside.
    #[inline]
    fn span(&self, offset: usize, len: usize) -> Result<NonNull<u8>, RegionError> {
        let region_len = self.len;
        if offset > region_len || len > region_len - offset {
            return Err(RegionError::OutOfBounds { offset, len, region_len });
        }
        // SAFETY: checked above: `offset` is not beyond the end of the mapping.
        Ok(unsafe { self.base.add(offset) })
    }

    #[inline]
    fn word(&self, offset: usize) -> Result<&AtomicU64, RegionError> {
        self.span(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(RegionError::Misaligned { offset, alignment: 8 });
        }
        Ok(self.word_at(offset))
    }

    /// The word at `offset`; the caller has checked at least one byte of it.
    #[inline]
    fn word_at(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: the word lies inside the region, which begins at a multiple of 8, and is aligned.
        // This process accesses it by atomics of this size only (the language does not define mixed
        // sizes). A card's writes are outside of the language's memory model; those of a software
        // device are atomic, too.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Loads a part of one word, which the caller has checked, to the front of `rest`.
    #[inline]
    fn load_part(&self, part: Range<usize>, rest: &mut &mut [u8]) {
        if !part.is_empty() {
            let first = part.start & !7;
            let bytes = self.word_at(first).load(Ordering::Relaxed).to_ne_bytes();
            push(rest, &bytes[part.start - first..part.end - first]);
        }
    }

    /// Stores a part of one word, which the caller has checked, and does not change the
    /// rest of the word, which other threads and peers may write.
    #[inline]
    fn store_part(&self, part: Range<usize>, from: &[u8], order: Ordering) {
        if !part.is_empty() {
            let first = part.start & !7;
            // Relaxed: the loaded value is only written back, if it has not changed.
            self.word_at(first).update(order, Ordering::Relaxed, |word| {
                let mut bytes = word.to_ne_bytes();
                bytes[part.start - first..part.end - first].copy_from_slice(from);
                u64::from_ne_bytes(bytes)
            });
        }
    }
}

/// Splits `offset .. offset + len` into bytes, aligned words, and bytes.
#[inline]
fn words_of(offset: usize, len: usize) -> (Range<usize>, Range<usize>, Range<usize>) {
    let end = offset + len;
    let first = offset.next_multiple_of(8).min(end);
    let last = first + (end - first) / 8 * 8;
    (offset..first, first..last, last..end)
}

/// Writes to the front of `to`, and shortens it by that.
#[inline]
fn push(to: &mut &mut [u8], bytes: &[u8]) {
    let (front, rest) = std::mem::take(to).split_at_mut(bytes.len());
    front.copy_from_slice(bytes);
    *to = rest;
}

debug_shows!(SharedRegion: len);

#[cfg(test)]
mod tests;
