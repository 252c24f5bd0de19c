//! Functions that the device does not offer, or that only providers of rdma-core call: each symbol
//! answers.
//!
//! These functions take no arguments. In the C calling convention the caller passes and removes
//! them, so that a function that ignores all of them stands for one of any arguments.

use core::ffi::{c_int, c_uint, c_void};

/// Stands for functions that return an errno.
pub(crate) extern "C" fn code() -> c_int {
    super::set_errno(libc::EOPNOTSUPP)
}

/// Stands for functions that return a count, or a negative value.
pub(crate) extern "C" fn count() -> c_int {
    super::minus_one(libc::EOPNOTSUPP)
}

/// Stands for functions that return an object.
pub(crate) extern "C" fn object() -> *mut c_void {
    super::set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// Stands for functions that return nothing.
pub(crate) extern "C" fn nothing() {}

/// Attributes of a command to the kernel, of which none is added to what the caller counts.
pub(crate) extern "C" fn ioctl_final_num_attrs(attrs: c_uint, _link: *mut c_void) -> c_uint {
    attrs
}
