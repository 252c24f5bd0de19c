//! Registered memory that other processes can map: finding out, here, and mapping it,
//! there.
//!
//! Memory is shareable if it is a shared mapping of a memory file that nobody can cut
//! off (`F_SEAL_SHRINK`): an access to a mapping of any other file could kill the
//! process that makes it. The peer opens the file by its descriptor in the owner's
//! process, so that the owner need not do anything.

use core::ptr::NonNull;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::directory::{InFile, Told};

/// The memory files behind this process's registrations.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// By inode: a descriptor of our own, so that nobody closes it, and how many
    /// registrations need it.
    open: Mutex<HashMap<u64, (OwnedFd, usize)>>,
}

/// A line of the list of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    is_shared_memory: bool,
}

impl Line {
    fn parse(line: &str) -> Option<Line> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let protection = fields.next()?;
        let offset = fields.next()?;
        let _device = fields.next()?;
        let inode = fields.next()?.parse().ok()?;
        let name = fields.next().unwrap_or_default();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Line {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            inode,
            is_shared_memory: protection == "rw-s" && name.starts_with("/memfd:"),
        })
    }
}

/// Where `addr .. addr + len` lies, if it lies in one memory file, in at most two
/// pieces (as a ring that is mapped twice does).
fn locate(maps: &str, addr: u64, len: u64) -> Option<InFile> {
    let end = addr.checked_add(len)?;
    let mut pieces: Vec<(u64, u64, u64)> = Vec::new();
    let mut at = addr;
    for line in maps.lines().filter_map(Line::parse) {
        if line.end <= at || line.start >= end {
            continue;
        }
        if line.start > at || !line.is_shared_memory {
            return None;
        }
        let until = line.end.min(end);
        pieces.push((line.offset + (at - line.start), until - at, line.inode));
        at = until;
    }
    let &(offset, split, inode) = pieces.first()?;
    let second = pieces.get(1).map_or(0, |piece| piece.0);
    let same = pieces.iter().all(|piece| piece.2 == inode);
    (at == end && same && pieces.len() <= 2).then_some(InFile {
        fd: 0,
        inode,
        offset,
        split,
        second,
    })
}

impl Files {
    /// Where in a memory file a piece of this process's memory lies, if it is
    /// shareable.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Option<InFile> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let found = locate(&maps, addr, len)?;
        let mut open = self.open.lock();
        if let Some((file, users)) = open.get_mut(&found.inode) {
            *users += 1;
            return Some(InFile { fd: file.as_raw_fd() as u32, ..found });
        }
        let file = descriptor_of(found.inode)?;
        let fd = file.as_raw_fd() as u32;
        open.insert(found.inode, (file, 1));
        Some(InFile { fd, ..found })
    }
}

impl Files {
    /// A registration that was found in a file has ended.
    pub(crate) fn release(&self, inode: u64) {
        let mut open = self.open.lock();
        if let Some((_, users)) = open.get_mut(&inode) {
            *users -= 1;
            if *users == 0 {
                open.remove(&inode);
            }
        }
    }
}

/// A descriptor of our own for a memory file that this process has open.
fn descriptor_of(inode: u64) -> Option<OwnedFd> {
    let is_it =
        |fd: BorrowedFd<'_>| fstat(fd).is_ok_and(|stat| stat.st_ino == inode) && is_sealed(fd);
    std::fs::read_dir("/proc/self/fd").ok()?.find_map(|entry| {
        let number: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: it may be closed meanwhile by another thread; then it is refused, or
        // is something else, which is looked at and not changed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let copy = is_it(fd).then(|| rustix::io::fcntl_dupfd_cloexec(fd, 3).ok()).flatten()?;
        // Another look: the number may have become something else in between.
        is_it(std::os::fd::AsFd::as_fd(&copy)).then_some(copy)
    })
}

fn is_sealed(file: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// A peer's region, mapped here.
#[derive(Debug)]
pub(crate) struct Window {
    base: NonNull<u8>,
    mapped: usize,
    /// The region's first byte.
    first: NonNull<u8>,
    /// What was mapped: this is the registration for which it is good.
    pub(crate) version: u32,
    pub(crate) len: u64,
}

// SAFETY: shared memory, which is reached by raw pointers; whoever does says why.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps a region of the process `pid`.
    pub(crate) fn open(pid: i32, told: &Told, place: &InFile) -> Result<Window, Errno> {
        let path = format!("/proc/{pid}/fd/{}", place.fd);
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&file)?;
        let sealed = is_sealed(std::os::fd::AsFd::as_fd(&file));
        let split = place.split.min(told.length);
        let rest = told.length - split;
        let within = |offset: u64, len: u64| {
            offset.checked_add(len).is_some_and(|end| end <= stat.st_size as u64)
        };
        let fits = within(place.offset, split) && (rest == 0 || within(place.second, rest));
        if stat.st_ino != place.inode || !sealed || !fits || split == 0 {
            return Err(Errno::INVAL);
        }
        Window::map(&file, told, place, split)
    }

    fn map(file: &OwnedFd, told: &Told, place: &InFile, split: u64) -> Result<Window, Errno> {
        let page = rustix::param::page_size() as u64;
        let within = place.offset % page;
        let rest = told.length - split;
        // Two pieces meet where pages do: they were mapped so.
        if rest > 0
            && (!(within + split).is_multiple_of(page) || !place.second.is_multiple_of(page))
        {
            return Err(Errno::INVAL);
        }
        let mapped = usize::try_from(within + told.length).map_err(|_| Errno::NOMEM)?;
        let (none, prot) = (core::ptr::null_mut(), ProtFlags::empty());
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap_anonymous(none, mapped, prot, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::INVAL)?;
        // SAFETY: `within` is less than a page, and at least one is mapped.
        let first = unsafe { base.add(within as usize) };
        // From here on dropping gives the addresses back.
        let window = Window { base, mapped, first, version: told.version, len: told.length };
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        let head = (within + split) as usize;
        // SAFETY: both lie in the reservation, which is this value's own.
        unsafe {
            mmap(base.as_ptr().cast(), head, prot, flags, file, place.offset - within)?;
            if rest > 0 {
                let at = base.as_ptr().add(head).cast();
                mmap(at, rest as usize, prot, flags, file, place.second)?;
            }
        }
        Ok(window)
    }

    /// The address here of the byte at an offset, if `len` bytes follow.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let inside = offset <= self.len && len <= self.len - offset;
        // SAFETY: within the mapping.
        inside.then(|| unsafe { self.first.as_ptr().add(offset as usize) })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
4000-8000 rw-s 00010000 00:01 77 /memfd:rdma-ring (deleted)
8000-c000 rw-s 00010000 00:01 77 /memfd:rdma-ring (deleted)
c000-d000 rw-s 00000000 00:01 78 /memfd:other (deleted)
d000-e000 r--s 00000000 00:01 78 /memfd:other (deleted)
";

    #[test]
    fn memory_is_found_in_one_piece_or_two_of_one_file() {
        let find = |addr, len| locate(MAPS, addr, len).map(|f| (f.offset, f.split, f.second));
        assert_eq!(find(0x4010, 0x20), Some((0x10010, 0x20, 0)));
        assert_eq!(find(0x4000, 0x8000), Some((0x10000, 0x4000, 0x10000)));
        assert_eq!(find(0x1000, 0x10), None, "private");
        assert_eq!(find(0xb000, 0x2000), None, "two files");
        assert_eq!(find(0xd000, 0x10), None, "read-only");
        assert_eq!(find(0x3000, 0x2000), None, "a hole in front");
        assert_eq!(find(0xdff0, 0x20), None, "ends behind");
    }
}
