//! The threads that wait on a channel: one takes the events for all of them
//! ([`conn_core::leader`]), and each of the others sleeps on a descriptor of its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use conn_core::leader::{Followers, Interest, Seat};
use rustix::event::{EventfdFlags, eventfd};

use crate::errno::Errno;

/// The threads that wait, and the descriptor that wakes the thread of each seat.
#[derive(Debug, Default)]
pub(crate) struct WaitingThreads {
    pub(super) followers: Followers<Vec<Seat>>,
    /// By seat; made when a follower first needs it, and kept.
    wakeups: Vec<Option<Arc<OwnedFd>>>,
}

impl WaitingThreads {
    pub(super) fn join(&mut self, interest: Interest) -> u32 {
        loop {
            if let Some(seat) = self.followers.join(interest) {
                return seat;
            }
            self.followers.seats().push(Seat::default());
            self.wakeups.push(None);
        }
    }

    /// Returns the descriptor that the follower of a seat sleeps on, and makes it first if need be.
    pub(super) fn wakeup(&mut self, seat: u32) -> Result<Arc<OwnedFd>, Errno> {
        let wakeup = &mut self.wakeups[seat as usize];
        if wakeup.is_none() {
            *wakeup = Some(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        }
        wakeup.clone().ok_or(Errno::EINVAL)
    }

    /// Wakes the thread of a seat. One that has no descriptor has not slept yet: it looks
    /// under the lock before it does.
    pub(super) fn wake(&self, seat: u32) {
        if let Some(wakeup) = &self.wakeups[seat as usize] {
            // It fails only if the counter is full; then the descriptor is readable anyway.
            let _ = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
        }
    }
}
