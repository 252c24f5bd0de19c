//! The sending half.

mod shared;
mod wait;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use host::plant::{Plant, is_planted};

use conn_core::buffered_read::wake::Waker;
use conn_core::buffered_read::{Source, WordError, Words};
use conn_core::ring::offer::HEAD_AT;
use conn_core::ring::{Grant, ReserveError};
use verbs_safe::{CompletionBatch, SharedRegion, SourceRing};

use crate::arm::Arm;
use crate::error::{CloseReason, Full, ProtocolError, SendError};
use crate::half::{Room, SendHalf, check_within, send_when_free};
use crate::ring::Layout;
use crate::ring::memory::ControlBlock;
use crate::sending::{Half, Sends};
use crate::ticket::Ticket;
use crate::wait::Deadline;

pub use shared::SharedSender;

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests posted: only wake-ups for a sleeping receiver that has asked for one, and
    /// probes of a silent peer.
    pub work_requests: u64,
    /// Times that a message had to wait for room.
    pub stalls: u64,
}

/// The sending half of a connection: a ring, and one thread that fills it.
///
/// It copies a message into the ring and publishes the tail: no work request and no completion. The
/// receiver reads the ring.
///
/// Dropping a sender frees the ring, so it first waits until the receiver has read all, for at most
/// [`linger`](crate::Common::linger). [`close`](Sender::close) does the same and returns the
/// result.
#[derive(Debug)]
pub struct Sender {
    half: Half,
    source: Source,
    waker: Waker,
    ring: SourceRing,
    /// The same ring, once several threads fill it.
    shared: Option<SharedRegion>,
    block: Arc<ControlBlock>,
    batch: CompletionBatch,
    /// The receiver's state as the last look of a wait has shown it.
    known: ReceiverSnapshot,
    stats: SenderStats,
}

/// A receiver's state: its head, its landed position, and whether it has seen the end.
type ReceiverSnapshot = (u64, u64, bool);

/// Making, inspecting.
impl Sender {
    pub(super) fn new(half: Half, ring: SourceRing, block: ControlBlock, source: Source) -> Sender {
        Sender {
            half,
            source,
            waker: Waker::default(),
            ring,
            shared: None,
            block: Arc::new(block),
            batch: CompletionBatch::new(4),
            known: ReceiverSnapshot::default(),
            stats: SenderStats::default(),
        }
    }

    /// Returns the layout of its ring in memory: [`Layout::Plain`] also where a mirrored one was
    /// asked for, and could not be made.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self.source.ring().geometry().is_mirrored() {
            true => Layout::Mirrored,
            false => Layout::Plain,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats { work_requests: self.half.posting.posted_total(), ..self.stats }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.half.posting.qp_num()
    }
}

impl SendHalf for Sender {
    type Room<'a> = Reserved<'a>;

    fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        let grant = self.grant(bytes)?;
        Ok(Reserved { sender: self, grant })
    }

    fn max_message_bytes(&self) -> usize {
        self.source.ring().geometry().max_payload() as usize
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        match self.accept(message) {
            Some(ticket) => Ok(ticket),
            None => self.try_send_after_look(message),
        }
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.look_after_peer()?;
        self.half.posting.check()?;
        self.look().map(drop)
    }

    /// No event announces the receiver's writes.
    fn arm(&mut self) -> Result<Arm<'_>, SendError> {
        self.wake_receiver_for_certain();
        self.arm_by(|_| Ok(true))
    }

    fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        self.is_acked_now(ticket)
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        match self.accept(message) {
            Some(ticket) => Ok(ticket),
            None => self.send_slowly(message, Deadline::NEVER),
        }
    }

    fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<Ticket, SendError> {
        match self.accept(message) {
            Some(ticket) => Ok(ticket),
            None => self.send_slowly(message, Deadline::after(timeout)),
        }
    }
}

/// Sending.
impl Sender {
    /// As [`try_send`](Sender::try_send), filled in place: `fill` gets exactly `bytes` bytes of the
    /// ring, with contents of an earlier message.
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
            Err(_) => return Err(self.internal_error()),
        }
        self.commit(grant, bytes as u32).ok_or_else(|| self.internal_error())
    }
}

/// Room that was taken for one message: derefs to its bytes. Nothing is sent if it is
/// dropped.
#[derive(Debug)]
#[must_use = "nothing is sent before `commit`"]
pub struct Reserved<'a> {
    sender: &'a mut Sender,
    grant: Grant,
}

impl Room for Reserved<'_> {
    fn capacity(&self) -> usize {
        self.grant.payload().len as usize
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
        check_within(at.saturating_add(bytes.len()), self.capacity())?;
        self[at..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
        check_within(bytes, self.capacity())?;
        let Reserved { sender, grant } = self;
        sender.commit(grant, bytes as u32).ok_or_else(|| sender.internal_error())
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
    /// Distance ahead, in bytes, at which the ring's cache lines are requested.
    const AHEAD: usize = 1024;

    /// Accepts a message if there is room by the last known head.
    // Returns few words: a result with an error would go through memory, and be loaded in wider
    // pieces than it was stored in. Such a load waits for all earlier stores, also those to cache
    // lines that the receiver's processor has.
    #[inline(always)]
    fn accept(&mut self, message: &[u8]) -> Option<Ticket> {
        let len = u32::try_from(message.len()).ok()?;
        let grant = self.source.reserve(len).ok()?;
        if self.half.posting.ended().is_some() || self.half.waiting.watch.has_ticked() {
            return None;
        }
        self.ring.copy_in(grant.payload().offset as usize, message).ok()?;
        self.commit(grant, len)
    }

    /// As [`try_send`](Sender::try_send), when there seems to be no room, or it is time to look
    /// after the peer.
    #[cold]
    fn try_send_after_look(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let grant = self.grant_after_look(message.len(), len)?;
        let copied = self.ring.copy_in(grant.payload().offset as usize, message);
        let sent = copied.ok().and_then(|()| self.commit(grant, len));
        sent.ok_or_else(|| self.internal_error())
    }

    /// As [`try_send_after_look`](Self::try_send_after_look), and waits for room.
    #[cold]
    fn send_slowly(&mut self, message: &[u8], deadline: Deadline) -> Result<Ticket, SendError> {
        match self.try_send_after_look(message) {
            Ok(ticket) => Ok(ticket),
            Err(error) => send_when_free(self, message, error, deadline),
        }
    }

    /// Room for a message; looks at the receiver's words only when there seems to be none.
    #[inline]
    fn grant(&mut self, bytes: usize) -> Result<Grant, SendError> {
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.source.reserve(len) {
            Ok(grant)
                if self.half.posting.ended().is_none() && !self.half.waiting.watch.has_ticked() =>
            {
                Ok(grant)
            }
            _ => self.grant_after_look(bytes, len),
        }
    }

    #[cold]
    fn grant_after_look(&mut self, bytes: usize, len: u32) -> Result<Grant, SendError> {
        self.look_after_peer()?;
        self.half.posting.check()?;
        if let Ok(grant) = self.source.reserve(len) {
            return Ok(grant);
        }
        self.look()?;
        self.source.reserve(len).map_err(|e| match e {
            ReserveError::TooLong { most } => SendError::TooLong { bytes, limit: most as usize },
            _ => SendError::Full(Full::Ring),
        })
    }

    /// Publishes the first `len` bytes of the grant; `None` if that has ended the half.
    #[inline(always)]
    fn commit(&mut self, grant: Grant, len: u32) -> Option<Ticket> {
        let ticket = self.publish(grant, len);
        if ticket.is_none() {
            self.internal_error();
        }
        ticket
    }

    #[inline(always)]
    fn publish(&mut self, grant: Grant, len: u32) -> Option<Ticket> {
        let committed = self.source.commit(grant, len).ok()?;
        let header = committed.header;
        if is_planted(Plant::EarlyTail) {
            self.block.publish_tail(self.source.tail_word());
        }
        self.ring.store_u64(header.offset as usize, header.word).ok()?;
        if let Some(skip) = committed.skip {
            self.ring.store_u64(skip.offset as usize, skip.word).ok()?;
        }
        let tail = self.source.tail_word();
        self.block.publish_tail(tail);
        if self.waker.is_news(self.block.wake_word()) {
            self.wake_receiver();
        }
        self.ring.will_fill(header.offset as usize + Self::AHEAD);
        self.stats.messages += 1;
        self.stats.bytes += u64::from(len);
        Some(self.half.ticket(tail))
    }

    /// Ends the half: the machine grants bytes that the ring does not have. This is a bug of ours.
    #[cold]
    fn internal_error(&mut self) -> SendError {
        debug_assert!(false, "the machine and the ring have different books");
        let why = "room was granted that the ring does not have";
        self.half.posting.fail(CloseReason::Device(why.into())).into()
    }

    /// Looks at the receiver's words; returns whether they have changed.
    fn look(&mut self) -> Result<bool, SendError> {
        self.take_in(self.words())
    }

    /// Reports whether the message of `ticket` has landed, as far as the last look has shown.
    fn has_landed(&self, ticket: Ticket) -> Result<bool, SendError> {
        match (self.half.posting.ended(), self.source.has_landed(ticket.number)) {
            (_, true) => Ok(true),
            (Some(ended), false) => Err(ended.clone().into()),
            (None, false) => Ok(false),
        }
    }

    /// The receiver's words in the control block; `None` while they are being written.
    fn words(&self) -> Option<Words> {
        self.block.observe(HEAD_AT).map(|[head, landed]| Words { head, landed })
    }

    fn take_in(&mut self, words: Option<Words>) -> Result<bool, SendError> {
        let Some(words) = words else { return Ok(false) };
        let news = self.source.on_words(words).map_err(|e| {
            let violation = match e {
                WordError::Head(e) | WordError::Landed(e) => ProtocolError::Head(e),
                _ => ProtocolError::Words(e),
            };
            self.half.posting.fail(CloseReason::Protocol(violation))
        })?;
        if self.source.is_stopped() && !self.source.is_seen() {
            let ended = self.peer_stopped();
            return Err(self.half.posting.fail(ended).into());
        }
        Ok(news)
    }

    /// The receiver has stopped, and has read up to its head: how this half has ended.
    #[cold]
    fn peer_stopped(&self) -> CloseReason {
        let unacked = self.source.unacked(|offset| match &self.shared {
            Some(region) => region.load_u64(offset as usize).ok().map(u64::from_le),
            None => {
                let bytes = self.ring.bytes(offset as usize, 8).ok()?;
                Some(u64::from_le_bytes(*bytes.first_chunk()?))
            }
        });
        // The ring is this end's own, and has all headers that the machine knows.
        debug_assert!(unacked.is_some(), "the machine and the ring have different books");
        CloseReason::by_peer(unacked.unwrap_or(1))
    }
}
