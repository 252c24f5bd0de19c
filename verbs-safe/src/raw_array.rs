//! Arrays that C is given pointers into.

use std::ptr::NonNull;

/// A fixed array that is only accessed through raw pointers, so that pointers from one element to
/// another stay valid while other elements are accessed.
pub(crate) struct RawArray<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: the array owns its elements, which are plain values, and gives out raw
// pointers only.
unsafe impl<T: Copy> Send for RawArray<T> {}
// SAFETY: the elements are plain values, and a shared reference gives out raw pointers only.
unsafe impl<T: Copy> Sync for RawArray<T> {}

impl<T> RawArray<T> {
    pub(crate) fn new(elements: Vec<T>) -> RawArray<T> {
        let elements = elements.into_boxed_slice();
        let len = elements.len();
        let base = NonNull::from(Box::leak(elements)).cast();
        RawArray { base, len }
    }

    /// The element at `index`. Making the pointer is safe; the code that dereferences it
    /// says why the index is inside.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> *mut T {
        debug_assert!(index < self.len);
        self.base.as_ptr().wrapping_add(index)
    }

    /// The index of the element at `element`; `None` if it is not one of ours.
    pub(crate) fn index_of(&self, element: *const T) -> Option<usize> {
        let bytes = (element as usize).checked_sub(self.base.as_ptr() as usize)?;
        let index = bytes / size_of::<T>();
        (bytes.is_multiple_of(size_of::<T>()) && index < self.len).then_some(index)
    }
}

impl<T> Drop for RawArray<T> {
    fn drop(&mut self) {
        let elements = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len);
        // SAFETY: it was a box, is dropped once, and no pointer into it is used any more.
        drop(unsafe { Box::from_raw(elements) });
    }
}

#[cfg(test)]
mod tests;
