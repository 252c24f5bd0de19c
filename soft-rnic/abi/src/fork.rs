//! Memory and fork: the device pins no pages, so that a child's copies do not take them away.

use core::ffi::{c_int, c_void};

pub(crate) extern "C" fn fork_init() -> c_int {
    0
}

pub(crate) extern "C" fn is_fork_initialized() -> c_int {
    const IBV_FORK_UNNEEDED: c_int = 2;
    IBV_FORK_UNNEEDED
}

/// `ibv_dontfork_range` and `ibv_dofork_range`.
pub(crate) extern "C" fn range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
