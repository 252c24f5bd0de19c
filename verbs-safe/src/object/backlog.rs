//! Asynchronous events that were taken for a queue pair's sake, and wait for a caller that
//! asks for all of them.

use host::sync::{Mutex, OnceLock};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::errno::Errno;
use crate::object::event::AsyncEvent;

/// Events that are kept at most; the oldest are forgotten.
const MOST: usize = 1024;

/// The events, and a descriptor for callers that wait for one.
///
/// Invariant: once there is a descriptor, it has a token for each event.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    events: Mutex<VecDeque<AsyncEvent>>,
    wakeup: OnceLock<OwnedFd>,
}

impl Backlog {
    pub(crate) fn put(&self, event: AsyncEvent) {
        let mut events = self.events.lock();
        if events.len() == MOST {
            events.pop_front();
        } else if let Some(wakeup) = self.wakeup.get() {
            // It cannot fail: the counter has room for all tokens.
            let _ = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
        }
        events.push_back(event);
    }

    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        if let Some(wakeup) = self.wakeup.get() {
            let _ = rustix::io::read(wakeup, &mut [0; 8]);
        }
        Some(event)
    }

    /// Readable as long as there is an event.
    pub(crate) fn wakeup(&self) -> Result<BorrowedFd<'_>, Errno> {
        let events = self.events.lock();
        if self.wakeup.get().is_none() {
            let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            // The lock is held: no other thread sets it.
            let _ = self.wakeup.set(eventfd(events.len() as u32, flags)?);
        }
        self.wakeup.get().map(AsFd::as_fd).ok_or(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests;
