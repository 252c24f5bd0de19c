//! Completions: messages, and control messages of the sender.

use conn_core::control::Control;
use conn_core::credit::CreditGrantor;
use verbs_safe::{Completion, CompletionBatch, RecvBuf, RecvRun};

use super::{BufferSource, CompletionEffect, Goodbye, LinkState, SendRecvLink};
use crate::error::{CloseReason, ProtocolError};
use crate::send_recv::shared::SlotReturn;

impl SendRecvLink {
    /// The messages at the head of a batch, as many as the sender may send: the fast path.
    /// None where the next completion belongs to another link, or needs a closer look: see
    /// [`take`](SendRecvLink::take). Packed messages come one by one.
    // Always: it has one caller, in another module.
    #[inline(always)]
    pub(crate) fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        run: &mut RecvRun<SlotReturn>,
    ) -> u32 {
        if self.packed || (self.room == 0 && self.count_room() == 0) {
            return 0;
        }
        let taken = match &mut self.source {
            BufferSource::Own(own) => own.take_run(batch, self.room, run),
            BufferSource::Shared(member) => member.take_run(batch, self.room, run),
        };
        self.room -= taken;
        taken
    }

    /// The message of a completion, if it has one and the sender may send it. Every other
    /// completion is for [`arrive`](SendRecvLink::arrive).
    pub(crate) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        if self.room == 0 && self.count_room() == 0 {
            return Err(completion);
        }
        let buffer = match &mut self.source {
            BufferSource::Own(own) => own.take(completion)?,
            BufferSource::Shared(member) => member.take(completion)?,
        };
        self.room -= 1;
        Ok(buffer)
    }

    /// Recounts the messages that may arrive.
    #[inline(never)]
    fn count_room(&mut self) -> u32 {
        self.book();
        let expected = self.expected();
        self.counted = if self.is_deaf() { 0 } else { expected };
        self.room = self.counted;
        self.room
    }

    /// Messages that the sender may send.
    fn expected(&self) -> u32 {
        match &self.source {
            BufferSource::Own(_) => self.grantor.as_ref().map_or(u32::MAX, CreditGrantor::expected),
            BufferSource::Shared(member) => member.expected(),
        }
    }

    /// Books the messages that have arrived. Call it before the grantor is used, and when the state
    /// changes.
    pub(super) fn book(&mut self) {
        let received = self.counted - self.room;
        (self.counted, self.room) = (0, 0);
        self.booked = self.booked.wrapping_add(received);
        if let Some(grantor) = &mut self.grantor {
            let booked = grantor.on_receive_many(received);
            debug_assert!(booked.is_ok(), "there was room, so there were credits");
        }
    }

    /// Books a completion that [`take`](SendRecvLink::take) did not take.
    #[cold]
    pub(crate) fn arrive(&mut self, completion: Completion<'_>) -> CompletionEffect {
        if completion.queue_id() == self.posting.queue_id() {
            return self.control_sent(&completion);
        }
        if completion.queue_id() != self.source.queue_id() {
            // A completion of an earlier queue pair with the same number.
            return CompletionEffect::Settled;
        }
        let imm = completion.imm();
        let taken = match &mut self.source {
            BufferSource::Own(own) => own.take_any(completion).map(|buffer| own.reclaim(buffer)),
            BufferSource::Shared(member) => member.take_control(completion),
        };
        match (taken, imm) {
            // FIN is the last message of a sender.
            (Ok(()), Some(imm)) if self.state != LinkState::Finished => self.control(imm),
            (Ok(()), _) => self.overrun(),
            (Err(ended), _) => self.fail(ended),
        }
    }

    /// Reports whether messages that come now are dropped: the link's end was reported.
    #[inline]
    fn is_deaf(&self) -> bool {
        self.state != LinkState::Open && self.error.is_none()
    }

    /// A message that the sender may not send. After the sender's goodbye it is not reported
    /// to the application, but it takes a buffer, which may be one of a shared pool: so the
    /// link takes no more messages.
    fn overrun(&mut self) -> CompletionEffect {
        if self.state == LinkState::Finished {
            self.silence();
        }
        self.fail(CloseReason::Protocol(ProtocolError::Overrun))
    }

    /// Takes no more messages.
    pub(crate) fn silence(&mut self) {
        self.is_silent = true;
        if let Err(e) = self.posting.qp().to_error() {
            tracing::debug!(qp = self.qp_num(), error = %e, "a queue pair was not moved to ERR");
        }
    }

    /// Returns the share of a pool, if it has one: messages that still come are not the link's.
    pub(crate) fn give_share_back(&mut self) {
        self.book();
        self.leave_open(LinkState::Dead);
        self.error = None;
        if let BufferSource::Shared(member) = &mut self.source {
            member.leave();
        }
    }

    /// Reports whether the device has reported that the silenced queue pair keeps no buffer of the
    /// pool: all requests that it had taken have completed. Takes a system call until then.
    pub(crate) fn keeps_no_buffer(&self) -> bool {
        self.posting.qp().has_reached_last_wqe().unwrap_or_else(|e| {
            tracing::debug!(qp = self.qp_num(), error = %e, "asynchronous events");
            false
        })
    }

    /// Books a completion of a link that hands out no more messages.
    pub(crate) fn absorb(&mut self, completion: Completion<'_>) {
        match self.take(completion) {
            Ok(buffer) => self.reclaim(buffer),
            Err(other) => drop(self.arrive(other)),
        }
    }

    fn control(&mut self, imm: u32) -> CompletionEffect {
        match Control::decode(imm) {
            Ok(Control::Fin) => {
                self.book();
                self.leave_open(LinkState::Finished);
                // The sender has left, or is leaving: it needs no STOP from us.
                self.goodbye = Goodbye::None;
                CompletionEffect::Settled
            }
            Ok(control @ (Control::Want | Control::Return(_))) => self.borrow(control, imm),
            _ => self.fail(CloseReason::Protocol(ProtocolError::Control(imm))),
        }
    }

    /// Takes a WANT or RETURN of a sender with loans as credits. Ignored on a link that has ended.
    fn borrow(&mut self, control: Control, imm: u32) -> CompletionEffect {
        self.book();
        let booked = match (&mut self.source, control) {
            (BufferSource::Shared(_), _) if self.state != LinkState::Open => Ok(()),
            (BufferSource::Shared(member), Control::Want) => member.want(),
            (BufferSource::Shared(member), Control::Return(wire)) => member.give_back(wire),
            _ => Err(ProtocolError::Control(imm)),
        };
        match booked {
            Ok(()) => CompletionEffect::Settled,
            Err(violation) => self.fail(CloseReason::Protocol(violation)),
        }
    }

    fn control_sent(&mut self, completion: &Completion<'_>) -> CompletionEffect {
        let retired = self.posting.retire(completion);
        if !completion.is_success() {
            // Flushed or failed: nothing is outstanding any more.
            self.posting.give_up();
            self.goodbye = Goodbye::None;
        }
        match retired {
            Ok(_) => CompletionEffect::Settled,
            Err(reason) => self.fail(reason),
        }
    }

    /// Ends the link with a reason, unless it has ended already.
    pub(crate) fn fail(&mut self, reason: CloseReason) -> CompletionEffect {
        if self.state != LinkState::Open {
            return CompletionEffect::Settled;
        }
        self.book();
        self.leave_open(LinkState::Dead);
        self.error = Some(self.posting.fail(reason));
        self.is_silent = true;
        CompletionEffect::Failed
    }
}
