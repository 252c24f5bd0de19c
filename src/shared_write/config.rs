//! Policies of a Shared Write connection.

use conn_core::shared_write::{Layout, MAX_EXTENT_BYTES, MAX_EXTENTS, MAX_LINKS, extent_bytes_for};

use crate::common::{Common, has_common};
use crate::error::{ConfigError, check, check_in, chosen};
use crate::qp::Inline;
use crate::wait::WaitStrategy;

/// Policies of one end of a Shared Write connection. The ends may differ: they exchange and check
/// the common terms when they connect.
///
/// ```
/// use rdma_conn::shared_write::Config;
///
/// let config = Config { extents: 64, message_bytes: 512, ..Config::low_latency() };
/// config.validate().unwrap();
/// assert!(Config { extents: 0, ..config }.validate().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Settings that every connection has.
    pub common: Common,
    /// Extents of this end's ring, for all its peers together. A sending peer has up to two of them
    /// to itself, so use at least two for each peer.
    pub extents: u32,
    /// Bytes of an extent, a multiple of 64: each holds messages of one peer, with 24 bytes for
    /// each, and 24 at its end. 0 chooses: 16 KiB, or room for four messages of any length.
    pub extent_bytes: u32,
    /// The longest message that this end receives or sends, in bytes. A sender also keeps to its
    /// receiver's limit.
    pub message_bytes: u32,
    /// Messages posted with one doorbell; 1 posts every message in the call that accepts it. With
    /// more, the last ones go out by [`flush`](crate::SendHalf::flush), and in every call that
    /// waits.
    pub batch: u32,
    /// Work requests on their way at most, each with memory for a message.
    pub send_queue: u32,
    /// One in this number of requests is signalled; 0 chooses (a quarter of `send_queue`).
    pub signal_every: u32,
    /// Messages that travel inside their work request.
    pub inline: Inline,
}

has_common!(Config);

impl Default for Config {
    /// 256 extents, for messages of up to 8 KiB: 8 MiB for up to 128 peers.
    fn default() -> Config {
        Config {
            common: Common::default(),
            extents: 256,
            extent_bytes: 0,
            message_bytes: 8 << 10,
            batch: 1,
            send_queue: 128,
            signal_every: 0,
            inline: Inline::Auto,
        }
    }
}

impl Config {
    /// The smallest send queue: a message takes up to three requests.
    pub const MIN_SEND_QUEUE: u32 = 3;
    /// The longest send queue.
    pub const MAX_SEND_QUEUE: u32 = 16_384;
    /// The longest message.
    pub const MAX_MESSAGE_BYTES: u32 = MAX_EXTENT_BYTES - 48;

    /// Neither end ever sleeps: for the lowest latency.
    #[must_use]
    pub fn low_latency() -> Config {
        let common = Common { wait: WaitStrategy::Spin, ..Common::default() };
        Config { common, ..Config::default() }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (longest, queue) = (self.message_bytes, self.send_queue);
        check_in("extents", self.extents, 1..=MAX_EXTENTS, "1 to 65536")?;
        check_in("message_bytes", longest, ..=Self::MAX_MESSAGE_BYTES, "at most 1073741776")?;
        let bytes = self.chosen_extent_bytes();
        let fits = (extent_bytes_for(longest)..=MAX_EXTENT_BYTES.into()).contains(&bytes.into());
        let rule = "0 (choose), or a multiple of 64 up to 1 GiB, with room for the longest \
                    message and 48 bytes";
        check("extent_bytes", self.extent_bytes, fits && bytes.is_multiple_of(64), rule)?;
        let range = Self::MIN_SEND_QUEUE..=Self::MAX_SEND_QUEUE;
        check_in("send_queue", queue, range, "3 to 16384")?;
        let batch = 1..=queue / Self::MIN_SEND_QUEUE;
        check_in("batch", self.batch, batch, "1 to a third of the send queue")?;
        let rule = "0 (choose) to the length of the send queue";
        check_in("signal_every", self.signal_every, ..=queue, rule)?;
        self.common.validate()
    }

    /// `signal_every`, chosen where it was left open.
    pub(super) fn signal_interval(&self) -> u32 {
        chosen(self.signal_every, (self.send_queue / 4).max(1))
    }

    /// [`extent_bytes`](Config::extent_bytes), chosen where it was left open.
    #[must_use]
    pub fn chosen_extent_bytes(&self) -> u32 {
        /// Bytes of an extent, where messages are small.
        const USUAL: u64 = 16 << 10;
        let four = (4 * extent_bytes_for(self.message_bytes)).next_multiple_of(64);
        chosen(self.extent_bytes, four.max(USUAL).min(MAX_EXTENT_BYTES.into()) as u32)
    }

    /// The ring of a receiver for up to `max_peers` senders.
    pub(super) fn layout(&self, max_peers: u32) -> Result<Layout, ConfigError> {
        check_in("max_peers", max_peers, 1..=MAX_LINKS / 2, "1 to 32768")?;
        // With fewer, peers that sleep could have them all.
        let (value, rule) = (self.extents, "at least 2 for each peer, and at most 65536");
        check("extents", value, u64::from(value) >= 2 * u64::from(max_peers), rule)?;
        let layout = Layout::new(value, self.chosen_extent_bytes(), self.message_bytes, max_peers);
        layout.map_err(|_| ConfigError { field: "extents", value: value.into(), rule })
    }
}

#[cfg(test)]
mod tests;
