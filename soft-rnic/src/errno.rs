//! Failures of verbs: a positive errno, or a null pointer, -1 or a negative errno; all of them set `errno`.
//!
//! Within the crate a failure is an [`Errno`]. Only the functions here make a verb's result of one, so that none is
//! returned without being set.

use core::ffi::c_int;

use rustix::io::Errno;

pub(crate) const EAGAIN: Errno = Errno::AGAIN;
pub(crate) const EBUSY: Errno = Errno::BUSY;
pub(crate) const EFAULT: Errno = Errno::FAULT;
pub(crate) const EINVAL: Errno = Errno::INVAL;
pub(crate) const ENODATA: Errno = Errno::NODATA;
pub(crate) const ENODEV: Errno = Errno::NODEV;
pub(crate) const ENOENT: Errno = Errno::NOENT;
pub(crate) const ENOMEM: Errno = Errno::NOMEM;
pub(crate) const EOPNOTSUPP: Errno = Errno::OPNOTSUPP;
pub(crate) const EPERM: Errno = Errno::PERM;

/// The result of a verb that returns an errno: 0 or the error.
#[inline]
pub(crate) fn code(result: Result<(), Errno>) -> c_int {
    result.map_or_else(set, |()| 0)
}

/// The result of a verb that returns a pointer: the object or NULL.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|error| {
        set(error);
        core::ptr::null_mut()
    })
}

/// The result of a verb that returns -1.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    -c_int::from(code(result) != 0)
}

/// The result of a verb that returns a number, or a negative errno.
#[inline]
pub(crate) fn count(result: Result<u32, Errno>) -> c_int {
    result.map_or_else(|error| -set(error), |n| n as c_int)
}

/// Memory for an object: where the system, or a world, is short of it, `ENOMEM`.
pub(crate) fn memory() -> Result<(), Errno> {
    if host::is_short() { Err(ENOMEM) } else { Ok(crate::alloc::headroom()?) }
}

/// Memory for a list of requests: where a world is short of it, `ENOMEM`, and none is posted.
///
/// # Safety
/// `bad_wr` can be written.
#[inline(always)]
pub(crate) unsafe fn memory_of_post<T>(wr: *mut T, bad_wr: *mut *mut T) -> Result<(), Errno> {
    if host::is_post_short() {
        // SAFETY: the caller has checked `bad_wr` against NULL; the verb's contract lets it be written.
        unsafe { bad_wr.write(wr) };
        return Err(ENOMEM);
    }
    Ok(())
}

/// The name of an error.
pub(crate) fn name(error: Errno) -> String {
    let names = [
        (EBUSY, "EBUSY"),
        (EFAULT, "EFAULT"),
        (EINVAL, "EINVAL"),
        (ENOENT, "ENOENT"),
        (ENOMEM, "ENOMEM"),
        (EOPNOTSUPP, "EOPNOTSUPP"),
        (EPERM, "EPERM"),
    ];
    let known = names.iter().find(|(number, _)| *number == error);
    known.map_or_else(|| format!("errno {}", error.raw_os_error()), |(_, name)| (*name).into())
}

/// Sets the calling thread's `errno`; returns it.
#[cold]
pub(crate) fn set(error: Errno) -> c_int {
    let raw = error.raw_os_error();
    // SAFETY: the location is the calling thread's own, valid for its life.
    unsafe { *libc::__errno_location() = raw };
    raw
}
