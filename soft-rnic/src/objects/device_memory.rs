//! Device memory: in this process, but a program reaches it by the device's copies and its regions
//! only.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{alloc_zeroed, dealloc};
use std::sync::Arc;

use verbs_sys::*;

use crate::objects::device::admit_many;
use crate::objects::in_arc::InArc;
use crate::objects::state::Context;
use crate::{copy, errno, limits};

/// What copies and their offsets are multiples of, in bytes.
const WORD: u64 = 4;
/// Memory is given out in so many bytes.
const PIECE: usize = 64;

/// A piece of device memory.
#[repr(C)]
pub(crate) struct Dm {
    abi: ibv_dm,
    pub(crate) context: Arc<Context>,
    /// Exposed: regions find it by its address.
    memory: NonNull<u8>,
    layout: Layout,
    /// As the program has asked for.
    length: u64,
    /// Regions of it.
    pub(crate) regions: AtomicUsize,
}

// SAFETY: the memory is accessed by the device's copies only, which any thread may make at any
// time; the rest is not changed.
unsafe impl Send for Dm {}
// SAFETY: as above.
unsafe impl Sync for Dm {}

impl Dm {
    /// # Safety
    /// `dm` is NULL or live device memory of ours.
    pub(crate) unsafe fn from_abi<'a>(dm: *mut ibv_dm) -> Result<InArc<'a, Dm>, c_int> {
        // SAFETY: the caller's promise; each lives in an Arc.
        unsafe { InArc::new(dm.cast::<Dm>()) }.ok_or(errno::EINVAL)
    }

    /// `length` bytes, which are zero, aligned to `align`, a power of two.
    pub(crate) fn new(context: Arc<Context>, length: u64, align: usize) -> Result<Arc<Dm>, c_int> {
        let rounded =
            usize::try_from(length).ok().and_then(|len| len.checked_next_multiple_of(PIECE));
        let align = align.max(PIECE);
        let layout = rounded.and_then(|size| Layout::from_size_align(size, align).ok());
        let layout = layout.filter(|layout| layout.size() != 0).ok_or(errno::EINVAL)?;
        admit_many(&context.device.population.dm_bytes, layout.size(), limits::MAX_DM)?;
        // SAFETY: the size is not 0.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            context.device.population.dm_bytes.fetch_sub(layout.size(), Ordering::Relaxed);
            return Err(errno::ENOMEM);
        };
        memory.as_ptr().expose_provenance();
        let abi = ibv_dm {
            context: context.as_abi(),
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 0,
            handle: 0,
        };
        let regions = AtomicUsize::new(0);
        Ok(Arc::new(Dm { abi, context, memory, layout, length, regions }))
    }

    /// The address of a piece, if it lies in here.
    pub(crate) fn at(&self, offset: u64, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length as u64)?;
        // SAFETY: the offset is within the memory.
        (end <= self.length).then(|| unsafe { self.memory.as_ptr().add(offset as usize) })
    }

    /// The address of what a copy of the program reads or writes: of whole words, as with cards.
    fn words(&self, offset: u64, length: usize) -> Result<*mut u8, c_int> {
        if !offset.is_multiple_of(WORD) || !(length as u64).is_multiple_of(WORD) {
            return Err(errno::EINVAL);
        }
        self.at(offset, length).ok_or(errno::EFAULT)
    }
}

impl Drop for Dm {
    fn drop(&mut self) {
        self.context.device.population.dm_bytes.fetch_sub(self.layout.size(), Ordering::Relaxed);
        // SAFETY: it was allocated with this layout; regions of it hold this object.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: NULL, or memory of ours.
    errno::code(unsafe { Dm::from_abi(dm) }.and_then(|dm| {
        let to = dm.words(dm_offset, length)?;
        // SAFETY: it lies in the memory; the other side is the caller's. A peer may access the
        // memory meanwhile, by copies as this one.
        unsafe { copy::in_order(to, host_addr.cast(), length) };
        Ok(())
    }))
}

unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: NULL, or memory of ours.
    errno::code(unsafe { Dm::from_abi(dm) }.and_then(|dm| {
        let from = dm.words(dm_offset, length)?;
        // SAFETY: as above.
        unsafe { copy::in_order(host_addr.cast(), from, length) };
        Ok(())
    }))
}
