//! The window of a sender, which its threads share.

use crate::sync::{AtomicU64, Ordering, orderings};

orderings! {
    /// A sender that sees the window moved sees that the ring behind it is free.
    raise = Release, "multicast-window-raise" => Relaxed;
    /// Pairs with `raise`.
    see = Acquire, "multicast-window-see" => Relaxed;
}

/// No more turns begin.
const CLOSED: u64 = 1 << 63;

/// Number of turns that may begin: many threads take turns, and one raises the limit.
///
/// A turn is taken before room in the slot ring is reserved
/// ([`Senders`](crate::ring::shared::Senders)), and the head of the ring is advanced before the
/// limit is raised. The ring holds a window of the longest messages: a sender with a turn has room.
///
/// It needs 64-bit atomics, and is left out where there are none.
///
/// ```
/// use conn_core::multicast::SendWindow;
/// let window = SendWindow::new(2);
/// assert!(window.try_take(2) && !window.try_take(1));
/// window.raise(3); // a turn was delivered
/// assert!(window.try_take(1));
/// ```
// Invariant: taken <= limit, but for the bit that closes it; limit only rises.
#[derive(Debug)]
pub struct SendWindow {
    taken: AtomicU64,
    limit: AtomicU64,
}

impl SendWindow {
    /// A window of `window` turns, none of which is taken.
    #[cfg(not(rdma_conn_loom))]
    pub const fn new(window: u32) -> Self {
        Self { taken: AtomicU64::new(0), limit: AtomicU64::new(window as u64) }
    }

    /// A window of `window` turns, none of which is taken.
    #[cfg(rdma_conn_loom)]
    pub fn new(window: u32) -> Self {
        Self { taken: AtomicU64::new(0), limit: AtomicU64::new(u64::from(window)) }
    }

    /// Takes `turns` turns, if they are free, and the window is not closed.
    #[inline]
    pub fn try_take(&self, turns: u32) -> bool {
        let limit = self.limit.load(see());
        // Relaxed: the load of `limit` orders the accesses that a turn permits.
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            // The bit of a closed window puts `taken` beyond any limit.
            let next = taken + u64::from(turns);
            if next > limit {
                return false;
            }
            let swapped =
                self.taken.compare_exchange_weak(taken, next, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
    }

    /// Turns that were taken and not used.
    #[inline]
    pub fn give_back(&self, turns: u32) {
        // Relaxed: as above.
        self.taken.fetch_sub(turns.into(), Ordering::Relaxed);
    }

    /// Closes the window: no more turns begin. Turns taken before may still be used.
    pub fn close(&self) {
        // Relaxed: as above.
        self.taken.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Turns that were taken, and not given back.
    #[inline]
    pub fn taken(&self) -> u64 {
        // Relaxed: as above.
        self.taken.load(Ordering::Relaxed) & !CLOSED
    }

    /// Turns taken and not given back, if the window is closed: once all of them lie in the ring,
    /// the end of the stream may follow.
    #[inline]
    pub fn closed_at(&self) -> Option<u64> {
        // Relaxed: as above.
        let taken = self.taken.load(Ordering::Relaxed);
        (taken & CLOSED != 0).then_some(taken & !CLOSED)
    }

    /// Turns below `limit` may begin. By one thread; a limit that is lower than before is
    /// a bug.
    #[inline]
    pub fn raise(&self, limit: u64) {
        debug_assert!(self.limit.load(Ordering::Relaxed) <= limit);
        self.limit.store(limit, raise());
    }
}
