//! Waiting for descriptors.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::time::timespec;

/// A timeout of no time: a look.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits until one of the descriptors has input or the deadline has passed, and returns how many
/// do; `None` is no deadline. The caller asks for input only.
///
/// # Errors
/// The system's, `EINTR` among them.
pub fn poll(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<usize, Errno> {
    #[cfg(feature = "world")]
    if crate::is_in_world() {
        crate::point();
        if crate::world::is_interrupted() {
            return Err(Errno::INTR);
        }
        return crate::world::wait_for_fds(fds, deadline);
    }
    let left = deadline.map(|at| timespec(at.saturating_duration_since(crate::time::now())));
    rustix::event::poll(fds, left.as_ref())
}

/// [`poll`] without waiting.
///
/// # Errors
/// The system's.
pub fn poll_at_once(fds: &mut [PollFd<'_>]) -> Result<usize, Errno> {
    crate::point();
    rustix::event::poll(fds, Some(&AT_ONCE))
}

/// Waits for events of an epoll instance, for `timeout` at most; `None` is no limit.
///
/// # Errors
/// The system's, `EINTR` among them.
pub fn epoll_wait(
    set: impl AsFd,
    events: &mut Vec<epoll::Event>,
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    #[cfg(feature = "world")]
    if crate::is_in_world() {
        crate::point();
        if crate::world::is_interrupted() {
            return Err(Errno::INTR);
        }
        let deadline = timeout.and_then(|time| crate::time::now().checked_add(time));
        let mut readable = [PollFd::new(&set, rustix::event::PollFlags::IN)];
        crate::world::wait_for_fds(&mut readable, deadline)?;
        return epoll::wait(&set, rustix::buffer::spare_capacity(events), Some(&AT_ONCE));
    }
    let timeout = timeout.map(timespec);
    epoll::wait(set, rustix::buffer::spare_capacity(events), timeout.as_ref())
}

/// An event of an epoll instance that is there already.
///
/// # Errors
/// The system's.
pub fn epoll_at_once(set: impl AsFd) -> Result<Option<epoll::Event>, Errno> {
    crate::point();
    let mut room = [MaybeUninit::uninit()];
    let (events, _) = epoll::wait(set, &mut room, Some(&AT_ONCE))?;
    Ok(events.first().copied())
}

/// A timer that is readable after a time.
///
/// # Errors
/// The system's: no descriptor is left.
pub fn timer() -> std::io::Result<OwnedFd> {
    #[cfg(feature = "world")]
    if crate::is_in_world() {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        return Ok(rustix::event::eventfd(0, flags)?);
    }
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Starts a [`timer`] anew.
///
/// # Errors
/// The system's.
pub fn start_timer(timer: impl AsFd, after: Duration) -> std::io::Result<()> {
    #[cfg(feature = "world")]
    if crate::is_in_world() {
        return crate::world::start_timer(timer.as_fd(), after);
    }
    // No time at all would stop it.
    let it_value = timespec(after.max(Duration::from_nanos(1)));
    let once = Itimerspec { it_interval: AT_ONCE, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

/// Before a read of a descriptor that blocks: in a world, waits until it is readable. The host's
/// read waits anyway.
#[inline]
pub fn before_read(fd: impl AsFd) {
    #[cfg(feature = "world")]
    if crate::is_in_world() && blocks(&fd) {
        let mut readable = [PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let _ = crate::world::wait_for_fds(&mut readable, None);
    }
    #[cfg(not(feature = "world"))]
    let _ = fd;
}

/// [`before_read`] for `time` at most.
///
/// # Errors
/// `TimedOut`: in a world, there is no input. The host's read reports its own timeout.
#[inline]
pub fn before_read_within(fd: impl AsFd, time: Duration) -> std::io::Result<()> {
    #[cfg(feature = "world")]
    if crate::is_in_world() {
        let mut readable = [PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let deadline = crate::time::now().checked_add(time);
        if crate::world::wait_for_fds(&mut readable, deadline)? == 0 {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
    #[cfg(not(feature = "world"))]
    let _ = (fd, time);
    Ok(())
}

/// Reports whether reads of a descriptor wait.
#[cfg(feature = "world")]
fn blocks(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK))
}
