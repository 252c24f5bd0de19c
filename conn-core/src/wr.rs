//! Work-request ids, selective signalling and send-queue accounting.
//!
//! A send queue completes its requests in the order of their posting, so one number tells which are
//! complete: the id of the last completion. Requests need not all be *signalled* (produce a
//! completion): one completion retires every request before it. But an unsignalled request keeps
//! its slot of the send queue until a later signalled one has completed, so a queue full of
//! unsignalled requests would stall. [`SendTracker`] hands out ids, decides which are signalled,
//! and counts slots.
//!
//! ```text
//!            completed          next
//!                |                |
//!   1 2 3 4 5 6 7 8 9 . . . . . . N      1 <= ids, completed < next
//!   `--- retired --'`-outstanding-'      next - 1 - completed <= depth
//! ```
//!
//! It cannot stall: every id that is a multiple of the signalling interval is signalled, and the
//! interval is at most the number of data slots. A queue that is full for a class holds at least as
//! many consecutive ids as it has data slots, hence a multiple of the interval, hence a signalled
//! request.

mod config;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

use config::check;

pub use config::{SendTrackerConfig, SendTrackerConfigError, words_for};

/// Words of the default storage of a [`SendTracker`]: queues of up to 4096 requests.
pub const DEFAULT_WORDS: usize = 64;

/// The id of a work request: a count from 1, one sequence per queue.
///
/// At 10 million requests a second the count lasts for 58,000 years, so it is
/// never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WrId(pub u64);

/// Purpose of a request, which decides the slots that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrClass {
    /// May use `depth - control_slots` slots.
    Data,
    /// May use all slots.
    Control,
}

/// A request that has been given its place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its id, to be posted as the `wr_id`.
    pub id: WrId,
    /// True if the request has to ask for a completion.
    pub signalled: bool,
}

/// No slot is free for this class: poll, then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the send queue is full until a completion has been polled")]
pub struct SendQueueFull;

/// A completion that no request can have caused: the device or the driver is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionError {
    /// No request with this id was planned.
    #[error("completion of a request that was never posted")]
    NeverPosted,
    /// This request has completed before.
    #[error("second completion of a request")]
    AlreadyRetired,
    /// The request succeeded without having been signalled.
    #[error("completion of a request that was not signalled")]
    NotSignalled,
}

/// A rollback to a place that is not among the outstanding requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RollbackError {
    /// The id lies beyond the next one to be planned.
    #[error("rollback to a request that was never planned")]
    NeverPlanned,
    /// The request has completed, so it was posted.
    #[error("rollback of a request that has completed")]
    AlreadyRetired,
}

/// Ids, signalling and slots of one send queue. See the [module](self).
///
/// The storage has one bit a request, "was signalled out of turn": `[u64; N]` or any other
/// container of at least [`words_for`] words.
///
/// ```
/// use conn_core::wr::*;
///
/// let config = SendTrackerConfig { depth: 4, control_slots: 1, signal_every: 2 };
/// let mut tracker = SendTracker::new(config)?;
/// assert_eq!(tracker.plan(WrClass::Data)?, Planned { id: WrId(1), signalled: false });
/// assert_eq!(tracker.plan(WrClass::Data)?, Planned { id: WrId(2), signalled: true });
/// assert_eq!(tracker.plan(WrClass::Data)?, Planned { id: WrId(3), signalled: false });
/// assert_eq!(tracker.plan(WrClass::Data), Err(SendQueueFull));
/// assert!(tracker.plan(WrClass::Control)?.signalled);
///
/// assert_eq!(tracker.complete(WrId(2))?, 2, "one completion retires both");
/// assert!(tracker.is_complete(WrId(1)));
/// assert_eq!(tracker.complete(WrId(3)), Err(CompletionError::NotSignalled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: completed < next; next - 1 - completed <= depth;
// next_signal is the least multiple of signal_every that is >= next;
// bit `id & mask` of `out_of_turn` is set for the outstanding ids that are signalled without
// being multiples of signal_every, `recorded` of them, and for no others;
// last_data is completed + data_slots;
// last_signalled is the greatest signalled id < next, or some id <= completed.
#[derive(Clone, Debug)]
pub struct SendTracker<S = [u64; DEFAULT_WORDS]> {
    depth: u32,
    /// `depth - control_slots`, at least 1.
    data_slots: u32,
    /// `1 <= signal_every <= data_slots`.
    signal_every: u32,
    /// Bits of the storage, a power of two `>= depth`, minus 1.
    mask: u64,
    completed: u64,
    next: u64,
    /// The last id that data may have until more has completed.
    last_data: u64,
    next_signal: u64,
    last_signalled: u64,
    /// Number of outstanding requests that are signalled out of turn.
    recorded: u32,
    out_of_turn: S,
}

/// Making one.
impl SendTracker {
    /// A tracker with the default storage, for queues of up to 4096 requests.
    ///
    /// # Errors
    /// A config that makes no queue, or one that is deeper than the storage.
    pub const fn new(config: SendTrackerConfig) -> Result<Self, SendTrackerConfigError> {
        match check(config, DEFAULT_WORDS) {
            Ok(()) => Ok(Self::start(config, [0; DEFAULT_WORDS])),
            Err(error) => Err(error),
        }
    }
}

/// Making one, over storage of the caller's.
impl<S> SendTracker<S> {
    /// A tracker over `storage` of at least [`words_for`]`(depth)` words.
    ///
    /// # Errors
    /// A config that makes no queue, or one that is deeper than the storage.
    pub fn with_storage(
        config: SendTrackerConfig,
        mut storage: S,
    ) -> Result<Self, SendTrackerConfigError>
    where
        S: AsRef<[u64]> + AsMut<[u64]>,
    {
        check(config, storage.as_ref().len())?;
        storage.as_mut().fill(0);
        Ok(Self::start(config, storage))
    }

    const fn start(config: SendTrackerConfig, out_of_turn: S) -> Self {
        let data_slots = config.depth - config.control_slots;
        let signal_every =
            if config.signal_every < data_slots { config.signal_every } else { data_slots };
        Self {
            depth: config.depth,
            data_slots,
            signal_every,
            mask: words_for(config.depth) as u64 * 64 - 1,
            completed: 0,
            next: 1,
            last_data: data_slots as u64,
            next_signal: signal_every as u64,
            last_signalled: 0,
            recorded: 0,
            out_of_turn,
        }
    }
}

/// The poster's side.
impl<S: AsRef<[u64]> + AsMut<[u64]>> SendTracker<S> {
    /// Gives the next request its id and tells whether it is signalled.
    ///
    /// # Errors
    /// [`SendQueueFull`] when the class has no slot: retry after a completion. A
    /// signalled request is then outstanding, so a completion will come.
    #[inline]
    pub fn plan(&mut self, class: WrClass) -> Result<Planned, SendQueueFull> {
        self.plan_as(class, false)
    }

    /// As [`plan`](Self::plan), but signalled in any case: for a request that
    /// the caller will wait for.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    #[inline]
    pub fn plan_signalled(&mut self, class: WrClass) -> Result<Planned, SendQueueFull> {
        self.plan_as(class, true)
    }

    /// Returns the number of requests of this class that can be planned together, with
    /// [`plan_run`](Self::plan_run): as many as there is room for, up to the next one that is
    /// signalled in turn.
    #[inline]
    pub fn run(&self, class: WrClass) -> u32 {
        let turn = self.next_signal - (self.next - 1);
        self.available(class).min(turn as u32)
    }

    /// Plans `n` consecutive requests, as `n` calls of [`plan`](Self::plan); only the last one may
    /// be signalled. Returns its id, and whether it is signalled; with `n == 0`, the id of the last
    /// request before.
    ///
    /// # Errors
    /// [`SendQueueFull`] when `n` is more than a [`run`](Self::run).
    #[inline]
    pub fn plan_run(&mut self, class: WrClass, n: u32) -> Result<Planned, SendQueueFull> {
        if n > self.run(class) {
            return Err(SendQueueFull);
        }
        let id = self.next - 1 + u64::from(n);
        let signalled = n > 0 && id == self.next_signal;
        self.next = id + 1;
        if signalled {
            self.next_signal += u64::from(self.signal_every);
            self.last_signalled = id;
        }
        Ok(Planned { id: WrId(id), signalled })
    }

    #[inline]
    fn plan_as(&mut self, class: WrClass, forced: bool) -> Result<Planned, SendQueueFull> {
        let id = self.next;
        let last = match class {
            WrClass::Data => self.last_data,
            WrClass::Control => self.completed + u64::from(self.depth),
        };
        if id > last {
            return Err(SendQueueFull);
        }
        self.next = id + 1;
        let regular = id == self.next_signal;
        if regular {
            self.next_signal += u64::from(self.signal_every);
            self.last_signalled = id;
        } else if forced {
            self.last_signalled = id;
            self.record(id);
        }
        Ok(Planned { id: WrId(id), signalled: regular || forced })
    }

    /// Takes back the requests from `first` on, which a failed post has not posted: restores the
    /// state before they were planned. Returns their number.
    ///
    /// # Errors
    /// When `first` is neither outstanding nor the next id.
    pub fn rollback(&mut self, first: WrId) -> Result<u32, RollbackError> {
        if first.0 > self.next {
            return Err(RollbackError::NeverPlanned);
        }
        if first.0 <= self.completed {
            return Err(RollbackError::AlreadyRetired);
        }
        let dropped = (self.next - first.0) as u32;
        self.forget(first.0, self.next);
        self.next = first.0;
        self.next_signal = first.0.next_multiple_of(u64::from(self.signal_every));
        self.last_signalled = self.newest_signalled();
        Ok(dropped)
    }

    fn newest_signalled(&self) -> u64 {
        (self.completed + 1..self.next)
            .rev()
            .find(|&id| self.was_signalled(id))
            .unwrap_or(self.completed)
    }

    /// Notes a request that is signalled out of turn.
    #[cold]
    fn record(&mut self, id: u64) {
        let at = id & self.mask;
        self.out_of_turn.as_mut()[(at / 64) as usize] |= 1 << (at % 64);
        self.recorded += 1;
    }

    /// Removes the records of the requests `from .. to`.
    #[inline]
    fn forget(&mut self, from: u64, to: u64) {
        // Usually nothing is recorded: one comparison for any number of requests.
        let mut id = from;
        while self.recorded > 0 && id < to {
            if self.is_recorded(id) {
                let at = id & self.mask;
                self.out_of_turn.as_mut()[(at / 64) as usize] ^= 1 << (at % 64);
                self.recorded -= 1;
            }
            id += 1;
        }
    }

    #[inline]
    fn is_recorded(&self, id: u64) -> bool {
        let at = id & self.mask;
        self.out_of_turn.as_ref()[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    #[inline]
    fn was_signalled(&self, id: u64) -> bool {
        id.is_multiple_of(u64::from(self.signal_every)) || self.is_recorded(id)
    }

    #[inline]
    fn retire(&mut self, id: WrId) -> u32 {
        let retired = (id.0 - self.completed) as u32;
        self.forget(self.completed + 1, id.0 + 1);
        self.completed = id.0;
        self.last_data = id.0 + u64::from(self.data_slots);
        retired
    }
}

/// The poller's side.
impl<S: AsRef<[u64]> + AsMut<[u64]>> SendTracker<S> {
    /// A successful completion: retires the request and all before it, and returns
    /// how many slots that freed.
    ///
    /// # Errors
    /// [`CompletionError`] when no request can have caused it.
    #[inline]
    pub fn complete(&mut self, id: WrId) -> Result<u32, CompletionError> {
        self.check_outstanding(id)?;
        if !self.was_signalled(id.0) {
            return Err(CompletionError::NotSignalled);
        }
        Ok(self.retire(id))
    }

    /// A failed or flushed completion, which unsignalled requests have too: retires
    /// the request and all before it, and returns how many slots that freed.
    ///
    /// # Errors
    /// [`CompletionError`] when the request is not outstanding.
    pub fn complete_failed(&mut self, id: WrId) -> Result<u32, CompletionError> {
        self.check_outstanding(id)?;
        Ok(self.retire(id))
    }
}

#[inline]
fn outstanding_or(id: u64, completed: u64, next: u64) -> Result<(), CompletionError> {
    if id >= next {
        return Err(CompletionError::NeverPosted);
    }
    if id <= completed {
        return Err(CompletionError::AlreadyRetired);
    }
    Ok(())
}

/// State at any moment.
impl<S> SendTracker<S> {
    #[inline]
    fn check_outstanding(&self, id: WrId) -> Result<(), CompletionError> {
        outstanding_or(id.0, self.completed, self.next)
    }

    /// Reports whether the request has completed. One that was never planned has not.
    #[inline]
    pub fn is_complete(&self, id: WrId) -> bool {
        id.0 <= self.completed
    }

    /// Reports whether the request has completed, or will without another request being posted,
    /// because it or one behind it is signalled. If this is false, post a signalled request behind
    /// it before you wait for `id`.
    #[inline]
    pub fn will_complete(&self, id: WrId) -> bool {
        id.0 <= self.completed.max(self.last_signalled)
    }

    /// Reports whether a completion is still to come.
    #[inline]
    pub fn signalled_outstanding(&self) -> bool {
        self.last_signalled > self.completed
    }

    /// The last id known to be complete; 0 at first.
    #[inline]
    pub fn last_completed(&self) -> WrId {
        WrId(self.completed)
    }

    /// The id that the next planned request gets.
    #[inline]
    pub fn next_id(&self) -> WrId {
        WrId(self.next)
    }

    /// Requests that occupy a slot of the send queue.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        (self.next - 1 - self.completed) as u32
    }

    /// Requests of this class that can be planned now.
    #[inline]
    pub fn available(&self, class: WrClass) -> u32 {
        let limit = match class {
            WrClass::Data => self.data_slots,
            WrClass::Control => self.depth,
        };
        limit.saturating_sub(self.outstanding())
    }

    /// Requests that the queue holds.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The signalling interval in force: the configured one, or the data slots if
    /// these are fewer.
    #[inline]
    pub fn signal_every(&self) -> u32 {
        self.signal_every
    }
}
