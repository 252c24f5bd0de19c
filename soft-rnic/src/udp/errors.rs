//! Errors of system calls.

use rustix::io::Errno;

/// The error of the call that has just failed.
pub(super) fn last_error() -> Errno {
    let error = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(error.unwrap_or(libc::EIO))
}
