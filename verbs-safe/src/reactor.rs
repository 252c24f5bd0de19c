//! A descriptor on the reactor of a tokio runtime (feature `tokio`).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor, and whether it has become readable. Each time that it has is told once: look for
/// what made it readable after that.
pub struct Readable {
    registered: AsyncFd<OwnedFd>,
}

impl Readable {
    /// Registers a descriptor with the runtime that runs the caller.
    ///
    /// # Errors
    /// The system's, as for a descriptor that cannot be polled.
    ///
    /// # Panics
    /// If no runtime runs the caller, or it has no reactor.
    pub fn new(descriptor: OwnedFd) -> io::Result<Readable> {
        // SAFETY: the descriptor is open until its owner is dropped, which is in the `AsyncFd`,
        // and no method here lends it mutably or gives it back: it is the same one for as long as
        // it is registered.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Readable { registered: registered? })
    }

    /// Ready once it has become readable since the last time; else the task is woken then.
    ///
    /// # Errors
    /// The runtime has been shut down.
    pub fn poll_became_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.registered.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// As [`poll_became_readable`](Readable::poll_became_readable); for any number of tasks.
    ///
    /// # Errors
    /// As it.
    pub async fn became_readable(&self) -> io::Result<()> {
        self.registered.readable().await?.clear_ready();
        Ok(())
    }
}

impl AsFd for Readable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registered.get_ref().as_fd()
    }
}

impl fmt::Debug for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readable").field(self.registered.get_ref()).finish()
    }
}
