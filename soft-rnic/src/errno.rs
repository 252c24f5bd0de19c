//! How verbs report failure: a positive errno, or a null pointer and `errno`.

use core::ffi::c_int;

pub(crate) use libc::{
    EAGAIN, EBUSY, EFAULT, EINVAL, ENODATA, ENODEV, ENOENT, ENOMEM, EOPNOTSUPP, EPERM,
};

/// What a function that returns an errno gives: 0 or the error.
#[inline]
pub(crate) fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// What a function that returns a pointer gives: the object, or null and `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T, c_int>) -> *mut T {
    result.unwrap_or_else(|error| {
        set(error);
        core::ptr::null_mut()
    })
}

/// What a function that returns -1 with `errno` gives.
pub(crate) fn minus_one(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set(error);
            -1
        }
    }
}

/// Memory for an object or a request: where a world is short of it, `ENOMEM`.
#[inline(always)]
pub(crate) fn memory() -> Result<(), c_int> {
    if host::is_short() { Err(ENOMEM) } else { Ok(()) }
}

/// Memory for a list of requests: where a world is short of it, `ENOMEM`, and none is posted.
///
/// # Safety
/// `bad_wr` can be written.
#[inline(always)]
pub(crate) unsafe fn memory_of_post<T>(wr: *mut T, bad_wr: *mut *mut T) -> Result<(), c_int> {
    if host::is_post_short() {
        // SAFETY: the caller has checked `bad_wr` against NULL; the verb's contract lets it be written.
        unsafe { bad_wr.write(wr) };
        return Err(ENOMEM);
    }
    Ok(())
}

/// Sets the calling thread's `errno`.
pub(crate) fn set(error: c_int) {
    // SAFETY: the location is the calling thread's own, valid for its life.
    unsafe { *libc::__errno_location() = error };
}
