//! The sending half.

mod alone;
mod drive;
mod straight;
mod wait;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conn_core::buffered_write::WriteSender;
use conn_core::buffered_write::beside::LINE_BYTES;
use conn_core::ring::offer::{HEAD_AT, Place, TAIL_AT};
use conn_core::ring::{Committed, Grant, Header, ReserveError, Span};
use conn_core::wr::WrId;
use verbs_safe::{
    CompletionBatch, CompletionChannel, CompletionQueue, QpControl, RegionId, RemoteSpan,
    SendQueue, SharedRegion,
};

use super::{Config, Ended, Full, SendError};
use crate::ring::memory::{ControlBlock, remote};
use crate::wait::{Deadline, Silence};
use crate::wire::Tracker;

/// Proof that a message was accepted, and what to [`wait`](Sender::wait) for. Of one
/// sender's tickets the later one is the greater one; another sender does not know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The number of its sender.
    sender: u32,
    /// The position behind the message.
    end: u64,
}

/// Numbers of senders, so that a ticket tells whose it is. They come again after 2^32
/// senders, when no ticket of the first ones is waited for.
static SENDERS: AtomicU32 = AtomicU32::new(0);

/// What a sender has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pushes: what had gathered, and its tail.
    pub pushes: u64,
    /// Bytes of records pushed, with their headers.
    pub pushed_bytes: u64,
    /// Work requests executed on the send queue: data, tails, keepalives and the goodbye.
    pub work_requests: u64,
    /// Times that a message had to wait for the ring to have room.
    pub ring_stalls: u64,
}

/// The sending half of a connection: one queue pair, one completion queue, one thread.
///
/// A message becomes a record in a ring of this end, and gets a [`Ticket`]. What has gathered
/// there is written to the receiver's ring in one go: when
/// [`batch_bytes`](Config::batch_bytes) have gathered, by [`flush`](Sender::flush), and by
/// every call that waits.
///
/// Dropping a sender delivers what was accepted and says goodbye, for at most
/// [`linger`](Config::linger); [`close`](Sender::close) does the same and tells how it went.
/// A sender that has ended with an error says no goodbye.
#[derive(Debug)]
pub struct Sender {
    number: u32,
    control: QpControl,
    queue: SendQueue,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    batch: CompletionBatch,
    tracker: Tracker,
    core: WriteSender,
    /// Records that were not pushed, skipped ones with them.
    records: u32,
    /// Up to where records were written to the receiver's ring, maybe before they are pushed.
    written: u64,
    /// The ring of this end, and its name in the send queue.
    staging: SharedRegion,
    staging_id: RegionId,
    /// Bytes that go out of a slot.
    inline: u32,
    /// Where the receiver writes its head.
    block: ControlBlock,
    /// The ring and the control block of the receiver.
    peer_ring: Place,
    peer_tail: RemoteSpan,
    /// Whether the tail is told by immediates.
    by_immediate: bool,
    /// Whether a short message goes by itself, when nothing else is to be pushed.
    posts_alone: bool,
    /// Requests that will complete visibly, and up to where all is acknowledged then.
    marks: VecDeque<(WrId, u64)>,
    acknowledged: u64,
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
    pub(super) channel: Option<CompletionChannel>,
    pub(super) tracker: Tracker,
    pub(super) core: WriteSender,
    pub(super) staging: SharedRegion,
    pub(super) staging_id: RegionId,
    pub(super) block: ControlBlock,
    pub(super) peer_ring: Place,
    pub(super) peer_block: Place,
    pub(super) inline: u32,
    pub(super) config: Config,
}

/// Making, inspecting.
impl Sender {
    /// Completions polled at a time: each stands for many requests.
    const POLL_BATCH: usize = 16;

    pub(super) fn new(parts: SenderParts) -> Sender {
        let SenderParts { control, queue, cq, channel, tracker, core, config, .. } = parts;
        const { assert!(TAIL_AT + LINE_BYTES <= HEAD_AT, "the line of the tail") };
        let tail = remote(parts.peer_block, TAIL_AT, LINE_BYTES);
        let posts_alone = !core.has_window()
            && config.batch_bytes == 0
            && queue.max_inline() as usize >= Self::STRAIGHT_FROM;
        Sender {
            // Relaxed: a number, and nothing that it would publish.
            number: SENDERS.fetch_add(1, Ordering::Relaxed),
            control,
            marks: VecDeque::with_capacity(queue.depth() as usize),
            queue,
            cq,
            channel,
            batch: CompletionBatch::new(Self::POLL_BATCH),
            tracker,
            posts_alone,
            by_immediate: core.has_window(),
            core,
            records: 0,
            written: 0,
            staging: parts.staging,
            staging_id: parts.staging_id,
            inline: parts.inline,
            block: parts.block,
            peer_ring: parts.peer_ring,
            peer_tail: tail,
            acknowledged: 0,
            config,
            ended: None,
            silence: Silence::default(),
            stats: SenderStats::default(),
        }
    }

    /// Longest message that can be sent, in bytes: as the receiver's ring has it.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.core.geometry().max_payload() as usize
    }

    /// Bytes of the ring.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.core.geometry().capacity()
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
    /// Accepts a message if there is room for it now. It never waits, and so never
    /// asks whether a silent peer is still there: the calls that wait do. Nor does it wait
    /// for the receiver to take earlier tails: what it could not push, the next call does.
    ///
    /// # Errors
    /// [`SendError::Full`] when there is none: nothing was sent, try again later.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        let grant = self.grant(message.len())?;
        if self.goes_alone(message) {
            return self.send_alone(grant, message);
        }
        if message.len() >= Self::STRAIGHT_FROM {
            return self.send_long(grant, message);
        }
        write_padded(&self.staging, grant.payload(), message);
        self.commit(grant, message.len())
    }

    /// Accepts a message, waiting for room as long as that takes. It is pushed when
    /// [`batch_bytes`](Config::batch_bytes) have gathered, by [`flush`](Sender::flush), or by
    /// a call of this sender that waits: whoever goes on to wait for an answer to it flushes
    /// first, or waits for ever.
    ///
    /// ```
    /// use rdma_conn::buffered_write::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::low_latency())?;
    /// let ticket = a.sender.send_async(b"one")?;
    /// a.sender.wait(ticket)?; // acknowledged: it lies in b's memory
    /// assert_eq!(&*b.receiver.recv()?, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooLong`] with the ring's limit, [`SendError::Ended`].
    #[inline]
    pub fn send_async(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        match self.try_send(message) {
            Ok(ticket) if self.core.gathered() == 0 || self.config.batch_bytes > 0 => Ok(ticket),
            tried => self.send_late(tried, message),
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
        match self.try_send(message) {
            Err(SendError::Full(_)) => self.send_when_free(message, Deadline::after(timeout)),
            done => done,
        }
    }

    /// Room for a message of `bytes` bytes, to be written in place, if there is room now. It
    /// is sent by [`commit`](Reserved::commit), and never was if it is dropped.
    ///
    /// ```
    /// use rdma_conn::buffered_write::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// let mut message = a.sender.reserve(64)?;
    /// message.write(0, b"head, ")?;
    /// message.write(6, b"and tail")?;
    /// message.commit(14)?; // less than was reserved
    /// assert_eq!(&*b.receiver.recv()?, b"head, and tail");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send).
    pub fn reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        let grant = self.grant(bytes)?;
        Ok(Reserved { sender: self, grant })
    }

    /// Waits until a message of `bytes` bytes has room.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Ended`].
    pub fn wait_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
        self.room_until(bytes, Deadline::NEVER)
    }

    /// Sends a message and waits until it is acknowledged.
    ///
    /// # Errors
    /// As [`send_async`](Sender::send_async) and [`wait`](Sender::wait).
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let ticket = self.send_async(message)?;
        self.wait(ticket)
    }

    /// Pushes what was accepted and is still being gathered. It waits while the receiver has
    /// not taken its tails, or the send queue is full.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    #[inline]
    pub fn flush(&mut self) -> Result<(), SendError> {
        self.push(false)?;
        if self.core.gathered() > 0 { self.pushed_until(Deadline::NEVER) } else { Ok(()) }
    }

    /// Whether the message of `ticket` is acknowledged; never waits. Where it is not, what
    /// was accepted before is pushed, and its acknowledgement asked for.
    ///
    /// # Errors
    /// [`SendError::Ended`] when it never will be, [`SendError::UnknownTicket`].
    pub fn is_sent(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if self.acknowledged < ticket.end && self.ended.is_none() {
            self.push(true)?;
            self.nudge(ticket)?;
            self.progress()?;
        }
        match (&self.ended, self.acknowledged >= ticket.end) {
            (_, true) => Ok(true),
            (Some(ended), false) => Err(ended.clone().into()),
            (None, false) => Ok(false),
        }
    }

    /// Waits until the message of `ticket`, and so every earlier one, is
    /// acknowledged: it lies in the receiver's memory.
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
        self.drain(Deadline::NEVER)
    }

    /// Delivers what was accepted, says goodbye and ends the half. The peer's
    /// receiver hands out every message before it reports the end.
    ///
    /// # Errors
    /// [`SendError::Ended`] when something accepted was not delivered, or the peer has
    /// stopped receiving before this end had said goodbye.
    pub fn close(mut self) -> Result<(), SendError> {
        self.goodbye(Deadline::NEVER)
    }
}

/// Accepting a message.
impl Sender {
    #[inline]
    fn grant(&mut self, bytes: usize) -> Result<Grant, SendError> {
        // A length of more than 32 bits is too long for every ring.
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.core.reserve(len) {
            Ok(grant) if self.ended.is_none() => Ok(grant),
            _ => self.grant_late(bytes, len),
        }
    }

    /// There seems to be no room: looks how far the receiver has come.
    #[cold]
    fn grant_late(&mut self, bytes: usize, len: u32) -> Result<Grant, SendError> {
        self.check_alive()?;
        // What waits for the rest of its batch would otherwise never be freed.
        self.push(false)?;
        self.progress()?;
        self.check_alive()?;
        self.core.reserve(len).map_err(|e| match e {
            ReserveError::TooLong { .. } => {
                SendError::TooLong { bytes, limit: self.max_message_bytes() }
            }
            _ => SendError::Full(Full::Ring),
        })
    }

    /// Makes a message of the first `bytes` bytes of what was granted.
    #[inline]
    fn commit(&mut self, grant: Grant, bytes: usize) -> Result<Ticket, SendError> {
        self.accept(grant, bytes)?;
        if self.is_due() {
            self.push(false)?;
        }
        Ok(self.ticket())
    }

    /// Whether enough has gathered.
    #[inline]
    fn is_due(&self) -> bool {
        self.core.gathered() >= u64::from(self.config.batch_bytes)
    }

    /// The ticket of the last message.
    #[inline]
    fn ticket(&self) -> Ticket {
        Ticket { sender: self.number, end: self.core.tail() }
    }

    /// Makes a record of the first `bytes` bytes of what was granted, to be pushed.
    #[inline]
    fn accept(&mut self, grant: Grant, bytes: usize) -> Result<(), SendError> {
        let committed = self.make_record(grant, bytes)?;
        self.write_headers(committed);
        Ok(())
    }

    /// Makes a record, of which nothing is written yet.
    // Always: what it returns passes through memory otherwise, for each short message.
    #[inline(always)]
    fn make_record(&mut self, grant: Grant, bytes: usize) -> Result<Committed, SendError> {
        let Ok(committed) = self.core.commit(grant, bytes as u32) else {
            // The grant was given a moment ago, and the ring is not closed while it is lent.
            return Err(self.ended.clone().unwrap_or(Ended::Closed).into());
        };
        self.stats.messages += 1;
        self.stats.bytes += bytes as u64;
        Ok(committed)
    }

    #[inline]
    fn write_headers(&mut self, Committed { header, skip }: Committed) {
        self.write_header(header);
        self.records += 1;
        if let Some(skip) = skip {
            self.write_header(skip);
            self.records += 1;
        }
    }

    #[inline]
    fn write_header(&self, header: Header) {
        // A record's offset lies in the ring, whose memory is at least as long.
        let stored = self.staging.store_u64(header.offset as usize, header.word.to_le());
        debug_assert!(stored.is_ok());
    }

    fn check_alive(&self) -> Result<(), SendError> {
        self.ended.clone().map_or(Ok(()), |ended| Err(ended.into()))
    }
}

/// Writes a payload in whole words, up to where the record ends.
#[inline]
fn write_padded(staging: &SharedRegion, at: Span, message: &[u8]) {
    let (words, rest) = message.split_at(message.len() & !7);
    let offset = at.offset as usize;
    let mut written = staging.copy_in(offset, words);
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        written = written
            .and_then(|()| staging.store_u64(offset + words.len(), u64::from_ne_bytes(last)));
    }
    debug_assert!(written.is_ok(), "a granted span lies inside");
}

/// Room for one message in the ring, at the place where it will be sent from. See
/// [`Sender::reserve`].
#[derive(Debug)]
#[must_use = "it is sent by committing it"]
pub struct Reserved<'s> {
    sender: &'s mut Sender,
    grant: Grant,
}

impl Reserved<'_> {
    /// Bytes that were reserved.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.grant.payload().len as usize
    }

    /// Writes `bytes` at `at`. What is not written is left from an earlier message.
    ///
    /// # Errors
    /// [`SendError::TooLong`] when that goes beyond what was reserved.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
        let (span, end) = (self.grant.payload(), at.saturating_add(bytes.len()));
        let too_long = SendError::TooLong { bytes: end, limit: self.capacity() };
        if end > self.capacity() {
            return Err(too_long);
        }
        let written = self.sender.staging.copy_in(span.offset as usize + at, bytes);
        written.map_err(|_| too_long)
    }

    /// Sends the first `bytes` bytes.
    ///
    /// # Errors
    /// [`SendError::TooLong`] when that is more than was reserved; [`SendError::Ended`].
    pub fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
        if bytes > self.capacity() {
            return Err(SendError::TooLong { bytes, limit: self.capacity() });
        }
        self.sender.commit(self.grant, bytes)
    }
}
