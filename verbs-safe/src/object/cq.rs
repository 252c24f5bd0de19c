//! Completion queues.

mod reservation;
mod reservations;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbs_sys::{ibv_cq, ibv_poll_cq, ibv_req_notify_cq};

use crate::errno::Errno;
use crate::error::{ArmCqError, CreateCqError, PollCqError};
use crate::ids::CqId;
use crate::object::channel::{Armed, ChannelInner, CompletionChannel, QueueEvents};
use crate::object::completion::CompletionBatch;
use crate::object::context::{Context, ContextInner};
use crate::object::pointer::{ObjectPtr, destroyed};
use reservations::Reservations;

pub(crate) use reservation::Reservation;

/// Parameters of a completion queue.
#[derive(Debug, Clone, Copy)]
pub struct CqConfig<'a> {
    /// Completions that it holds, at least. Queue pairs reserve room for all that they can have
    /// outstanding, and are refused where it does not suffice.
    pub entries: u32,
    /// Channel on which it announces completions when it is armed.
    pub channel: Option<&'a CompletionChannel>,
    /// Index of the device's completion vector (interrupt) that it uses.
    pub comp_vector: u32,
}

impl CqConfig<'_> {
    /// `entries` entries, polled only.
    #[must_use]
    pub fn new(entries: u32) -> CqConfig<'static> {
        CqConfig { entries, channel: None, comp_vector: 0 }
    }
}

/// A completion queue. Clones are handles of the same one; it may be polled from
/// several threads at once, each completion then goes to one of them.
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// use verbs_safe::{CompletionBatch, CqConfig};
/// let cq = context.create_cq(CqConfig::new(128))?;
/// let mut batch = CompletionBatch::new(32);
/// cq.poll(&mut batch)?;
/// for completion in batch.drain() {
///     println!("{:?}", completion.status());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) raw: ObjectPtr<ibv_cq>,
    events: Arc<QueueEvents>,
    reservations: Reservations,
    /// Counts how often a send queue of this completion queue has advanced far enough for
    /// old completions to be out of date; see `send::Epochs`.
    pub(crate) epoch: AtomicU64,
    /// Dropped before its context.
    channel: Option<Arc<ChannelInner>>,
    pub(crate) context: Arc<ContextInner>,
}

impl CqId {
    fn next() -> CqId {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only the count itself matters.
        CqId(LAST.fetch_add(1, Ordering::Relaxed))
    }

    /// The queue behind a context pointer.
    ///
    /// # Safety
    /// It is that of a completion queue of this crate which is not destroyed yet.
    pub(crate) unsafe fn from_context(context: *mut c_void) -> CqId {
        // SAFETY: the queue's owner keeps it until the queue has been destroyed.
        CqId(unsafe { (*context.cast::<QueueEvents>()).number })
    }
}

impl Context {
    /// A completion queue.
    ///
    /// # Errors
    /// [`CreateCqError`]: the device refused, or the channel is another context's.
    pub fn create_cq(&self, config: CqConfig<'_>) -> Result<CompletionQueue, CreateCqError> {
        let channel = config.channel.map(|c| c.inner.clone());
        if channel.as_ref().is_some_and(|c| !Arc::ptr_eq(&c.context, &self.inner)) {
            return Err(CreateCqError::OtherContext);
        }
        let refused = |errno| CreateCqError::Refused { entries: config.entries, errno };
        let events = QueueEvents::new(CqId::next().0);
        let tag = Arc::as_ptr(&events).cast_mut().cast::<c_void>();
        let entries = c_int::try_from(config.entries).map_err(|_| refused(Errno::EINVAL))?;
        let vector = c_int::try_from(config.comp_vector).map_err(|_| refused(Errno::EINVAL))?;
        let raw_channel = channel.as_ref().map_or(null_mut(), |c| c.raw.as_ptr());
        let context = self.inner.raw.as_ptr();
        // SAFETY: `self.inner` and `channel` keep context and channel alive, which belong together;
        // `CqInner` keeps the tag (`events`) until the queue is destroyed.
        let raw =
            unsafe { (self.inner.table.create_cq)(context, entries, tag, raw_channel, vector) };
        let raw = ObjectPtr::new(raw).map_err(refused)?;
        // SAFETY: `raw` owns the new queue.
        let capacity = u32::try_from(unsafe { (*raw.as_ptr()).cqe }).unwrap_or(0);
        Ok(CompletionQueue {
            inner: Arc::new(CqInner {
                raw,
                events,
                reservations: Reservations::new(capacity),
                epoch: AtomicU64::new(0),
                channel,
                context: self.inner.clone(),
            }),
        })
    }
}

impl CompletionQueue {
    /// Its number in this process.
    #[must_use]
    pub fn id(&self) -> CqId {
        CqId(self.inner.events.number)
    }

    /// Returns its capacity in completions: at least the requested one.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.inner.reservations.capacity
    }

    /// Returns the count of completions that queue pairs have reserved room for.
    #[must_use]
    pub fn reserved(&self) -> u32 {
        self.inner.reservations.reserved()
    }

    /// Moves completions into `batch`, up to its size, and returns their number. Completions that
    /// were left in the batch are discarded.
    ///
    /// # Errors
    /// [`PollCqError`]: the queue is dead, as after an overrun.
    #[inline]
    pub fn poll(&self, batch: &mut CompletionBatch) -> Result<usize, PollCqError> {
        batch.filled = 0;
        batch.popped = 0;
        // Acquire: pairs with `Epochs::turn`. The epoch must be read before the
        // completions are taken.
        batch.epoch = self.inner.epoch.load(Ordering::Acquire);
        let room = batch.entries.len();
        // SAFETY: `self.inner` keeps the queue alive; `batch.entries` has room for `room`
        // completions.
        let polled = unsafe {
            ibv_poll_cq(self.inner.raw.as_ptr(), room as c_int, batch.entries.as_mut_ptr())
        };
        if polled < 0 {
            return Err(PollCqError { errno: Errno::from_result(polled) });
        }
        batch.filled = (polled as usize).min(room);
        Ok(batch.filled)
    }

    /// Requests one event on the channel at the next completion; with `solicited_only`, at the next
    /// solicited or failed one. It is one-shot: see [`CompletionChannel`] for the order that misses
    /// none.
    ///
    /// # Errors
    /// [`ArmCqError`]: there is no channel, or the device refused.
    pub fn arm(&self, solicited_only: bool) -> Result<Armed, ArmCqError> {
        let channel = self.inner.channel.as_ref().ok_or(ArmCqError::NoChannel)?;
        let armed = Armed::before(&self.inner.events, channel);
        // SAFETY: `self.inner` keeps the queue alive; `channel` was checked above.
        let result = unsafe { ibv_req_notify_cq(self.inner.raw.as_ptr(), solicited_only.into()) };
        Errno::check(result).map_err(ArmCqError::Refused)?;
        Ok(armed)
    }
}

impl CqInner {
    /// Acknowledges the events taken, and destroys the queue.
    fn destroy(&self) -> Result<(), Errno> {
        let table = &self.context.table;
        // With the lock held no thread takes another event, for which destroying would wait.
        let _taking = self.channel.as_ref().map(|c| c.waiting.lock());
        let taken = self.events.settle();
        // SAFETY: `taken` events were taken and not acknowledged; every queue pair that uses the
        // queue holds it, so none is left.
        unsafe {
            if taken > 0 {
                (table.ack_cq_events)(self.raw.as_ptr(), taken);
            }
            Errno::check((table.destroy_cq)(self.raw.as_ptr()))
        }
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let uses = || (self.events.clone(), self.channel.clone(), self.context.clone());
        destroyed("a completion queue", self.destroy(), uses);
    }
}

debug_shows!(CompletionQueue: id(), capacity());
