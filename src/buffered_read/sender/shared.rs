//! Several threads that send into one ring.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use host::sync::{Mutex, MutexGuard};
use std::time::Duration;

use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::Senders;
use conn_core::ring::{Header, ReserveError, record_bytes};
use verbs_safe::SharedRegion;

use super::{Sender, Ticket};
use crate::common::Common;
use crate::error::{Full, SendError};
use crate::half::driven::Sender as _;
use crate::ring::memory::ControlBlock;
use crate::sending::Sends;
use crate::wait::{Deadline, Idle, WaitStep};

/// A sending half that several threads use at once, by reference.
///
/// Each claims room with one compare-and-swap, fills it, and publishes all messages that are
/// complete and have no incomplete one before them; a thread waits for the others only when
/// there is no room. The messages of one thread arrive in its order.
///
/// ```
/// use rdma_conn::buffered_read::Config;
/// use rdma_conn::{BufferedRead, RecvHalf, SendHalf, pair};
///
/// let device = rdma_conn::device::soft()?;
/// let (a, mut b) = pair::<BufferedRead>(&device, &device, &Config::default())?;
/// let sender = a.sender.into_shared(16).expect("nothing was sent yet");
/// std::thread::scope(|scope| {
///     for number in 0..3_u8 {
///         let sender = &sender;
///         scope.spawn(move || sender.send(&[number]));
///     }
/// });
/// let sum: u8 = (0..3).map(|_| b.receiver.recv().map_or(0, |message| message[0])).sum();
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedSender {
    senders: Senders<Box<[RecordSlot]>>,
    ring: SharedRegion,
    block: Arc<ControlBlock>,
    number: u32,
    common: Common,
    /// True once the sender below has ended.
    is_over: AtomicBool,
    /// Tail that the receiver can read. The machine's is ahead of it while a thread publishes.
    told: AtomicU64,
    /// The receiver's last request to be woken that was answered.
    answered: AtomicU64,
    /// The tick after which it was looked after the peer last.
    tick: AtomicU64,
    /// Looks at the receiver's words, and probes it.
    sender: Mutex<Sender>,
}

impl Sender {
    /// Gives the half to several threads. `at_once` of them, a power of two, can send at the same
    /// time; more of them wait for each other.
    ///
    /// # Errors
    /// The sender itself, if it has sent messages, or `at_once` is no power of two up to 2^23.
    // The error is the sender itself, unchanged.
    #[allow(clippy::result_large_err)]
    pub fn into_shared(mut self, at_once: u32) -> Result<SharedSender, Sender> {
        let slots: Box<[RecordSlot]> = (0..at_once).map(|_| RecordSlot::new()).collect();
        let senders = Senders::new(*self.source.ring().geometry(), slots);
        let senders = match senders {
            Ok(senders) if self.source.ring().tail() == 0 => senders,
            _ => return Err(self),
        };
        let ring = self.ring.share();
        self.shared = Some(self.ring.share());
        Ok(SharedSender {
            senders,
            ring,
            block: self.block.clone(),
            number: self.half.number,
            common: self.half.waiting.common,
            is_over: AtomicBool::new(self.half.posting.ended().is_some()),
            told: AtomicU64::new(0),
            answered: AtomicU64::new(self.waker.answered()),
            tick: AtomicU64::new(0),
            sender: Mutex::new(self),
        })
    }
}

/// Sending.
impl SharedSender {
    /// Longest message that can be sent, in bytes.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.senders.geometry().max_payload() as usize
    }

    /// Accepts a message if there is room for it now.
    ///
    /// # Errors
    /// As [`SendHalf::try_send`](crate::SendHalf::try_send).
    pub fn try_send(&self, message: &[u8]) -> Result<Ticket, SendError> {
        // Relaxed: where it is set, the reason is read under the lock below.
        if self.is_over.load(Ordering::Relaxed) {
            self.lock().half.posting.check()?;
        }
        // Relaxed: the first thread that sees the tick looks after the peer.
        if host::time::tick() != self.tick.load(Ordering::Relaxed) {
            self.look_after_peer()?;
        }
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let grant = match self.senders.reserve(len) {
            Ok(grant) => grant,
            Err(e) => return Err(self.refused(e, message.len())),
        };
        // Others may claim and fill the room behind it, and publish first.
        host::point();
        let offset = grant.payload().offset as usize;
        let (header, skip) = self.senders.headers(&grant);
        let store = |Header { offset, word }| self.ring.store_u64(offset as usize, word.to_le());
        let stored = self.ring.copy_in(offset, message).and_then(|()| store(header));
        let stored = stored.and_then(|()| skip.map_or(Ok(()), store));
        debug_assert!(stored.is_ok(), "the machine and the ring have different books");
        let end = grant.position() + record_bytes(len);
        self.senders.publish(grant, |tail| {
            // Other threads know of this tail already, and the receiver does not.
            host::point();
            self.block.publish_tail(tail);
            // Release: a thread that sees it wakes the receiver for what is published.
            self.told.store(tail, Ordering::Release);
        });
        // Relaxed: any thread may have answered a later word; the lock in `wake_receiver` shows it.
        if self.block.wake_word() != self.answered.load(Ordering::Relaxed) {
            self.wake_receiver();
        }
        Ok(Ticket { sender: self.number, number: end })
    }

    /// Accepts a message, waiting for room as long as that takes.
    ///
    /// # Errors
    /// As [`SendHalf::send`](crate::SendHalf::send).
    pub fn send(&self, message: &[u8]) -> Result<Ticket, SendError> {
        self.send_until(message, Deadline::NEVER)
    }

    /// As [`send`](SharedSender::send), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the message was then not accepted.
    pub fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<Ticket, SendError> {
        self.send_until(message, Deadline::after(timeout))
    }

    fn send_until(&self, message: &[u8], deadline: Deadline) -> Result<Ticket, SendError> {
        self.wait_for(deadline, || match self.try_send(message) {
            Err(SendError::Full(_)) => Ok(None),
            done => done.map(Some),
        })
    }

    /// Reports whether the message of `ticket` is acknowledged; never waits.
    ///
    /// # Errors
    /// As [`crate::SendHalf::is_acked`].
    pub fn is_acked(&self, ticket: Ticket) -> Result<bool, SendError> {
        let mut sender = self.lock();
        // An error that ends the sender is returned below, unless the message has landed before.
        let _ = self.look(&mut sender);
        // The message may not be published yet, while another thread copies one before it.
        match ticket.sender == self.number {
            true => sender.has_landed(ticket),
            false => Err(SendError::UnknownTicket),
        }
    }

    /// Waits until the message of `ticket`, and so every message before it in the ring, is
    /// acknowledged: it lies in the receiver's memory.
    ///
    /// # Errors
    /// As [`SendHalf::wait_acked`](crate::SendHalf::wait_acked).
    pub fn wait_acked(&self, ticket: Ticket) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::NEVER)
    }

    /// As [`wait_acked`](SharedSender::wait_acked), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the ticket stays good.
    pub fn wait_acked_timeout(&self, ticket: Ticket, timeout: Duration) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::after(timeout))
    }

    fn wait_until(&self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        self.wait_for(deadline, || self.is_acked(ticket).map(|is_sent| is_sent.then_some(())))
    }

    /// Waits until the receiver has read all, and ends the half.
    ///
    /// # Errors
    /// As [`SendHalf::close`](crate::SendHalf::close).
    pub fn close(mut self) -> Result<(), SendError> {
        self.gather().goodbye(Deadline::NEVER)
    }

    /// As [`close`](SharedSender::close), for at most `timeout`.
    ///
    /// # Errors
    /// As [`SendHalf::close_timeout`](crate::SendHalf::close_timeout).
    pub fn close_timeout(mut self, timeout: Duration) -> Result<(), SendError> {
        let sender = self.gather();
        sender.goodbye(Deadline::after(timeout))
    }

    /// Ends the half at once, as [`SendHalf::abort`](crate::SendHalf::abort).
    pub fn abort(mut self) {
        self.gather().abandon();
    }
}

/// Work that only one thread does at a time.
impl SharedSender {
    fn lock(&self) -> Locked<'_> {
        let sender = self.sender.lock();
        Locked { sender, is_over: &self.is_over }
    }

    /// The sender, unless another thread holds the lock.
    fn try_lock(&self) -> Option<Locked<'_>> {
        Some(Locked { sender: self.sender.try_lock()?, is_over: &self.is_over })
    }

    /// Sends the wake-up that the receiver has asked for.
    #[cold]
    fn wake_receiver(&self) {
        let mut sender = self.lock();
        if sender.is_asked() {
            // The next call reports a failure.
            let _ = self.look(&mut sender);
            // Messages that are not published yet are no reason: the receiver would find nothing.
            // The thread that publishes them comes here, too. Acquire: see where it is stored.
            if self.told.load(Ordering::Acquire) > sender.source.landed() {
                sender.wake_receiver();
            }
        }
        // Relaxed: as where it is loaded.
        self.answered.store(sender.waker.answered(), Ordering::Relaxed);
    }

    /// Looks after the peer at a new tick, unless another thread does.
    #[cold]
    fn look_after_peer(&self) -> Result<(), SendError> {
        let Some(mut sender) = self.try_lock() else { return Ok(()) };
        // Relaxed: as where it is loaded.
        self.tick.store(host::time::tick(), Ordering::Relaxed);
        self.look(&mut sender)?;
        sender.look_after_peer()
    }

    #[cold]
    fn refused(&self, why: ReserveError, bytes: usize) -> SendError {
        if let ReserveError::TooLong { most } = why {
            return SendError::TooLong { bytes, limit: most as usize };
        }
        // A thread that has the lock looks for all.
        let looked = self.try_lock().and_then(|mut sender| self.look(&mut sender).err());
        looked.unwrap_or(SendError::Full(Full::Ring))
    }

    /// Takes in the receiver's words.
    fn look(&self, sender: &mut Sender) -> Result<(), SendError> {
        // The words first: the messages that they acknowledge were published before.
        let words = sender.words();
        sender.source.catch_up(self.senders.tail());
        let alive = sender.half.posting.check().map_err(SendError::from);
        let looked = alive.and_then(|()| sender.take_in(words));
        // The machine has checked this head, and it is no older than the known one.
        let _ = self.senders.on_head(sender.source.ring().head());
        looked.map(drop)
    }

    /// Waits until `done` has something.
    fn wait_for<T>(
        &self,
        deadline: Deadline,
        mut done: impl FnMut() -> Result<Option<T>, SendError>,
    ) -> Result<T, SendError> {
        let mut idle = Idle::new(self.common.wait, deadline, self.common.keepalive);
        loop {
            if let Some(done) = done()? {
                return Ok(done);
            }
            match idle.step() {
                WaitStep::Again => {}
                WaitStep::Sleep(time) => {
                    self.wake_receiver();
                    host::time::sleep(idle.short_sleep(time));
                }
                WaitStep::Probe => self.lock().ask_peer()?,
                WaitStep::TimedOut => return Err(SendError::TimedOut { unflushed: 0 }),
            }
            if let Some(mut sender) = self.try_lock() {
                sender.source.catch_up(self.senders.tail());
                sender.hear_answers()?;
            }
        }
    }

    /// The sender, which knows of all that was sent.
    fn gather(&mut self) -> &mut Sender {
        let tail = self.senders.tail();
        let sender = self.sender.get_mut();
        sender.source.catch_up(tail);
        sender
    }
}

/// The sender, locked. If it has ended meanwhile, releasing the lock shows that to all threads.
struct Locked<'s> {
    sender: MutexGuard<'s, Sender>,
    is_over: &'s AtomicBool,
}

impl Deref for Locked<'_> {
    type Target = Sender;

    fn deref(&self) -> &Sender {
        &self.sender
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.sender.half.posting.ended().is_some() {
            // Relaxed: a thread that sees it asks for the reason under the lock.
            self.is_over.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for SharedSender {
    fn drop(&mut self) {
        // It says goodbye behind the last message.
        self.gather();
    }
}

#[cfg(test)]
mod tests;
