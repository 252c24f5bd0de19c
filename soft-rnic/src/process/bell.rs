//! The bell with which others wake a process: a message queue without a name that has room for
//! one message, of no bytes.
//!
//! Whoever rings has the same open file as its owner, and as all who ring, and any of them can
//! change its flags or fill it between two calls of another one. So nobody relies on either: what
//! is sent, or taken, waits until a time that is long past. A bell that is full rings already.
//! An event counter has no such calls (one that another process fills and lets block holds up who
//! writes to it, and who reads it), and a socket, which has, takes a third longer to wake
//! somebody. That a descriptor is a message queue, the calls find out.

use core::ffi::CStr;
use core::ptr::null_mut;
use std::ffi::CString;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// When all waiting is over.
const PAST: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// The bell of this process.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, Errno> {
        // It is gone at once, and nobody who guesses it has opened it: it was new.
        let name = format!("/soft-rnic-{:x}", RandomState::new().hash_one(std::process::id()));
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let queue = open_new(&name)?;
        // SAFETY: a string that ends with a zero.
        unsafe { libc::mq_unlink(name.as_ptr()) };
        Ok(Bell(queue))
    }

    /// Rings for this process itself.
    pub(super) fn ring(&self) {
        ring(&self.0);
    }

    /// Silences it; whether it has rung.
    pub(super) fn answer(&self) -> bool {
        let mut byte = 0;
        let queue = self.0.as_raw_fd();
        // SAFETY: room for the longest message that the queue has, and a time.
        unsafe { libc::mq_timedreceive(queue, &raw mut byte, 1, null_mut(), &PAST) >= 0 }
    }
}

fn open_new(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: zeroes are a value.
    let mut attr: libc::mq_attr = unsafe { core::mem::zeroed() };
    (attr.mq_maxmsg, attr.mq_msgsize) = (1, 1);
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let mode: libc::c_uint = 0o600;
    // SAFETY: a string that ends with a zero, and what goes with `O_CREAT`.
    let queue = unsafe { libc::mq_open(name.as_ptr(), flags, mode, &raw mut attr) };
    if queue < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(error.unwrap_or(libc::EIO)));
    }
    // SAFETY: a descriptor that was just opened, and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(queue) })
}

/// Rings a bell. It never waits, whatever its owner does, and does nothing to a descriptor that
/// is none.
#[cold]
pub(super) fn ring(bell: &OwnedFd) {
    // SAFETY: a message of no bytes, and a time.
    unsafe { libc::mq_timedsend(bell.as_raw_fd(), c"".as_ptr(), 0, 0, &PAST) };
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{OFlags, fcntl_setfl};

    use crate::process::pair::NOW;

    fn rings(bell: &impl AsFd) -> bool {
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&NOW)).unwrap() > 0
    }

    #[test]
    fn a_bell_rings_until_it_is_answered() {
        let bell = Bell::new().unwrap();
        assert!(!rings(&bell) && !bell.answer());
        for _ in 0..3 {
            bell.ring();
        }
        assert!(rings(&bell) && bell.answer());
        assert!(!rings(&bell) && !bell.answer());
    }

    /// The flags are everybody's who has the bell.
    #[test]
    fn whatever_is_done_to_a_bell_neither_ringing_nor_answering_it_waits() {
        let bell = Bell::new().unwrap();
        for flags in [OFlags::empty(), OFlags::NONBLOCK] {
            fcntl_setfl(&bell, flags).unwrap();
            for _ in 0..3 {
                ring(&bell.0);
            }
            assert!(bell.answer() && !bell.answer());
        }
    }

    #[test]
    fn what_is_no_bell_is_not_touched() {
        let (end, pipe) = rustix::pipe::pipe().unwrap();
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        ring(&pipe);
        ring(&counter);
        assert!(!rings(&end) && !rings(&counter));
    }
}
