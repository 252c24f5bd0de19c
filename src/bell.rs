//! Waking a thread that sleeps on a completion channel for a reason that is not a
//! completion: a buffer was freed by another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conn_core::sleeper::Sleeper;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// A sleeper's announcement and the descriptor that it sleeps on.
#[derive(Debug)]
pub(crate) struct Bell {
    sleeper: Sleeper,
    fd: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> std::io::Result<Bell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { sleeper: Sleeper::new(), fd })
    }

    /// Says that this thread is about to sleep. Look at the work once more after
    /// it, and sleep only when there is none.
    pub(crate) fn announce(&self) {
        self.sleeper.announce();
    }

    /// Takes the announcement back, and forgets whatever rang.
    pub(crate) fn retract(&self) {
        self.sleeper.retract();
        // Empty (EAGAIN) is the usual case; the value says nothing that we need.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// Sleeps until it rings.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // An interrupted sleep is a sleep that ends early: the caller looks again.
        let _ = poll(&mut fds, None);
    }

    /// Wakes the sleeper if there is one; call it after the work was published.
    /// The system call is made only for a thread that has announced its sleep.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.sleeper.should_wake() {
            // A full counter (EAGAIN) is a bell that already rings.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
