//! Driving the device: pushes, completions, and the heads that the receiver writes.

use conn_core::buffered_write::inline_record::{self, MAX_RECORD};
use conn_core::buffered_write::{Piece, Push, UpdateError};
use conn_core::checksum::CHECKED_BYTES;
use conn_core::ring::offer::HEAD_AT;
use conn_core::wr::WrClass;
use verbs_safe::{SendFlags, SendOp, StageError};

use super::{Reach, Sender};
use crate::checked;
use crate::error::{CloseReason, Full, ProtocolError, SendError};
use crate::ring::memory::remote;

/// Requests of a push at most: two pieces, and the tail.
pub(super) const PUSH_REQUESTS: u32 = 3;

/// Pushing.
impl Sender {
    /// Reports whether there is room for a whole push: then a message that is accepted is pushed,
    /// too.
    #[inline]
    pub(super) fn has_push_room(&self) -> bool {
        self.posting.room() >= PUSH_REQUESTS && self.core.may_push()
    }

    /// Says what a push lacks.
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
        if self.posting.room() >= PUSH_REQUESTS {
            return Ok(true);
        }
        self.make_queue_room()
    }

    #[cold]
    fn make_queue_room(&mut self) -> Result<bool, SendError> {
        self.progress()?;
        self.posting.check()?;
        let has_room = self.posting.room() >= PUSH_REQUESTS;
        if !has_room && !self.posting.awaits_completion() {
            self.probe()?;
        }
        Ok(has_room)
    }

    /// Pushes what has gathered, if that can be done now; `awaited` if the caller is going to
    /// wait for its acknowledgement.
    #[inline]
    pub(super) fn push(&mut self, awaited: bool) -> Result<(), SendError> {
        self.posting.check()?;
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
        self.stage_push(&rest, awaited).map_err(|e| self.fail_device(&e))?;
        self.core.mark_pushed(&push);
        self.pushed_messages = self.stats.messages;
        (self.records, self.written) = (0, self.core.pushed());
        self.stats.pushes += 1;
        self.stats.pushed_bytes += push.tail.position - before;
        Ok(self.posting.post()?)
    }

    /// No receive for an immediate was left: looks how many there are now.
    #[cold]
    fn push_late(&mut self) -> Result<Option<Push>, SendError> {
        self.progress()?;
        self.posting.check()?;
        Ok(self.core.push())
    }

    /// Stages the pieces, and the tail behind them; there is room for all.
    #[inline]
    fn stage_push(&mut self, push: &Push, awaited: bool) -> Result<(), StageError> {
        let before = self.core.pushed();
        match push.pieces {
            [Some(piece), None] if self.by_immediate => self.stage_last(piece, push, awaited),
            [Some(first), Some(second)] if self.by_immediate => {
                self.stage_piece(first, before)?;
                self.stage_last(second, push, awaited)
            }
            _ if self.by_immediate => self.stage_last(Piece { offset: 0, len: 0 }, push, awaited),
            [Some(piece), None] if self.goes_inline(piece, push) => {
                self.stage_inline(piece, push, awaited)?;
                self.stage_piece(piece, push.tail.position)
            }
            pieces => {
                for piece in pieces.into_iter().flatten() {
                    self.stage_piece(piece, before)?;
                }
                self.stage_tail(push, awaited)
            }
        }
    }

    /// A piece whose completion is not waited for, and acknowledges all up to `end`.
    #[inline]
    pub(super) fn stage_piece(&mut self, piece: Piece, end: u64) -> Result<(), StageError> {
        let signalled = self.plan(end, false)?;
        let to = remote(self.peer_ring, piece.offset, piece.len.into());
        self.stage_bytes(piece, SendOp::Write { len: piece.len, remote: to }, signalled)
    }

    /// The piece whose immediate is the tail.
    #[inline]
    fn stage_last(&mut self, piece: Piece, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan(push.tail.position, awaited)?;
        let to = remote(self.peer_ring, piece.offset, piece.len.into());
        let imm = push.tail.to_imm();
        let op = SendOp::WriteImm { len: piece.len, imm, remote: to };
        self.stage_bytes(piece, op, signalled)
    }

    /// The tail as a request of its own: it lands behind the data.
    #[inline]
    fn stage_tail(&mut self, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan(push.tail.position, awaited)?;
        let slot = self.posting.slot().ok_or(StageError::NoSlot)?;
        checked::put(&[push.tail.to_word()], slot).ok_or(StageError::NoSlot)?;
        let write = SendOp::Write { len: CHECKED_BYTES as u32, remote: self.peer_tail };
        self.posting.queue_mut().stage(write, signalled)
    }

    /// Reports whether what is pushed is one short record, which goes with its tail. A goodbye
    /// comes last: nothing may land when the peer has heard it.
    #[inline]
    fn goes_inline(&self, piece: Piece, push: &Push) -> bool {
        let is_one = self.records == 1 && self.written == self.core.pushed();
        is_one && u64::from(piece.len) <= MAX_RECORD && !push.tail.is_last
    }

    /// The tail with its inline record: the record is in the peer's memory with it, before it
    /// lands in the ring.
    #[inline]
    fn stage_inline(&mut self, piece: Piece, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan(push.tail.position, awaited)?;
        let mut record = [0; MAX_RECORD as usize / 8];
        let record = &mut record[..piece.len as usize / 8];
        for (nth, word) in record.iter_mut().enumerate() {
            // A piece lies in the ring, in whole words.
            let loaded = self.staging.load_u64(piece.offset as usize + 8 * nth);
            *word = u64::from_le(loaded.unwrap_or_default());
        }
        let slot = self.posting.slot().ok_or(StageError::NoSlot)?;
        let len = inline_record::put(push.tail, record, slot).ok_or(StageError::NoSlot)?;
        let write = SendOp::Write { len: len as u32, remote: self.peer_tail };
        self.posting.queue_mut().stage(write, signalled)
    }

    /// Bytes of the ring: out of a slot, and so inline, where the device takes them that way.
    #[inline]
    fn stage_bytes(&mut self, piece: Piece, op: SendOp, signalled: bool) -> Result<(), StageError> {
        if piece.len == 0 {
            return self.posting.queue_mut().stage(op, signalled);
        }
        if piece.len <= self.inline {
            let len = piece.len as usize;
            let slot = self.posting.slot().ok_or(StageError::NoSlot)?;
            let slot = slot.get_mut(..len).ok_or(StageError::NoSlot)?;
            // A piece lies in the ring.
            let copied = self.staging.copy_out(piece.offset as usize, slot);
            debug_assert!(copied.is_ok());
            return self.posting.queue_mut().stage(op, signalled);
        }
        let flags = SendFlags { signalled, ..SendFlags::default() };
        let queue = self.posting.queue_mut();
        queue.stage_at(self.staging_id, piece.offset as usize, op, flags)
    }

    /// Plans a request whose completion acknowledges all up to `end`; whether it is
    /// signalled.
    #[inline]
    pub(super) fn plan(&mut self, end: u64, awaited: bool) -> Result<bool, StageError> {
        let planned = self.posting.plan(WrClass::Data, awaited).ok_or(StageError::QueueFull)?;
        if planned.signalled {
            self.marks.push_back((planned.id, self.reach(end)));
        }
        Ok(planned.signalled)
    }

    /// Up to `end`, which is the tail, or as far as was pushed.
    #[inline]
    fn reach(&self, end: u64) -> Reach {
        let is_all = end == self.core.tail();
        let messages = if is_all { self.stats.messages } else { self.pushed_messages };
        Reach { end, messages }
    }

    /// Asks the peer's device whether it is there. The completion acknowledges all that was pushed.
    pub(super) fn probe(&mut self) -> Result<(), SendError> {
        if let Some(id) = self.posting.probe()? {
            self.marks.push_back((id, self.reach(self.core.pushed())));
        }
        Ok(())
    }
}

/// Arrivals: completions, and the receiver's heads.
impl Sender {
    /// Takes completions, and the receiver's head; returns how much was new.
    pub(super) fn progress(&mut self) -> Result<usize, SendError> {
        let polled = self.poll()?;
        let heard = self.listen()?;
        Ok(polled + usize::from(heard))
    }

    fn poll(&mut self) -> Result<usize, SendError> {
        let polled = match self.waiting.cq.poll(&mut self.batch) {
            Ok(polled) => polled,
            Err(e) => return Err(self.fail_device(&e)),
        };
        let mut failure = None;
        for completion in self.batch.drain() {
            // The first error is the reason, the flushed rest follows from it.
            failure = failure.or(self.posting.retire(&completion).err());
        }
        self.acknowledge();
        let Some(ended) = failure else { return Ok(polled) };
        if matches!(ended, CloseReason::PeerLost(_)) && self.posting.ended().is_none() {
            // The receiver may have written its reason before it went.
            checked::last_look(|| self.block.observe(HEAD_AT)).map(|words| self.hear(words));
        }
        Err(self.posting.fail(ended).into())
    }

    fn acknowledge(&mut self) {
        while let Some((id, reach)) = self.marks.front()
            && self.posting.is_complete(*id)
        {
            self.acknowledged = *reach;
            self.marks.pop_front();
        }
    }

    /// Looks into the control block.
    fn listen(&mut self) -> Result<bool, SendError> {
        let words = self.block.observe(HEAD_AT);
        words.map_or(Ok(false), |words| self.hear(words))
    }

    /// Takes in the words that the receiver has written.
    fn hear(&mut self, [head, taken]: [u64; 2]) -> Result<bool, SendError> {
        let heard = self.core.on_update(head, taken);
        let heard = heard.map_err(|e| self.posting.fail(CloseReason::Protocol(violation(e))))?;
        match self.core.taken_messages() {
            Some(taken) if self.posting.ended().is_none() => {
                let ended = self.peer_stopped(taken);
                Err(self.posting.fail(ended).into())
            }
            _ => Ok(heard),
        }
    }

    /// The receiver has taken so many messages, and takes no more: how this half has ended.
    /// The messages that it has taken are acknowledged by that.
    #[cold]
    fn peer_stopped(&mut self, taken: u64) -> CloseReason {
        if taken > self.stats.messages {
            return CloseReason::Protocol(ProtocolError::Update(UpdateError::Taken { taken }));
        }
        let known = self.acknowledged;
        let (end, messages) = (known.end.max(self.core.head()), known.messages.max(taken));
        self.acknowledged = Reach { end, messages };
        CloseReason::by_peer(self.stats.messages - messages)
    }

    #[cold]
    pub(super) fn fail_device(&mut self, error: &dyn std::error::Error) -> SendError {
        self.posting.fail(CloseReason::Device(error.to_string())).into()
    }
}

fn violation(error: UpdateError) -> ProtocolError {
    match error {
        UpdateError::Head(e) => ProtocolError::Head(e),
        other => ProtocolError::Update(other),
    }
}
