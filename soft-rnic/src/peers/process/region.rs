//! Registered memory that other processes can map: finding out, here, and mapping it,
//! there.
//!
//! Memory is shareable if it is a shared mapping of a memory file that no process can
//! cut off (`F_SEAL_SHRINK`): an access to a mapping of any other file could kill the
//! process that makes it. The peer opens the file by its descriptor in the owner's
//! process, so that the owner need not do anything.

use core::ptr::NonNull;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use host::sync::Mutex;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::cancellation::Uncancelled;
use crate::memory::published::{InFile, PublishedRegion};
use crate::memory::span::MemSpan;

use super::budget::Share;
use super::mapped::is_of_memory;
use super::maps;
use super::maps::FileId;

/// The memory files behind this process's registrations.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// By inode: which file, a descriptor of our own, which the program does not close, and
    /// how many registrations need it. Of two files on two mounts that have the same number,
    /// one is known: the other's memory is not shareable meanwhile.
    open: Mutex<HashMap<u64, (FileId, OwnedFd, usize)>>,
}

impl Files {
    /// Finds a piece of this process's memory in a memory file, if it is shareable.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Option<InFile> {
        let (id, found) = maps::locate(addr, len)?;
        let fd = self.descriptor(id)? as u32;
        Some(InFile { fd, ..found })
    }

    /// The number of our descriptor of a file, for one registration more.
    fn descriptor(&self, id: FileId) -> Option<i32> {
        let mut open = self.open.lock();
        if let Some((known, file, users)) = open.get_mut(&id.inode()) {
            let is_it = *known == id;
            *users += usize::from(is_it);
            return is_it.then(|| file.as_raw_fd());
        }
        let file = descriptor_of(id)?;
        let fd = file.as_raw_fd();
        open.insert(id.inode(), (id, file, 1));
        Some(fd)
    }

    /// A registration that was found in a file has ended.
    pub(crate) fn release(&self, inode: u64) {
        let mut open = self.open.lock();
        if let Some((.., users)) = open.get_mut(&inode) {
            *users -= 1;
            if *users == 0 {
                open.remove(&inode);
            }
        }
    }
}

/// A descriptor of our own for a memory file that this process has open.
fn descriptor_of(file: FileId) -> Option<OwnedFd> {
    let is_it =
        |fd: BorrowedFd<'_>| FileId::from_fd(fd) == Ok(file) && is_of_memory(fd) && is_sealed(fd);
    std::fs::read_dir("/proc/self/fd").ok()?.find_map(|entry| {
        let number: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: it may be closed meanwhile by another thread; then it is refused, or
        // is something else, which is looked at and not changed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let copy = is_it(fd).then(|| rustix::io::fcntl_dupfd_cloexec(fd, 3).ok()).flatten()?;
        // Another look: the number may have become something else in between.
        is_it(copy.as_fd()).then_some(copy)
    })
}

/// Opens a memory file by the number that a descriptor has in another process. What it is
/// is looked at first: to open anything else may have effects, or never end.
fn open_in(pid: i32, fd: u32, is_still_it: impl FnOnce() -> bool) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let seen = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // The number of the process may be another's by now.
    if !is_of_memory(&seen) || !is_still_it() {
        return Err(Errno::INVAL);
    }
    let path = format!("/proc/self/fd/{}", seen.as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

fn is_sealed(file: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// A peer's region, mapped here.
#[derive(Debug)]
pub(crate) struct MappedWindow {
    base: NonNull<u8>,
    mapped: usize,
    /// The region's first byte.
    first: NonNull<u8>,
    /// Version of the region when it was mapped: this is the registration for which the window is
    /// good.
    pub(crate) version: u32,
    pub(crate) len: u64,
    _share: Share,
}

// SAFETY: shared memory, which is reached by raw pointers; each access gives its reason.
unsafe impl Send for MappedWindow {}
// SAFETY: shared memory, which is reached by raw pointers; each access gives its reason.
unsafe impl Sync for MappedWindow {}

impl MappedWindow {
    /// Maps a region of the process `pid`, if it still is that one.
    pub(super) fn open(
        pid: i32,
        published: &PublishedRegion,
        in_file: &InFile,
        share: Share,
        is_still_it: impl FnOnce() -> bool,
    ) -> Result<MappedWindow, Errno> {
        // Descriptors are closed, perhaps inside a post.
        let _uncancelled = Uncancelled::new();
        let file = open_in(pid, in_file.fd, is_still_it)?;
        let stat = fstat(&file)?;
        let sealed = is_sealed(file.as_fd());
        let split = in_file.split.min(published.length);
        let rest = published.length - split;
        let within = |offset: u64, len: u64| {
            offset.checked_add(len).is_some_and(|end| end <= stat.st_size as u64)
        };
        let fits = within(in_file.offset, split) && (rest == 0 || within(in_file.second, rest));
        if stat.st_ino != in_file.inode || !sealed || !fits || split == 0 {
            return Err(Errno::INVAL);
        }
        MappedWindow::map(&file, published, in_file, split, share)
    }

    fn map(
        file: &OwnedFd,
        published: &PublishedRegion,
        in_file: &InFile,
        split: u64,
        share: Share,
    ) -> Result<MappedWindow, Errno> {
        let page = rustix::param::page_size() as u64;
        let within = in_file.offset % page;
        let rest = published.length - split;
        // Two pieces meet where pages do: they were mapped so.
        if rest > 0
            && (!(within + split).is_multiple_of(page) || !in_file.second.is_multiple_of(page))
        {
            return Err(Errno::INVAL);
        }
        let mapped = usize::try_from(within + published.length).map_err(|_| Errno::NOMEM)?;
        let (none, prot) = (core::ptr::null_mut(), ProtFlags::empty());
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap_anonymous(none, mapped, prot, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::INVAL)?;
        // SAFETY: `within` is less than a page, and at least one is mapped.
        let first = unsafe { base.add(within as usize) };
        // From here on dropping gives the addresses back.
        let PublishedRegion { version, length: len, .. } = *published;
        let window = MappedWindow { base, mapped, first, version, len, _share: share };
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        let head = (within + split) as usize;
        // SAFETY: both lie in the reservation, which is this value's own.
        unsafe {
            mmap(base.as_ptr().cast(), head, prot, flags, file, in_file.offset - within)?;
            if rest > 0 {
                let at = base.as_ptr().add(head).cast();
                mmap(at, rest as usize, prot, flags, file, in_file.second)?;
            }
        }
        Ok(window)
    }

    /// Reports whether it is that of a registration.
    #[inline]
    pub(crate) fn is_of(&self, published: &PublishedRegion) -> bool {
        self.version == published.version && self.len == published.length
    }

    /// `len` bytes at an offset, if there are as many.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<MemSpan<'_>> {
        let inside = offset <= self.len && len <= self.len - offset;
        // SAFETY: within the mapping, which is this value's own.
        inside.then(|| unsafe {
            MemSpan::shared(self.first.as_ptr().add(offset as usize), len as usize)
        })
    }
}

impl Drop for MappedWindow {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests;
