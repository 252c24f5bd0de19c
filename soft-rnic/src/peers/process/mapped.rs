//! Memory files of a fixed layout, that one process writes and others read.
//!
//! The file is sealed when it is made: no process can cut it off under a mapping, and
//! a process that gets the descriptor can map it for reading only. What a reader loads
//! may change at any time, and may be anything: the code that uses a value checks it.

use core::ops::Deref;
use core::ptr::NonNull;
use host::sync::OnceLock;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, MemfdFlags, SealFlags, StatxFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    statx,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::forked::{self, ForkMapping};

/// A layout that can lie in a memory file.
///
/// # Safety
/// The type consists of atomic integers, and cells of bytes that are only reached by
/// raw pointers: any bytes are a valid value, and others may store to them.
pub(crate) unsafe trait SharedLayout: Sync {}

/// A layout in a memory file that is mapped here.
#[derive(Debug)]
pub(crate) struct Mapped<T: SharedLayout> {
    base: NonNull<T>,
    /// A child of fork does not get the file's memory, but some of its own.
    in_children: &'static ForkMapping,
    /// Kept by the writer, to hand it to readers.
    file: Option<OwnedFd>,
}

// SAFETY: a layout is Sync, and the mapping belongs to no thread.
unsafe impl<T: SharedLayout> Send for Mapped<T> {}
// SAFETY: a shared `Mapped` gives access to its layout and to its file, which are Sync.
unsafe impl<T: SharedLayout> Sync for Mapped<T> {}

impl<T: SharedLayout> Mapped<T> {
    /// A new file, all zero, which only this mapping can write.
    pub(crate) fn create(name: &str) -> Result<Mapped<T>, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)?;
        // Beyond its limit the process would be killed.
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < size_of::<T>() as u64) {
            return Err(Errno::FBIG);
        }
        ftruncate(&file, size_of::<T>() as u64)?;
        let base = map::<T>(&file, ProtFlags::READ | ProtFlags::WRITE)?;
        let mut mapped = Mapped::at(base);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        fcntl_add_seals(&file, seals | SealFlags::SEAL)?;
        mapped.file = Some(file);
        Ok(mapped)
    }

    /// Another process's file, for reading; `EINVAL` if it has not the layout's size,
    /// or could be cut off, or is of huge pages.
    pub(crate) fn open(file: &OwnedFd) -> Result<Mapped<T>, Errno> {
        let sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if !is_of_memory(file) || !sealed || fstat(file)?.st_size as u64 != size_of::<T>() as u64 {
            return Err(Errno::INVAL);
        }
        Ok(Mapped::at(map::<T>(file, ProtFlags::READ)?))
    }

    fn at(base: NonNull<T>) -> Mapped<T> {
        // A child that still used the device would write what only its parent may.
        // SAFETY: the advice changes nothing for this process.
        let _ = unsafe { madvise(base.as_ptr().cast(), size_of::<T>(), Advice::LinuxDontFork) };
        let in_children = forked::fill_in(base.cast(), size_of::<T>());
        Mapped { base, in_children, file: None }
    }

    /// Closes the writer's descriptor, when no other reader needs it.
    pub(crate) fn close_file(&mut self) {
        self.file = None;
    }

    /// The writer's descriptor.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

/// Reports whether a file is one in memory, and no other mount's; nor one of huge pages, of which
/// there may be none left when a hole in it is accessed. The descriptor may be an `O_PATH` one. The
/// file's file system is not asked: any user may provide it, and let the call wait.
pub(super) fn is_of_memory(file: impl AsFd) -> bool {
    static DEVICE: OnceLock<(u32, u32)> = OnceLock::new();
    let device = |file: BorrowedFd<'_>| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let seen = statx(file, c"", flags, StatxFlags::empty()).ok()?;
        Some((seen.stx_dev_major, seen.stx_dev_minor))
    };
    // All memory files are on one that has no others. Without descriptors it is found out later.
    let found = || {
        let file = rustix::fs::memfd_create("soft-rnic", MemfdFlags::CLOEXEC).ok()?;
        device(file.as_fd()).map(|memory| *DEVICE.get_or_init(|| memory))
    };
    let memory = DEVICE.get().copied().or_else(found);
    memory.is_some() && device(file.as_fd()) == memory
}

fn map<T>(file: &OwnedFd, protection: ProtFlags) -> Result<NonNull<T>, Errno> {
    let none = core::ptr::null_mut();
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    let base = unsafe { mmap(none, size_of::<T>(), protection, MapFlags::SHARED, file, 0) }?;
    NonNull::new(base.cast()).ok_or(Errno::INVAL)
}

impl<T: SharedLayout> Deref for Mapped<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the mapping has the layout's size and is aligned to a page; any bytes
        // are a value, and only atomics are reached by reference.
        unsafe { self.base.as_ref() }
    }
}

impl<T: SharedLayout> Drop for Mapped<T> {
    fn drop(&mut self) {
        self.in_children.forget();
        // SAFETY: the mapping is this value's own, and no reference into it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), size_of::<T>()) };
    }
}

#[cfg(test)]
mod tests;
