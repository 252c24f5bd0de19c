//! The numbers of queues in this process.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

/// The number of a send or receive queue (or of a shared receive queue's pool).
/// Unlike a queue pair's number, it is never used again in this process: so a
/// completion of a queue that is gone cannot be taken for another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u32);

impl QueueId {
    /// A number that no queue of this process has had.
    pub(crate) fn next() -> Result<QueueId, QueueIdsExhausted> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only the count itself matters.
        LAST.try_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1))
            .map(|last| QueueId(last + 1))
            .map_err(|_| QueueIdsExhausted)
    }

    /// The number, for messages.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// The work request id of this queue's request `low`.
    #[inline]
    pub(crate) fn wr_id(self, low: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(low)
    }
}

/// The queue of the request that has this work request id.
#[inline]
pub(crate) fn queue_of(wr_id: u64) -> QueueId {
    QueueId((wr_id >> 32) as u32)
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Process-wide numbers of queues are used up (after 2³² queues).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this process has used up all queue numbers")]
pub struct QueueIdsExhausted;

/// A completion queue's number in this process, for messages and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CqId(pub(crate) u32);

/// A shared receive queue's number in this process, for messages and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SrqId(pub(crate) u32);
