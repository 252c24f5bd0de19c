//! A thread that waits on a channel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use conn_core::leader::Interest;

use super::{Armed, ChannelInner};
use crate::errno::Errno;

/// A thread that waits; dropping it ends the wait.
pub(super) struct ChannelWaiter<'c> {
    channel: &'c ChannelInner,
    seat: u32,
    /// Descriptor that the thread sleeps on while it does not lead.
    wakeup: Option<Arc<OwnedFd>>,
}

/// The descriptor that a thread sleeps on.
pub(super) enum SleepDescriptor<'c> {
    /// It leads.
    Channel(&'c ChannelInner),
    Wakeup(Arc<OwnedFd>),
}

impl AsFd for SleepDescriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            SleepDescriptor::Channel(channel) => channel.as_fd(),
            SleepDescriptor::Wakeup(wakeup) => wakeup.as_fd(),
        }
    }
}

impl<'c> ChannelWaiter<'c> {
    pub(super) fn new(
        channel: &'c ChannelInner,
        armed: &[&Armed],
    ) -> Result<ChannelWaiter<'c>, Errno> {
        let interest = match armed {
            [one] => Interest::One(one.queue().into()),
            _ => Interest::Any,
        };
        let seat = channel.waiting.lock().join(interest);
        Ok(ChannelWaiter { channel, seat, wakeup: None })
    }

    /// If this thread leads, takes all pending events and wakes their threads. Returns the
    /// descriptor to sleep on if no event was for this thread: a later event makes it readable.
    pub(super) fn look(&mut self) -> Result<SleepDescriptor<'c>, Errno> {
        if let Some(wakeup) = &self.wakeup {
            // The counter may be 0: the wakeup was for another seat, or the descriptor is shared.
            let _ = rustix::io::read(wakeup, &mut [0; 8]);
        }
        let mut waiting = self.channel.waiting.lock();
        if !waiting.followers.leads(self.seat) {
            let wakeup = waiting.wakeup(self.seat)?;
            self.wakeup = Some(Arc::clone(&wakeup));
            return Ok(SleepDescriptor::Wakeup(wakeup));
        }
        while let Some(queue) = self.channel.take_event()? {
            waiting.followers.event(queue.into()).for_each(|seat| waiting.wake(seat));
        }
        Ok(SleepDescriptor::Channel(self.channel))
    }
}

impl Drop for ChannelWaiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.channel.waiting.lock();
        if let Some(next) = waiting.followers.leave(self.seat) {
            waiting.wake(next);
        }
    }
}
