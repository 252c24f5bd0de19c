//! Driving the device: doorbells, completions, and their effects.

use conn_core::control::{Control, Taken};
use conn_core::credit::{CreditWindow, CreditWire};
use conn_core::loan::{Borrower, LoanError, LoanWire};
use verbs_safe::{Completion, RecvQueue};

use super::{Sender, SenderStats};
use crate::doorbell;
use crate::error::{CloseReason, ProtocolError, SendError, close_reason};
use crate::posting::QpPosting;
use crate::waiting::Waits;

/// Driving the device.
impl Sender {
    /// Rings the doorbell for everything staged.
    pub(super) fn post(&mut self) -> Result<(), SendError> {
        self.book();
        self.half.posting.post()?;
        self.open_run();
        Ok(())
    }

    /// Takes completions: acknowledgements of messages, and credits. Returns how
    /// many there were, also where one ends the half.
    pub(super) fn take_completions(&mut self) -> Result<usize, SendError> {
        let polled = self.half.waiting.cq.poll(&mut self.batch);
        let polled = polled.map_err(|e| self.fail(CloseReason::device(e)))?;
        self.book();
        let mut spent = [0u32; Self::POLL_BATCH];
        let (mut spent_count, mut failure, mut stop) = (0, None, None);
        for completion in self.batch.drain() {
            let taken = Books {
                posting: &mut self.half.posting,
                credits: &mut self.credits,
                window: &mut self.window,
                borrower: self.borrower.as_mut(),
                stats: &mut self.stats,
                stop: &mut stop,
                use_credits: self.config.credits,
            }
            .take(completion);
            match taken {
                Ok(Some(slot)) => {
                    spent[spent_count] = slot;
                    spent_count += 1;
                }
                Ok(None) => {}
                // The first error is the reason, the flushed rest follows from it.
                Err(ended) => failure = failure.or(Some(ended)),
            }
        }
        if failure.is_some() || stop.is_some() {
            self.end_by(failure, stop);
        }
        self.repost_credit_buffers(&spent[..spent_count]);
        self.answer_recall()?;
        Ok(polled)
    }

    /// Ends the half for a failed completion or a STOP.
    #[cold]
    fn end_by(&mut self, failure: Option<CloseReason>, stop: Option<Taken>) {
        let ended = match (failure, stop) {
            // The stopped peer's queue pair does not answer any more: a consequence of the stop.
            (None | Some(CloseReason::PeerLost(_)), Some(taken)) => self.peer_stopped(taken),
            (Some(failure), _) => failure,
            (None, None) => return,
        };
        self.half.posting.fail(ended);
    }

    /// Reposts buffers for credits. Call it before anything more is sent: the peer needs these
    /// buffers for the credits of later messages.
    fn repost_credit_buffers(&mut self, slots: &[u32]) {
        if slots.is_empty() || self.half.posting.ended().is_some() {
            return;
        }
        if let Err(e) = doorbell::post_receives(&mut self.credits, slots) {
            self.fail(CloseReason::device(e));
        }
    }
}

/// State that a completion changes.
struct Books<'a> {
    posting: &'a mut QpPosting,
    credits: &'a mut RecvQueue<()>,
    window: &'a mut CreditWindow,
    borrower: Option<&'a mut Borrower>,
    stats: &'a mut SenderStats,
    /// Messages that the receiver says it has taken, if it has stopped.
    stop: &'a mut Option<Taken>,
    use_credits: bool,
}

impl Books<'_> {
    /// Books one completion. A buffer that brought a credit is returned, to be
    /// posted again.
    fn take(&mut self, completion: Completion<'_>) -> Result<Option<u32>, CloseReason> {
        if completion.queue_id() == self.posting.queue_id() {
            return self.posting.retire(&completion).map(|_| None);
        }
        self.credit(completion).map(Some)
    }

    fn credit(&mut self, completion: Completion<'_>) -> Result<u32, CloseReason> {
        let imm = completion.imm();
        let buffer = match self.credits.take(completion) {
            Ok(buffer) => buffer,
            Err(e) => return Err(close_reason(&e)),
        };
        // No message shares an empty buffer, so its slot is free at once.
        let slot =
            self.credits.reclaim(buffer).ok_or(CloseReason::Protocol(ProtocolError::Completion))?;
        let imm = imm.ok_or(CloseReason::Protocol(ProtocolError::Overrun))?;
        match Control::decode(imm) {
            Ok(Control::Credit(credit)) => self.add(credit)?,
            Ok(Control::Stop(taken)) => *self.stop = Some(taken),
            Ok(Control::Loan(wire)) if self.borrower.is_some() => self.borrow(wire)?,
            Ok(Control::Recall) if self.borrower.is_some() => {
                self.borrower.as_mut().into_iter().for_each(|borrower| borrower.on_recall());
            }
            _ => return Err(CloseReason::Protocol(ProtocolError::Control(imm))),
        }
        Ok(slot)
    }

    fn add(&mut self, credit: CreditWire) -> Result<(), CloseReason> {
        self.stats.credits_received += 1;
        let added = match &mut self.borrower {
            Some(borrower) => borrower.on_credit(self.window, credit),
            None if self.use_credits => self.window.on_credit(credit),
            None => Ok(0),
        };
        added.map(drop).map_err(|e| CloseReason::Protocol(ProtocolError::Credit(e)))
    }

    fn borrow(&mut self, wire: LoanWire) -> Result<(), CloseReason> {
        self.stats.credits_received += 1;
        let Some(borrower) = &mut self.borrower else { return Ok(()) };
        let lent = borrower.on_loan(self.window, wire).map(drop);
        lent.map_err(|e| match e {
            LoanError::Credit(e) => CloseReason::Protocol(ProtocolError::Credit(e)),
            unasked => CloseReason::Protocol(ProtocolError::Loan(unasked)),
        })
    }
}
