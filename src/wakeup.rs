//! Waking a thread that sleeps on a completion channel for a reason that is not a
//! completion: a buffer was freed by another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use conn_core::park_flag::ParkFlag;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;

/// A sleeper's announcement and the descriptor that it sleeps on.
#[derive(Debug)]
pub(crate) struct EventfdWakeup {
    park_flag: ParkFlag,
    fd: OwnedFd,
    /// True if an announcement was made and not taken back. Only the sleeper uses it.
    announced: AtomicBool,
    /// Wake-ups that were decided upon and not taken from the descriptor. Only the sleeper uses it.
    owed: AtomicU64,
}

impl EventfdWakeup {
    pub(crate) fn new() -> std::io::Result<EventfdWakeup> {
        if host::is_short() {
            return Err(Errno::MFILE.into());
        }
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (announced, owed) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(EventfdWakeup { park_flag: ParkFlag::new(), fd, announced, owed })
    }

    /// Says that this thread is about to sleep. Look at the work once more after
    /// it, and sleep only when there is none. An earlier announcement that still stands, as of
    /// an event loop that continues with a call that waits, is taken back first.
    pub(crate) fn announce(&self) {
        self.retract();
        self.announced.store(true, Ordering::Relaxed);
        self.park_flag.announce();
        host::point();
    }

    /// Reports whether an announcement was made and not taken back.
    pub(crate) fn is_announced(&self) -> bool {
        // Relaxed: only this thread sets it.
        self.announced.load(Ordering::Relaxed)
    }

    /// Takes the announcement back, if there is one, and forgets any wakeup. Makes a system call
    /// only if there was one.
    #[inline]
    pub(crate) fn retract(&self) {
        if self.is_announced() || self.owed.load(Ordering::Relaxed) > 0 {
            self.take_back();
        }
    }

    fn take_back(&self) {
        // Relaxed: only this thread uses the count.
        let mut owed = self.owed.load(Ordering::Relaxed);
        // Not retracted: a waker came first.
        owed +=
            u64::from(self.announced.swap(false, Ordering::Relaxed) && !self.park_flag.retract());
        host::point();
        let mut written = [0; 8];
        // A waker may not have written yet (EAGAIN): it is owed until a later call.
        if owed > 0 && rustix::io::read(&self.fd, &mut written).is_ok() {
            owed = owed.saturating_sub(u64::from_ne_bytes(written));
        }
        self.owed.store(owed, Ordering::Relaxed);
    }

    /// Sleeps until a wakeup.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // An interrupted sleep ends early: the caller polls again.
        let _ = host::fd::poll(&mut fds, None);
    }

    /// Wakes the sleeper if there is one; call it after the work was published.
    /// The system call is made only for a thread that has announced its sleep.
    #[inline]
    pub(crate) fn wake(&self) {
        host::point();
        if self.park_flag.should_wake() {
            // The sleeper may take its announcement back before the write.
            host::point();
            // A full counter (EAGAIN) is a wakeup that has not been taken.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

impl AsFd for EventfdWakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
