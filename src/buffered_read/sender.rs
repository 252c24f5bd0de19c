//! The sending half.

mod shared;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conn_core::buffered_read::{Source, WordError, Words};
use conn_core::ring::offer::HEAD_AT;
use conn_core::ring::{Grant, ReserveError};
use verbs_safe::{CompletionBatch, CompletionQueue, QpControl, SendQueue, SourceRing};

use super::Config;
use crate::ring::Layout;
use crate::ring::memory::ControlBlock;
use crate::send_recv::{Ended, Full, SendError, Violation};
use crate::wait::{Deadline, Silence};

pub use shared::SharedSender;

/// Proof that a message was accepted, and what to [`wait`](Sender::wait) for. Of one
/// sender's tickets the later one is the greater one; another sender does not know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The number of its sender.
    sender: u32,
    /// Where the message ends.
    end: u64,
}

/// Numbers of senders, so that a ticket tells whose it is.
static SENDERS: AtomicU32 = AtomicU32::new(0);

/// What a sender has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests posted: questions after a peer of which nothing was heard, and
    /// nothing else.
    pub work_requests: u64,
    /// Times that a message had to wait for room.
    pub stalls: u64,
}

/// The sending half of a connection: a ring, and one thread that fills it.
///
/// To send is to copy a message into the ring, and to publish how far it is filled: the
/// sender's queue pair has nothing posted, and its completion queue nothing in it. The
/// receiver reads the ring.
///
/// Dropping a sender waits until the receiver has read all, for at most
/// [`linger`](Config::linger), for the ring goes with it; [`close`](Sender::close) does the
/// same and tells how it went.
#[derive(Debug)]
pub struct Sender {
    number: u32,
    source: Source,
    ring: SourceRing,
    block: Arc<ControlBlock>,
    control: QpControl,
    queue: SendQueue,
    cq: CompletionQueue,
    batch: CompletionBatch,
    config: Config,
    ended: Option<Ended>,
    silence: Silence,
    stats: SenderStats,
}

/// What the set-up hands over.
pub(super) struct SenderParts {
    pub(super) control: QpControl,
    pub(super) queue: SendQueue,
    pub(super) cq: CompletionQueue,
    pub(super) ring: SourceRing,
    pub(super) block: ControlBlock,
    pub(super) source: Source,
    pub(super) config: Config,
}

/// Making, inspecting.
impl Sender {
    pub(super) fn new(parts: SenderParts) -> Sender {
        let SenderParts { control, queue, cq, ring, block, source, config } = parts;
        Sender {
            // Relaxed: a number, and nothing that it would publish.
            number: SENDERS.fetch_add(1, Ordering::Relaxed),
            source,
            ring,
            block: Arc::new(block),
            control,
            queue,
            cq,
            batch: CompletionBatch::new(4),
            config,
            ended: None,
            silence: Silence::default(),
            stats: SenderStats::default(),
        }
    }

    /// How its ring lies in memory: [`Layout::Plain`] also where a mirrored one was asked
    /// for, and there was none to be had.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self.source.ring().geometry().is_mirrored() {
            true => Layout::Mirrored,
            false => Layout::Plain,
        }
    }

    /// Longest message that can be sent, in bytes.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.source.ring().geometry().max_payload() as usize
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats { work_requests: self.queue.posted_total(), ..self.stats }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.control.qp_num()
    }
}

/// Sending.
impl Sender {
    /// Accepts a message if there is room for it now. It never waits, and so never asks
    /// whether a silent peer is still there: the calls that wait do.
    ///
    /// # Errors
    /// [`SendError::Full`] when there is none: nothing was sent, try again later.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        match self.accept(message) {
            Some(ticket) => Ok(ticket),
            None => self.try_send_after_look(message),
        }
    }

    /// As [`try_send`](Sender::try_send), filled in place: `fill` is given exactly `bytes`
    /// bytes of the ring, which hold what an earlier message left.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send); `fill` is then not called.
    #[inline]
    pub fn try_send_with(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Ticket, SendError> {
        let grant = self.grant(bytes)?;
        let span = grant.payload();
        match self.ring.lend(span.offset as usize, span.len as usize) {
            Ok(room) => fill(room),
            Err(_) => return Err(self.misjudged()),
        }
        self.commit(grant, bytes as u32).ok_or_else(|| self.misjudged())
    }

    /// Takes room for a message of up to `bytes` bytes, waiting for it as long as that
    /// takes: to be filled in place, and sent by [`Reserved::send`].
    ///
    /// ```
    /// use rdma_conn::buffered_read::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// let mut room = a.sender.reserve(100)?;
    /// room[..5].copy_from_slice(b"hello");
    /// room.send(5)?;
    /// assert_eq!(&*b.receiver.recv()?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Ended`].
    pub fn reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        self.room_until(bytes, Deadline::NEVER)?;
        self.try_reserve(bytes)
    }

    /// As [`reserve`](Sender::reserve), if there is room now.
    ///
    /// # Errors
    /// Also [`SendError::Full`].
    pub fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        let grant = self.grant(bytes)?;
        Ok(Reserved { sender: self, grant })
    }

    /// Accepts a message, waiting for room as long as that takes.
    ///
    /// ```
    /// use rdma_conn::buffered_read::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// let ticket = a.sender.send_async(b"one")?;
    /// let message = b.receiver.recv()?;
    /// assert_eq!((&*message, a.sender.stats().work_requests), (&b"one"[..], 0));
    /// # let _ = ticket;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Ended`].
    #[inline]
    pub fn send_async(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        match self.accept(message) {
            Some(ticket) => Ok(ticket),
            None => self.send_slowly(message, Deadline::NEVER),
        }
    }

    /// As [`send_async`](Sender::send_async), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the message was then not accepted.
    pub fn send_async_timeout(
        &mut self,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Ticket, SendError> {
        match self.accept(message) {
            Some(ticket) => Ok(ticket),
            None => self.send_slowly(message, Deadline::after(timeout)),
        }
    }

    /// Sends a message and waits until it is acknowledged: the receiver has read it, and
    /// told so, which it does at the latest when it finds nothing more to read.
    ///
    /// # Errors
    /// As [`send_async`](Sender::send_async) and [`wait`](Sender::wait).
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let ticket = self.send_async(message)?;
        self.wait(ticket)
    }

    /// Takes in what the receiver has told. Nothing is ever kept back that would have to be
    /// sent: each message is published at once.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn flush(&mut self) -> Result<(), SendError> {
        self.check_alive()?;
        self.look().map(drop)
    }

    /// Whether the message of `ticket` is acknowledged; never waits.
    ///
    /// # Errors
    /// [`SendError::Ended`] when it never will be, [`SendError::UnknownTicket`].
    pub fn is_sent(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if !self.source.has_landed(ticket.end) && self.ended.is_none() {
            // Where that ends it, it is looked at below what has landed before.
            let _ = self.look();
        }
        self.has_landed(ticket)
    }

    /// Waits until the message of `ticket`, and so every earlier one, is acknowledged: it
    /// lies in the receiver's memory.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`].
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::NEVER)
    }

    /// As [`wait`](Sender::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the ticket stays good.
    pub fn wait_timeout(&mut self, ticket: Ticket, timeout: Duration) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::after(timeout))
    }

    /// Waits until everything accepted is acknowledged.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn wait_all(&mut self) -> Result<(), SendError> {
        self.wait_until(self.last_ticket(), Deadline::NEVER)
    }

    /// Waits until the receiver has read all, and ends the half. The peer's receiver hands
    /// out every message before it reports the end.
    ///
    /// # Errors
    /// [`SendError::Ended`] when something accepted was not read, or the peer has stopped
    /// receiving before this end had said goodbye.
    pub fn close(mut self) -> Result<(), SendError> {
        self.goodbye(Deadline::NEVER)
    }
}

/// Room that was taken for one message: derefs to its bytes. Nothing is sent if it is
/// dropped.
#[derive(Debug)]
#[must_use = "nothing is sent before `send`"]
pub struct Reserved<'a> {
    sender: &'a mut Sender,
    grant: Grant,
}

impl Reserved<'_> {
    /// Sends the first `bytes` bytes.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if that is more than was reserved; nothing is sent then.
    pub fn send(self, bytes: usize) -> Result<Ticket, SendError> {
        let limit = self.grant.payload().len as usize;
        if bytes > limit {
            return Err(SendError::TooLong { bytes, limit });
        }
        let Reserved { sender, grant } = self;
        sender.commit(grant, bytes as u32).ok_or_else(|| sender.misjudged())
    }
}

impl std::ops::Deref for Reserved<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let span = self.grant.payload();
        self.sender.ring.bytes(span.offset as usize, span.len as usize).unwrap_or_default()
    }
}

impl std::ops::DerefMut for Reserved<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let span = self.grant.payload();
        self.sender.ring.lend(span.offset as usize, span.len as usize).unwrap_or_default()
    }
}

/// Accepting a message.
impl Sender {
    /// How far ahead the ring's lines are asked for, in bytes.
    const AHEAD: usize = 1024;

    /// Accepts a message for which there is room, as far as was looked at.
    // An answer of few words: one with an error in it would go through memory, from where it
    // is loaded in wider pieces than it was stored in. A processor does that when all earlier
    // stores are done, among which are those to lines that the receiver's has.
    #[inline(always)]
    fn accept(&mut self, message: &[u8]) -> Option<Ticket> {
        let len = u32::try_from(message.len()).ok()?;
        let grant = self.source.reserve(len).ok()?;
        if self.ended.is_some() {
            return None;
        }
        self.ring.copy_in(grant.payload().offset as usize, message).ok()?;
        self.commit(grant, len)
    }

    /// As [`try_send`](Sender::try_send), when there seems to be no room.
    #[cold]
    fn try_send_after_look(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let grant = self.grant_after_look(message.len(), len)?;
        let copied = self.ring.copy_in(grant.payload().offset as usize, message);
        let sent = copied.ok().and_then(|()| self.commit(grant, len));
        sent.ok_or_else(|| self.misjudged())
    }

    /// Sends a message for which there seems to be no room, when there is.
    #[cold]
    fn send_slowly(&mut self, message: &[u8], deadline: Deadline) -> Result<Ticket, SendError> {
        match self.try_send_after_look(message) {
            Err(SendError::Full(_)) => self.send_when_free(message, deadline),
            done => done,
        }
    }

    /// Room for a message; looks at the receiver's words only when there seems to be none.
    #[inline]
    fn grant(&mut self, bytes: usize) -> Result<Grant, SendError> {
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.source.reserve(len) {
            Ok(grant) if self.ended.is_none() => Ok(grant),
            _ => self.grant_after_look(bytes, len),
        }
    }

    #[cold]
    fn grant_after_look(&mut self, bytes: usize, len: u32) -> Result<Grant, SendError> {
        self.check_alive()?;
        self.look()?;
        self.source.reserve(len).map_err(|e| match e {
            ReserveError::TooLong { most } => SendError::TooLong { bytes, limit: most as usize },
            _ => SendError::Full(Full::Ring),
        })
    }

    /// Publishes the first `len` bytes of what was granted; `None` if that has ended the half.
    #[inline(always)]
    fn commit(&mut self, grant: Grant, len: u32) -> Option<Ticket> {
        let ticket = self.publish(grant, len);
        if ticket.is_none() {
            self.misjudged();
        }
        ticket
    }

    #[inline(always)]
    fn publish(&mut self, grant: Grant, len: u32) -> Option<Ticket> {
        let committed = self.source.commit(grant, len).ok()?;
        let header = committed.header;
        self.ring.store_u64(header.offset as usize, header.word).ok()?;
        if let Some(skip) = committed.skip {
            self.ring.store_u64(skip.offset as usize, skip.word).ok()?;
        }
        let tail = self.source.tail_word();
        self.block.publish_tail(tail);
        self.ring.will_fill(header.offset as usize + Self::AHEAD);
        self.stats.messages += 1;
        self.stats.bytes += u64::from(len);
        Some(Ticket { sender: self.number, end: tail })
    }

    /// The machine grants what the ring does not have: a bug of ours, after which nothing
    /// is certain.
    #[cold]
    fn misjudged(&mut self) -> SendError {
        debug_assert!(false, "the machine and the ring have different books");
        self.fail(Ended::Device("room was granted that the ring does not have".into()))
    }

    fn fail(&mut self, ended: Ended) -> SendError {
        self.ended.get_or_insert(ended).clone().into()
    }

    fn check_alive(&self) -> Result<(), SendError> {
        self.ended.clone().map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Looks at what the receiver has told; whether that is news.
    fn look(&mut self) -> Result<bool, SendError> {
        self.take_in(self.words())
    }

    /// Whether the message of `ticket` has landed, as far as was looked at.
    fn has_landed(&self, ticket: Ticket) -> Result<bool, SendError> {
        match (&self.ended, self.source.has_landed(ticket.end)) {
            (_, true) => Ok(true),
            (Some(ended), false) => Err(ended.clone().into()),
            (None, false) => Ok(false),
        }
    }

    /// What the receiver has told; `None` while it is being written.
    fn words(&self) -> Option<Words> {
        self.block.observe(HEAD_AT).map(|[head, landed]| Words { head, landed })
    }

    fn take_in(&mut self, words: Option<Words>) -> Result<bool, SendError> {
        let Some(words) = words else { return Ok(false) };
        let news = self.source.on_words(words).map_err(|e| {
            let violation = match e {
                WordError::Head(e) | WordError::Landed(e) => Violation::Head(e),
                _ => Violation::Words(e),
            };
            self.fail(Ended::Protocol(violation))
        })?;
        if self.source.is_stopped() && !self.source.is_seen() {
            return Err(self.fail(Ended::PeerStopped));
        }
        Ok(news)
    }
}
