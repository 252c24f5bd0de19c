//! Waking a thread that sleeps on a completion channel for a reason that is not a
//! completion: a buffer was freed by another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conn_core::park_flag::ParkFlag;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// A sleeper's announcement and the descriptor that it sleeps on.
#[derive(Debug)]
pub(crate) struct Wakeup {
    park_flag: ParkFlag,
    fd: OwnedFd,
}

impl Wakeup {
    pub(crate) fn new() -> std::io::Result<Wakeup> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wakeup { park_flag: ParkFlag::new(), fd })
    }

    /// Says that this thread is about to sleep. Look at the work once more after
    /// it, and sleep only when there is none.
    pub(crate) fn announce(&self) {
        self.park_flag.announce();
    }

    /// Takes the announcement back, and forgets any wakeup.
    pub(crate) fn retract(&self) {
        self.park_flag.retract();
        // Empty (EAGAIN) is the usual case; the value says nothing that we need.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// Sleeps until a wakeup.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // An interrupted sleep is a sleep that ends early: the caller looks again.
        let _ = poll(&mut fds, None);
    }

    /// Wakes the sleeper if there is one; call it after the work was published.
    /// The system call is made only for a thread that has announced its sleep.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.park_flag.should_wake() {
            // A full counter (EAGAIN) is a wakeup that has not been taken.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
