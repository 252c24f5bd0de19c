//! Device memory: in this process, but a program reaches it by the device's copies and its regions
//! only.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::objects::device::admit_many;
use crate::objects::dm_memory::DmMemory;
use crate::objects::in_arc::InArc;
use crate::objects::state::Context;
use crate::{alloc, copy, errno, limits};

/// Bytes that the lengths and offsets of copies are multiples of.
const WORD: u64 = 4;
/// Memory is given out in multiples of this number of bytes.
const PIECE: usize = 64;

/// Struct by which a program knows a piece of device memory.
#[repr(C)]
pub(crate) struct Dm {
    abi: ibv_dm,
    pub(crate) context: Arc<Context>,
    pub(crate) memory: Arc<DmMemory>,
}

// SAFETY: only the device accesses the memory, and never plainly, so that any thread may at any
// time: `memcpy_to_dm` and `memcpy_from_dm` copy in order, and what lies in a region of it is
// shared, as the region has `DEVICE_MEMORY`. The rest is not changed.
unsafe impl Send for Dm {}
// SAFETY: any thread may access the memory at any time, as no access is plain; the rest is not
// changed.
unsafe impl Sync for Dm {}

impl Dm {
    /// # Safety
    /// `dm` is NULL or live device memory of ours.
    pub(crate) unsafe fn from_abi<'a>(dm: *mut ibv_dm) -> Result<InArc<'a, Dm>, Errno> {
        // SAFETY: `dm` is NULL or live (see # Safety), and every one lives in an `Arc`.
        unsafe { InArc::new(dm.cast::<Dm>()) }.ok_or(errno::EINVAL)
    }

    /// `length` bytes, which are zero, aligned to `align`, a power of two.
    pub(crate) fn new(context: Arc<Context>, length: u64, align: usize) -> Result<Arc<Dm>, Errno> {
        static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);
        let rounded =
            usize::try_from(length).ok().and_then(|len| len.checked_next_multiple_of(PIECE));
        let align = align.max(PIECE);
        let layout = rounded.and_then(|size| Layout::from_size_align(size, align).ok());
        let layout = layout.filter(|layout| layout.size() != 0).ok_or(errno::EINVAL)?;
        alloc::headroom()?;
        let room = context.handles.dms.room()?;
        let counted = &context.device.population.dm_bytes;
        admit_many(counted, layout.size(), limits::MAX_DM)?;
        let Some(memory) = DmMemory::new(layout, length, counted) else {
            counted.fetch_sub(layout.size(), Ordering::Relaxed);
            return Err(errno::ENOMEM);
        };
        // Relaxed: a number that guards no memory.
        let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        room.insert(handle, Arc::clone(&memory));
        Ok(Dm::from_memory(context, memory, handle))
    }

    /// A struct of memory that is there.
    pub(crate) fn from_memory(
        context: Arc<Context>,
        memory: Arc<DmMemory>,
        handle: u32,
    ) -> Arc<Dm> {
        let abi = ibv_dm {
            context: context.as_abi(),
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 0,
            handle,
        };
        Arc::new(Dm { abi, context, memory })
    }

    /// Frees the memory: `EBUSY` while there are regions of it, `ENOENT` if that is done.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        self.memory.regions.end()?;
        self.context.handles.dms.remove(self.abi.handle);
        Ok(())
    }

    /// The address of what a copy of the program reads or writes: of whole words, as with cards.
    fn words(&self, offset: u64, length: usize) -> Result<*mut u8, Errno> {
        if !offset.is_multiple_of(WORD) || !(length as u64).is_multiple_of(WORD) {
            return Err(errno::EINVAL);
        }
        self.memory.at(offset, length).ok_or(errno::EFAULT)
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
        // SAFETY: `from` lies in the memory; `host_addr` is the caller's. A peer may access the
        // memory meanwhile, by copies as this one.
        unsafe { copy::in_order(host_addr.cast(), from, length) };
        Ok(())
    }))
}
