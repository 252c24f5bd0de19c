//! Sizes of a pool.

use conn_core::loan::KEPT;

use crate::error::{ConfigError, check, check_in, chosen};
use crate::send_recv::Config;

/// Way in which freed buffers get back into the shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reposting {
    /// The thread that frees a buffer posts it, under a lock ("introduces a significant
    /// performance penalty", says Fischer, "Know Your Memory", 2021).
    Lock,
    /// The thread that frees a buffer enqueues its id; one other thread dequeues and posts,
    /// in batches (Fischer's way).
    Thread,
    /// The thread that frees a buffer enqueues its id, and becomes the poster if no thread posts at
    /// the moment: it does not wait for a posting thread, and no thread has to be woken. A
    /// receiver's own thread gathers freed buffers, and posts them in batches. A poster holds the
    /// pool's lock, which requests for loans take, too.
    #[default]
    Combining,
}

impl Reposting {
    /// All of them.
    pub const ALL: [Reposting; 3] = [Reposting::Lock, Reposting::Thread, Reposting::Combining];

    /// `lock`, `thread` or `combining`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reposting::Lock => "lock",
            Reposting::Thread => "thread",
            Reposting::Combining => "combining",
        }
    }
}

/// Sizes of a [`SharedPool`](super::SharedPool).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedConfig {
    /// Receive buffers. Each connection keeps three of them, one for a message and two for
    /// control, so there are at least three times as many as `max_peers`; the others are lent.
    pub buffers: u32,
    /// Size of each, in bytes.
    pub buffer_bytes: u32,
    /// Connections at most.
    pub max_peers: u32,
    /// Way in which buffers get back.
    pub reposting: Reposting,
    /// Most buffers posted with one doorbell.
    pub repost_batch: u32,
}

impl SharedConfig {
    /// Most buffers.
    pub const MAX_BUFFERS: u32 = 1 << 24;
    /// Most connections.
    pub const MAX_PEERS: u32 = 1 << 20;
    /// Buffers that each connection keeps.
    pub const KEPT: u32 = KEPT;
    /// Upper limit of the buffers to lend, in multiples of `recv_depth`. Loans take at most three
    /// quarters of them: two senders can borrow a whole queue each, so that the receiver has
    /// messages of one while the other one waits for its loan.
    const QUEUES: u32 = 3;

    /// A pool for up to `max_peers` connections with this configuration: three buffers for each,
    /// and `3 * recv_depth` to lend. Where half of the buffers of separate receive queues are fewer
    /// than that, the pool has that half, but always at least `recv_depth` to lend.
    ///
    /// With a `recv_depth` of 104 or more, a pool for 8 connections takes at most half of the
    /// memory of separate queues, and one for 64 at most 1.5 times as much as the pool for 8. With
    /// smaller values, the three buffers of each connection are most of the pool.
    ///
    /// ```
    /// use rdma_conn::send_recv::{Config, Preset, SharedConfig};
    ///
    /// let config = Config::preset(Preset::Unbatched);
    /// assert_eq!(config.recv_depth, 128);
    /// let buffers = |peers| SharedConfig::new(&config, peers).buffers;
    /// assert_eq!(buffers(100), 3 * 100 + 3 * 128);
    /// assert_eq!(buffers(4), 4 * (128 + 1) / 2, "half of what separate queues have");
    /// ```
    #[must_use]
    pub fn new(config: &Config, max_peers: u32) -> SharedConfig {
        let depth = config.recv_depth;
        let kept = max_peers.saturating_mul(KEPT);
        // A queue of its own has one more for the goodbye.
        let separate = depth.saturating_add(1).saturating_mul(max_peers);
        let lent = (separate / 2).saturating_sub(kept).max(depth);
        let most = depth.saturating_mul(Self::QUEUES);
        SharedConfig {
            buffers: kept.saturating_add(lent.min(most)),
            buffer_bytes: config.message_bytes,
            max_peers,
            reposting: Reposting::default(),
            repost_batch: chosen(config.repost_batch, 32),
        }
    }

    /// Checks every field. (A `repost_batch` is used as far as lists go.)
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let longest = Config::MAX_MESSAGE_BYTES;
        check_in("buffers", self.buffers, 1..=Self::MAX_BUFFERS, "1 to 16777216")?;
        check_in("buffer_bytes", self.buffer_bytes, 1..=longest, "1 to 1073741824")?;
        check_in("max_peers", self.max_peers, 1..=Self::MAX_PEERS, "1 to 1048576")?;
        let fits = self.buffers / KEPT >= self.max_peers;
        check("buffers", self.buffers, fits, "at least 3 for each of max_peers")
    }
}
