//! The sending half.

use conn_core::direct_write::{
    BufferSender, Detection, GOODBYE, IMM_GOODBYE, IMM_MESSAGE, TRAILER_BYTES, padded, stop_at,
};
use conn_core::ring::offer::Place;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{SendOp, SharedRegion};

use crate::checked;
use crate::error::{CloseReason, Full, ProtocolError, SendError};
use crate::half::check_within;
use crate::posting::field;
use crate::ring::memory::remote;
use crate::sending::{Driving, Sends};
use crate::ticket::Ticket;
use crate::waiting::Waits;
use crate::writing::{Writes, Writing, sends_from_slots};

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queue: messages, keepalives and the goodbye.
    pub work_requests: u64,
    /// Times that a message found no free buffer at the receiver.
    pub credit_stalls: u64,
}

/// The sending half of a connection: one queue pair, one completion queue, one thread.
///
/// A message is copied into the next slot of the send queue and written from there into the
/// receiver's buffer.
///
/// Dropping a sender delivers what was accepted and says goodbye, for at most
/// [`linger`](crate::Common::linger); [`close`](crate::SendHalf::close) does the same and tells how
/// it went. A sender that has ended with an error says no goodbye.
#[derive(Debug)]
pub struct Sender {
    pub(super) writing: Writing,
    pub(super) core: BufferSender,
    pub(super) detection: Detection,
    /// Memory to which the receiver writes which buffers are free.
    pub(super) slots: SharedRegion,
    pub(super) slot_count: u32,
    pub(super) peer_buffers: Place,
    pub(super) limit: u32,
    pub(super) stats: SenderStats,
}

sends_from_slots!(Sender, u32);

/// Accepting a message.
impl Sender {
    /// Requests of a message.
    #[inline]
    fn requests(&self) -> u32 {
        if self.detection == Detection::ApartTrailer { 2 } else { 1 }
    }

    /// The buffer that a message of `bytes` bytes goes into, if all is there that it takes.
    #[inline]
    fn claim(&mut self, bytes: usize) -> Result<u32, SendError> {
        let is_sendable = bytes <= self.limit as usize
            && self.writing.half.posting.room() >= self.requests()
            && self.writing.half.posting.ended().is_none();
        let slots = &self.slots;
        match self.core.buffer(|at| checked::observe(slots, at as usize)) {
            Ok(Some(buffer)) if is_sendable => Ok(buffer),
            _ => self.claim_late(bytes),
        }
    }

    /// Slow path of a claim: polls again, and returns the missing resource as an error.
    #[cold]
    fn claim_late(&mut self, bytes: usize) -> Result<u32, SendError> {
        check_within(bytes, self.limit as usize)?;
        self.writing.half.posting.check()?;
        // If only completions were missing, gathered messages stay gathered. Otherwise they are
        // flushed: their buffers would never be freed.
        self.progress()?;
        let slots = &self.slots;
        let found = self.core.buffer(|at| checked::observe(slots, at as usize));
        if self.writing.half.posting.room() < self.requests() || found == Ok(None) {
            self.writing.flush()?;
            self.progress()?;
        }
        self.writing.half.posting.check()?;
        let slots = &self.slots;
        match self.core.buffer(|at| checked::observe(slots, at as usize)) {
            Ok(Some(buffer)) => self.writing.check_room(self.requests()).map(|()| buffer),
            Ok(None) => {
                self.stats.credit_stalls += u64::from(self.writing.stalls());
                Err(SendError::Full(Full::Credits))
            }
            Err(e) => Err(self.fail(CloseReason::Protocol(ProtocolError::Slot(e)))),
        }
    }

    /// Sends the first `bytes` bytes of the slot.
    #[inline]
    fn stage_message(&mut self, buffer: u32, bytes: usize) -> Result<Ticket, SendError> {
        let (len, at) = (padded(bytes as u32), self.core.layout().payload_at(buffer, bytes as u32));
        let trailer = [self.core.sent() + 1, bytes as u64];
        let is_apart = self.detection == Detection::ApartTrailer && len > 0;
        let slot = self.slot(bytes)?;
        let (payload, end) = slot.split_at_mut(len as usize);
        payload[bytes..].fill(0);
        if is_apart {
            let payload = remote(self.peer_buffers, at, len);
            self.writing.stage(SendOp::Write { len: len as u32, remote: payload }, false)?;
            let end = self.slot(0)?;
            let _ = checked::put(&trailer, end);
            let at = self.core.layout().trailer_at(buffer);
            let remote = remote(self.peer_buffers, at, TRAILER_BYTES);
            self.writing.stage(SendOp::Write { len: TRAILER_BYTES as u32, remote }, true)?;
        } else {
            let _ = checked::put(&trailer, end);
            let whole = len + TRAILER_BYTES;
            let (len, remote) = (whole as u32, remote(self.peer_buffers, at, whole));
            self.writing.stage(self.op(len, remote, IMM_MESSAGE), true)?;
        }
        self.core.mark_sent();
        self.stats.bytes += bytes as u64;
        self.writing.post()?;
        Ok(self.writing.ticket())
    }

    #[inline]
    fn op(&self, len: u32, remote: verbs_safe::RemoteSpan, imm: u32) -> SendOp {
        match self.detection {
            Detection::Immediate => SendOp::WriteImm { len, imm, remote },
            _ => SendOp::Write { len, remote },
        }
    }
}

impl Writes for Sender {
    field!(writing, writing_mut: Writing);

    fn listen(&mut self, is_last: bool) -> Result<bool, SendError> {
        let at = stop_at(self.slot_count) as usize;
        let look = || checked::observe(&self.slots, at);
        let words = if is_last { checked::last_look(look) } else { look() };
        match self.core.on_stop(words.unwrap_or_default()) {
            Ok(None) => Ok(false),
            Ok(Some(_)) if self.writing.half.posting.ended().is_some() => Ok(false),
            Ok(Some(taken)) => Err(self.peer_stopped(taken)),
            Err(e) => Err(self.fail(CloseReason::Protocol(ProtocolError::Slot(e)))),
        }
    }

    fn stage_last(&mut self) -> Result<WrId, SendError> {
        let (at, words) = (self.core.layout().goodbye_at(), [self.core.sent(), GOODBYE]);
        let _ = checked::put(&words, self.slot(0)?);
        let remote = remote(self.peer_buffers, at, TRAILER_BYTES);
        let op = self.op(TRAILER_BYTES as u32, remote, IMM_GOODBYE);
        self.writing.stage_as(op, WrClass::Control, true)
    }
}
