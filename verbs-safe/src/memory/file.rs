//! The memory file that mappings are pieces of.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::Maker;

/// The file, and how long it is.
#[derive(Debug)]
struct File {
    fd: OwnedFd,
    len: Mutex<u64>,
    maker: Maker,
}

/// A piece of the file, from this offset on.
#[derive(Debug)]
pub(super) struct Piece(u64);

/// The process's file; `None` where the system has none that cannot be cut off, and in a
/// child of fork: the file that it knows is its parent's, who hands out the same places.
fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let make = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("rdma-regions", flags).ok()?;
        // Whoever maps it can rely on what is there.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::SEAL).ok()?;
        Some(File { fd, len: Mutex::new(0), maker: Maker::this() })
    };
    FILE.get_or_init(make).as_ref().filter(|file| file.maker.is_this())
}

impl Piece {
    /// Maps a new piece of `len` bytes, whole pages; `None` if there is none to be had.
    pub(super) fn map(len: usize) -> Option<(NonNull<u8>, Piece)> {
        // What no address space has room for shall not use up the file's length.
        let file = file().filter(|_| len < 1 << 46)?;
        let at = {
            let mut end = file.len.lock().unwrap_or_else(PoisonError::into_inner);
            let at = *end;
            let longer = at.checked_add(len as u64)?;
            ftruncate(&file.fd, longer).ok()?;
            *end = longer;
            at
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base =
            unsafe { mmap(null_mut(), len, protection, MapFlags::SHARED, &file.fd, at) }.ok()?;
        Some((NonNull::new(base.cast())?, Piece(at)))
    }

    /// Gives the memory back to the system; nothing maps it any more.
    pub(super) fn give_back(&self, len: usize) {
        if let Some(file) = file() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If it fails, the memory is kept until the process ends.
            let _ = fallocate(&file.fd, flags, self.0, len as u64);
        }
    }
}
