//! Policies of a Buffered Read connection.

use std::time::Duration;

use conn_core::buffered_read::ReaderConfig;
use conn_core::ring::Geometry;
use conn_core::ring::fetch::{FetchConfig, MAX_READS};
use verbs_safe::Pages;

use crate::common::{Common, has_common};
use crate::error::{ConfigError, check, check_in, chosen};
use crate::ring::RingShape;

/// Policies of one end of a Buffered Read connection. The ends need not agree on them: a
/// sender chooses its ring, and its receiver makes one like it.
///
/// ```
/// use rdma_conn::{buffered_read::Config, ring::RingShape};
///
/// let ring = RingShape { ring_bytes: 8 << 20, ..RingShape::default() };
/// let config = Config { ring, reads: 8, ..Config::default() };
/// config.validate()?;
/// assert!(Config { reads: 0, ..config }.validate().is_err());
/// # Ok::<(), rdma_conn::send_recv::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Settings that every connection has.
    pub common: Common,
    /// The ring that this end sends from.
    pub ring: RingShape,
    /// The pages of this end's rings. Huge ones are 2 MiB, and so is the smallest ring.
    pub pages: Pages,
    /// The largest ring of a peer that this end receives from, in bytes: it makes one of
    /// the same size.
    pub peer_ring_bytes: u64,
    /// The longest READ, in bytes, at least 8: landed messages are handed out while the rest is in
    /// flight.
    pub max_read_bytes: u32,
    /// READs of data on their way at once, 1 to 16.
    pub reads: u32,
    /// True to read data while messages wait to be handed out. Has no effect with a device that
    /// executes READs inside the post, as `soft0`. If false, a READ is posted only when no message
    /// is left: the protocol without its future work.
    pub prefetch: bool,
    /// Freed bytes after which the head is written to the sender; 0 chooses a quarter of the ring.
    /// A sender that may be waiting gets the head after any free.
    pub head_threshold: u64,
    /// READs of the tail without news, until the head is written to the sender for every freed
    /// byte.
    pub head_update_polls: u32,
    /// Fewest bytes for a READ while the sender keeps sending: fewer are left to gather until a
    /// READ of the tail finds that it has paused. Each READ of a cache line that is being filled
    /// delays the sender. 0 reads any number of bytes.
    pub gather_bytes: u64,
    /// Messages of one peer from the oldest that is held to the newest, at most: a power of
    /// two; beyond it, the next one is received when the oldest was freed. 0 chooses one for
    /// each 16 bytes of the ring.
    pub max_held: u32,
    /// Rounds that a receiver of many leaves out a peer that has nothing to send, at most;
    /// 0 looks at all of them each time.
    pub idle_rounds: u32,
    /// Longest sleep of a receiver before it looks at its senders' tails by itself: a sender may
    /// miss its request to be woken. A sender of an earlier version wakes no receiver: its messages
    /// may be late by this time. Less than 20 µs counts as 20 µs.
    pub max_sleep: Duration,
}

has_common!(Config);

impl Default for Config {
    /// A mirrored ring of 2 MiB, READs of at most 512 KiB, up to 4 of them at once. With 1 MiB,
    /// `soft0` has a fifth less bandwidth, and messages of some kilobytes a fifth less latency.
    fn default() -> Config {
        Config {
            ring: RingShape { ring_bytes: 2 << 20, ..RingShape::default() },
            pages: Pages::Normal,
            peer_ring_bytes: 64 << 20,
            max_read_bytes: 512 << 10,
            reads: 4,
            prefetch: true,
            head_threshold: 0,
            head_update_polls: 32,
            gather_bytes: 4096,
            max_held: 0,
            idle_rounds: 64,
            max_sleep: Duration::from_millis(1),
            common: Common::default(),
        }
    }
}

impl Config {
    /// Most messages of one peer that can be held at once.
    pub const MAX_HELD: u32 = 1 << 20;

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.ring.geometry()?;
        let huge = 2 << 20;
        let pages = self.pages == Pages::Normal || self.ring.ring_bytes >= huge;
        check("ring_bytes", self.ring.ring_bytes, pages, "at least 2 MiB, of huge pages")?;
        let peer = RingShape::MIN_BYTES..=RingShape::MAX_BYTES;
        check_in("peer_ring_bytes", self.peer_ring_bytes, peer, "4096 to 2^32")?;
        check_in("max_read_bytes", self.max_read_bytes, 8.., "at least 8")?;
        check_in("reads", self.reads, 1..=MAX_READS as u32, "1 to 16")?;
        let max_held = self.max_held == 0
            || self.max_held.is_power_of_two() && self.max_held <= Self::MAX_HELD;
        check("max_held", self.max_held, max_held, "0, or a power of two up to 2^20")?;
        self.common.validate()
    }

    /// `max_held`, chosen where it was left open.
    pub(super) fn max_held_for(&self, geometry: &Geometry) -> u32 {
        let each_16_bytes = (geometry.capacity() / 16).min(Self::MAX_HELD.into());
        chosen(self.max_held, each_16_bytes as u32)
    }

    /// The configuration of the receiver's state machine for a ring of `geometry`.
    pub(super) fn reader(&self, geometry: &Geometry) -> ReaderConfig {
        let head_threshold = chosen(self.head_threshold, geometry.capacity() / 4);
        let fetch = FetchConfig { max_read_bytes: self.max_read_bytes, reads: self.reads };
        // A sender that waits for room has paused; it need not wait until a READ of the tail shows
        // it.
        let gather = self.gather_bytes.min(geometry.capacity() / 8);
        let (prefetch, head_update_polls) = (self.prefetch, self.head_update_polls);
        ReaderConfig { head_threshold, fetch, prefetch, head_update_polls, gather }
    }
}

#[cfg(test)]
mod tests;
