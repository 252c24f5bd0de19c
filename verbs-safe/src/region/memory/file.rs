//! The memory file that mappings are pieces of.
//!
//! A freed piece becomes a hole, and its place in the file is reused. This is safe for other
//! processes that still map the place. A mapping is dropped only after its registrations have
//! ended, and a registration ends when no peer accesses its memory. (soft-rnic's `dereg_mr` waits
//! for the peers; if it fails, the mapping is leaked and its place stays taken.) A later access by
//! a peer first checks the version of the registration. A process that breaks these rules could map
//! the whole file anyway.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use host::sync::{Mutex, OnceLock};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::extents::Extents;
use super::maker::Maker;
use crate::errno::{Errno, leaked};
use crate::limit;

/// The file, and which of it is free.
#[derive(Debug)]
struct MemoryFile {
    fd: OwnedFd,
    extents: Mutex<Extents>,
    maker: Maker,
}

/// A piece of the file, from this offset on.
#[derive(Debug)]
pub(super) struct FilePiece(u64);

/// More than an address space has room for.
const TOO_LONG: usize = 1 << 46;

/// The process's file; `None` where the system has none that cannot be cut off, and in a
/// child of fork: the file that it knows is its parent's, which hands out the same places.
fn file() -> Option<&'static MemoryFile> {
    static FILE: OnceLock<Option<MemoryFile>> = OnceLock::new();
    let make = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("rdma-regions", flags).ok()?;
        // The file never shrinks: a process can access all that it has mapped.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::SEAL).ok()?;
        Some(MemoryFile { fd, extents: Mutex::default(), maker: Maker::current() })
    };
    FILE.get_or_init(make).as_ref().filter(|file| file.maker.is_current())
}

impl MemoryFile {
    /// Takes a place of `len` bytes, which the file has.
    fn take(&self, len: u64) -> Result<u64, Errno> {
        let mut extents = self.extents.lock();
        let at = extents.place(len).ok_or(Errno::ENOMEM)?;
        if at + len > extents.end() {
            limit::set_len(&self.fd, at + len)?;
        }
        extents.take(at, len);
        Ok(at)
    }
}

impl FilePiece {
    /// Maps a new piece of `len` bytes, whole pages and all zero; `None` where there is no
    /// file.
    ///
    /// # Errors
    /// The system's reason: `EFBIG` is the limit of a file's length.
    pub(super) fn map(len: usize) -> Option<Result<(NonNull<u8>, FilePiece), Errno>> {
        let file = file()?;
        if len >= TOO_LONG {
            return Some(Err(Errno::ENOMEM));
        }
        let mapped = |at| match map_file(&file.fd, at, len) {
            Ok(base) => Ok((base, FilePiece(at))),
            Err(errno) => {
                // Nothing was written there.
                file.extents.lock().give(at, len as u64);
                Err(errno)
            }
        };
        Some(file.take(len as u64).and_then(mapped))
    }

    /// Gives the memory back to the system, and then the place; nothing maps it any more.
    pub(super) fn give_back(&self, len: usize) {
        let Some(file) = file() else { return };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The next mapping of the place finds zeros, because it is a hole.
        match rustix::io::retry_on_intr(|| fallocate(&file.fd, flags, self.0, len as u64)) {
            Ok(()) => file.extents.lock().give(self.0, len as u64),
            Err(errno) => leaked("a piece of the memory file", errno.into()),
        }
    }
}

/// Maps `len` bytes of a file that begin at `at`, to be read and written, as all that map it see.
pub(crate) fn map_file(file: impl AsFd, at: u64, len: usize) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    let base = unsafe { mmap(null_mut(), len, protection, MapFlags::SHARED, file, at) }?;
    NonNull::new(base.cast()).ok_or(Errno::EINVAL)
}
