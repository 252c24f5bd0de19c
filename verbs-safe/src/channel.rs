//! Completion channels: sleeping until there is a completion.

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbs_sys::ibv_comp_channel;

use crate::context::{Context, ContextInner};
use crate::cq::CqEvents;
use crate::descriptor::{deadline, make_nonblocking, wait_readable};
use crate::errno::{Errno, leaked};
use crate::error::{CreateChannelError, WaitError};

/// Events of one completion queue that are acknowledged together: it costs a
/// system-wide lock each time.
const ACK_BATCH: u32 = 64;

/// Where completion queues that are armed tell of their next completion.
///
/// An armed queue tells once, and only of completions that come after it was
/// armed. So no completion is missed if one
///
/// 1. polls until the queue is empty;
/// 2. [arms](crate::CompletionQueue::arm) it;
/// 3. polls once more (what came between 1 and 2 causes no event), and if there
///    was something, begins again;
/// 4. [waits](Self::wait), and begins again.
///
/// Clones are handles of the same channel.
///
/// ```
/// # use std::time::Duration;
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// let channel = context.create_channel()?;
/// let woken = channel.wait(Some(Duration::ZERO))?;
/// assert!(!woken); // nothing is armed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CompletionChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

pub(crate) struct ChannelInner {
    pub(crate) raw: NonNull<ibv_comp_channel>,
    pub(crate) context: ManuallyDrop<Arc<ContextInner>>,
    /// Held while an event is taken or a queue is destroyed: a queue is then not
    /// destroyed between the taking of its event and the counting of it.
    taking: Mutex<()>,
}

// SAFETY: verbs on a channel may be called from any thread.
unsafe impl Send for ChannelInner {}
// SAFETY: as above.
unsafe impl Sync for ChannelInner {}

/// Why [`CompletionChannel::wait_with`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// An armed completion queue has had a completion.
    Completion,
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
        // SAFETY: the context is alive.
        let raw = unsafe { (self.inner.table.create_comp_channel)(self.inner.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| CreateChannelError { errno: Errno::last() })?;
        let context = ManuallyDrop::new(self.inner.clone());
        let inner = Arc::new(ChannelInner { raw, context, taking: Mutex::new(()) });
        make_nonblocking(inner.as_fd()).map_err(|errno| CreateChannelError { errno })?;
        Ok(CompletionChannel { inner })
    }
}

impl CompletionChannel {
    /// Waits until an armed queue has had a completion; `false` when none had for
    /// `timeout` (`None` waits for ever). All events that are there are taken.
    ///
    /// # Errors
    /// [`WaitError`] with the system's reason.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, WaitError> {
        Ok(self.wait_with(&[], timeout)? == Wakeup::Completion)
    }

    /// As [`wait`](Self::wait), and also returns when one of `extra` is readable: a
    /// socket whose hang-up tells that the peer is gone, an eventfd that wakes the
    /// thread.
    ///
    /// # Errors
    /// [`WaitError`] with the system's reason.
    pub fn wait_with(
        &self,
        extra: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<Wakeup, WaitError> {
        let error = |errno| WaitError { errno };
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(self.inner.as_fd()).chain(extra.iter().copied()).collect();
        let deadline = deadline(timeout);
        loop {
            if self.inner.take_events().map_err(error)? {
                return Ok(Wakeup::Completion);
            }
            match wait_readable(&fds, deadline).map_err(error)? {
                None => return Ok(Wakeup::Timeout),
                Some(0) => {} // or another thread was faster: look, and wait again
                Some(i) => return Ok(Wakeup::Descriptor(i - 1)),
            }
        }
    }
}

impl AsFd for CompletionChannel {
    /// The descriptor that becomes readable with an event, for a program's own poll
    /// loop. Only wait on it, then call [`wait`](Self::wait) with a timeout of zero:
    /// what is read from it directly is lost.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsFd for ChannelInner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl ChannelInner {
    /// Takes all events that are there, without blocking; whether there was one.
    fn take_events(&self) -> Result<bool, Errno> {
        let mut taken = false;
        while self.take_event()? {
            taken = true;
        }
        Ok(taken)
    }

    fn take_event(&self) -> Result<bool, Errno> {
        let (mut cq, mut tag) = (null_mut(), null_mut());
        let table = &self.context.table;
        let _taking = self.lock();
        // SAFETY: the channel is alive, both places are writable.
        if unsafe { (table.get_cq_event)(self.raw.as_ptr(), &mut cq, &mut tag) } != 0 {
            return match Errno::last() {
                Errno::EAGAIN | Errno::EINTR => Ok(false),
                errno => Err(errno),
            };
        }
        // SAFETY: the queue's owner keeps the tag until the queue has been destroyed,
        // which it does under the lock that is held here.
        let events = unsafe { &*tag.cast::<CqEvents>() };
        // Relaxed: only touched under the lock.
        let unacknowledged = events.unacknowledged.load(Ordering::Relaxed) + 1;
        let acknowledge = unacknowledged >= ACK_BATCH;
        events
            .unacknowledged
            .store(if acknowledge { 0 } else { unacknowledged }, Ordering::Relaxed);
        if acknowledge {
            // SAFETY: as above; as many events were taken.
            unsafe { (table.ack_cq_events)(cq, unacknowledged) };
        }
        Ok(true)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: every queue that uses the channel holds it, so that none is left.
        let result = unsafe { (self.context.table.destroy_comp_channel)(self.raw.as_ptr()) };
        match Errno::check(result) {
            // SAFETY: dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.context) },
            Err(errno) => leaked("a completion channel", errno),
        }
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").finish_non_exhaustive()
    }
}
