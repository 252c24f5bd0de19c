//! Waiting, and ending.

use std::ops::Range;

use conn_core::direct_read::Notice;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::SendOp;

use super::{Sender, Ticket};
use crate::error::{Full, SendError};
use crate::posting::field;
use crate::sending::{Half, Sends};
use crate::wait::Deadline;
use crate::waiting::WaitFor;
use crate::zero_copy::{NotSent, Offer, OfferError, Sent, driven};

impl<B: Offer> driven::Sender for Sender<B> {
    type Offered = B;

    fn offer_until(
        &mut self,
        buffer: B,
        range: Range<usize>,
        app: &[u8],
        deadline: Deadline,
    ) -> Result<Ticket, NotSent<B>> {
        let mut idle = self.half.waiting.idle(deadline);
        loop {
            let error = match self.post_offer(&buffer, range.clone(), app) {
                Ok(number) => return Ok(self.offered(buffer, number, false)),
                Err(OfferError::Send(SendError::Full(_))) => {
                    self.await_news(&mut idle, WaitFor::Completion).err().map(OfferError::Send)
                }
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                return Err(NotSent { buffer, error });
            }
        }
    }

    fn take_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<Sent<B>, SendError> {
        self.acked_until(ticket, deadline)?;
        let at = self.done.iter().position(|(number, _)| *number == ticket.number);
        let sent = at.and_then(|at| self.done.remove(at));
        sent.map(|(_, sent)| sent).ok_or(SendError::UnknownTicket)
    }

    fn next_ticket(&self) -> Result<Ticket, SendError> {
        let first = self.done.front().map(|(number, _)| *number);
        let offered = self.on_offer.iter().find(|on| !on.is_pooled).map(|on| on.number);
        let number = first.or(offered).ok_or(SendError::UnknownTicket)?;
        Ok(self.half.ticket(number))
    }

    fn close_until(mut self, deadline: Deadline) -> Result<Vec<Sent<B>>, SendError> {
        self.leave(deadline)?;
        Ok(self.done.drain(..).map(|(_, sent)| sent).collect())
    }
}

impl<B: Offer> Sends for Sender<B> {
    field!(half, half_mut: Half);

    fn progress(&mut self) -> Result<usize, SendError> {
        self.take_news(true)
    }

    /// A pull in flight completes; none is begun that would only say "not yet".
    fn look_around(&mut self) -> Result<usize, SendError> {
        self.take_news(false)
    }

    /// Requests a notice of the receiver behind the next acknowledgement, if acknowledgements make
    /// no completion here.
    fn request_wakeup(&mut self) -> Result<(), SendError> {
        if self.will_be_woken() {
            return Ok(());
        }
        let Some(number) = self.offers.awaited() else { return Ok(()) };
        if self.has_woken(number) {
            self.vain_looks += 1;
            return Ok(());
        }
        if self.half.posting.control_room() == 0 {
            return Ok(());
        }
        let imm = Notice::Wakeup(Notice::low(number)).encode();
        self.stage(SendOp::SendImm { len: 0, imm }, WrClass::Control, false)?;
        (self.wakeup, self.wakeup_for) = (true, number);
        Ok(self.half.posting.post()?)
    }

    /// Reports whether a request completes here when the oldest message is acknowledged. A pull may
    /// have returned no new count: then only a wakeup would complete, which the next round
    /// requests.
    fn will_be_woken(&self) -> bool {
        let comes = self.wakeup || self.pull.is_some() || self.config.ack.notifies();
        // Without room for a WAKEUP, a signalled request is in flight: its completion makes room,
        // and wakes this end.
        let is_full = self.half.posting.control_room() == 0;
        comes || is_full || self.offers.awaited().is_none()
    }

    fn heard(&self) -> u64 {
        self.stats.messages + self.offers.acked()
    }

    fn last(&self) -> u64 {
        self.offers.sent()
    }

    fn was_acked(&self, number: u64) -> bool {
        number <= self.offers.acked()
    }

    fn push_all(&mut self, _awaited: bool) -> Result<(), SendError> {
        Ok(self.half.posting.post()?)
    }

    fn stage_goodbye(&mut self) -> Result<WrId, SendError> {
        // A peer that has stopped does not receive the goodbye.
        self.take_news(false)?;
        self.half.posting.check()?;
        let op = SendOp::SendImm { len: 0, imm: Notice::Fin.encode() };
        let staged = self.half.posting.stage(op, WrClass::Control, true)?;
        staged.map(|staged| staged.id).ok_or(SendError::Full(Full::Requests))
    }
}

/// Wakeups.
impl<B: Offer> Sender<B> {
    /// Looks for the acknowledgement that a wakeup has announced. It comes before the wakeup, and
    /// may only be half-written yet.
    const LOOKS_AFTER_WAKEUP: u32 = 64;

    /// Reports whether the receiver has announced by a wakeup that this message is acknowledged.
    /// After [`LOOKS_AFTER_WAKEUP`](Self::LOOKS_AFTER_WAKEUP) looks without an acknowledgement the
    /// wakeup no longer counts, and the receiver is asked again.
    pub(super) fn has_woken(&self, number: u64) -> bool {
        let is_believed = self.vain_looks < Self::LOOKS_AFTER_WAKEUP;
        !self.wakeup && number <= self.wakeup_for && is_believed
    }
}
