//! The repost queue: any thread enqueues the id of a freed buffer, one thread at a time
//! drains the ids and reposts.
//!
//! The queue is a set of ids, kept as bits: one leaf word for 64 buffers (32 where there are
//! no 64-bit atomics), and above them summary words with a bit for each leaf that may be non-empty.
//! So it is bounded by the number of buffers and cannot overflow, and needs neither allocation nor
//! a slot per entry. An enqueue detects that its id is in the queue already, without a further
//! operation.
//!
//! ```text
//!   summary     0 0 1 0 1 …          bit l: leaf l may hold ids
//!                   |   |
//!   leaves      . . L . L . …        bit i of leaf l: buffer 64 l + i is queued
//! ```
//!
//! *Enqueue*: set the leaf's bit; if the leaf was empty, set the summary's bit. Most
//! enqueues find a leaf that is not empty and cost one read-modify-write. Leaves lie on cache lines
//! of their own, so threads with buffers of different leaves do not contend. There is no loop, so
//! no thread waits for another (wait-free), where the processor can *or* into memory and return the
//! old value; x86-64 has to retry when another thread's write to the same leaf was first.
//!
//! *Drain*: take the summary, then the leaves that it names. Order is by id, not by
//! age: buffers are alike, and the set is emptied as a whole.
//!
//! Two enqueues may meet in a leaf: the second finds it occupied before the first has set the
//! summary's bit. A drain in between misses both; the first enqueue's bit then leads the next drain
//! to both. So a drain certainly finds an id only if it starts after the return of *every* enqueue
//! that began before the id's own enqueue ended. Hence [`Combiner`](crate::combiner::Combiner):
//! each enqueuer requests a drain after its enqueue, and the drain after the last request finds all
//! ids.
//!
//! A linked list of ids would need a retry loop, or have a gap between two stores that blocks the
//! drain behind one stalled thread. It would need a second atomic operation to detect double frees.

use static_assertions::assert_impl_all;

use crate::sync::{AtomicBits, Bits, Ordering, orderings};

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

orderings! {
    /// Publishes all accesses to the buffer before its enqueue (the application's last read) to the
    /// drain that finds the leaf's bit.
    leaf_publish = Release, "repost-leaf-publish" => Relaxed;
    /// Pairs with `leaf_publish`. Enqueues are read-modify-writes, so each continues the release
    /// sequences before it: one acquire sees all threads that have set the bits it takes.
    leaf_take = Acquire, "repost-leaf-take" => Relaxed;
    /// A drain that finds the summary's bit must also find the leaf's: without the pair,
    /// its visit to the leaf could precede the bit, and the id be lost.
    summary_publish = Release, "repost-summary-publish" => Relaxed;
    /// Pairs with `summary_publish`.
    summary_take = Acquire, "repost-summary-take" => Relaxed;
}

/// A word of the queue, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RepostWord(AtomicBits);

#[cfg(not(rdma_conn_loom))]
static_assertions::const_assert_eq!(size_of::<RepostWord>(), 64);
assert_impl_all!(RepostQueue<[RepostWord; 2]>: Send, Sync);

impl RepostWord {
    /// An empty word: `[const { RepostWord::new() }; N]` makes storage.
    #[cfg(not(rdma_conn_loom))]
    pub const fn new() -> Self {
        Self(AtomicBits::new(0))
    }

    /// An empty word.
    #[cfg(rdma_conn_loom)]
    pub fn new() -> Self {
        Self(AtomicBits::new(0))
    }
}

/// Storage that does not fit the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepostQueueError {
    /// A queue for no buffers.
    #[error("a repost queue for no buffers")]
    NoBuffers,
    /// The storage is too small: [`words_for`] returns the required number of words.
    #[error("a repost queue for this many buffers needs {needed_words} words")]
    StorageTooSmall {
        /// Words that the buffers need.
        needed_words: usize,
    },
}

/// An id that cannot be enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// There is no such buffer.
    #[error("repost of a receive buffer that does not exist")]
    OutOfRange,
    /// The buffer is in the queue: it has been freed twice.
    #[error("second repost of a receive buffer (a double free?)")]
    AlreadyQueued,
}

/// Bits of a word.
const WIDTH: usize = Bits::BITS as usize;

const fn leaves_for(buffers: u32) -> usize {
    (buffers as usize).div_ceil(WIDTH)
}

/// Words of storage for a queue of `buffers` ids.
///
/// ```
/// assert_eq!(conn_core::repost::words_for(256), 5); // four leaves, one summary
/// ```
pub const fn words_for(buffers: u32) -> usize {
    leaves_for(buffers) + leaves_for(buffers).div_ceil(WIDTH)
}

/// A set of buffer ids, shared by threads. See the [module](self).
///
/// ```
/// use conn_core::repost::*;
///
/// let queue = RepostQueue::new([const { RepostWord::new() }; words_for(100)], 100)?;
/// std::thread::scope(|s| {
///     s.spawn(|| queue.enqueue(99));
///     s.spawn(|| queue.enqueue(3));
/// });
/// assert_eq!(queue.enqueue(3), Err(EnqueueError::AlreadyQueued));
///
/// let mut ids = [0; 32];
/// let n = queue.drain(&mut ids);
/// assert_eq!(ids[..n], [3, 99]);
/// assert!(queue.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: if a leaf is not empty, its summary bit is set, or the thread that emptied
// the summary or made the leaf non-empty is still at work and sets it before it returns.
#[derive(Debug)]
pub struct RepostQueue<S> {
    words: S,
    buffers: u32,
}

/// Making one. (Of any storage, so that `RepostQueue::words_for` needs no type.)
impl RepostQueue<[RepostWord; 0]> {
    /// As the function [`words_for`].
    pub const fn words_for(buffers: u32) -> usize {
        words_for(buffers)
    }
}

/// Making one.
impl<S: AsRef<[RepostWord]>> RepostQueue<S> {
    /// An empty queue for the buffers `0..buffers`, over `storage` of at least
    /// [`words_for`]`(buffers)` empty words.
    ///
    /// # Errors
    /// No buffers, or too little storage.
    pub fn new(storage: S, buffers: u32) -> Result<Self, RepostQueueError> {
        if buffers == 0 {
            return Err(RepostQueueError::NoBuffers);
        }
        let needed_words = words_for(buffers);
        if storage.as_ref().len() < needed_words {
            return Err(RepostQueueError::StorageTooSmall { needed_words });
        }
        Ok(Self { words: storage, buffers })
    }
}

/// For any thread.
impl<S: AsRef<[RepostWord]>> RepostQueue<S> {
    /// Puts buffer `id` into the queue.
    ///
    /// # Errors
    /// [`EnqueueError`] when there is no such buffer, or it is in the queue. (If the first free was
    /// drained, [`BufferPool::free`](crate::pool::BufferPool::free) reports the second one.)
    #[inline]
    pub fn enqueue(&self, id: u32) -> Result<(), EnqueueError> {
        if id >= self.buffers {
            return Err(EnqueueError::OutOfRange);
        }
        let (leaf, bit) = (id as usize / WIDTH, 1 << (id as usize % WIDTH));
        let before = self.leaf(leaf).fetch_or(bit, leaf_publish());
        if before & bit != 0 {
            return Err(EnqueueError::AlreadyQueued);
        }
        if before == 0 {
            self.summary(leaf / WIDTH).fetch_or(1 << (leaf % WIDTH), summary_publish());
        }
        Ok(())
    }

    /// Reports whether the queue looks empty. This is certain only where all enqueues are known to
    /// have returned; otherwise it is a hint.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: no buffer is read, and earlier operations of this thread are visible in any
        // case.
        (0..self.summaries()).all(|s| self.summary(s).load(Ordering::Relaxed) == 0)
    }
}

/// For one thread at a time. (If two drain at once, each id still goes to one of them, but either
/// may miss ids that the other is taking.)
impl<S: AsRef<[RepostWord]>> RepostQueue<S> {
    /// Moves ids from the queue to `out`, until the queue is empty or `out` is full; returns their
    /// number.
    #[inline]
    pub fn drain(&self, out: &mut [u32]) -> usize {
        let mut count = 0;
        for s in 0..self.summaries() {
            if count == out.len() {
                break;
            }
            // Relaxed: a bit that happened before is seen, and nothing is read through it.
            if self.summary(s).load(Ordering::Relaxed) != 0 {
                count += self.drain_summary(s, &mut out[count..]);
            }
        }
        count
    }

    /// Empties the leaves under summary word `s`, or as many as fit.
    fn drain_summary(&self, s: usize, out: &mut [u32]) -> usize {
        let summary = self.summary(s);
        let (mut pending, mut count) = (summary.swap(0, summary_take()), 0);
        while pending != 0 {
            let leaf = s * WIDTH + pending.trailing_zeros() as usize;
            if self.loom_misses(leaf) {
                pending &= pending - 1;
                continue;
            }
            let taken = self.take_leaf(leaf, out.len() - count);
            count += write_ids(leaf, taken.bits, &mut out[count..]);
            if taken.more {
                // Relaxed: every write to the summary is a read-modify-write, so this one continues
                // the release sequences of the enqueues.
                summary.fetch_or(pending, Ordering::Relaxed);
                break;
            }
            pending &= pending - 1;
        }
        count
    }

    /// Without the order that the summary gives, the swap of a leaf might take its place
    /// before the bit that brought us here. Loom runs read-modify-writes in one order
    /// for all threads, and would not show that; a stale load shows it.
    #[inline]
    fn loom_misses(&self, leaf: usize) -> bool {
        cfg!(rdma_conn_loom) && self.leaf(leaf).load(Ordering::Relaxed) == 0
    }

    /// Takes up to `room` ids out of a leaf.
    #[inline]
    fn take_leaf(&self, leaf: usize, room: usize) -> LeafBits {
        let word = self.leaf(leaf);
        if room >= WIDTH {
            return LeafBits { bits: word.swap(0, leaf_take()), more: false };
        }
        // The bits that stay are never out of the word, so that a double free of
        // theirs is caught at any moment. Relaxed: the next operation acquires.
        let wanted = lowest(word.load(Ordering::Relaxed), room);
        let before = word.fetch_and(!wanted, leaf_take());
        LeafBits { bits: before & wanted, more: before & !wanted != 0 }
    }
}

/// Bits taken out of a leaf, and whether some are left in it.
struct LeafBits {
    bits: Bits,
    more: bool,
}

/// The lowest `count` bits that are set in `bits`.
fn lowest(bits: Bits, count: usize) -> Bits {
    let mut rest = bits;
    for _ in 0..count {
        rest &= rest.saturating_sub(1);
    }
    bits & !rest
}

#[inline]
fn write_ids(leaf: usize, mut bits: Bits, out: &mut [u32]) -> usize {
    let mut count = 0;
    while bits != 0 {
        out[count] = leaf as u32 * Bits::BITS + bits.trailing_zeros();
        count += 1;
        bits &= bits - 1;
    }
    count
}

/// The layout: leaves first, then the summary words.
impl<S: AsRef<[RepostWord]>> RepostQueue<S> {
    /// The buffers that the queue is for.
    #[inline]
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    #[inline]
    fn leaf(&self, leaf: usize) -> &AtomicBits {
        &self.words.as_ref()[leaf].0
    }

    #[inline]
    fn summary(&self, s: usize) -> &AtomicBits {
        &self.words.as_ref()[leaves_for(self.buffers) + s].0
    }

    #[inline]
    fn summaries(&self) -> usize {
        leaves_for(self.buffers).div_ceil(WIDTH)
    }
}
