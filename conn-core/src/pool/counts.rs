//! Counts of buffers by state, without their ids.

use super::config::{MAX_BUFFERS, PoolConfig, PoolConfigError};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// Counts of a queue's buffers that are posted, lent, or waiting, and the time to repost: the
/// counts of [`BufferPool`](super::BufferPool), for a driver that knows the state of each buffer by
/// itself. Many buffers are booked at a time.
///
/// ```
/// use conn_core::pool::*;
///
/// let mut counts = PoolCounts::new(8, PoolConfig { repost_batch: 4 })?;
/// counts.repost(8)?; // at first all wait
///
/// counts.lend(5)?; // five messages have arrived
/// counts.free(3)?; // and the application is done with three of them
/// assert_eq!((counts.posted(), counts.lent(), counts.waiting()), (3, 2, 3));
/// assert!(counts.due(), "as many wait as are posted");
/// assert_eq!(counts.free(3), Err(Miscount { possible: 2 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: waiting + posted <= buffers, the others are lent; 1 <= repost_batch <= buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCounts {
    buffers: u32,
    pub(super) waiting: u32,
    pub(super) posted: u32,
    repost_batch: u32,
}

/// More buffers than there are in that state: the driver counts wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only {possible} buffers are in the state that they are said to leave")]
pub struct Miscount {
    /// As many as there are.
    pub possible: u32,
}

impl PoolCounts {
    /// Counts of `buffers` buffers, all of them waiting to be posted.
    ///
    /// # Errors
    /// None or too many of them, or a batch of 0.
    pub fn new(buffers: u32, config: PoolConfig) -> Result<Self, PoolConfigError> {
        match (buffers, config.repost_batch) {
            (0, _) => Err(PoolConfigError::NoBuffers),
            (buffers, _) if buffers > MAX_BUFFERS => Err(PoolConfigError::TooManyBuffers),
            (_, 0) => Err(PoolConfigError::EmptyBatch),
            (buffers, batch) => {
                Ok(Self { buffers, waiting: buffers, posted: 0, repost_batch: batch.min(buffers) })
            }
        }
    }

    /// Messages arrived in `n` buffers: posted → lent.
    ///
    /// # Errors
    /// [`Miscount`] when fewer are posted.
    #[inline]
    pub fn lend(&mut self, n: u32) -> Result<(), Miscount> {
        self.posted = take(self.posted, n)?;
        Ok(())
    }

    /// The application is done with `n` buffers: lent → waiting.
    ///
    /// # Errors
    /// [`Miscount`] when fewer are lent.
    #[inline]
    pub fn free(&mut self, n: u32) -> Result<(), Miscount> {
        take(self.lent(), n)?;
        self.waiting += n;
        Ok(())
    }

    /// `n` buffers were returned without a message: posted → waiting.
    ///
    /// # Errors
    /// [`Miscount`] when fewer are posted.
    #[inline]
    pub fn return_unreceived(&mut self, n: u32) -> Result<(), Miscount> {
        self.posted = take(self.posted, n)?;
        self.waiting += n;
        Ok(())
    }

    /// `n` buffers were posted: waiting → posted.
    ///
    /// # Errors
    /// [`Miscount`] when fewer wait.
    #[inline]
    pub fn repost(&mut self, n: u32) -> Result<(), Miscount> {
        self.waiting = take(self.waiting, n)?;
        self.posted += n;
        Ok(())
    }

    /// Reports whether it is time to repost: a batch has gathered, or as many buffers wait as are
    /// posted. The second condition keeps a small or hoarded pool alive: with nothing posted, a
    /// single waiting buffer is due.
    #[inline]
    pub fn due(&self) -> bool {
        self.due_beyond(0)
    }

    /// As [`due`](Self::due), not counting `reserved` of the posted buffers: those
    /// that stand ready for control messages and that no data may use up. (With a
    /// reserve counted as posted, the sender could be out of credit while the
    /// buffers that would give it some wait for a batch to gather.)
    #[inline]
    pub fn due_beyond(&self, reserved: u32) -> bool {
        self.waiting >= self.repost_batch
            || (self.waiting != 0 && self.posted.saturating_sub(reserved) <= self.waiting)
    }

    /// Buffers with the device.
    #[inline]
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// Buffers with the application.
    #[inline]
    pub fn lent(&self) -> u32 {
        self.buffers - self.posted - self.waiting
    }

    /// Buffers to be posted again.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// All buffers: `posted + lent + waiting`.
    #[inline]
    pub fn buffers(&self) -> u32 {
        self.buffers
    }
}

/// Returns `count` less `n`.
#[inline]
fn take(count: u32, n: u32) -> Result<u32, Miscount> {
    count.checked_sub(n).ok_or(Miscount { possible: count })
}
