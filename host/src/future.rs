//! Futures in a world, where no runtime can be: it would wait outside of the world. A thread polls
//! one future, and sleeps until something that the future waits for is there.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;

thread_local! {
    /// Descriptors and timers that the polled future waits for.
    static AWAITED: RefCell<Vec<OwnedFd>> = const { RefCell::new(Vec::new()) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether the calling thread polls a future by [`block_on`].
#[must_use]
pub fn is_running() -> bool {
    IS_RUNNING.get()
}

/// Wakes the thread that polls a future.
struct EventfdWaker(OwnedFd);

impl Wake for EventfdWaker {
    fn wake(self: Arc<Self>) {
        // A count that is full wakes, too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Polls a future until it is ready, or the deadline has passed: `None`. A future that is given up
/// is dropped.
///
/// # Errors
/// The system's: no descriptor is left.
pub fn block_on<F: Future>(future: F, deadline: Option<Instant>) -> io::Result<Option<F::Output>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let bell = Arc::new(EventfdWaker(eventfd(0, flags)?));
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        IS_RUNNING.set(true);
        let ready = future.as_mut().poll(&mut context);
        IS_RUNNING.set(false);
        let awaited = AWAITED.take();
        if let Poll::Ready(value) = ready {
            return Ok(Some(value));
        }
        if deadline.is_some_and(|at| crate::time::now() >= at) {
            return Ok(None);
        }
        let all = std::iter::once(&bell.0).chain(&awaited);
        let mut all: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match crate::fd::poll(&mut all, deadline) {
            // An interrupted wait: the future is polled once more.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&bell.0, &mut [0; 8]);
    }
}

/// Returns `Ready` if a descriptor has input. If not, the thread that polls the calling future goes
/// on when it has.
///
/// # Errors
/// The system's.
pub fn poll_readable(fd: impl AsFd) -> Poll<io::Result<()>> {
    let has_input = crate::fd::poll_at_once(&mut [PollFd::new(&fd, PollFlags::IN)]);
    let copied = match has_input {
        Ok(0) => fd.as_fd().try_clone_to_owned(),
        Ok(_) => return Poll::Ready(Ok(())),
        Err(e) => return Poll::Ready(Err(e.into())),
    };
    match copied {
        Ok(copy) => {
            AWAITED.with_borrow_mut(|awaited| awaited.push(copy));
            Poll::Pending
        }
        Err(e) => Poll::Ready(Err(e)),
    }
}
