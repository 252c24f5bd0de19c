//! A descriptor on the reactor of a tokio runtime (feature `tokio`).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor, and whether it has become readable. Each readiness is reported once: take all that
/// made it readable after that.
pub struct Readable {
    registered: DescriptorRegistration,
}

/// Registration of a descriptor: with a runtime, or in a world.
enum DescriptorRegistration {
    Runtime(AsyncFd<OwnedFd>),
    /// In a world, with the thread that polls the task.
    World(OwnedFd),
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
        if host::is_in_world() {
            return Ok(Readable { registered: DescriptorRegistration::World(descriptor) });
        }
        // SAFETY: the descriptor is open until its owner is dropped, which is in the `AsyncFd`,
        // and no method here lends it mutably or gives it back: it is the same one for as long as
        // it is registered.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Readable { registered: DescriptorRegistration::Runtime(registered?) })
    }

    /// Ready once it has become readable since the last time; else the task is woken then.
    ///
    /// # Errors
    /// The runtime has been shut down.
    pub fn poll_became_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.registered {
            DescriptorRegistration::Runtime(registered) => {
                ready!(registered.poll_read_ready(cx))?.clear_ready();
                Poll::Ready(Ok(()))
            }
            DescriptorRegistration::World(descriptor) => host::future::poll_readable(descriptor),
        }
    }

    /// As [`poll_became_readable`](Readable::poll_became_readable); for any number of tasks.
    ///
    /// # Errors
    /// As it.
    pub async fn became_readable(&self) -> io::Result<()> {
        match &self.registered {
            DescriptorRegistration::Runtime(registered) => {
                registered.readable().await?.clear_ready();
                Ok(())
            }
            DescriptorRegistration::World(descriptor) => {
                std::future::poll_fn(|_| host::future::poll_readable(descriptor)).await
            }
        }
    }
}

impl AsFd for Readable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.registered {
            DescriptorRegistration::Runtime(registered) => registered.get_ref().as_fd(),
            DescriptorRegistration::World(descriptor) => descriptor.as_fd(),
        }
    }
}

impl fmt::Debug for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readable").field(&self.as_fd()).finish()
    }
}
