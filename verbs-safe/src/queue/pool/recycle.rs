//! The notice that a slot has returned to its pool.

use std::sync::Arc;

/// Is notified of each slot that returns to the pool when the last holder of its message
/// drops it: to post the slot again, for instance. Called on the thread that drops the
/// message, and must not block for long.
pub trait Recycle: Send + Sync + 'static {
    /// `slot` is home: it can be posted.
    fn recycle(&self, slot: u32);
}

/// Ignores them: the owner keeps account of slots by itself.
impl Recycle for () {
    #[inline]
    fn recycle(&self, _slot: u32) {}
}

impl<T: Recycle> Recycle for Arc<T> {
    #[inline]
    fn recycle(&self, slot: u32) {
        (**self).recycle(slot);
    }
}
