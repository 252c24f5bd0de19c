//! The sending half.

mod drive;
mod send_short;
mod send_zcopy;
mod wait;

use std::time::Duration;

use conn_core::buffered_write::WriteSender;
use conn_core::buffered_write::inline_record::LINE_BYTES;
use conn_core::ring::offer::{HEAD_AT, Place, TAIL_AT};
use conn_core::ring::{Committed, Grant, Header, ReserveError, Span};
use verbs_safe::{RegionId, RemoteSpan, SharedRegion};

use super::Config;
use crate::arm::Arm;
use crate::error::{CloseReason, Full, SendError};
use crate::half::{Room, SendHalf, check_within};
use crate::ring::memory::{ControlBlock, remote};
use crate::sending::Sends;
use crate::ticket::Ticket;
use crate::wait::Deadline;
use crate::writing::Writing;

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pushes: gathered records and their tail.
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
/// A message becomes a record in a ring of this end, and gets a [`Ticket`]. Gathered records are
/// written to the receiver's ring at once: when there are [`batch_bytes`](Config::batch_bytes) of
/// them, by [`flush`](Sender::flush), and by every call that waits.
///
/// Dropping a sender delivers accepted messages and says goodbye, for at most
/// [`linger`](crate::Common::linger); [`close`](Sender::close) does the same and returns the
/// result. A sender that has ended with an error says no goodbye.
#[derive(Debug)]
pub struct Sender {
    /// Its messages are those that were pushed.
    writing: Writing,
    core: WriteSender,
    /// Records that were not pushed, skipped ones with them.
    records: u32,
    /// End of the records that were written to the receiver's ring, maybe before they are pushed.
    written: u64,
    /// The ring of this end, and its name in the send queue.
    staging: SharedRegion,
    staging_id: RegionId,
    /// Bytes that go out of a slot.
    inline: u32,
    /// Memory that the receiver writes its head to.
    block: ControlBlock,
    /// The ring and the control block of the receiver.
    peer_ring: Place,
    peer_tail: RemoteSpan,
    /// True if the receiver learns the tail from immediates.
    by_immediate: bool,
    /// True if a short message goes by itself when no other record waits.
    posts_short: bool,
    config: Config,
    stats: SenderStats,
}

/// Making, inspecting.
impl Sender {
    pub(super) fn new(
        writing: Writing,
        core: WriteSender,
        (staging, staging_id): (SharedRegion, RegionId),
        block: ControlBlock,
        (peer_ring, peer_block): (Place, Place),
        inline: u32,
        config: Config,
    ) -> Sender {
        const { assert!(TAIL_AT + LINE_BYTES <= HEAD_AT, "the line of the tail") };
        let posts_short = !core.has_window()
            && config.batch_bytes == 0
            && writing.half.posting.queue().max_inline() as usize >= Self::ZCOPY_FROM;
        Sender {
            writing,
            posts_short,
            by_immediate: core.has_window(),
            core,
            records: 0,
            written: 0,
            staging,
            staging_id,
            inline,
            block,
            peer_ring,
            peer_tail: remote(peer_block, TAIL_AT, LINE_BYTES),
            config,
            stats: SenderStats::default(),
        }
    }

    /// Bytes of the ring.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.core.geometry().capacity()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats { work_requests: self.writing.half.posting.posted_total(), ..self.stats }
    }

    /// Messages that were accepted and are still being gathered: [`flush`](Sender::flush) sends
    /// them. None, unless the configuration asks for gathering.
    #[must_use]
    pub fn unflushed(&self) -> u64 {
        self.gathered()
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.writing.half.posting.qp_num()
    }
}

impl SendHalf for Sender {
    type Room<'a> = Reserved<'a>;

    fn max_message_bytes(&self) -> usize {
        self.core.geometry().max_payload() as usize
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        let grant = self.grant(message.len())?;
        if self.is_short(message) {
            return self.send_short(grant, message);
        }
        if message.len() >= Self::ZCOPY_FROM {
            return self.send_zcopy(grant, message);
        }
        write_padded(&self.staging, grant.payload(), message);
        self.commit(grant, message.len())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), SendError> {
        self.look_after_peer()?;
        self.push(false)?;
        if self.core.gathered() > 0 { self.pushed_until(Deadline::NEVER) } else { Ok(()) }
    }

    fn flush_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        self.push(false)?;
        match self.core.gathered() {
            0 => Ok(()),
            _ => self.pushed_until(Deadline::after(timeout)),
        }
    }

    /// No event tells of room: completions tell of acknowledgements.
    fn arm(&mut self) -> Result<Arm<'_>, SendError> {
        let longest = self.core.geometry().max_payload();
        self.arm_by(|sender| {
            let has_room = sender.core.reserve(longest).is_ok() && sender.core.gathered() == 0;
            Ok(!has_room || sender.was_acked(sender.last()))
        })
    }

    fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        self.is_acked_now(ticket)
    }

    fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        let grant = self.grant(bytes)?;
        Ok(Reserved { sender: self, grant })
    }
}

/// Accepting a message.
impl Sender {
    #[inline]
    fn grant(&mut self, bytes: usize) -> Result<Grant, SendError> {
        // A length of more than 32 bits is too long for every ring.
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.core.reserve(len) {
            Ok(grant)
                if self.writing.half.posting.ended().is_none()
                    && self.has_push_room()
                    && !self.writing.half.waiting.watch.has_ticked() =>
            {
                Ok(grant)
            }
            _ => self.grant_late(bytes, len),
        }
    }

    /// Slow path of a grant, without room or when a check of the peer is due: reads the receiver's
    /// head first.
    #[cold]
    fn grant_late(&mut self, bytes: usize, len: u32) -> Result<Grant, SendError> {
        if self.writing.half.waiting.watch.has_ticked() {
            self.look_after_peer()?;
            self.writing.half.posting.check()?;
            if let Ok(grant) = self.core.reserve(len)
                && self.has_push_room()
            {
                return Ok(grant);
            }
        }
        self.writing.half.posting.check()?;
        // Messages that wait for the rest of their batch would otherwise never be freed.
        self.push(false)?;
        self.progress()?;
        self.writing.half.posting.check()?;
        let grant = self.core.reserve(len).map_err(|e| match e {
            ReserveError::TooLong { .. } => {
                SendError::TooLong { bytes, limit: self.max_message_bytes() }
            }
            _ => SendError::Full(Full::Ring),
        })?;
        // Where the configuration asks for gathering, they wait for a push anyway.
        if self.config.batch_bytes == 0 || self.writing.half.gathers {
            self.check_push_room()?;
        }
        Ok(grant)
    }

    /// Makes a message of the first `bytes` bytes of the grant.
    #[inline]
    fn commit(&mut self, grant: Grant, bytes: usize) -> Result<Ticket, SendError> {
        self.accept(grant, bytes)?;
        if self.is_due() {
            self.push(false)?;
        }
        Ok(self.ticket())
    }

    /// Reports whether enough has gathered.
    #[inline]
    fn is_due(&self) -> bool {
        !self.writing.half.gathers && self.core.gathered() >= u64::from(self.config.batch_bytes)
    }

    /// The ticket of the last message.
    #[inline]
    fn ticket(&self) -> Ticket {
        self.writing.half.ticket(self.stats.messages)
    }

    /// Makes a record of the first `bytes` bytes of the grant, to be pushed.
    #[inline]
    fn accept(&mut self, grant: Grant, bytes: usize) -> Result<(), SendError> {
        let committed = self.make_record(grant, bytes)?;
        self.write_headers(committed);
        Ok(())
    }

    /// Makes a record before its header is written.
    // Always inlined: otherwise the result passes through memory for each short message.
    #[inline(always)]
    fn make_record(&mut self, grant: Grant, bytes: usize) -> Result<Committed, SendError> {
        let Ok(committed) = self.core.commit(grant, bytes as u32) else {
            // The grant is valid: it was just given, and the ring is not closed while it is lent.
            let ended = self.writing.half.posting.ended();
            return Err(ended.cloned().unwrap_or(CloseReason::Closed).into());
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
        // A record's offset lies in the ring, and its memory is at least as long.
        let stored = self.staging.store_u64(header.offset as usize, header.word.to_le());
        debug_assert!(stored.is_ok());
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
/// [`SendHalf::reserve`].
#[derive(Debug)]
#[must_use = "it is sent by committing it"]
pub struct Reserved<'s> {
    sender: &'s mut Sender,
    grant: Grant,
}

impl Room for Reserved<'_> {
    fn capacity(&self) -> usize {
        self.grant.payload().len as usize
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
        let (span, limit) = (self.grant.payload(), self.capacity());
        check_within(at.saturating_add(bytes.len()), limit)?;
        let written = self.sender.staging.copy_in(span.offset as usize + at, bytes);
        written.map_err(|_| SendError::TooLong { bytes: bytes.len(), limit })
    }

    fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
        check_within(bytes, self.capacity())?;
        self.sender.commit(self.grant, bytes)
    }
}
