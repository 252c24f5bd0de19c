//! Memory of a size that the program or a peer decides.
//!
//! `Vec`, `Box` and collections end the process where there is no memory. A verb reports `ENOMEM` instead: what a caller's
//! or a peer's number sizes is made by the functions here, or grows by `try_reserve`. Everything else that a verb allocates
//! is small (objects, entries of tables, the doubling of a list of queue pairs: [`HEADROOM`] in all), and is made only after
//! [`headroom`] was found. `cargo xtask check` finds sized allocations elsewhere (`xtask/src/sized.rs`).

use core::ffi::c_int;
use std::alloc::Layout;

use rustix::io::Errno;

/// The system has no memory for what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Errno {
        Errno::NOMEM
    }
}

impl From<OutOfMemory> for c_int {
    fn from(_: OutOfMemory) -> c_int {
        Errno::NOMEM.raw_os_error()
    }
}

/// Bytes that are to be there before an object is made: more than it and its entries in tables take.
const HEADROOM: usize = 1 << 20;

/// Finds out whether there is memory for an object and what belongs to it. (Another thread may take it meanwhile.)
///
/// # Errors
/// [`OutOfMemory`]
pub(crate) fn headroom() -> Result<(), OutOfMemory> {
    // Nothing touches it: no page is used.
    list::<u8>(HEADROOM).map(|room| drop(core::hint::black_box(room)))
}

/// An empty list with room for `len` values.
///
/// # Errors
/// [`OutOfMemory`]
pub(crate) fn list<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
    Ok(list)
}

/// A list of `len` values.
///
/// # Errors
/// [`OutOfMemory`]
pub(crate) fn filled<T>(len: usize, value: impl FnMut() -> T) -> Result<Vec<T>, OutOfMemory> {
    let mut list = list(len)?;
    list.resize_with(len, value);
    Ok(list)
}

/// `len` zeroes; pages that nothing has touched cost nothing.
///
/// # Errors
/// [`OutOfMemory`]
pub(crate) fn zeroes(len: usize) -> Result<Vec<u8>, OutOfMemory> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(len).map_err(|_| OutOfMemory)?;
    // SAFETY: the layout has bytes; the memory is of the allocator of vectors, of that layout,
    // and all of it is written.
    unsafe {
        let bytes = std::alloc::alloc_zeroed(layout);
        if bytes.is_null() { Err(OutOfMemory) } else { Ok(Vec::from_raw_parts(bytes, len, len)) }
    }
}

#[cfg(test)]
mod tests;
