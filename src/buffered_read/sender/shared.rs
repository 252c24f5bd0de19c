//! Several threads that send into one ring.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::Senders;
use conn_core::ring::{Header, ReserveError, record_bytes};
use verbs_safe::SharedRegion;

use super::{Sender, Ticket};
use crate::buffered_read::Config;
use crate::ring::memory::ControlBlock;
use crate::send_recv::{Full, SendError};
use crate::wait::{Deadline, Idle, Nap, Step};

/// A sending half that several threads use at once, by reference.
///
/// Each claims room with one compare-and-swap, fills it, and publishes all messages that are
/// complete and have no incomplete one before them; nobody waits for another one but for
/// room. The messages of one thread arrive in its order.
///
/// ```
/// use rdma_conn::buffered_read::{Config, pair};
///
/// let device = rdma_conn::device::soft()?;
/// let (a, mut b) = pair(&device, &device, &Config::default())?;
/// let sender = a.sender.into_shared(16).expect("nothing was sent yet");
/// std::thread::scope(|scope| {
///     for number in 0..3_u8 {
///         let sender = &sender;
///         scope.spawn(move || sender.send_async(&[number]));
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
    config: Config,
    /// Whether the sender below has ended.
    is_over: AtomicBool,
    /// Looks at what the receiver tells, and asks after it.
    sender: Mutex<Sender>,
}

impl Sender {
    /// Gives the half to several threads, of which `at_once`, a power of two, can be
    /// sending at the same time; more of them wait for each other.
    ///
    /// # Errors
    /// The sender itself, where messages were sent already, or `at_once` is no power of two
    /// up to 2^23.
    // It is given back whole, as it came.
    #[allow(clippy::result_large_err)]
    pub fn into_shared(mut self, at_once: u32) -> Result<SharedSender, Sender> {
        let slots: Box<[RecordSlot]> = (0..at_once).map(|_| RecordSlot::new()).collect();
        let senders = Senders::new(*self.source.ring().geometry(), slots);
        let senders = match senders {
            Ok(senders) if self.source.ring().tail() == 0 => senders,
            _ => return Err(self),
        };
        Ok(SharedSender {
            senders,
            ring: self.ring.share(),
            block: self.block.clone(),
            number: self.number,
            config: self.config,
            is_over: AtomicBool::new(self.ended.is_some()),
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
    /// As [`Sender::try_send`].
    pub fn try_send(&self, message: &[u8]) -> Result<Ticket, SendError> {
        // Relaxed: whoever has ended it is asked below.
        if self.is_over.load(Ordering::Relaxed) {
            self.lock().check_alive()?;
        }
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let grant = match self.senders.reserve(len) {
            Ok(grant) => grant,
            Err(e) => return Err(self.refused(e, message.len())),
        };
        let offset = grant.payload().offset as usize;
        let (header, skip) = self.senders.headers(&grant);
        let store = |Header { offset, word }| self.ring.store_u64(offset as usize, word.to_le());
        let stored = self.ring.copy_in(offset, message).and_then(|()| store(header));
        let stored = stored.and_then(|()| skip.map_or(Ok(()), store));
        debug_assert!(stored.is_ok(), "the machine and the ring have different books");
        let end = grant.position() + record_bytes(len);
        self.senders.publish(grant, |tail| self.block.publish_tail(tail));
        Ok(Ticket { sender: self.number, end })
    }

    /// Accepts a message, waiting for room as long as that takes.
    ///
    /// # Errors
    /// As [`Sender::send_async`].
    pub fn send_async(&self, message: &[u8]) -> Result<Ticket, SendError> {
        self.wait_for(|| match self.try_send(message) {
            Err(SendError::Full(_)) => Ok(None),
            done => done.map(Some),
        })
    }

    /// Whether the message of `ticket` is acknowledged; never waits.
    ///
    /// # Errors
    /// As [`Sender::is_sent`].
    pub fn is_sent(&self, ticket: Ticket) -> Result<bool, SendError> {
        let mut sender = self.lock();
        // Where that ends it, it is told below, but for what has landed before.
        let _ = self.look(&mut sender);
        // Its message may not be published yet: another thread is still copying one that lies
        // before it.
        match ticket.sender == self.number {
            true => sender.has_landed(ticket),
            false => Err(SendError::UnknownTicket),
        }
    }

    /// Waits until the message of `ticket` is acknowledged, and so every one that lies
    /// before it in the ring: it lies in the receiver's memory.
    ///
    /// # Errors
    /// As [`Sender::wait`].
    pub fn wait(&self, ticket: Ticket) -> Result<(), SendError> {
        self.wait_for(|| self.is_sent(ticket).map(|is_sent| is_sent.then_some(())))
    }

    /// Waits until the receiver has read all, and ends the half.
    ///
    /// # Errors
    /// As [`Sender::close`].
    pub fn close(mut self) -> Result<(), SendError> {
        self.gather().goodbye(Deadline::NEVER)
    }
}

/// What only one thread does at a time.
impl SharedSender {
    fn lock(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn refused(&self, why: ReserveError, bytes: usize) -> SendError {
        if let ReserveError::TooLong { most } = why {
            return SendError::TooLong { bytes, limit: most as usize };
        }
        // Whoever has the lock looks for all.
        let looked = match self.sender.try_lock() {
            Ok(mut sender) => self.look(&mut sender),
            Err(TryLockError::Poisoned(e)) => self.look(&mut e.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(()),
        };
        looked.err().unwrap_or(SendError::Full(Full::Ring))
    }

    /// Takes in what the receiver tells.
    fn look(&self, sender: &mut Sender) -> Result<(), SendError> {
        // The words first: what they tell of was published before.
        let words = sender.words();
        sender.source.catch_up(self.senders.tail());
        let looked = sender.check_alive().and_then(|()| sender.take_in(words));
        // What the machine has believed is no lie, and no older than what is known.
        let _ = self.senders.on_head(sender.source.ring().head());
        if looked.is_err() {
            // Relaxed: whoever sees it asks for the reason under the lock.
            self.is_over.store(true, Ordering::Relaxed);
        }
        looked.map(drop)
    }

    /// Waits until `done` has something.
    fn wait_for<T>(
        &self,
        mut done: impl FnMut() -> Result<Option<T>, SendError>,
    ) -> Result<T, SendError> {
        let mut idle = Idle::new(self.config.wait, Deadline::NEVER, self.config.keepalive);
        let mut nap = Nap::new();
        loop {
            if let Some(done) = done()? {
                return Ok(done);
            }
            match idle.step() {
                Step::Again => {}
                Step::Sleep(time) => nap.take(time),
                Step::Probe | Step::TimedOut => self.lock().probe()?,
            }
            if let Ok(mut sender) = self.sender.try_lock() {
                sender.source.catch_up(self.senders.tail());
                sender.hear_answers()?;
            }
        }
    }

    /// The sender, which knows of all that was sent.
    fn gather(&mut self) -> &mut Sender {
        let tail = self.senders.tail();
        let sender = self.sender.get_mut().unwrap_or_else(PoisonError::into_inner);
        sender.source.catch_up(tail);
        sender
    }
}

impl Drop for SharedSender {
    fn drop(&mut self) {
        // It says goodbye behind the last message.
        self.gather();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered_read::{Connection, pair};

    #[test]
    fn a_message_behind_one_that_is_still_copied_is_waited_for() {
        let device = crate::device::soft().unwrap();
        let config = Config::default();
        let connection = || {
            let (a, b) = pair(&device, &device, &config).unwrap();
            let Connection { sender, .. } = a;
            (sender.into_shared(4).unwrap(), b.receiver)
        };
        let ((sender, mut receiver), (other, _)) = (connection(), connection());
        let slow = sender.senders.reserve(8).unwrap();
        let ticket = sender.try_send(b"in time").unwrap();
        assert_eq!(sender.is_sent(ticket), Ok(false));
        assert_eq!(other.is_sent(ticket), Err(SendError::UnknownTicket));
        let (header, _) = sender.senders.headers(&slow);
        sender.ring.store_u64(header.offset as usize, header.word.to_le()).unwrap();
        sender.senders.publish(slow, |tail| sender.block.publish_tail(tail));
        assert_eq!(receiver.recv().unwrap().len(), 8);
        assert_eq!(&*receiver.recv().unwrap(), b"in time");
    }
}
