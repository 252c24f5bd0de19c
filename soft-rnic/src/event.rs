//! Events: a queue behind a descriptor that poll and epoll accept.
//!
//! The descriptor is an eventfd that counts like a semaphore: one token for each
//! event of the queue. Taking an event reads a token first, so that blocking,
//! `O_NONBLOCK` and interruption are the kernel's, and then the queue's front.
//! Events of a destroyed object leave the queue, and their tokens the descriptor. Where a reader has
//! such a token already, it is *stale*: the reader drops it when it gets the lock, or the next push
//! uses it up. (Before Linux 5.8 a descriptor that blocks keeps stale tokens: the kernel has no read
//! that does not wait.)
//!
//! Invariant: tokens = events in the queue + stale tokens - readers that have a
//! token and not yet the lock; and without such readers no token is stale.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use core::ffi::c_int;
use host::fd::poll;
use host::sync::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::errno;

/// A queue of events, readable through a descriptor.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    /// What callers see instead, where something else has to wake them, too: a set of
    /// both. The eventfd itself then never blocks.
    shown: Option<Arc<OwnedFd>>,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    stale: usize,
}

impl<T> State<T> {
    /// Whether all tokens have been read.
    fn has_no_token(&self) -> bool {
        self.queue.is_empty() && self.stale == 0
    }
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<EventQueue<T>, Errno> {
        let fd = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        let state = Mutex::new(State { queue: VecDeque::new(), stale: 0 });
        Ok(EventQueue { fd, shown: None, state })
    }

    /// A queue whose descriptor another descriptor can make readable, too (see
    /// [`set`](Self::set)): it then reports input from a sender that cannot append an
    /// event itself, and [`take_or`](Self::take_or) has to look for it.
    pub(crate) fn extensible() -> Result<EventQueue<T>, Errno> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags)?;
        let shown = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&shown, &fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let state = Mutex::new(State { queue: VecDeque::new(), stale: 0 });
        Ok(EventQueue { fd, shown: Some(Arc::new(shown)), state })
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
        let mut state = self.state.lock();
        if !is_alive() {
            return;
        }
        state.queue.push_back(event);
        if state.stale > 0 {
            state.stale -= 1;
            return;
        }
        // A token is lost only if the counter is at 2^64 - 2: then there is no
        // reader, and the queue has the event all the same.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// [`push`](Self::push) of one of those events of which at most so many wait: the oldest of them makes room.
    pub(crate) fn push_latest(&self, event: T, most: usize, is_one: impl Fn(&T) -> bool) {
        let mut state = self.state.lock();
        let waiting = state.queue.iter().filter(|event| is_one(event)).count();
        if waiting >= most
            && let Some(oldest) = state.queue.iter().position(is_one)
        {
            state.queue.remove(oldest);
            state.stale += 1;
        }
        drop(state);
        self.push(event);
    }

    /// Takes the oldest event, as the descriptor's flags say: blocking or not.
    /// `on_take` runs before another thread can remove the event's object.
    pub(crate) fn take(&self, on_take: impl FnOnce(&T)) -> Result<T, Errno> {
        loop {
            // A read would say so, too, but is a system call.
            if self.shown.is_some() && self.state.lock().has_no_token() {
                return Err(errno::EAGAIN);
            }
            let mut token = [0_u8; 8];
            host::fd::before_read(&self.fd);
            rustix::io::read(&self.fd, &mut token)?;
            let mut state = self.state.lock();
            if let Some(event) = state.queue.pop_front() {
                on_take(&event);
                return Ok(event);
            }
            state.stale = state.stale.saturating_sub(1);
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

    /// Whether the caller set the descriptor to `O_NONBLOCK`.
    pub(crate) fn is_nonblocking(&self) -> bool {
        rustix::fs::fcntl_getfl(self.shown.as_deref().unwrap_or(&self.fd))
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Whether no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().queue.is_empty()
    }

    /// How many events wait.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Removes the events of an object that is about to go.
    pub(crate) fn remove(&self, is_of_object: impl Fn(&T) -> bool) {
        let mut state = self.state.lock();
        let before = state.queue.len();
        state.queue.retain(|event| !is_of_object(event));
        state.stale += before - state.queue.len();
        self.drain(&mut state);
    }

    /// Takes stale tokens out of the descriptor, as far as no reader has them.
    fn drain(&self, state: &mut State<T>) {
        let mut token = [0_u8; 8];
        let mut read = || {
            let room = &mut [IoSliceMut::new(&mut token)];
            // No offset: the descriptor has none.
            preadv2(&self.fd, room, u64::MAX, ReadWriteFlags::NOWAIT).is_ok()
        };
        while state.stale > 0 && read() {
            state.stale -= 1;
        }
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

    /// How many were handed out and not acknowledged.
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
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_kind_makes_room_and_its_token_is_used() {
        let queue = EventQueue::new().unwrap();
        let is_even = |event: &u32| event.is_multiple_of(2);
        queue.push(1);
        for event in [2, 4, 6, 8] {
            queue.push_latest(event, 2, is_even);
        }
        assert_eq!([(); 3].map(|()| queue.take(|_| {})), [Ok(1), Ok(6), Ok(8)]);
        assert!(queue.is_empty());
        assert!(!has_input(&queue));
    }

    fn has_input(queue: &EventQueue<u32>) -> bool {
        let mut input = [PollFd::new(&queue.fd, PollFlags::IN)];
        host::fd::poll_at_once(&mut input) == Ok(1)
    }

    fn is_odd(event: &u32) -> bool {
        !event.is_multiple_of(2)
    }

    #[test]
    fn a_token_goes_with_its_event() {
        for queue in [EventQueue::new(), EventQueue::extensible()].map(Result::unwrap) {
            for events in [&[1][..], &[1, 3], &[1, 2, 3], &[2, 1]] {
                events.iter().for_each(|event| queue.push(*event));
                queue.remove(is_odd);
                assert_eq!(has_input(&queue), events.contains(&2), "{events:?}");
                if events.contains(&2) {
                    assert_eq!(queue.take(|_| {}), Ok(2));
                }
                assert!(!has_input(&queue), "{events:?}");
            }
            queue.push_if(1, || false);
            assert!(queue.is_empty() && !has_input(&queue));
        }
    }

    /// Threads that take, append and withdraw, in an order that a seed decides: each event that stays
    /// wakes one that takes it, and in the end the descriptor has no input.
    #[cfg(feature = "simulation")]
    #[test]
    fn a_token_goes_with_its_event_in_any_order() {
        use core::sync::atomic::{AtomicU32, Ordering};
        use host::world::{Limits, Nature, run};
        const TAKERS: u32 = 2;
        /// It ends a thread that takes events.
        const END: u32 = 0;
        fn taker(queue: &EventQueue<u32>, left: &AtomicU32) {
            loop {
                match queue.take_or(|_| {}, |_| None::<OwnedFd>).unwrap() {
                    END => return,
                    event if is_odd(&event) => {}
                    // Relaxed: a count that guards no memory.
                    _ if left.fetch_sub(1, Ordering::Relaxed) > 1 => {}
                    _ => (0..TAKERS).for_each(|_| queue.push(END)),
                }
            }
        }
        let program = |queue: EventQueue<u32>| {
            let shared = Arc::new((queue, AtomicU32::new(4)));
            let mut threads = Vec::new();
            for _ in 0..TAKERS {
                let shared = Arc::clone(&shared);
                let take = move || taker(&shared.0, &shared.1);
                threads.push(host::thread::spawn("taker", take).unwrap());
            }
            let withdraws = Arc::clone(&shared);
            let withdraw = move || (0..6).for_each(|_| withdraws.0.remove(is_odd));
            threads.push(host::thread::spawn("withdrawer", withdraw).unwrap());
            (1..=8).for_each(|event| shared.0.push(event));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            shared.0.remove(is_odd);
            assert!(shared.0.is_empty() && !has_input(&shared.0));
        };
        for seed in 0..400 {
            for make in [EventQueue::new, EventQueue::extensible] {
                let in_world = move || program(make().unwrap());
                let (_, ended) = run(seed, Nature::default(), Limits::default(), in_world);
                ended.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            }
        }
    }
}
