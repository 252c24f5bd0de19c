//! Limits of a pool, and its policy for reposting.

/// Buffers that a pool has at most.
pub const MAX_BUFFERS: u32 = u32::MAX - 2;

/// The batching policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Buffers that are reposted together; at least 1. More than the pool has is
    /// taken as all of them.
    pub repost_batch: u32,
}

impl Default for PoolConfig {
    /// 16 buffers at a time.
    fn default() -> Self {
        Self { repost_batch: 16 }
    }
}

/// Storage or config that makes no pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolConfigError {
    /// The storage has no slot.
    #[error("a pool of no buffers")]
    NoBuffers,
    /// The storage has more than [`MAX_BUFFERS`] slots.
    #[error("a pool of more than 4294967293 buffers")]
    TooManyBuffers,
    /// `repost_batch` is 0.
    #[error("the repost batch is 0")]
    EmptyBatch,
}
