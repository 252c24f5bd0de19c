//! Waiting on descriptors.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::errno::Errno;

pub(crate) fn make_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// When a wait of `timeout` is over; `None` is never, as is a time beyond the clock's range.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|t| Instant::now().checked_add(t))
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
        let left = deadline.map(|d| timespec(d.saturating_duration_since(Instant::now())));
        match poll(&mut polled, left.as_ref()).map_err(Errno::from) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(polled.iter().position(|p| !p.revents().is_empty())),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
