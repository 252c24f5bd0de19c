//! Sending: many threads of a member write into its slot ring.

use host::sync::OnceLock;
use host::thread::Thread;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conn_core::multicast::{Config, Record, SendWindow, header};
use conn_core::park_flag::ParkFlag;
use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::{Senders, SharedGrant};
use conn_core::ring::{Geometry, ReserveError};
use verbs_safe::SharedRegion;

use super::backoff::IdleBackoff;
use super::error::{GroupError, SendError};
use super::memory::around;
use crate::allocate::filled;
use crate::error::ConnectError;
use crate::wait::Deadline;

/// State that the senders of a member share with the thread that drives it.
pub(super) struct Slots {
    config: Config,
    ring: Senders<Box<[RecordSlot]>>,
    window: SendWindow,
    /// End of the complete records.
    tail: AtomicU64,
    /// End of the delivered records, and their turns.
    delivered: AtomicU64,
    /// Turns that were pushed.
    pushed: AtomicU64,
    error: OnceLock<GroupError>,
    /// The thread that drives the member, where it has one of its own.
    thread: OnceLock<Thread>,
    park_flag: ParkFlag,
    region: SharedRegion,
}

/// Position at which the own message ends: the argument of [`Sender::is_delivered`] and
/// [`Sender::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Sends the messages of one member. Clones are handles of the same, for other threads.
#[derive(Clone)]
pub struct Sender {
    slots: Arc<Slots>,
}

impl Slots {
    pub(super) fn new(config: &Config, region: SharedRegion) -> Result<Slots, ConnectError> {
        let geometry = Geometry::mirrored(config.capacity, config.max_message);
        let geometry = geometry.expect("the ring holds a window of the longest messages");
        let places = (config.window as usize + 8).next_power_of_two();
        let storage = filled("memory for a window of messages", places, RecordSlot::new)?;
        Ok(Slots {
            config: *config,
            ring: Senders::new(geometry, storage).expect("a power of two"),
            window: SendWindow::new(config.window),
            tail: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            error: OnceLock::new(),
            thread: OnceLock::new(),
            park_flag: ParkFlag::new(),
            region,
        })
    }

    pub(super) fn region(&self) -> &SharedRegion {
        &self.region
    }

    /// End of the complete records.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        // Acquire: the records are there before they are counted.
        self.tail.load(Ordering::Acquire)
    }

    /// Frees delivered messages of this member, so that others may begin.
    #[inline]
    pub(super) fn free(&self, position: u64, turn: u64) {
        if self.delivered.load(Ordering::Relaxed) == position {
            return;
        }
        self.ring.on_head(position).expect("what was delivered was written before");
        host::point();
        self.window.raise(turn + u64::from(self.config.window));
        host::point();
        // Release: publishes the effects of the delivery to a thread that waits for this.
        self.delivered.store(position, Ordering::Release);
        host::point();
    }

    /// Counts `turns` turns as pushed.
    #[inline]
    pub(super) fn on_pushed(&self, turns: u64) {
        // Relaxed: it is a figure for reports, and guards nothing.
        if self.pushed.load(Ordering::Relaxed) != turns {
            self.pushed.store(turns, Ordering::Relaxed);
        }
    }

    /// Messages that were accepted and not pushed. (Messages that are being filled, and nulls,
    /// count as well.)
    pub(super) fn unsent(&self) -> u64 {
        self.window.taken().saturating_sub(self.pushed.load(Ordering::Relaxed))
    }

    /// No more messages: the reason.
    pub(super) fn fail(&self, error: GroupError) {
        self.error.get_or_init(|| error);
    }

    /// This thread drives the member from here on: a thread that publishes a record wakes it.
    pub(super) fn driven_here(&self) {
        self.thread.get_or_init(host::thread::current);
    }

    /// Sleeps for `time`, or until a record lies behind `tail`. Only for the thread that drives the
    /// member.
    pub(super) fn sleep(&self, tail: u64, time: Duration) {
        if self.thread.get().is_none() {
            return host::time::sleep(time);
        }
        self.park_flag.announce();
        host::point();
        if self.tail() == tail {
            host::thread::park_timeout(time);
        }
        self.park_flag.retract();
    }

    /// A record was published: the thread that drives the member may sleep.
    #[inline]
    fn wake(&self) {
        if let Some(thread) = self.thread.get()
            && self.park_flag.should_wake()
        {
            thread.unpark();
        }
    }

    /// Ends a sleep of the thread that drives the member, also one that it is about to begin.
    pub(super) fn interrupt(&self) {
        self.thread.get().into_iter().for_each(Thread::unpark);
    }

    #[inline]
    fn check(&self, len: usize) -> Result<u32, SendError> {
        let config = &self.config;
        if let Some(error) = self.error.get() {
            return Err((*error).into());
        }
        if !config.senders.contains(config.rank) {
            return Err(SendError::NotSender);
        }
        let most = config.max_message;
        let fits = u32::try_from(len).ok().filter(|len| *len <= most);
        fits.ok_or(SendError::TooLong { len, most })
    }

    #[inline]
    fn reserve(&self, record: Record) -> Result<SharedGrant, SendError> {
        let turns = record.turns() as u32;
        if turns > 0 && !self.window.try_take(turns) {
            let has_ended = self.window.closed_at().is_some();
            return Err(if has_ended { SendError::Ended } else { SendError::WindowFull });
        }
        // The turn is taken, and no room yet: the stream must not end between them.
        host::point();
        let len = match record {
            Record::Message(len) => len,
            _ => 0,
        };
        self.ring.reserve(len).map_err(|e| {
            self.window.give_back(turns);
            match e {
                ReserveError::TooLong { most } => SendError::TooLong { len: len as usize, most },
                _ => SendError::WindowFull,
            }
        })
    }

    #[inline]
    fn publish(&self, grant: SharedGrant, record: Record) -> Ticket {
        let position = grant.position();
        let at = position & (self.config.capacity - 1);
        let stored = self.region.store_u64(at as usize, header(record, position).to_le());
        stored.expect("headers lie within the ring");
        // Others may publish records behind it first.
        host::point();
        self.ring.publish(grant, |tail| {
            // Release: the record is there before it is counted.
            self.tail.store(tail, Ordering::Release);
            host::point();
        });
        self.wake();
        Ticket(position + record.bytes())
    }

    #[inline]
    fn write(&self, grant: &SharedGrant, offset: usize, bytes: &[u8]) {
        let capacity = self.config.capacity;
        let at = (grant.payload().offset + offset as u64) & (capacity - 1);
        let [(first, split), (second, rest)] = around(at, bytes.len(), capacity);
        let (front, back) = bytes.split_at(split);
        let copied = self.region.copy_in(first, front);
        let copied = if rest == 0 { copied } else { self.region.copy_in(second, back) };
        copied.expect("the grant is inside");
    }

    /// Ends the stream, when all messages that have begun lie in it; returns whether it has
    /// ended. Called by the thread that drives the member.
    pub(super) fn put_end(&self, turns: u64) -> bool {
        let sends = self.config.senders.contains(self.config.rank);
        let is_complete = sends && self.window.closed_at() == Some(turns);
        let grant = if is_complete { self.reserve(Record::End).ok() } else { None };
        grant.map(|grant| self.publish(grant, Record::End)).is_some()
    }

    /// Puts nulls into the stream. Called by the thread that drives the member.
    pub(super) fn put_nulls(&self, count: u32) {
        let record = Record::Nulls(count);
        if let Ok(grant) = self.reserve(record) {
            self.publish(grant, record);
        }
    }
}

impl Sender {
    pub(super) fn new(slots: Arc<Slots>) -> Sender {
        Sender { slots }
    }

    /// Ends a sleep of the thread that drives the member.
    pub(super) fn interrupt(&self) {
        self.slots.interrupt();
    }

    /// Messages that were accepted and not pushed.
    pub(super) fn unsent(&self) -> u64 {
        self.slots.unsent()
    }

    /// Sends a message, if the window has room now. It goes out with the next
    /// [`poll`](super::Group::poll) of the thread that drives the group; the thread of a
    /// [spawned](super::Group::spawn) member is woken, and takes it at once. No further call to
    /// the sender is needed: a push that the [`Policy`](super::Policy) inhibits goes at the
    /// deadline.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent. [`SendError::WindowFull`] passes.
    #[inline]
    pub fn try_send(&self, message: &[u8]) -> Result<Ticket, SendError> {
        let record = Record::Message(self.slots.check(message.len())?);
        let grant = self.slots.reserve(record)?;
        self.slots.write(&grant, 0, message);
        Ok(self.slots.publish(grant, record))
    }

    /// Sends a message, and waits for room in the window: only where another thread drives
    /// the group.
    ///
    /// # Errors
    /// [`SendError`], but [`WindowFull`](SendError::WindowFull); nothing was sent.
    pub fn send(&self, message: &[u8]) -> Result<Ticket, SendError> {
        self.send_until(message, Deadline::NEVER)
    }

    /// As [`send`](Self::send), for at most `timeout`: for groups that no other thread drives as
    /// well.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the message was then not accepted.
    pub fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<Ticket, SendError> {
        self.send_until(message, Deadline::after(timeout))
    }

    fn send_until(&self, message: &[u8], deadline: Deadline) -> Result<Ticket, SendError> {
        self.patiently(deadline, || match self.try_send(message) {
            Err(SendError::WindowFull) => None,
            done => Some(done),
        })
    }

    /// A buffer of `len` bytes in the slot ring, to be filled in place, without a further copy.
    /// Messages that begin later wait until it is sent or dropped.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn get_buffer(&self, len: usize) -> Result<Buffer<'_>, SendError> {
        let record = Record::Message(self.slots.check(len)?);
        let grant = self.slots.reserve(record)?;
        Ok(Buffer { slots: &self.slots, grant: Some(grant), len })
    }

    /// Sends all that is under way at once, with a multicast of its own that all receivers
    /// acknowledge at once: nothing waits for a deadline. The thread of a
    /// [spawned](super::Group::spawn) member is woken and sends it; any other group sends it in its
    /// next [`poll`](super::Group::poll).
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn flush(&self) -> Result<Ticket, SendError> {
        self.slots.check(0)?;
        let grant = self.slots.reserve(Record::Flush)?;
        Ok(self.slots.publish(grant, Record::Flush))
    }

    /// Ends the stream of this member: there will be no more messages of it. When all
    /// senders have ended theirs, and all was delivered, the group is
    /// [finished](super::Group::is_finished).
    ///
    /// A message that another thread is filling goes before the end.
    pub fn end(&self) {
        self.slots.window.close();
        self.slots.interrupt();
    }

    /// Reports whether the message has been delivered at this member: it is stable, and every
    /// member that survives later failures delivers it, too.
    #[inline]
    #[must_use]
    pub fn is_delivered(&self, ticket: Ticket) -> bool {
        // Acquire: pairs with `free`; the effects of the delivery are visible.
        self.slots.delivered.load(Ordering::Acquire) >= ticket.0
    }

    /// Waits until the message has been delivered at this member: only where another thread
    /// drives the group.
    ///
    /// # Errors
    /// [`SendError::Group`]: the group has failed, or its member has gone. The message may
    /// still have been delivered: the deliveries show that.
    pub fn wait(&self, ticket: Ticket) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::NEVER)
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`], with the number of messages that were not pushed.
    pub fn wait_timeout(&self, ticket: Ticket, timeout: Duration) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::after(timeout))
    }

    fn wait_until(&self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        self.patiently(deadline, || {
            let error = self.slots.error.get().copied();
            // The error is loaded first, so that deliveries before the end are visible.
            match (self.is_delivered(ticket), error) {
                (true, _) => Some(Ok(())),
                (false, None) => None,
                (false, Some(error)) => Some(Err(error.into())),
            }
        })
    }

    /// Tries until there is a result, or the time is over.
    fn patiently<T>(
        &self,
        deadline: Deadline,
        mut what: impl FnMut() -> Option<Result<T, SendError>>,
    ) -> Result<T, SendError> {
        let mut backoff = IdleBackoff::default();
        loop {
            if let Some(done) = what() {
                return done;
            }
            if deadline.has_passed(host::time::now()) {
                return Err(SendError::TimedOut { unsent: self.slots.unsent() });
            }
            backoff.wait(deadline);
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("config", &self.slots.config).finish_non_exhaustive()
    }
}

/// Room for one message in the slot ring. Unwritten parts have bytes of an earlier message of this
/// member. Dropping it gives it up; its turn passes without a message.
pub struct Buffer<'s> {
    slots: &'s Slots,
    grant: Option<SharedGrant>,
    len: usize,
}

impl Buffer<'_> {
    /// Bytes of the message.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reports whether the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Panics
    /// When they do not fit.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "beyond the end of the buffer");
        if let Some(grant) = &self.grant {
            self.slots.write(grant, offset, bytes);
        }
    }

    /// Sends it.
    #[inline]
    pub fn send(mut self) -> Ticket {
        let grant = self.grant.take().expect("it is taken here alone");
        self.slots.publish(grant, Record::Message(self.len as u32))
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.slots.publish(grant, Record::Unused(self.len as u32));
        }
    }
}

impl fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}
