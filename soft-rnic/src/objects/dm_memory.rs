//! The bytes of a piece of device memory.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{alloc_zeroed, dealloc};
use std::sync::Arc;

use crate::objects::users::Users;

/// They stay while a region, or a struct of a program's, has them.
pub(crate) struct DmMemory {
    /// Exposed: regions find it by its address.
    memory: NonNull<u8>,
    layout: Layout,
    /// As the program has asked for.
    length: u64,
    /// Regions of it; it ends when it is freed.
    pub(crate) regions: Users,
    /// Bytes of all such memory.
    counted: Arc<AtomicUsize>,
}

// SAFETY: the memory is accessed by the device's copies only, which any thread may make at any
// time; the rest is not changed, or atomic.
unsafe impl Send for DmMemory {}
// SAFETY: only the device's copies access the memory, from any thread; the rest is not changed, or
// atomic.
unsafe impl Sync for DmMemory {}

impl DmMemory {
    /// `length` bytes, which are zero, in as much as the layout says: that is counted already, and
    /// not 0.
    pub(crate) fn new(
        layout: Layout,
        length: u64,
        counted: &Arc<AtomicUsize>,
    ) -> Option<Arc<DmMemory>> {
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the size is not 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        memory.as_ptr().expose_provenance();
        let (regions, counted) = (Users::default(), Arc::clone(counted));
        Some(Arc::new(DmMemory { memory, layout, length, regions, counted }))
    }

    /// The address of a piece, if it lies in here.
    pub(crate) fn at(&self, offset: u64, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length as u64)?;
        // SAFETY: the offset is within the memory, or at its end.
        (end <= self.length).then(|| unsafe { self.memory.as_ptr().add(offset as usize) })
    }
}

impl Drop for DmMemory {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.layout.size(), Ordering::Relaxed);
        // SAFETY: it was allocated with this layout; regions of it hold this object.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
