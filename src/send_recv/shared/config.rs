//! Sizes of a pool.

use conn_core::loan::KEPT;

use crate::error::{ConfigError, check};
use crate::send_recv::Config;

/// How freed buffers get back into the shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reposting {
    /// The thread that frees a buffer posts it, under a lock ("introduces a significant
    /// performance penalty", says Fischer, "Know Your Memory", 2021).
    Lock,
    /// The thread that frees a buffer enqueues its id; one other thread dequeues and posts,
    /// in batches (Fischer's way).
    Thread,
    /// The thread that frees a buffer enqueues its id, and becomes the poster if there is
    /// none at the moment: no lock is waited for, no thread has to be woken.
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
    /// How buffers get back.
    pub reposting: Reposting,
    /// Buffers posted with one doorbell, where there are so many.
    pub repost_batch: u32,
}

impl SharedConfig {
    /// Most buffers.
    pub const MAX_BUFFERS: u32 = 1 << 24;
    /// Most connections.
    pub const MAX_PEERS: u32 = 1 << 20;
    /// Buffers that each connection keeps.
    pub const KEPT: u32 = KEPT;
    /// Largest loans that a pool made by [`new`](SharedConfig::new) has room for at a time.
    const LOANS: u32 = 16;

    /// A pool for up to `max_peers` connections with this configuration: three buffers for
    /// each, and 16 times `unacked` to be lent; no more than `recv_depth` messages of each
    /// connection can take.
    ///
    /// ```
    /// use rdma_conn::send_recv::{Config, SharedConfig};
    ///
    /// let pool = SharedConfig::new(&Config { unacked: 64, ..Config::default() }, 100);
    /// assert_eq!(pool.buffers, 3 * 100 + 16 * 64);
    /// ```
    #[must_use]
    pub fn new(config: &Config, max_peers: u32) -> SharedConfig {
        let kept = max_peers.saturating_mul(KEPT);
        let lent = config.unacked.saturating_mul(Self::LOANS);
        let separate = config.recv_depth.saturating_add(KEPT - 1).saturating_mul(max_peers);
        SharedConfig {
            buffers: kept.saturating_add(lent).min(separate).max(kept),
            buffer_bytes: config.message_bytes,
            max_peers,
            reposting: Reposting::default(),
            repost_batch: if config.repost_batch == 0 { 32 } else { config.repost_batch },
        }
    }

    /// Checks every field. (A `repost_batch` is used as far as lists go.)
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fits = (1..=Self::MAX_BUFFERS).contains(&self.buffers);
        check("buffers", self.buffers, fits, "1 to 16777216")?;
        let fits = (1..=Config::MAX_MESSAGE_BYTES).contains(&self.buffer_bytes);
        check("buffer_bytes", self.buffer_bytes, fits, "1 to 1073741824")?;
        let fits = (1..=Self::MAX_PEERS).contains(&self.max_peers);
        check("max_peers", self.max_peers, fits, "1 to 1048576")?;
        let fits = self.buffers / KEPT >= self.max_peers;
        check("buffers", self.buffers, fits, "at least 3 for each of max_peers")
    }
}
