//! The reason that a verb gave.

use std::fmt;

/// An errno value, shown as the system's text for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// Out of memory, or of room in a queue.
    pub const ENOMEM: Errno = Errno(libc::ENOMEM);
    /// An argument or an attribute that does not fit.
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const EFBIG: Errno = Errno(libc::EFBIG);
    pub(crate) const EMFILE: Errno = Errno(libc::EMFILE);
    pub(crate) const EAGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const EINTR: Errno = Errno(libc::EINTR);
    pub(crate) const ENOSYS: Errno = Errno(libc::ENOSYS);

    /// The number, as in `errno.h`.
    #[must_use]
    pub fn raw(self) -> i32 {
        self.0
    }

    /// The calling thread's errno: for verbs that return a pointer.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Checks a verb's integer result. Most verbs return a positive errno; some providers return -1
    /// and set errno, or a negative errno.
    #[inline]
    pub(crate) fn check(result: i32) -> Result<(), Errno> {
        match result {
            0 => Ok(()),
            failed => Err(Errno::from_result(failed)),
        }
    }

    #[cold]
    pub(crate) fn from_result(result: i32) -> Errno {
        match result {
            -1 => Errno::last(),
            negative if negative < 0 => Errno(negative.saturating_neg()),
            positive => Errno(positive),
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}

/// Reports an object that could not be destroyed. It is leaked, with all that it
/// uses: the device may still write there.
#[cold]
pub(crate) fn leaked(what: &str, errno: Errno) {
    tracing::error!("{what} could not be destroyed and is leaked: {errno}");
}

#[cfg(test)]
mod tests;
