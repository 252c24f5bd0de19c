//! Events: a queue behind a descriptor that poll and epoll accept.
//!
//! The descriptor is an eventfd that counts like a semaphore: one token for each
//! event of the queue, which is written and read under the lock under which the event
//! is added and removed. A reader that finds none waits until the descriptor is readable, and
//! looks again. Events of a destroyed object leave the queue, and their tokens with them.
//!
//! Invariant, under the lock: tokens = events in the queue, unless the program has read some.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use core::ffi::c_int;
use host::fd::{poll, poll_at_once};
use host::sync::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::errno;

/// A queue of events, readable through a descriptor.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    /// Descriptor that callers see instead, where something else has to wake them, too: a set of
    /// both. The eventfd itself then never blocks.
    shown: Option<Arc<OwnedFd>>,
    queue: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<EventQueue<T>, Errno> {
        let fd = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        Ok(EventQueue { fd, shown: None, queue: Mutex::default() })
    }

    /// A queue whose descriptor another descriptor can make readable, too (see
    /// [`set`](Self::set)): it then reports input from a sender that cannot append an
    /// event itself, and [`take_or`](Self::take_or) has to look for it.
    pub(crate) fn extensible() -> Result<EventQueue<T>, Errno> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags)?;
        let shown = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&shown, &fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(EventQueue { fd, shown: Some(Arc::new(shown)), queue: Mutex::default() })
    }

    /// The set that callers see as the descriptor, if it can be extended.
    pub(crate) fn set(&self) -> Option<&Arc<OwnedFd>> {
        self.shown.as_ref()
    }

    /// The descriptor, for the caller to poll.
    pub(crate) fn raw_fd(&self) -> c_int {
        self.shown.as_deref().unwrap_or(&self.fd).as_raw_fd()
    }

    /// Appends an event and wakes a reader.
    pub(crate) fn push(&self, event: T) {
        self.push_if(event, || true);
    }

    /// [`push`](Self::push), unless the event's object is gone. It is asked for under the lock: an
    /// object that says so before it [removes](Self::remove) its events has none afterwards.
    pub(crate) fn push_if(&self, event: T, is_alive: impl FnOnce() -> bool) {
        let mut queue = self.queue.lock();
        if is_alive() {
            self.append(&mut queue, event);
        }
    }

    fn append(&self, queue: &mut VecDeque<T>, event: T) {
        queue.push_back(event);
        // A token is lost only if the counter is at 2^64 - 2: then there is no
        // reader, and the queue has the event all the same.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// [`push`](Self::push) of one of those events of which at most `most` wait: the oldest of
    /// them makes room.
    pub(crate) fn push_latest(&self, event: T, most: usize, is_one: impl Fn(&T) -> bool) {
        let mut queue = self.queue.lock();
        let waiting = queue.iter().filter(|event| is_one(event)).count();
        if waiting >= most
            && let Some(oldest) = queue.iter().position(is_one)
        {
            queue.remove(oldest);
            self.read_token();
        }
        self.append(&mut queue, event);
    }

    /// Takes the oldest event, as the descriptor's flags say: blocking or not.
    /// `on_take` runs before another thread can remove the event's object.
    pub(crate) fn take(&self, on_take: impl Fn(&T)) -> Result<T, Errno> {
        loop {
            if let Some(event) = self.try_take(&on_take) {
                return Ok(event);
            }
            if self.shown.is_some() || self.is_nonblocking() {
                return Err(errno::EAGAIN);
            }
            poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None)?;
        }
    }

    /// Takes the oldest event if there is one, and never waits.
    pub(crate) fn try_take(&self, on_take: impl FnOnce(&T)) -> Option<T> {
        let mut queue = self.queue.lock();
        let event = queue.pop_front()?;
        self.read_token();
        on_take(&event);
        Some(event)
    }

    /// Returns the event that a call without a wait has taken, or the descriptor to wait for before the next call;
    /// `EAGAIN` if the program does not want to wait.
    pub(crate) fn taken_or_fd(&self, taken: Option<T>) -> Result<Result<T, c_int>, Errno> {
        match taken {
            Some(event) => Ok(Ok(event)),
            None if self.is_nonblocking() => Err(errno::EAGAIN),
            None => Ok(Err(self.raw_fd())),
        }
    }

    /// Reads a token; the lock is held.
    fn read_token(&self) {
        let mut own = [PollFd::new(&self.fd, PollFlags::IN)];
        // A descriptor that the program sees it may have read, and a read would wait then.
        if self.shown.is_some() || poll_at_once(&mut own) == Ok(1) {
            let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        }
    }

    /// [`take`](Self::take); `look` is called whenever there is no event, before the wait.
    /// Its argument says whether this call is going to wait; if so, the descriptor that
    /// it returns ends the wait, too.
    pub(crate) fn take_or<W: AsFd>(
        &self,
        on_take: impl Fn(&T),
        look: impl Fn(bool) -> Option<W>,
    ) -> Result<T, Errno> {
        if self.shown.is_none() {
            return self.take(on_take);
        }
        loop {
            match self.take(&on_take) {
                Err(errno::EAGAIN) => {}
                taken => return taken,
            }
            let blocks = !self.is_nonblocking();
            let watched = look(blocks);
            match self.take(&on_take) {
                Err(errno::EAGAIN) if blocks => {}
                taken => return taken,
            }
            let own = PollFd::new(&self.fd, PollFlags::IN);
            let woken = match &watched {
                Some(other) => poll(&mut [own, PollFd::new(other, PollFlags::IN)], None),
                None => poll(&mut [own], None),
            };
            woken?;
        }
    }

    /// Reports whether the caller set the descriptor to `O_NONBLOCK`.
    pub(crate) fn is_nonblocking(&self) -> bool {
        rustix::fs::fcntl_getfl(self.shown.as_deref().unwrap_or(&self.fd))
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Reports whether no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Returns the number of events that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Removes the events of an object that is about to go.
    pub(crate) fn remove(&self, is_of_object: impl Fn(&T) -> bool) {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(|event| !is_of_object(event));
        (queue.len()..before).for_each(|_| self.read_token());
    }
}

/// Events of one object that were handed out, and how many were acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// `acked <= got`; the object may go when they are equal.
    counts: Mutex<(u32, u32)>,
    all_acked: Condvar,
}

impl Acks {
    /// One more was handed out.
    pub(crate) fn got(&self) {
        let mut counts = self.counts.lock();
        counts.0 = counts.0.wrapping_add(1);
    }

    /// `n` more were acknowledged (never more than were handed out).
    pub(crate) fn ack(&self, n: u32) {
        let mut counts = self.counts.lock();
        counts.1 = counts.1.wrapping_add(n.min(counts.0.wrapping_sub(counts.1)));
        self.all_acked.notify_all();
    }

    /// Returns the number of events that were handed out and not acknowledged.
    pub(crate) fn outstanding(&self) -> u32 {
        let counts = self.counts.lock();
        counts.0.wrapping_sub(counts.1)
    }

    /// Waits until every event that was handed out is acknowledged.
    pub(crate) fn wait(&self) {
        let mut counts = self.counts.lock();
        while counts.0 != counts.1 {
            self.all_acked.wait(&mut counts);
        }
    }
}

#[cfg(test)]
mod tests;
