//! The memory of a queue: the device's own, or that of a program's allocator.
//!
//! A program that makes a parent domain may say where the queues of its objects lie. Such memory is
//! given back within the call that destroys the object, or that resizes a completion queue once
//! more. What the object is made of can stay longer, as long as other threads know it, but none of
//! them looks into a queue any more: a queue pair is destroyed under both of its locks, and the
//! other queues have no users then.

use core::ffi::c_void;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc::{self, OutOfMemory};
use crate::errno;

/// Result of a program's allocator that leaves it to the device (`IBV_ALLOCATOR_USE_DEFAULT`).
const USE_DEFAULT: usize = usize::MAX;

/// Purpose of memory, as an allocator learns it. The upper half is the driver's number, which is 0
/// for one that is not the kernel's; the lower half is as mlx5's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The receive queue of a queue pair.
    Qp = 1,
    /// A shared receive queue.
    Srq = 4,
    Cq = 5,
}

type Alloc = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// The allocators of a parent domain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocators {
    pub(crate) alloc: Alloc,
    pub(crate) free: Free,
    pub(crate) pd_context: *mut c_void,
}

// SAFETY: the program's functions and its pointer, which they are called with from any thread that
// makes or destroys an object.
unsafe impl Send for Allocators {}
// SAFETY: `alloc` and `free` may be called with `pd_context` from several threads at once, as
// `ibv_alloc_parent_domain` asks of the program.
unsafe impl Sync for Allocators {}

/// A parent domain's allocators, and the kind of queue that they are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryLender {
    pd: *mut ibv_pd,
    allocators: Allocators,
    resource: Resource,
}

impl MemoryLender {
    pub(crate) fn new(pd: *mut ibv_pd, allocators: Allocators, resource: Resource) -> MemoryLender {
        MemoryLender { pd, allocators, resource }
    }

    /// Memory for `len` values; none if the device is to have its own.
    fn lend<T>(&self, len: usize) -> Result<Option<NonNull<T>>, Errno> {
        let size = len.checked_mul(size_of::<T>()).ok_or(errno::ENOMEM)?;
        let MemoryLender { pd, allocators, resource } = *self;
        // SAFETY: the program's function, with what its manual page says.
        let memory = unsafe {
            (allocators.alloc)(pd, allocators.pd_context, size, align_of::<T>(), resource as u64)
        };
        if memory.addr() == USE_DEFAULT {
            return Ok(None);
        }
        let memory = NonNull::new(memory.cast::<T>()).ok_or(errno::ENOMEM)?;
        if !memory.is_aligned() {
            self.take_back(memory);
            return Err(errno::EINVAL);
        }
        Ok(Some(memory))
    }

    fn take_back<T>(&self, memory: NonNull<T>) {
        let MemoryLender { pd, allocators, resource } = *self;
        let memory = memory.as_ptr().cast();
        // SAFETY: `free` is the program's function; `memory` is what `alloc` has lent, and is used
        // no more.
        unsafe { (allocators.free)(pd, allocators.pd_context, memory, resource as u64) };
    }
}

/// Memory that a program has lent.
struct ProgramMemory {
    lender: MemoryLender,
    is_back: AtomicBool,
}

/// As many values as a queue has slots. They need no drop.
pub(crate) struct QueueMemory<T> {
    first: NonNull<T>,
    len: usize,
    lent: Option<Box<ProgramMemory>>,
}

// SAFETY: it owns its values, as a box does; a lender may be asked from any thread.
unsafe impl<T: Send> Send for QueueMemory<T> {}
// SAFETY: it owns its values, as a box does; a lender may be asked from any thread.
unsafe impl<T: Sync> Sync for QueueMemory<T> {}

impl<T> QueueMemory<T> {
    /// The device's own memory.
    pub(crate) fn own(len: usize, value: impl Fn() -> T) -> Result<QueueMemory<T>, OutOfMemory> {
        const { assert!(!core::mem::needs_drop::<T>()) };
        let values = alloc::filled(len, value)?.into_boxed_slice();
        let first = NonNull::from(Box::leak(values)).cast();
        Ok(QueueMemory { first, len, lent: None })
    }

    /// Memory of a lender, if there is one; `ENOMEM` if it has none.
    pub(crate) fn new(
        len: usize,
        lender: Option<MemoryLender>,
        value: impl Fn() -> T,
    ) -> Result<QueueMemory<T>, Errno> {
        let lender = lender.filter(|_| len > 0);
        let lent = lender.map(|lender| lender.lend::<T>(len)).transpose()?.flatten();
        let (Some(lender), Some(first)) = (lender, lent) else {
            return Ok(QueueMemory::own(len, value)?);
        };
        // SAFETY: the memory has room for `len` values, and is aligned.
        (0..len).for_each(|at| unsafe { first.add(at).write(value()) });
        let lent = ProgramMemory { lender, is_back: AtomicBool::new(false) };
        Ok(QueueMemory { first, len, lent: Some(Box::new(lent)) })
    }

    /// Gives lent memory back.
    ///
    /// # Safety
    /// No thread looks at the values any more.
    pub(crate) unsafe fn give_back(&self) {
        if let Some(lent) = &self.lent
            && !lent.is_back.swap(true, Ordering::AcqRel)
        {
            lent.lender.take_back(self.first);
        }
    }
}

impl<T> Deref for QueueMemory<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values are there until the memory is given back, after which nothing
        // looks at them.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for QueueMemory<T> {
    fn drop(&mut self) {
        if self.lent.is_some() {
            // SAFETY: nothing refers to the values. It was given back unless its object was never
            // finished.
            return unsafe { self.give_back() };
        }
        let values = core::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len);
        // SAFETY: it was made of a box of `len` values.
        drop(unsafe { Box::from_raw(values) });
    }
}

impl<T> core::fmt::Debug for QueueMemory<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let is_lent = self.lent.is_some();
        f.debug_struct("QueueMemory").field("len", &self.len).field("is_lent", &is_lent).finish()
    }
}
