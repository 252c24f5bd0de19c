//! Driving the device: pushes, completions, and what the receiver has told.

use conn_core::buffered_write::beside::{self, MAX_RECORD};
use conn_core::buffered_write::{Piece, Push, ToldError};
use conn_core::ring::offer::HEAD_AT;
use conn_core::seal::SEALED_BYTES;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{SendFlags, SendOp, StageError};

use super::Sender;
use crate::buffered_write::{Ended, SendError, Violation};
use crate::ring::memory::remote;
use crate::sealed;
use crate::send_recv::PROBE;

/// Requests of a push at most: two pieces, and the tail.
pub(super) const PUSH_REQUESTS: u32 = 3;

/// Pushing.
impl Sender {
    /// Pushes what has gathered, if that can be done now; `awaited` if somebody is going to
    /// wait for its acknowledgement.
    #[inline]
    pub(super) fn push(&mut self, awaited: bool) -> Result<(), SendError> {
        self.check_alive()?;
        let push = match self.core.push() {
            None if self.core.gathered() > 0 => self.push_late()?,
            push => push,
        };
        let Some(push) = push else { return Ok(()) };
        if self.tracker.available(WrClass::Data) < PUSH_REQUESTS {
            self.progress()?;
            self.check_alive()?;
            if self.tracker.available(WrClass::Data) < PUSH_REQUESTS {
                return Ok(());
            }
        }
        let before = self.core.pushed();
        let rest = self.unwritten(push);
        self.stage_push(&rest, awaited).map_err(|e| self.fail_device(&e))?;
        self.core.mark_pushed(&push);
        (self.records, self.written) = (0, self.core.pushed());
        self.stats.pushes += 1;
        self.stats.pushed_bytes += push.tail.position - before;
        self.post()
    }

    /// No receive for an immediate was left: looks how many there are now.
    #[cold]
    fn push_late(&mut self) -> Result<Option<Push>, SendError> {
        self.progress()?;
        self.check_alive()?;
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
            [Some(piece), None] if self.goes_beside(piece, push) => {
                self.stage_beside(piece, push, awaited)?;
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
        let slot = self.queue.next_slot().ok_or(StageError::NoSlot)?;
        sealed::put(&[push.tail.to_word()], slot).ok_or(StageError::NoSlot)?;
        let write = SendOp::Write { len: SEALED_BYTES as u32, remote: self.peer_tail };
        self.queue.stage(write, signalled)
    }

    /// Whether what is pushed is one short record, which goes with its tail. A goodbye comes
    /// last: nothing may land when the peer has heard it.
    #[inline]
    fn goes_beside(&self, piece: Piece, push: &Push) -> bool {
        let is_one = self.records == 1 && self.written == self.core.pushed();
        is_one && u64::from(piece.len) <= MAX_RECORD && !push.tail.is_last
    }

    /// The tail, and the record beside it: it is in the peer's memory with that, before it
    /// lands in the ring.
    #[inline]
    fn stage_beside(&mut self, piece: Piece, push: &Push, awaited: bool) -> Result<(), StageError> {
        let signalled = self.plan(push.tail.position, awaited)?;
        let mut record = [0; MAX_RECORD as usize / 8];
        let record = &mut record[..piece.len as usize / 8];
        for (nth, word) in record.iter_mut().enumerate() {
            // A piece lies in the ring, in whole words.
            let loaded = self.staging.load_u64(piece.offset as usize + 8 * nth);
            *word = u64::from_le(loaded.unwrap_or_default());
        }
        let slot = self.queue.next_slot().ok_or(StageError::NoSlot)?;
        let len = beside::put(push.tail, record, slot).ok_or(StageError::NoSlot)?;
        let write = SendOp::Write { len: len as u32, remote: self.peer_tail };
        self.queue.stage(write, signalled)
    }

    /// Bytes of the ring: out of a slot, and so inline, where the device takes them that way.
    #[inline]
    fn stage_bytes(&mut self, piece: Piece, op: SendOp, signalled: bool) -> Result<(), StageError> {
        if piece.len == 0 {
            return self.queue.stage(op, signalled);
        }
        if piece.len <= self.inline {
            let len = piece.len as usize;
            let slot = self.queue.next_slot().ok_or(StageError::NoSlot)?;
            let slot = slot.get_mut(..len).ok_or(StageError::NoSlot)?;
            // A piece lies in the ring.
            let copied = self.staging.copy_out(piece.offset as usize, slot);
            debug_assert!(copied.is_ok());
            return self.queue.stage(op, signalled);
        }
        let flags = SendFlags { signalled, ..SendFlags::default() };
        self.queue.stage_at(self.staging_id, piece.offset as usize, op, flags)
    }

    /// Plans a request whose completion acknowledges all up to `end`; whether it is
    /// signalled.
    #[inline]
    pub(super) fn plan(&mut self, end: u64, awaited: bool) -> Result<bool, StageError> {
        let planned = match awaited {
            true => self.tracker.plan_signalled(WrClass::Data),
            false => self.tracker.plan(WrClass::Data),
        };
        let planned = planned.map_err(|_| StageError::QueueFull)?;
        if planned.signalled {
            self.marks.push_back((planned.id, end));
        }
        Ok(planned.signalled)
    }

    /// Rings the doorbell for everything staged.
    #[inline]
    pub(super) fn post(&mut self) -> Result<(), SendError> {
        match self.queue.post() {
            Ok(_) => Ok(()),
            Err(e) if e.retry => self.post_again(),
            Err(e) => Err(self.fail_device(&e)),
        }
    }

    /// A full send queue is backpressure: completions make room. Our own accounting keeps
    /// below the depth, so this is rare.
    #[cold]
    fn post_again(&mut self) -> Result<(), SendError> {
        let mut limit = crate::wire::Patience::default();
        while self.queue.staged() > 0 {
            match self.queue.post() {
                Ok(_) => {}
                Err(e) if e.retry && !limit.is_over() => {
                    if self.progress()? == 0 {
                        std::thread::yield_now();
                    }
                    self.check_alive()?;
                }
                Err(e) => return Err(self.fail_device(&e)),
            }
        }
        Ok(())
    }

    /// Asks the peer's device whether it is there: a write of no bytes needs no credit, and
    /// fails when nobody answers. It acknowledges all that was pushed.
    pub(super) fn probe(&mut self) -> Result<(), SendError> {
        self.check_alive()?;
        // A full control share has a signalled request on its way already.
        let Ok(planned) = self.tracker.plan_signalled(WrClass::Control) else { return Ok(()) };
        self.marks.push_back((planned.id, self.core.pushed()));
        self.queue.stage(PROBE, planned.signalled).map_err(|e| self.fail_device(&e))?;
        self.post()
    }
}

/// What arrives.
impl Sender {
    /// Takes completions, and what the receiver has told; returns how much was new.
    pub(super) fn progress(&mut self) -> Result<usize, SendError> {
        let polled = self.poll()?;
        let heard = self.listen()?;
        Ok(polled + usize::from(heard))
    }

    fn poll(&mut self) -> Result<usize, SendError> {
        let polled = match self.cq.poll(&mut self.batch) {
            Ok(polled) => polled,
            Err(e) => return Err(self.fail_device(&e)),
        };
        let mut failure = None;
        for completion in self.batch.drain() {
            let taken = match completion.error() {
                Some(error) => Err(Ended::PeerLost(error)),
                None => match self.queue.retire(&completion) {
                    Ok(retired) => {
                        let known = self.tracker.complete(WrId(retired));
                        known.map_err(|_| Ended::Protocol(Violation::Completion))
                    }
                    Err(_) => Err(Ended::Protocol(Violation::Completion)),
                },
            };
            // The first error is the reason, the flushed rest follows from it.
            failure = failure.or(taken.err());
        }
        self.acknowledge();
        failure.map_or(Ok(polled), |ended| Err(self.fail(ended)))
    }

    fn acknowledge(&mut self) {
        while let Some((id, end)) = self.marks.front()
            && self.tracker.is_complete(*id)
        {
            self.acknowledged = *end;
            self.marks.pop_front();
        }
    }

    /// Looks into the control block.
    fn listen(&mut self) -> Result<bool, SendError> {
        let Some([head, taken]) = self.block.observe(HEAD_AT) else { return Ok(false) };
        let heard = self.core.on_told(head, taken);
        let heard = heard.map_err(|e| self.fail(Ended::Protocol(violation(e))))?;
        if self.core.is_stopped() && self.ended.is_none() && !self.core.has_said_goodbye() {
            return Err(self.fail(Ended::PeerStopped));
        }
        Ok(heard)
    }

    #[cold]
    pub(super) fn fail_device(&mut self, error: &dyn std::error::Error) -> SendError {
        self.fail(Ended::Device(error.to_string()))
    }

    /// Ends this half with a reason, unless it has ended already; the reason that holds.
    #[cold]
    fn fail(&mut self, ended: Ended) -> SendError {
        if self.ended.is_none() && !matches!(ended, Ended::PeerStopped) {
            // Or its device would go on answering for it when the peer asks after it.
            if let Err(e) = self.control.to_error() {
                tracing::debug!(qp = self.qp_num(), error = %e, "not moved to ERR");
            }
        }
        self.ended.get_or_insert(ended).clone().into()
    }
}

fn violation(error: ToldError) -> Violation {
    match error {
        ToldError::Head(e) => Violation::Head(e),
        other => Violation::Told(other),
    }
}
