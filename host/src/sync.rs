//! Locks and condition variables: `parking_lot`'s, and in a world points at which a seed decides which thread
//! comes first.

#[cfg(not(feature = "world"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "world"))]
pub use std::sync::OnceLock;

#[cfg(feature = "world")]
pub use crate::world::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// A point that so many threads pass together.
#[derive(Debug)]
pub struct Barrier {
    threads: usize,
    /// Those that have come, and how often all had.
    state: Mutex<(usize, u64)>,
    passed: Condvar,
}

impl Barrier {
    /// A barrier of `threads` threads.
    #[must_use]
    pub fn new(threads: usize) -> Barrier {
        Barrier { threads, state: Mutex::new((0, 0)), passed: Condvar::new() }
    }

    /// Waits until all threads have come.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        if state.0 >= self.threads {
            *state = (0, state.1 + 1);
            self.passed.notify_all();
            return;
        }
        let round = state.1;
        while state.1 == round {
            self.passed.wait(&mut state);
        }
    }
}

/// Before a lock of another kind is tried. Its owner calls [`unlocked`] behind each release.
#[inline]
pub fn before_lock() {
    #[cfg(feature = "world")]
    crate::world::here(|here| here.point("lock"));
}

/// Waits until a lock of another kind may be free; false where the caller waits by itself: outside of worlds.
#[inline]
pub fn wait_for_lock<L>(lock: &L) -> bool {
    #[cfg(feature = "world")]
    return crate::world::sync::wait_for_lock(lock);
    #[cfg(not(feature = "world"))]
    {
        let _ = lock;
        false
    }
}

/// A lock of another kind was released.
#[inline]
pub fn unlocked<L>(lock: &L) {
    #[cfg(feature = "world")]
    crate::world::sync::released(lock);
    #[cfg(not(feature = "world"))]
    let _ = lock;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn no_thread_passes_a_barrier_before_all_have_come() {
        let (barrier, came) = (Barrier::new(3), AtomicU32::new(0));
        crate::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=50 {
                        came.fetch_add(1, Ordering::Relaxed);
                        barrier.wait();
                        assert_eq!(came.load(Ordering::Relaxed), 3 * round);
                        barrier.wait();
                    }
                });
            }
        });
    }
}
