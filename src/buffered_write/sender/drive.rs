//! Driving the device: pushes, completions, and the heads that the receiver writes.

use conn_core::buffered_write::inline_record::{self, MAX_RECORD};
use conn_core::buffered_write::{Piece, Push, UpdateError};
use conn_core::checksum::CHECKED_BYTES;
use conn_core::ring::offer::HEAD_AT;
use verbs_safe::{SendFlags, SendOp, StageError};

use super::Sender;
use crate::checked;
use crate::error::{CloseReason, Full, ProtocolError, SendError};
use crate::ring::memory::remote;
use crate::sending::Sends;
use crate::waiting::Waits;
use crate::writing::Writes;

/// Requests of a push at most: two pieces, and the tail.
pub(super) const PUSH_REQUESTS: u32 = 3;

/// Pushing.
impl Sender {
    /// Reports whether there is room for a whole push: then a message that is accepted is pushed,
    /// too.
    #[inline]
    pub(super) fn has_push_room(&self) -> bool {
        self.writing.half.posting.room() >= PUSH_REQUESTS && self.core.may_push()
    }

    /// Returns the resource that a push lacks, as an error.
    #[cold]
    pub(super) fn check_push_room(&mut self) -> Result<(), SendError> {
        if !self.core.may_push() {
            return Err(SendError::Full(Full::Credits));
        }
        match self.has_queue_room()? {
            true => Ok(()),
            false => Err(SendError::Full(Full::Requests)),
        }
    }

    /// Reports whether the send queue takes a push. Where it does not, a completion that makes room
    /// is on its way afterwards: few requests may be left though none of those before was
    /// signalled.
    #[inline]
    fn has_queue_room(&mut self) -> Result<bool, SendError> {
        if self.writing.half.posting.room() >= PUSH_REQUESTS {
            return Ok(true);
        }
        self.make_queue_room()
    }

    #[cold]
    fn make_queue_room(&mut self) -> Result<bool, SendError> {
        self.progress()?;
        self.writing.half.posting.check()?;
        let has_room = self.writing.half.posting.room() >= PUSH_REQUESTS;
        if !has_room && !self.writing.half.posting.awaits_completion() {
            self.ask_peer()?;
        }
        Ok(has_room)
    }

    /// Pushes gathered records, if there is room; `awaited` if the caller is going to wait for the
    /// acknowledgement.
    #[inline]
    pub(super) fn push(&mut self, awaited: bool) -> Result<(), SendError> {
        self.writing.half.posting.check()?;
        let push = match self.core.push() {
            None if self.core.gathered() > 0 => self.push_late()?,
            push => push,
        };
        let Some(push) = push else { return Ok(()) };
        if !self.has_queue_room()? {
            return Ok(());
        }
        let before = self.core.pushed();
        let rest = self.unwritten(push);
        let staged = self.stage_push(&rest, awaited);
        staged.map_err(|e| self.fail(CloseReason::device(e)))?;
        self.core.mark_pushed(&push);
        (self.records, self.written) = (0, self.core.pushed());
        self.stats.pushes += 1;
        self.stats.pushed_bytes += push.tail.position - before;
        self.writing.flush()
    }

    /// Slow path without a receive for an immediate: reads the receiver's count again.
    #[cold]
    fn push_late(&mut self) -> Result<Option<Push>, SendError> {
        self.progress()?;
        self.writing.half.posting.check()?;
        Ok(self.core.push())
    }

    /// Stages the pieces, and the tail behind them; there is room for all.
    #[inline]
    fn stage_push(&mut self, push: &Push, awaited: bool) -> Result<(), StageError> {
        match push.pieces {
            [Some(piece), None] if self.by_immediate => self.stage_end(piece, push, awaited),
            [Some(first), Some(second)] if self.by_immediate => {
                self.stage_piece(first)?;
                self.stage_end(second, push, awaited)
            }
            _ if self.by_immediate => self.stage_end(Piece { offset: 0, len: 0 }, push, awaited),
            [Some(piece), None] if self.goes_inline(piece, push) => {
                self.stage_inline(piece, push, awaited)?;
                self.stage_piece(piece)
            }
            pieces => {
                for piece in pieces.into_iter().flatten() {
                    self.stage_piece(piece)?;
                }
                self.stage_tail(push, awaited)
            }
        }
    }

    /// Stages a piece without a completion.
    #[inline]
    fn stage_piece(&mut self, piece: Piece) -> Result<(), StageError> {
        let signalled = self.writing.plan(false)?;
        let to = remote(self.peer_ring, piece.offset, piece.len.into());
        self.stage_bytes(piece, SendOp::Write { len: piece.len, remote: to }, signalled)
    }

    /// Stages the piece with the tail as its immediate.
    #[inline]
    fn stage_end(&mut self, piece: Piece, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan_tail(awaited)?;
        let to = remote(self.peer_ring, piece.offset, piece.len.into());
        let imm = push.tail.to_imm();
        let op = SendOp::WriteImm { len: piece.len, imm, remote: to };
        self.stage_bytes(piece, op, signalled)
    }

    /// The tail as a request of its own: it lands behind the data.
    #[inline]
    fn stage_tail(&mut self, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan_tail(awaited)?;
        let slot = self.writing.half.posting.slot().ok_or(StageError::NoSlot)?;
        checked::put(&[push.tail.to_word()], slot).ok_or(StageError::NoSlot)?;
        let write = SendOp::Write { len: CHECKED_BYTES as u32, remote: self.peer_tail };
        self.writing.half.posting.queue_mut().stage(write, signalled)
    }

    /// Reports whether the push is one short record, which goes with its tail. A goodbye comes
    /// last: nothing may land after the peer has seen it.
    #[inline]
    fn goes_inline(&self, piece: Piece, push: &Push) -> bool {
        let is_one = self.records == 1 && self.written == self.core.pushed();
        is_one && u64::from(piece.len) <= MAX_RECORD && !push.tail.is_last
    }

    /// The tail with its inline record: the record is in the peer's memory with it, before it
    /// lands in the ring.
    #[inline]
    fn stage_inline(&mut self, piece: Piece, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan_tail(awaited)?;
        let mut record = [0; MAX_RECORD as usize / 8];
        let record = &mut record[..piece.len as usize / 8];
        for (nth, word) in record.iter_mut().enumerate() {
            // A piece lies in the ring, in whole words.
            let loaded = self.staging.load_u64(piece.offset as usize + 8 * nth);
            *word = u64::from_le(loaded.unwrap_or_default());
        }
        let slot = self.writing.half.posting.slot().ok_or(StageError::NoSlot)?;
        let len = inline_record::put(push.tail, record, slot).ok_or(StageError::NoSlot)?;
        let write = SendOp::Write { len: len as u32, remote: self.peer_tail };
        self.writing.half.posting.queue_mut().stage(write, signalled)
    }

    /// Bytes of the ring: out of a slot, and so inline, where the device takes them that way.
    #[inline]
    fn stage_bytes(&mut self, piece: Piece, op: SendOp, signalled: bool) -> Result<(), StageError> {
        if piece.len == 0 {
            return self.writing.half.posting.queue_mut().stage(op, signalled);
        }
        if piece.len <= self.inline {
            let len = piece.len as usize;
            let slot = self.writing.half.posting.slot().ok_or(StageError::NoSlot)?;
            let slot = slot.get_mut(..len).ok_or(StageError::NoSlot)?;
            // A piece lies in the ring.
            let copied = self.staging.copy_out(piece.offset as usize, slot);
            debug_assert!(copied.is_ok());
            return self.writing.half.posting.queue_mut().stage(op, signalled);
        }
        let flags = SendFlags { signalled, ..SendFlags::default() };
        let queue = self.writing.half.posting.queue_mut();
        queue.stage_at(self.staging_id, piece.offset as usize, op, flags)
    }

    /// Plans the request that tells the tail: its completion acknowledges all that was accepted.
    #[inline]
    fn plan_tail(&mut self, awaited: bool) -> Result<bool, StageError> {
        self.writing.mark_staged(self.stats.messages);
        self.writing.plan(awaited)
    }
}

/// Arrivals: the receiver's heads.
impl Sender {
    /// Looks into the control block, as [`Writes::listen`].
    pub(super) fn look_for_head(&mut self, is_last: bool) -> Result<bool, SendError> {
        let look = || self.block.observe(HEAD_AT);
        let words = if is_last { checked::last_look(look) } else { look() };
        let Some([head, taken]) = words else { return Ok(false) };
        let heard = self.core.on_update(head, taken);
        let heard = heard.map_err(|e| self.fail(CloseReason::Protocol(violation(e))))?;
        match self.core.taken_messages() {
            Some(taken) if self.writing.half.posting.ended().is_none() => Err(self.stopped(taken)),
            _ => Ok(heard),
        }
    }

    /// Ends the half after a STOP of the receiver that counts `taken` messages; returns the error.
    #[cold]
    fn stopped(&mut self, taken: u64) -> SendError {
        if taken > self.stats.messages {
            let violation = ProtocolError::Update(UpdateError::Taken { taken });
            return self.fail(CloseReason::Protocol(violation));
        }
        self.peer_stopped(taken)
    }
}

fn violation(error: UpdateError) -> ProtocolError {
    match error {
        UpdateError::Head(e) => ProtocolError::Head(e),
        other => ProtocolError::Update(other),
    }
}
