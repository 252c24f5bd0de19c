//! The memory mappings of this process.
//!
//! The kernel tells of the mapping at an address (`PROCMAP_QUERY`, Linux 6.11), or lists
//! all of them as text. The list is as long as there are mappings, and each registration
//! adds some: to read it for each of a thousand connections took most of the time in which
//! they were set up.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use host::sync::OnceLock;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;

use crate::memory::published::InFile;

const MAPS: &str = "/proc/self/maps";

/// A file: the device that it is on, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn from_fd(fd: impl AsFd) -> Result<FileId, Errno> {
        let stat = fstat(fd)?;
        Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
    }

    pub(super) fn inode(self) -> u64 {
        self.inode
    }

    /// The file of the same number on another device.
    #[cfg(test)]
    pub(super) fn elsewhere(self) -> FileId {
        FileId { device: self.device + 1, ..self }
    }
}

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    file: FileId,
    is_shared_memory: bool,
}

/// Prefix of a memory file's name.
const MEMORY: &[u8] = b"/memfd:";

impl Mapping {
    /// A line of the list.
    fn parse(line: &str) -> Option<Mapping> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let protection = fields.next()?;
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let name = fields.next().unwrap_or_default();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let device = rustix::fs::makedev(hex(major)? as u32, hex(minor)? as u32);
        Some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            file: FileId { device, inode },
            is_shared_memory: protection == "rw-s" && name.as_bytes().starts_with(MEMORY),
        })
    }

    /// The mapping at an address, in a list.
    fn listed(list: &str, at: u64) -> Option<Mapping> {
        let mut lines = list.lines().filter_map(Mapping::parse);
        lines.find(|mapping| (mapping.start..mapping.end).contains(&at))
    }
}

/// Finds `addr .. addr + len` of this process in a memory file, if it lies in a single one, in at
/// most two pieces (as a ring that is mapped twice does).
pub(super) fn locate(addr: u64, len: u64) -> Option<(FileId, InFile)> {
    let maps = open().ok()?;
    if let Ok(found) = pieces(addr, len, |at| query(&maps, at)) {
        return found;
    }
    let list = std::fs::read_to_string(MAPS).ok()?;
    pieces(addr, len, |at| Ok(Mapping::listed(&list, at))).ok()?
}

fn open() -> Result<OwnedFd, Errno> {
    rustix::fs::open(MAPS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Reports whether the kernel answers `PROCMAP_QUERY`.
fn answers() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    *ANSWERS.get_or_init(|| {
        let own = 0_u8;
        let at = (&raw const own).addr() as u64;
        let mut query = Query { size: size_of::<Query>() as u64, at, ..Query::default() };
        open().and_then(|maps| ask(&maps, &mut query)).is_ok()
    })
}

/// Reports whether all mappings of `addr .. addr + len` may be written.
///
/// # Errors
/// The kernel cannot be asked; the list of all mappings would be read too slowly.
pub(crate) fn are_writable(addr: u64, len: u64) -> Result<bool, Errno> {
    if !answers() {
        return Err(Errno::NOSYS);
    }
    let (maps, end) = (open()?, addr.saturating_add(len));
    let mut at = addr;
    while at < end {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, at, ..Query::default() };
        match ask(&maps, &mut query) {
            Ok(()) if query.flags & WRITABLE != 0 && query.end > at => at = query.end,
            Ok(()) | Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// [`locate`], by what says which mapping is at an address.
fn pieces(
    addr: u64,
    len: u64,
    mapping_at: impl Fn(u64) -> Result<Option<Mapping>, Errno>,
) -> Result<Option<(FileId, InFile)>, Errno> {
    let Some(end) = addr.checked_add(len).filter(|_| len > 0) else { return Ok(None) };
    let piece = |at| {
        let mapping = mapping_at(at)?.filter(|m| m.is_shared_memory && m.end > at);
        Ok::<_, Errno>(mapping.map(|m| (m.offset + (at - m.start), m.end.min(end) - at, m.file)))
    };
    let Some((offset, split, file)) = piece(addr)? else { return Ok(None) };
    let in_file = InFile { fd: 0, inode: file.inode, offset, split, second: 0 };
    if split == len {
        return Ok(Some((file, in_file)));
    }
    let Some((second, rest, other)) = piece(addr + split)? else { return Ok(None) };
    let is_all = split + rest == len && other == file;
    Ok(is_all.then_some((file, InFile { second, ..in_file })))
}

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    wanted: u64,
    at: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u64 = 3 << 30 | (size_of::<Query>() as u64) << 16 | (b'f' as u64) << 8 | 17;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
/// More than a memory file's name can have, with all that the kernel adds.
const NAME: usize = 320;

/// The mapping at an address, by asking the kernel.
///
/// # Errors
/// It cannot be asked.
fn query(maps: &OwnedFd, at: u64) -> Result<Option<Mapping>, Errno> {
    let mut name = [0_u8; NAME];
    let size = size_of::<Query>() as u64;
    let addr = name.as_mut_ptr().expose_provenance() as u64;
    let mut query = Query { size, at, name: addr, name_size: NAME as u32, ..Query::default() };
    match ask(maps, &mut query) {
        Ok(()) => {}
        // Nothing is there, or something with another kind of name.
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        Err(error) => return Err(error),
    }
    let protection = query.flags & (READABLE | WRITABLE | EXECUTABLE | SHARED);
    let is_shared = protection == READABLE | WRITABLE | SHARED;
    let device = rustix::fs::makedev(query.major, query.minor);
    Ok(Some(Mapping {
        start: query.start,
        end: query.end,
        offset: query.offset,
        file: FileId { device, inode: query.inode },
        is_shared_memory: is_shared && name.starts_with(MEMORY),
    }))
}

/// Has the kernel fill a query in, whose name is NULL, or as long as it says.
fn ask(maps: &OwnedFd, query: &mut Query) -> Result<(), Errno> {
    // SAFETY: the kernel writes to the query, and no more than it says to the name.
    match unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, core::ptr::from_mut(query)) } {
        0 => Ok(()),
        _ => {
            let errno = std::io::Error::last_os_error().raw_os_error();
            Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO)))
        }
    }
}

#[cfg(test)]
mod tests;
