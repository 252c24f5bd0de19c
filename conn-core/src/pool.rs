//! The receive-buffer pool: which buffers are posted, lent, or waiting to be
//! reposted, and when reposting is worth a doorbell.
//!
//! ```text
//!              take_repost               lend
//!   waiting ------------------> posted --------> lent
//!      ^  ^                      |  |              |
//!      |  `-- unpost ------------'  |              |
//!      |   return_unreceived -------'              |
//!      `--------------------- free ----------------'
//! ```
//!
//! Every buffer is in exactly one of the three states. Buffers are ids `0..n`; which
//! memory they name is the driver's business. The buffers that wait form a list
//! through the slots themselves, first freed first reposted, so each operation on a
//! buffer takes constant time and needs no memory of its own. [`PoolCounts`] is for
//! drivers that keep the states and the list themselves: how many are in each state, and when to
//! repost.

use static_assertions::const_assert_eq;

mod config;
pub mod counts;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

pub use config::{MAX_BUFFERS, PoolConfig, PoolConfigError};
pub use counts::{Miscount, PoolCounts};

const POSTED: u32 = u32::MAX;
const LENT: u32 = u32::MAX - 1;
/// Waiting, and the last of the list. Smaller values are waiting, and name the next.
const END: u32 = u32::MAX - 2;

const _: () = assert!(END == MAX_BUFFERS);

/// The pool's memory of one buffer: its state, and its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSlot(u32);

const_assert_eq!(size_of::<PoolSlot>(), 4);

impl PoolSlot {
    /// A slot for a new pool; [`BufferPool::new`] overwrites it.
    pub const fn new() -> Self {
        Self(END)
    }
}

impl Default for PoolSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// A completion for a buffer that was not posted: the device or the driver is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    /// The pool has no such buffer.
    #[error("completion of a receive buffer that does not exist")]
    OutOfRange,
    /// The buffer is lent, or waits to be reposted.
    #[error("completion of a receive buffer that was not posted")]
    NotPosted,
}

/// A free of something that was not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The pool has no such buffer.
    #[error("free of a receive buffer that does not exist")]
    OutOfRange,
    /// The buffer is not lent: most likely it has been freed before.
    #[error("free of a receive buffer that is not lent (a double free?)")]
    NotLent,
}

/// An [`unpost`](BufferPool::unpost) of a buffer that was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("receive buffer {id} was not posted, so it cannot be unposted")]
pub struct UnpostError {
    /// The first buffer, from the end of the list given, that was not posted.
    pub id: u32,
}

/// State of a buffer: its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferState {
    /// With us, to be posted again.
    Waiting,
    /// With the device.
    Posted,
    /// With the application.
    Lent,
}

/// The state of every receive buffer of a queue. See the [module](self).
///
/// ```
/// use conn_core::pool::*;
///
/// let mut pool = BufferPool::new([PoolSlot::new(); 4], PoolConfig { repost_batch: 2 })?;
/// let mut ids = [0; 4];
/// assert_eq!(pool.take_repost(&mut ids), 4, "at first all buffers wait to be posted");
///
/// pool.lend(2)?; // a message arrived in buffer 2
/// pool.free(2)?; // and the application is done with it
/// assert_eq!(pool.free(2), Err(FreeError::NotLent));
/// assert!(!pool.due(), "one buffer is not worth a doorbell");
/// pool.lend(0)?;
/// pool.free(0)?;
/// assert!(pool.due());
/// assert_eq!(pool.take_repost(&mut ids), 2);
/// assert_eq!(ids[..2], [2, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: the counts are those of the slots in each state; the list from `front` has as
// many members as are waiting, and ends at `back` (both meaningless when nothing waits).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferPool<S> {
    slots: S,
    front: u32,
    back: u32,
    counts: PoolCounts,
}

/// Making one.
impl<S: AsRef<[PoolSlot]> + AsMut<[PoolSlot]>> BufferPool<S> {
    /// A pool of as many buffers as `storage` has slots, all of them waiting to be
    /// posted, in the order of their ids.
    ///
    /// # Errors
    /// Storage without slots or with too many, or a batch of 0.
    pub fn new(mut storage: S, config: PoolConfig) -> Result<Self, PoolConfigError> {
        let slots = storage.as_mut();
        let buffers = u32::try_from(slots.len()).map_err(|_| PoolConfigError::TooManyBuffers)?;
        let counts = PoolCounts::new(buffers, config)?;
        for (slot, next) in slots.iter_mut().zip(1..) {
            *slot = PoolSlot(next);
        }
        let back = buffers - 1;
        slots[back as usize] = PoolSlot(END);
        Ok(Self { slots: storage, front: 0, back, counts })
    }
}

/// Completions, and frees by the application.
impl<S: AsRef<[PoolSlot]> + AsMut<[PoolSlot]>> BufferPool<S> {
    /// A message arrived in buffer `id`: posted → lent.
    ///
    /// # Errors
    /// [`LendError`] when the buffer was not posted.
    #[inline]
    pub fn lend(&mut self, id: u32) -> Result<(), LendError> {
        let slot = self.posted_slot(id)?;
        slot.0 = LENT;
        self.counts.posted -= 1;
        Ok(())
    }

    /// The application is done with buffer `id`: lent → waiting.
    ///
    /// # Errors
    /// [`FreeError`] when the buffer is not lent: a double free is caught.
    #[inline]
    pub fn free(&mut self, id: u32) -> Result<(), FreeError> {
        match self.slots.as_ref().get(id as usize) {
            None => return Err(FreeError::OutOfRange),
            Some(&PoolSlot(LENT)) => {}
            Some(_) => return Err(FreeError::NotLent),
        }
        self.push_back(id);
        Ok(())
    }

    /// Buffer `id` was returned without a message (its request was flushed, or the message was
    /// control): posted → waiting.
    ///
    /// # Errors
    /// [`LendError`] when the buffer was not posted.
    #[inline]
    pub fn return_unreceived(&mut self, id: u32) -> Result<(), LendError> {
        self.posted_slot(id)?;
        self.counts.posted -= 1;
        self.push_back(id);
        Ok(())
    }

    #[inline]
    fn posted_slot(&mut self, id: u32) -> Result<&mut PoolSlot, LendError> {
        match self.slots.as_mut().get_mut(id as usize) {
            None => Err(LendError::OutOfRange),
            Some(slot) if slot.0 == POSTED => Ok(slot),
            Some(_) => Err(LendError::NotPosted),
        }
    }

    #[inline]
    fn push_back(&mut self, id: u32) {
        let slots = self.slots.as_mut();
        slots[id as usize] = PoolSlot(END);
        if self.counts.waiting == 0 {
            self.front = id;
        } else {
            slots[self.back as usize] = PoolSlot(id);
        }
        self.back = id;
        self.counts.waiting += 1;
    }
}

/// Reposting.
impl<S: AsRef<[PoolSlot]> + AsMut<[PoolSlot]>> BufferPool<S> {
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
        self.counts.due_beyond(reserved)
    }

    /// Moves buffers from waiting to posted, longest waiting first, as many as there
    /// are and `out` holds. Writes their ids to `out` and returns how many; post
    /// exactly these.
    #[inline]
    pub fn take_repost(&mut self, out: &mut [u32]) -> usize {
        let count = out.len().min(self.counts.waiting as usize);
        let slots = self.slots.as_mut();
        let mut front = self.front;
        for id in &mut out[..count] {
            *id = front;
            front = core::mem::replace(&mut slots[front as usize].0, POSTED);
        }
        self.front = front;
        self.counts.waiting -= count as u32;
        self.counts.posted += count as u32;
        count
    }

    /// Takes back buffers that could not be posted: posted → waiting, in the order
    /// given, before all that wait already. After `take_repost`, `unpost` of the same
    /// ids restores the state.
    ///
    /// # Errors
    /// [`UnpostError`] when one of them was not posted, or stands in `ids` twice.
    pub fn unpost(&mut self, ids: &[u32]) -> Result<(), UnpostError> {
        for (done, &id) in ids.iter().rev().enumerate() {
            if self.posted_slot(id).is_err() {
                self.repost_front(done);
                return Err(UnpostError { id });
            }
            self.push_front(id);
        }
        Ok(())
    }

    fn push_front(&mut self, id: u32) {
        let next = if self.counts.waiting == 0 { END } else { self.front };
        self.slots.as_mut()[id as usize] = PoolSlot(next);
        if self.counts.waiting == 0 {
            self.back = id;
        }
        self.front = id;
        self.counts.waiting += 1;
        self.counts.posted -= 1;
    }

    fn repost_front(&mut self, count: usize) {
        for _ in 0..count {
            self.take_repost(&mut [0]);
        }
    }
}

/// State at any moment.
impl<S: AsRef<[PoolSlot]>> BufferPool<S> {
    /// Buffers with the device.
    #[inline]
    pub fn posted(&self) -> u32 {
        self.counts.posted
    }

    /// Buffers with the application.
    #[inline]
    pub fn lent(&self) -> u32 {
        self.counts.lent()
    }

    /// Buffers to be posted again.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.counts.waiting
    }

    /// All buffers: `posted + lent + waiting`.
    #[inline]
    pub fn buffers(&self) -> u32 {
        self.counts.buffers()
    }

    /// Returns the state of buffer `id`; `None` when the pool has no such buffer.
    #[inline]
    pub fn state(&self, id: u32) -> Option<BufferState> {
        Some(match self.slots.as_ref().get(id as usize)?.0 {
            POSTED => BufferState::Posted,
            LENT => BufferState::Lent,
            _ => BufferState::Waiting,
        })
    }
}
