//! Waiting on descriptors.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::errno::Errno;

pub(crate) fn make_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Returns the time at which a wait of `timeout` is over; `None` is never, as is a time beyond the
/// clock's range.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|t| host::time::now().checked_add(t))
}

/// The index of the first descriptor that is readable (or has hung up), `None` after
/// the deadline.
pub(crate) fn wait_readable(
    fds: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> Result<Option<usize>, Errno> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        match host::fd::poll(&mut polled, deadline).map_err(Errno::from) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(polled.iter().position(|p| !p.revents().is_empty())),
        }
    }
}
