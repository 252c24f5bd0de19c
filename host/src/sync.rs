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
