//! The waits for events, which are cancellation points, as libibverbs's are.
//!
//! A thread that is cancelled while it waits is unwound from [`poll`] through the frames of this module, into the
//! program. So these functions are `extern "C-unwind"`, and have nothing to drop while they wait. What happens before
//! and after the wait is no cancellation point: no event is lost, and no lock stays held. (libibverbs waits in `read`.
//! That takes the event from the kernel, which this process does itself, and `poll` changes nothing.)

use core::ffi::{c_int, c_void};

use soft_rnic::{WAITS, try_get_async_event, try_get_cq_event};
use verbs_sys::*;

// libc's functions, which may unwind.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn poll(fds: *mut libc::pollfd, n: libc::nfds_t, timeout: c_int) -> c_int;
}

pub(crate) unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let mut fd = -1;
    // SAFETY: the caller's channel and places; nothing is dropped on the way out of this frame.
    unsafe {
        // As a read does, also where an event is there.
        pthread_testcancel();
        loop {
            match try_get_cq_event(channel, cq, cq_context, &raw mut fd) {
                WAITS if wait(fd) => {}
                WAITS => return -1,
                result => return result,
            }
        }
    }
}

pub(crate) unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let mut fd = -1;
    // SAFETY: as in `get_cq_event`.
    unsafe {
        pthread_testcancel();
        loop {
            match try_get_async_event(context, event, &raw mut fd) {
                WAITS if wait(fd) => {}
                WAITS => return -1,
                result => return result,
            }
        }
    }
}

/// Waits until there is input; false, with `errno`, if a signal arrived.
///
/// # Safety
/// No frame between the program and this one has anything to drop: the thread may be cancelled here.
unsafe fn wait(fd: c_int) -> bool {
    let mut input = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, in this frame.
    unsafe { poll(&raw mut input, 1, -1) >= 0 }
}
