//! Cancellation of the program's threads (`pthread_cancel`).
//!
//! A thread with a pending cancellation is unwound from the next call of libc that is a cancellation point (`close`,
//! `open`, `read`, `nanosleep`) to its end. A verb in the middle of its work must not end there: Rust aborts the process
//! where that leaves a function that C has called, and locks would stay held. So verbs disable cancellation:
//!
//! | | |
//! |---|---|
//! | functions that the library exports, and a context's operations besides the data path | all of each ([`Uncancelled`]) |
//! | the data path | where it leaves its fast path: what it calls otherwise is no cancellation point (system calls without libc), and two calls for each post would cost a tenth of a short message |
//! | the waits for events | all but the wait itself, as in libibverbs, which waits in `read`: the library's functions call [`try_get_cq_event`] or [`try_get_async_event`], and wait without a frame of this crate on the stack |
//!
//! [`try_get_cq_event`]: crate::try_get_cq_event
//! [`try_get_async_event`]: crate::try_get_async_event

use core::ffi::c_int;

/// From `pthread.h`; the crate `libc` does not have it for glibc.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Cancellation of the calling thread is disabled while this exists. It stays in its thread.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
    /// A thread's own: neither `Send` nor `Sync`.
    _here: core::marker::PhantomData<*const ()>,
}

impl Uncancelled {
    /// Disables it.
    #[must_use]
    pub fn new() -> Uncancelled {
        let mut before = 0;
        // SAFETY: a state that exists, and the place for the previous one.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before, _here: core::marker::PhantomData }
    }
}

impl Default for Uncancelled {
    fn default() -> Uncancelled {
        Uncancelled::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut disabled = 0;
        // SAFETY: the state that the thread had, and the place for this one. It is no cancellation point.
        unsafe { pthread_setcancelstate(self.before, &raw mut disabled) };
    }
}

/// Result of an attempt to get an event: there is none yet, and the caller is to wait for the descriptor.
pub const WAITS: c_int = 1;
