//! Registered memory of the user: a slice, as long as no request can write to it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys::ibv_access_flags;

use crate::error::{RegionError, RegisterError};
use crate::object::context::ProtectionDomain;
use crate::region::memory::Mapping;
use crate::region::registration::{Backing, Registration};
use crate::region::shared::{RemoteAccess, RemoteSpan, SharedRegion};

/// Bytes of a signal behind a buffer: a word, so that nothing else is in it.
const SIGNAL_BYTES: usize = 8;

/// Uses of a [`Buffer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferConfig {
    /// True if peers may read it: all that have a queue pair in its protection domain and know its
    /// key, until it is dropped.
    pub peers_read: bool,
    /// True if a word for a [signal](Buffer::signal) follows its last byte, rounded up to a
    /// multiple of 8. The peer can write that word, and nothing else.
    pub signal: bool,
}

impl BufferConfig {
    /// Peers may read it; it has no signal.
    pub const READABLE: BufferConfig = BufferConfig { peers_read: true, signal: false };
}

/// Registered memory that belongs to one owner, which accesses it as a slice.
///
/// No peer can write to it. Local requests can, while it is
/// [lent](crate::SendQueue::lend) to their queue, and then the owner has no access. If peers
/// may read it, they may do so at any time: a READ during a change may bring them a mix of
/// old and new bytes, and it is a protocol's task to say when the buffer may be changed.
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let pd = devices[0].open()?.alloc_pd()?;
/// use verbs_safe::BufferConfig;
/// let mut buffer = pd.register_buffer(65_536, BufferConfig::READABLE)?;
/// buffer.fill(7);
/// let span = buffer.remote(0, 65_536)?; // to be sent to a peer
/// let shared = buffer.freeze(); // many holders, none can change it
/// assert_eq!((span.len, shared[65_535]), (65_536, 7));
/// let buffer = shared.thaw().expect("there is no other holder");
/// # let _ = buffer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Buffer {
    data: Arc<Registration>,
    base: NonNull<u8>,
    len: usize,
    peers_read: bool,
    signal: Option<SharedRegion>,
}

// SAFETY: the buffer owns its memory, as a `Vec<u8>` does.
unsafe impl Send for Buffer {}
// SAFETY: the buffer owns its memory, as a `Vec<u8>` does; a shared buffer is only read.
unsafe impl Sync for Buffer {}

impl ProtectionDomain {
    /// A zeroed buffer of `len` bytes.
    ///
    /// # Errors
    /// [`RegisterError`]: there is no memory, or the device refused.
    pub fn register_buffer(
        &self,
        len: usize,
        config: BufferConfig,
    ) -> Result<Buffer, RegisterError> {
        let signal_at = len.saturating_add(SIGNAL_BYTES - 1) & !(SIGNAL_BYTES - 1);
        let behind = if config.signal { SIGNAL_BYTES } else { 0 };
        let mapping = Mapping::new(signal_at.saturating_add(behind))?;
        let backing = Arc::new(Backing::from(mapping));
        let mut access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        if config.peers_read {
            access.0 |= ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        }
        // A region cannot be empty; the mapping has at least a page.
        let data = Registration::part(self, backing.clone(), 0, len.max(1), access)?;
        let write = RemoteAccess { write: true, ..RemoteAccess::NONE };
        let signal = config.signal.then(|| {
            Registration::part(self, backing, signal_at.max(8), SIGNAL_BYTES, write.to_raw())
        });
        let signal = signal.transpose()?.map(SharedRegion::from_registration);
        let (base, peers_read) = (data.base(), config.peers_read);
        Ok(Buffer { data: Arc::new(data), base, len, peers_read, signal })
    }
}

impl Buffer {
    /// Returns the span for a peer to read `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`RegionError`]: out of bounds, or not for peers.
    pub fn remote(&self, offset: usize, len: usize) -> Result<RemoteSpan, RegionError> {
        if !self.peers_read {
            return Err(RegionError::NotForPeers);
        }
        if offset > self.len || len > self.len - offset {
            return Err(RegionError::OutOfBounds { offset, len, region_len: self.len });
        }
        let addr = self.base.as_ptr() as u64 + offset as u64;
        Ok(RemoteSpan { addr, rkey: self.data.rkey(), len: len as u64 })
    }

    /// The word behind the buffer, which peers can write, where there is one.
    #[must_use]
    pub fn signal(&self) -> Option<&SharedRegion> {
        self.signal.as_ref()
    }

    /// Makes the buffer immutable and shared: it can have many holders.
    #[must_use]
    pub fn freeze(self) -> FrozenBuffer {
        FrozenBuffer(Arc::new(self))
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        &self.data
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised (they were mapped as zeroes) and stay mapped
        // with the registration. They are written through `&mut self` only: no peer may
        // write to them, and a request of ours that does has been lent the buffer.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are initialised (they were mapped as zeroes), stay mapped with the
        // registration, and are borrowed by nothing else. A peer's concurrent READ is executed by
        // DMA of a card or by inline assembly of a software device: these accesses are outside of
        // the language's memory model and race with no store of it. That is why the crate compiles
        // for x86-64 only: see `lib.rs`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("peers_read", &self.peers_read)
            .field("signal", &self.signal.is_some())
            .finish_non_exhaustive()
    }
}

/// A [`Buffer`] that is immutable and can have many holders: for messages to several peers
/// at once. Clones share the memory.
#[derive(Debug, Clone)]
pub struct FrozenBuffer(Arc<Buffer>);

impl FrozenBuffer {
    /// The buffer, to be changed again.
    ///
    /// # Errors
    /// The same again, while there are other holders.
    pub fn thaw(self) -> Result<Buffer, FrozenBuffer> {
        Arc::try_unwrap(self.0).map_err(FrozenBuffer)
    }

    /// As [`Buffer::remote`].
    ///
    /// # Errors
    /// As [`Buffer::remote`].
    pub fn remote(&self, offset: usize, len: usize) -> Result<RemoteSpan, RegionError> {
        self.0.remote(offset, len)
    }
}

impl Deref for FrozenBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
