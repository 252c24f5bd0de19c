//! Completion channels: sleeping until there is a completion.

mod inner;
mod waiter;
mod waiting;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use host::sync::Mutex;

use crate::descriptor::{deadline, make_nonblocking, wait_readable};
use crate::error::{CreateChannelError, WaitError};
use crate::object::context::Context;
use crate::object::pointer::ObjectPtr;
use waiter::ChannelWaiter;

pub use inner::Armed;
pub(crate) use inner::{ChannelInner, QueueEvents};

/// A channel on which armed completion queues announce their next completion.
///
/// An armed queue notifies once, and only of completions that arrive after it was armed. So no
/// completion is missed if one
///
/// 1. polls until the queue is empty;
/// 2. [arms](crate::CompletionQueue::arm) it;
/// 3. polls once more (what arrived between 1 and 2 causes no event), and if there was something,
///    begins again;
/// 4. [waits](Self::wait) with what arming has returned, and begins again.
///
/// Several threads may do so at once, for several queues of one channel or for the same one. Each
/// event wakes all threads that wait for its queue, and also those that have armed the queue and do
/// not wait yet. One thread takes the events for all; each other waiting thread needs a descriptor
/// of its own. The channel keeps these descriptors for later waits.
///
/// Clones are handles of the same channel.
///
/// ```
/// # use std::time::Duration;
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// use verbs_safe::CqConfig;
/// let channel = context.create_channel()?;
/// let queue = context.create_cq(CqConfig { channel: Some(&channel), ..CqConfig::new(16) })?;
/// let armed = queue.arm(false)?;
/// let woken = channel.wait(&armed, Some(Duration::ZERO))?;
/// assert!(!woken); // nothing has completed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CompletionChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

/// Reasons why [`CompletionChannel::wait_with`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// The armed completion queue of this index has had a completion.
    Completion(usize),
    /// The extra descriptor of this index is readable, or has hung up.
    Descriptor(usize),
    /// The time is over.
    Timeout,
}

impl Context {
    /// A completion channel.
    ///
    /// # Errors
    /// [`CreateChannelError`] with the system's reason.
    pub fn create_channel(&self) -> Result<CompletionChannel, CreateChannelError> {
        // SAFETY: `self.inner` keeps the context alive.
        let raw = unsafe { (self.inner.table.create_comp_channel)(self.inner.raw.as_ptr()) };
        let error = |errno| CreateChannelError { errno };
        let (raw, context) = (ObjectPtr::new(raw).map_err(error)?, self.inner.clone());
        let inner = Arc::new(ChannelInner { raw, context, waiting: Mutex::default() });
        make_nonblocking(inner.as_fd()).map_err(error)?;
        Ok(CompletionChannel { inner })
    }
}

impl CompletionChannel {
    /// Waits until a queue has had an event since it was armed; `false` when it had none for
    /// `timeout` (`None` waits for ever). It may return without need: a completion may have
    /// been polled already.
    ///
    /// # Errors
    /// [`WaitError`]: the queue is another channel's, or the system's reason.
    pub fn wait(&self, armed: &Armed, timeout: Option<Duration>) -> Result<bool, WaitError> {
        Ok(self.wait_with(&[armed], &[], timeout)? == Wakeup::Completion(0))
    }

    /// As [`wait`](Self::wait), for the first one of several queues. Also returns when one of
    /// `extra` is readable: a socket that the peer has closed, or an eventfd that wakes the thread.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_with(
        &self,
        armed: &[&Armed],
        extra: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<Wakeup, WaitError> {
        if armed.iter().any(|armed| !armed.belongs_to(&self.inner)) {
            return Err(WaitError::OtherChannel);
        }
        let deadline = deadline(timeout);
        let mut waiter = ChannelWaiter::new(&self.inner, armed)?;
        loop {
            let own = waiter.look()?;
            if let Some(index) = armed.iter().position(|armed| armed.has_fired()) {
                return Ok(Wakeup::Completion(index));
            }
            if timeout == Some(Duration::ZERO) && extra.is_empty() {
                return Ok(Wakeup::Timeout);
            }
            let fds: Vec<_> = std::iter::once(own.as_fd()).chain(extra.iter().copied()).collect();
            match wait_readable(&fds, deadline)? {
                None => return Ok(Wakeup::Timeout),
                Some(0) => {} // look, and wait again
                Some(i) => return Ok(Wakeup::Descriptor(i - 1)),
            }
        }
    }
}

impl AsFd for CompletionChannel {
    /// The descriptor that becomes readable with an event, for a program's own poll loop. Only wait
    /// on it, then call [`wait`](Self::wait) with a timeout of zero: events read from it directly
    /// are lost. Threads that share the channel use [`wait`](Self::wait) alone: it takes the events
    /// that make the descriptor readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

debug_shows!(CompletionChannel);
