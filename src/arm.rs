//! Halves in an event loop of the program: the event to wait for before the next call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use host::fd::{start_timer, timer};
use rustix::event::epoll;
use rustix::io::Errno;
use verbs_safe::{Armed, CompletionChannel, WaitError};

use crate::keepalive::SHORTEST_KEEPALIVE;
use crate::wait::POLL_SLEEP;

/// Event that a program waits for before it calls a half again: the answer of
/// [`SendHalf::arm`](crate::SendHalf::arm) and [`RecvHalf::arm`](crate::RecvHalf::arm).
#[derive(Debug)]
#[must_use = "it says what to wait for"]
pub enum Arm<'a> {
    /// Call the half again now: something has arrived, or may have.
    Ready,
    /// Poll this descriptor for readability, and never read from it. Each half always returns the
    /// same one. It also becomes readable within `keepalive`, so that a silent peer is probed. Arm
    /// again after every other call on the half.
    Fd(BorrowedFd<'a>),
    /// No event exists: call again after this time, 200 µs (`poll` takes milliseconds and rounds
    /// that to none: use `ppoll`). With `WaitStrategy::Spin` it is no time at all.
    Poll(Duration),
}

/// The armed queues of a half, and the descriptors that tell of it.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    armed: Vec<Armed>,
    set: Option<EpollSet>,
    /// The channel that the set has: another one is added to it.
    watched: Option<CompletionChannel>,
    /// Since when nothing has arrived, as far as was looked.
    quiet_since: Option<Instant>,
}

/// One descriptor for all that wakes a half: its channel, maybe an eventfd, and a timer, since a
/// peer that has died without a trace makes nothing else readable.
#[derive(Debug)]
struct EpollSet {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Time when the timer runs out.
    due: Option<Instant>,
    /// Time of the last call that left the timer alone, since the timer was set.
    left_at: Option<Instant>,
}

impl Arming {
    /// Takes the event of the last arming, so that the channel is readable for the next one only.
    pub(crate) fn disarm(&mut self, channel: Option<&CompletionChannel>) -> Result<(), WaitError> {
        let Some(channel) = channel else { return Ok(()) };
        let armed = std::mem::take(&mut self.armed);
        let armed: Vec<&Armed> = armed.iter().collect();
        if armed.is_empty() || !self.watched.as_ref().is_some_and(|w| is_same(w, channel)) {
            return Ok(());
        }
        channel.wait_with(&armed, &[], Some(Duration::ZERO)).map(drop)
    }

    pub(crate) fn note(&mut self, armed: Armed) {
        self.armed.push(armed);
    }

    /// Reports whether nothing has arrived for a keepalive interval, once in each interval;
    /// `events` events have arrived since the last call.
    pub(crate) fn is_silent(&mut self, events: usize, keepalive: Duration) -> bool {
        let (now, keepalive) = (host::time::now(), keepalive.max(SHORTEST_KEEPALIVE));
        let since = self.quiet_since.filter(|_| events == 0);
        let is_silent = since.is_some_and(|since| now.duration_since(since) >= keepalive);
        self.quiet_since = Some(since.filter(|_| !is_silent).unwrap_or(now));
        is_silent
    }

    /// The descriptor, always the same: readable with an event of the channel, with `other`, and
    /// after `within`.
    pub(crate) fn descriptor(
        &mut self,
        channel: &CompletionChannel,
        other: Option<BorrowedFd<'_>>,
        within: Duration,
    ) -> io::Result<BorrowedFd<'_>> {
        let mut set = match self.set.take() {
            Some(set) => set,
            None => EpollSet::new(other)?,
        };
        // The channel is kept, so that no later one reuses its descriptor.
        if !self.watched.as_ref().is_some_and(|watched| is_same(watched, channel)) {
            match set.add(channel.as_fd()) {
                Ok(()) | Err(Errno::EXIST) => self.watched = Some(channel.clone()),
                Err(e) => return Err(e.into()),
            }
        }
        set.start(within)?;
        Ok(self.set.insert(set).epoll.as_fd())
    }
}

/// Reports whether both are the same channel.
pub(crate) fn is_same(one: &CompletionChannel, other: &CompletionChannel) -> bool {
    one.as_fd().as_raw_fd() == other.as_fd().as_raw_fd()
}

impl EpollSet {
    /// Upper limit of the timer, for keepalives that are longer.
    const DAY: Duration = Duration::from_secs(86_400);
    /// A shorter one would leave no time for anything but looks.
    const SHORTEST: Duration = POLL_SLEEP;

    fn new(other: Option<BorrowedFd<'_>>) -> io::Result<EpollSet> {
        if host::is_short() {
            return Err(Errno::MFILE.into());
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let set = EpollSet { epoll, timer: timer()?, due: None, left_at: None };
        set.add(set.timer.as_fd())?;
        if let Some(fd) = other {
            set.add(fd)?;
        }
        Ok(set)
    }

    fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
    }

    /// Makes the timer expire after `within` at the latest. Setting it is a system call, so a
    /// running timer that expires earlier is left alone. After it has expired, the next expiry is
    /// `within` after the last call that left it alone, since nothing may have arrived after that
    /// call.
    fn start(&mut self, within: Duration) -> io::Result<()> {
        let (now, within) = (host::time::now(), within.clamp(Self::SHORTEST, Self::DAY));
        let runs_until = self.due.filter(|due| *due > now);
        let due = match (runs_until, self.left_at) {
            (None, Some(before)) if before + within > now => before + within,
            _ => now + within,
        };
        if runs_until.is_some_and(|until| until <= due) {
            self.left_at = Some(now);
            return Ok(());
        }
        start_timer(&self.timer, due - now)?;
        (self.due, self.left_at) = (Some(due), None);
        Ok(())
    }
}
