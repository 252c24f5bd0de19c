//! A channel, the events of its queues, and armed queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use host::sync::Mutex;

use verbs_sys::ibv_comp_channel;

use super::waiting::WaitingThreads;
use crate::errno::Errno;
use crate::object::context::ContextInner;
use crate::object::pointer::{ObjectPtr, destroyed};

/// Events of one completion queue that are acknowledged together: it costs a
/// system-wide lock each time.
const ACK_BATCH: u32 = 64;

pub(crate) struct ChannelInner {
    pub(crate) raw: ObjectPtr<ibv_comp_channel>,
    pub(crate) context: Arc<ContextInner>,
    /// Held while an event is taken or a queue is destroyed: a queue is then not
    /// destroyed between the taking of its event and the counting of it.
    pub(crate) waiting: Mutex<WaitingThreads>,
}

/// Events of a completion queue that has a channel. The queue's context pointer points to this.
pub(crate) struct QueueEvents {
    /// Names the queue among those of the process.
    pub(crate) number: u32,
    /// Completion events taken and not acknowledged yet; only used under the channel's lock.
    unacknowledged: AtomicU32,
    /// Completion events taken, ever; counted under the channel's lock.
    taken: AtomicU64,
}

/// Record that a completion queue was armed, which a [wait](crate::CompletionChannel::wait) for its
/// next event needs.
#[derive(Clone)]
#[must_use = "an armed queue is waited for with this"]
pub struct Armed {
    queue: Arc<QueueEvents>,
    channel: Arc<ChannelInner>,
    /// Events that had been taken before the queue was armed.
    before: u64,
}

impl AsFd for ChannelInner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl QueueEvents {
    pub(crate) fn new(number: u32) -> Arc<QueueEvents> {
        let (unacknowledged, taken) = (AtomicU32::new(0), AtomicU64::new(0));
        Arc::new(QueueEvents { number, unacknowledged, taken })
    }

    /// Counts an event; returns the number of events to acknowledge, once per `ACK_BATCH`.
    fn count(&self) -> Option<u32> {
        // Relaxed: both change only under the channel's lock, and the poll of the queue orders the
        // accesses to its completions.
        self.taken.fetch_add(1, Ordering::Relaxed);
        let unacknowledged = self.unacknowledged.load(Ordering::Relaxed) + 1;
        let acknowledge = unacknowledged >= ACK_BATCH;
        self.unacknowledged.store(if acknowledge { 0 } else { unacknowledged }, Ordering::Relaxed);
        acknowledge.then_some(unacknowledged)
    }

    /// Takes the count of unacknowledged events: acknowledge them before the queue is destroyed.
    /// The caller holds the channel's lock.
    pub(crate) fn settle(&self) -> u32 {
        // Relaxed: only touched under the lock.
        self.unacknowledged.swap(0, Ordering::Relaxed)
    }
}

impl Armed {
    /// A queue that is about to be armed.
    pub(crate) fn before(queue: &Arc<QueueEvents>, channel: &Arc<ChannelInner>) -> Armed {
        // Relaxed: an older count makes a wait return early, and no event of this arming
        // can have been taken yet.
        let before = queue.taken.load(Ordering::Relaxed);
        Armed { queue: Arc::clone(queue), channel: Arc::clone(channel), before }
    }

    /// The number of the queue.
    pub(super) fn queue(&self) -> u32 {
        self.queue.number
    }

    /// Reports whether the queue announces its completions on this channel.
    pub(super) fn belongs_to(&self, channel: &Arc<ChannelInner>) -> bool {
        Arc::ptr_eq(&self.channel, channel)
    }

    /// Reports whether an event of the queue was taken since this was made.
    pub(super) fn has_fired(&self) -> bool {
        // Relaxed: the count was changed under the lock that the waiter takes before it
        // looks.
        self.queue.taken.load(Ordering::Relaxed) != self.before
    }
}

debug_shows!(Armed: queue());

impl ChannelInner {
    /// Takes an event, if there is one, and counts it for its queue; returns the queue's number.
    /// The caller holds the lock.
    pub(super) fn take_event(&self) -> Result<Option<u32>, Errno> {
        let (mut cq, mut tag) = (null_mut(), null_mut());
        let table = &self.context.table;
        // SAFETY: `self` keeps the channel alive; `cq` and `tag` are writable.
        if unsafe { (table.get_cq_event)(self.raw.as_ptr(), &mut cq, &mut tag) } != 0 {
            return match Errno::last() {
                Errno::EAGAIN | Errno::EINTR => Ok(None),
                errno => Err(errno),
            };
        }
        // SAFETY: the queue's owner keeps the tag until it has destroyed the queue, under the lock
        // that the caller holds here.
        let queue = unsafe { &*tag.cast::<QueueEvents>() };
        if let Some(events) = queue.count() {
            // SAFETY: the owner of `cq` destroys it under the lock that the caller holds here, so
            // it is alive; `events` of its events were taken and are not acknowledged yet.
            unsafe { (table.ack_cq_events)(cq, events) };
        }
        Ok(Some(queue.number))
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: every queue that uses the channel holds it, so that none is left.
        let result = unsafe { (self.context.table.destroy_comp_channel)(self.raw.as_ptr()) };
        destroyed("a completion channel", Errno::check(result), || self.context.clone());
    }
}
