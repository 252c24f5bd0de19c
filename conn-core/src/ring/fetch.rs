//! Reading a ring over the network: the reads to post, and the landed bytes (Buffered Read: "a RDMA
//! read for the whole buffer section between the read pointer and the updated tail", and its future
//! work: a limit on the transfer, several at a time).
//!
//! ```text
//!   landed <= requested <= tail
//!
//!       landed  | read | read | read |   not asked for   |
//!   ------------+------+------+------+-------------------+---
//!             landed             requested              tail
//! ```
//!
//! Reads of one queue pair complete in the order in which they were posted.

use super::{ALIGN, Geometry};

/// Reads that can be on their way at once.
pub const MAX_READS: usize = 16;

/// Policy for reading the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// The longest read, in bytes; rounded down to a multiple of 8, which is the least.
    pub max_read_bytes: u32,
    /// Reads on their way at once, 1 to [`MAX_READS`].
    pub reads: u32,
}

impl Default for FetchConfig {
    /// 4 reads of up to 64 KiB.
    fn default() -> Self {
        Self { max_read_bytes: 64 << 10, reads: 4 }
    }
}

/// A way of reading that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchConfigError {
    /// Reads of fewer than 8 bytes.
    #[error("reads of fewer than {align} bytes", align = ALIGN)]
    TooShort,
    /// No reads, or more than [`MAX_READS`].
    #[error("{reads} reads at once: there may be 1 to {max}", max = MAX_READS)]
    Reads {
        /// Number of reads that was asked for.
        reads: u32,
    },
}

/// A read to be posted, from the sender's ring to the same place in the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Offset, in bytes from the beginning of either ring's memory. In mirrored memory the read may
    /// reach into the second view.
    pub offset: u64,
    /// Bytes; a multiple of 8, never 0.
    pub len: u32,
}

/// A read has completed that was never posted: the device or the driver is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion of a read that was not posted")]
pub struct NotPosted;

/// The reads of one ring. See the [module](self).
///
/// ```
/// use conn_core::ring::{Geometry, fetch::*};
///
/// let config = FetchConfig { max_read_bytes: 48, reads: 2 };
/// let mut fetch = Fetch::new(Geometry::mirrored(1024, 64)?, config)?;
/// assert_eq!(fetch.next(104), Some(Read { offset: 0, len: 48 }));
/// assert_eq!(fetch.next(104), Some(Read { offset: 48, len: 48 }));
/// assert_eq!(fetch.next(104), None); // two are on their way
/// assert_eq!(fetch.complete()?, 48);
/// assert_eq!(fetch.next(104), Some(Read { offset: 96, len: 8 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: the ends of the reads on their way rise from above landed to requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    geometry: Geometry,
    max_read: u32,
    reads: u32,
    /// Ends of the reads on their way: a circular buffer.
    ends: [u64; MAX_READS],
    first: u32,
    on_their_way: u32,
    requested: u64,
    landed: u64,
}

impl Fetch {
    /// Creates the reads of an empty ring.
    ///
    /// # Errors
    /// [`FetchConfigError`].
    pub const fn new(geometry: Geometry, config: FetchConfig) -> Result<Self, FetchConfigError> {
        let FetchConfig { max_read_bytes, reads } = config;
        if max_read_bytes < ALIGN as u32 {
            return Err(FetchConfigError::TooShort);
        }
        if reads == 0 || reads as usize > MAX_READS {
            return Err(FetchConfigError::Reads { reads });
        }
        let max_read = max_read_bytes & !(ALIGN as u32 - 1);
        let (ends, landed) = ([0; MAX_READS], 0);
        Ok(Self {
            geometry,
            max_read,
            reads,
            ends,
            first: 0,
            on_their_way: 0,
            requested: 0,
            landed,
        })
    }

    /// The next read of bytes before `tail`, which counts as posted; `None` when all are requested,
    /// or enough reads are in flight.
    #[inline]
    pub fn next(&mut self, tail: u64) -> Option<Read> {
        let wanted = tail.saturating_sub(self.requested);
        if wanted == 0 || self.on_their_way == self.reads {
            return None;
        }
        let offset = self.geometry.offset(self.requested);
        let contiguous = match self.geometry.is_mirrored() {
            true => self.geometry.capacity(),
            false => self.geometry.capacity() - offset,
        };
        let len = wanted.min(contiguous).min(u64::from(self.max_read));
        self.requested += len;
        let at = (self.first + self.on_their_way) as usize % MAX_READS;
        self.ends[at] = self.requested;
        self.on_their_way += 1;
        Some(Read { offset, len: len as u32 })
    }

    /// Takes the completion of the oldest read. Returns the landed position.
    ///
    /// # Errors
    /// [`NotPosted`] when none is on its way.
    #[inline]
    pub fn complete(&mut self) -> Result<u64, NotPosted> {
        if self.on_their_way == 0 {
            return Err(NotPosted);
        }
        self.landed = self.ends[self.first as usize % MAX_READS];
        self.first = (self.first + 1) % MAX_READS as u32;
        self.on_their_way -= 1;
        Ok(self.landed)
    }

    /// Reads that have not completed.
    #[inline]
    pub fn on_their_way(&self) -> u32 {
        self.on_their_way
    }

    /// Position up to which reads were posted.
    #[inline]
    pub fn requested(&self) -> u64 {
        self.requested
    }

    /// Position up to which all bytes have landed.
    #[inline]
    pub fn landed(&self) -> u64 {
        self.landed
    }
}
