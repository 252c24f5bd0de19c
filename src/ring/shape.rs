//! The shape of a ring, as its owner wishes it.

use conn_core::ring::{Geometry, GeometryError};

use crate::error::ConfigError;

/// Layout of a ring in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Its pages are mapped twice in a row, so that every message is contiguous. A sender of
    /// Buffered Read makes a plain ring, and logs a warning, where the system maps no pages
    /// twice and its messages fit into half the ring.
    #[default]
    Mirrored,
    /// Its pages are mapped once. A message that would cross the end begins at the front, and the
    /// rest of the lap is skipped. For systems that cannot map pages twice.
    Plain,
}

/// The ring of one direction. The end that exposes its ring to the peer chooses it (in Buffered
/// Write the receiver, in Buffered Read the sender), and the peer makes one like it.
///
/// ```
/// use rdma_conn::ring::{Layout, RingShape};
///
/// let shape = RingShape { ring_bytes: 1 << 20, message_bytes: 64 << 10, layout: Layout::Mirrored };
/// assert_eq!(shape.geometry()?.capacity(), 1 << 20);
/// assert!(RingShape { message_bytes: 1 << 20, ..shape }.geometry().is_err());
/// # Ok::<(), rdma_conn::send_recv::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingShape {
    /// Bytes of the ring: a power of two, a page (4096) to 4 GiB. Each message takes 8 bytes
    /// more than it has, in whole words.
    pub ring_bytes: u64,
    /// Longest message, in bytes: at most the size of the ring, less 8; half of that if it is
    /// plain.
    pub message_bytes: u32,
    /// Its layout in memory.
    pub layout: Layout,
}

impl Default for RingShape {
    /// 1 MiB, messages of up to 64 KiB, mirrored. A ring that fits the cache of one core is
    /// slower, because each line is then read out of the cache of the core that has written it,
    /// which takes longer than out of the one that they share.
    fn default() -> RingShape {
        RingShape { ring_bytes: 1 << 20, message_bytes: 64 << 10, layout: Layout::Mirrored }
    }
}

impl RingShape {
    /// The smallest ring, in bytes: memory is registered by pages.
    pub const MIN_BYTES: u64 = 4096;
    /// The largest ring, in bytes.
    pub const MAX_BYTES: u64 = 1 << 32;

    /// As the protocol machines know it.
    ///
    /// # Errors
    /// The field that is out of its range, with the range.
    pub fn geometry(&self) -> Result<Geometry, ConfigError> {
        let (value, longest) = (self.ring_bytes, self.message_bytes);
        let ring =
            || ConfigError { field: "ring_bytes", value, rule: "a power of two, 4096 to 2^32" };
        if value < Self::MIN_BYTES {
            return Err(ring());
        }
        let made = match self.layout {
            Layout::Mirrored => Geometry::mirrored(value, longest),
            Layout::Plain => Geometry::plain(value, longest),
        };
        made.map_err(|e| match e {
            GeometryError::MessageTooLong { .. } => ConfigError {
                field: "message_bytes",
                value: longest.into(),
                rule: "at most 8 less than the ring has, or than half of a plain one has",
            },
            _ => ring(),
        })
    }
}

#[cfg(test)]
mod tests;
