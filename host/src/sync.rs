//! Locks and condition variables: `parking_lot`'s, and in a world points at which a seed decides
//! which thread runs first.

use core::sync::atomic::{AtomicBool, Ordering};

#[cfg(not(feature = "world"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "world")]
pub use crate::world::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// A value that is set once. Its initialisation is not interrupted by other threads of a world.
#[derive(Debug, Clone)]
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> OnceLock<T> {
    /// One that is not set.
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock(std::sync::OnceLock::new())
    }

    /// The value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// The value, made if it is not set.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.0.get() {
            Some(value) => value,
            None => crate::uninterrupted(|| self.0.get_or_init(make)),
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// The value, if there is one.
    #[inline]
    pub fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    /// Waits until the value is set.
    pub fn wait(&self) -> &T {
        #[cfg(feature = "world")]
        while self.0.get().is_none() && crate::world::here(|here| here.spin("spin", None)).is_some()
        {
        }
        self.0.wait()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        OnceLock(std::sync::OnceLock::from(value))
    }
}

/// Sets a flag when it is dropped, so also when its scope panics: threads that run until the flag
/// is set do not keep the scope, which waits for them, from ending.
///
/// ```
/// use core::sync::atomic::{AtomicBool, Ordering};
///
/// let is_over = AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     scope.spawn(|| while !is_over.load(Ordering::Relaxed) {});
///     let _over = host::sync::SetOnDrop(&is_over);
/// });
/// ```
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        // Release: a thread that sees the flag sees what was done before.
        self.0.store(true, Ordering::Release);
    }
}

/// A point that a fixed number of threads pass together.
#[derive(Debug)]
pub struct Barrier {
    threads: usize,
    state: Mutex<BarrierState>,
    passed: Condvar,
}

#[derive(Debug, Default)]
struct BarrierState {
    /// Threads that wait.
    waiting: usize,
    /// Times that all threads have passed.
    rounds: u64,
    is_broken: bool,
}

/// A thread does not reach a [`Barrier`]: none passes it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another thread has not begun")]
pub struct BrokenBarrier;

impl Barrier {
    /// A barrier of `threads` threads.
    #[must_use]
    pub fn new(threads: usize) -> Barrier {
        Barrier { threads, state: Mutex::new(BarrierState::default()), passed: Condvar::new() }
    }

    /// Waits until all threads have arrived.
    ///
    /// # Errors
    /// [`abort`](Self::abort) was called before all had arrived.
    pub fn wait(&self) -> Result<(), BrokenBarrier> {
        let mut state = self.state.lock();
        state.waiting += 1;
        if state.waiting >= self.threads && !state.is_broken {
            (state.waiting, state.rounds) = (0, state.rounds + 1);
            self.passed.notify_all();
            return Ok(());
        }
        let round = state.rounds;
        while state.rounds == round {
            if state.is_broken {
                return Err(BrokenBarrier);
            }
            self.passed.wait(&mut state);
        }
        Ok(())
    }

    /// Ends all waits, and all later ones: a thread that they are for could not be started.
    pub fn abort(&self) {
        self.state.lock().is_broken = true;
        self.passed.notify_all();
    }
}

/// Before a lock of another kind is tried. Its owner calls [`unlocked`] behind each release.
#[inline]
pub fn before_lock() {
    #[cfg(feature = "world")]
    crate::world::here(|here| here.point("lock"));
}

/// Waits until a lock of another kind may be free; false outside of worlds, where the caller does
/// the waiting.
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
mod tests;
