//! Importing a device.

use std::os::fd::{BorrowedFd, IntoRawFd};

use soft_rnic::import_device;
use verbs_sys::ibv_context;

use super::Net;

/// The command descriptor of an open device.
pub fn command(net: &Net) -> BorrowedFd<'_> {
    // SAFETY: it is open as long as the context.
    unsafe { BorrowedFd::borrow_raw((*net.ctx).cmd_fd) }
}

/// Imports the device by a duplicate of its descriptor.
pub fn imported(net: &Net) -> *mut ibv_context {
    let copy = command(net).try_clone_to_owned().unwrap().into_raw_fd();
    // SAFETY: the descriptor is the context's from now on.
    let context = unsafe { import_device(copy) };
    assert!(!context.is_null());
    // SAFETY: both are open.
    unsafe { assert_eq!(((*context).cmd_fd, (*context).device), (copy, (*net.ctx).device)) };
    context
}
