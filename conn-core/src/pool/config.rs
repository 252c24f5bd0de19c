//! Limits of a pool, and its policy for reposting.

use core::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolConfigError {
    /// The storage has no slot.
    NoBuffers,
    /// The storage has more than [`MAX_BUFFERS`] slots.
    TooManyBuffers,
    /// `repost_batch` is 0.
    EmptyBatch,
}

impl fmt::Display for PoolConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBuffers => "a pool of no buffers",
            Self::TooManyBuffers => "a pool of more than 4294967293 buffers",
            Self::EmptyBatch => "the repost batch is 0",
        })
    }
}

impl core::error::Error for PoolConfigError {}
