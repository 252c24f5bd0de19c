//! The limits of the process that memory meets.

use std::os::fd::AsFd;

use rustix::fs::{fstat, ftruncate};
use rustix::process::{Resource, getrlimit};
use thiserror::Error;

use crate::errno::Errno;

/// A limit of the process (`getrlimit`), and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResourceLimit {
    /// `RLIMIT_FSIZE`: the length of a file in bytes, also of one in memory.
    #[error(
        "files are limited to {0} bytes, and all registered memory of the process is one file \
         (RLIMIT_FSIZE): raise `ulimit -f`, or have fewer or smaller buffers at a time"
    )]
    FileSize(u64),
    /// `RLIMIT_AS`: all addresses of the process, in bytes.
    #[error(
        "the process is limited to {0} bytes of addresses (RLIMIT_AS): raise `ulimit -v`, or \
         have fewer or smaller buffers at a time"
    )]
    AddressSpace(u64),
    /// `RLIMIT_MEMLOCK`: memory that a device may pin, in bytes.
    #[error(
        "the process may lock {0} bytes of memory (RLIMIT_MEMLOCK), and cards lock what they \
         use: raise `ulimit -l`, or have fewer or smaller buffers at a time"
    )]
    LockedMemory(u64),
    /// `RLIMIT_NOFILE`: descriptors.
    #[error(
        "the process may have {0} descriptors (RLIMIT_NOFILE): raise `ulimit -n`, or close some"
    )]
    Descriptors(u64),
}

/// Sets the length of a file in memory; new bytes are zeros. Checks `RLIMIT_FSIZE` first: beyond it
/// the kernel would end the process (`SIGXFSZ`).
///
/// # Errors
/// `EFBIG` for the limit, which [`reached`] then names; else the system's reason.
pub(crate) fn set_len(file: impl AsFd, len: u64) -> Result<(), Errno> {
    let grows = fstat(&file)?.st_size as u64 <= len;
    let limit = getrlimit(Resource::Fsize).current;
    if grows && limit.is_some_and(|limit| limit < len) {
        return Err(Errno::EFBIG);
    }
    Ok(ftruncate(file, len)?)
}

/// The resource limit behind an error of the system, if that limit is set.
pub(crate) fn reached(errno: Errno) -> Option<ResourceLimit> {
    let of = |resource| getrlimit(resource).current;
    match errno {
        Errno::EFBIG => of(Resource::Fsize).map(ResourceLimit::FileSize),
        Errno::ENOMEM => of(Resource::As).map(ResourceLimit::AddressSpace),
        Errno::EMFILE => of(Resource::Nofile).map(ResourceLimit::Descriptors),
        _ => None,
    }
}

/// The limit behind `ENOMEM` of a registration, if it is set: devices pin registered memory.
pub(crate) fn locked_memory(errno: Errno) -> Option<ResourceLimit> {
    let is_it = errno == Errno::ENOMEM;
    let limit = is_it.then(|| getrlimit(Resource::Memlock).current).flatten();
    limit.map(ResourceLimit::LockedMemory)
}
