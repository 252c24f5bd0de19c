//! Objects that callers know by their addresses.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::sync::Arc;

/// An object behind a caller's pointer: borrowed, and known to live in an [`Arc`].
pub(crate) struct InArc<'a, T>(ManuallyDrop<Arc<T>>, PhantomData<&'a T>);

impl<'a, T> InArc<'a, T> {
    /// `None` for NULL.
    ///
    /// # Safety
    /// Otherwise `ptr` came from `Arc::as_ptr` or `Arc::into_raw`, and the object
    /// is alive for the lifetime.
    #[inline]
    pub(crate) unsafe fn new(ptr: *const T) -> Option<Self> {
        // SAFETY: `ptr` came from an `Arc`, and its object is alive (see # Safety); no reference is
        // counted, none is dropped.
        (!ptr.is_null())
            .then(|| InArc(ManuallyDrop::new(unsafe { Arc::from_raw(ptr) }), PhantomData))
    }

    /// The object, for as long as it is alive.
    #[inline]
    pub(crate) fn object(&self) -> &'a T {
        // SAFETY: the promise of `new`.
        unsafe { &*Arc::as_ptr(&self.0) }
    }

    /// A reference of its own.
    pub(crate) fn keep(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T> Deref for InArc<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}
