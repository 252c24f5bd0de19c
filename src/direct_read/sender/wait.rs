//! Waiting, and ending.

use std::ops::Range;
use std::time::Duration;

use conn_core::direct_read::Notice;
use conn_core::wr::WrClass;
use verbs_safe::SendOp;

use super::{Sender, Ticket};
use crate::arm::Arm;
use crate::error::{CloseReason, SendError};
use crate::keepalive::{Look, SILENT};
use crate::wait::{Deadline, Idle, Step};
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
        let mut idle = self.waiting.idle(deadline);
        loop {
            let error = match self.post_offer(&buffer, range.clone(), app) {
                Ok(number) => return Ok(self.offered(buffer, number, false)),
                Err(OfferError::Send(SendError::Full(_))) => {
                    self.wait_a_little(&mut idle).err().map(OfferError::Send)
                }
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                return Err(NotSent { buffer, error });
            }
        }
    }

    fn take_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<Sent<B>, SendError> {
        self.wait_for(ticket, deadline)?;
        let at = self.done.iter().position(|(number, _)| *number == ticket.number);
        let sent = at.and_then(|at| self.done.remove(at));
        sent.map(|(_, sent)| sent).ok_or(SendError::UnknownTicket)
    }

    fn next_ticket(&self) -> Result<Ticket, SendError> {
        let first = self.done.front().map(|(number, _)| *number);
        let offered = self.on_offer.iter().find(|on| !on.is_pooled).map(|on| on.number);
        let number = first.or(offered).ok_or(SendError::UnknownTicket)?;
        Ok(Ticket { sender: self.serial, number })
    }

    fn close_until(mut self, deadline: Deadline) -> Result<Vec<Sent<B>>, SendError> {
        self.end_until(deadline)?;
        Ok(self.done.drain(..).map(|(_, sent)| sent).collect())
    }
}

/// Waiting.
impl<B: Offer> Sender<B> {
    pub(super) fn check_known(&self, ticket: Ticket) -> Result<(), SendError> {
        let known = ticket.sender == self.serial && ticket.number <= self.offers.sent();
        if known { Ok(()) } else { Err(SendError::UnknownTicket) }
    }

    /// Waits until the receiver is done with a message.
    pub(in crate::direct_read) fn wait_for(
        &mut self,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        self.check_known(ticket)?;
        let mut idle = self.waiting.idle(deadline);
        while ticket.number > self.offers.acked() {
            self.posting.check()?;
            self.wait_a_little(&mut idle)?;
        }
        Ok(())
    }

    pub(in crate::direct_read) fn drain_until(
        &mut self,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        let mut idle = self.waiting.idle(deadline);
        while self.offers.awaited().is_some() {
            self.posting.check()?;
            self.wait_a_little(&mut idle)?;
        }
        Ok(())
    }

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    pub(in crate::direct_read) fn wait_a_little(
        &mut self,
        idle: &mut Idle,
    ) -> Result<(), SendError> {
        let events = self.progress(true)?;
        if events == 0 {
            self.posting.check()?;
        }
        match idle.after(events) {
            Step::Again => Ok(()),
            Step::Sleep(time) => self.sleep(time),
            Step::Probe => {
                tracing::debug!(qp = self.qp_num(), "{SILENT}");
                self.posting.probe()?;
                Ok(())
            }
            Step::TimedOut => {
                self.waiting.time_out(idle);
                Err(SendError::TimedOut { unflushed: 0 })
            }
        }
    }

    /// Arms the queue, looks once more, and sleeps. Where acknowledgements make no
    /// completion here, the receiver is asked for a notice behind the next one.
    fn sleep(&mut self, time: Duration) -> Result<(), SendError> {
        self.request_wakeup()?;
        let armed = self.waiting.arm().map_err(|reason| self.posting.fail(reason))?;
        // A pull in flight completes; none is begun that would only say "not yet".
        if self.progress(false)? > 0 {
            return Ok(());
        }
        // A pull may have come back with no new count: then nothing would wake this thread but
        // a wakeup, which the next round asks for.
        if !self.will_be_woken() {
            return Ok(());
        }
        let slept = self.waiting.wait(&armed, None, time);
        Ok(slept.map_err(|reason| self.posting.fail(reason))?)
    }

    /// As [`sleep`](Self::sleep), for an event loop of the program's.
    pub(in crate::direct_read) fn arm_channel(&mut self) -> Result<Arm<'_>, SendError> {
        self.posting.check()?;
        self.waiting.disarm().map_err(|reason| self.posting.fail(reason))?;
        self.posting.post()?;
        if self.waiting.channel.is_some() {
            self.request_wakeup()?;
            self.posting.post()?;
            self.waiting.arm_loop().map_err(|reason| self.posting.fail(reason))?;
        }
        let events = self.progress(false)?;
        if self.waiting.is_silent(events) {
            self.posting.probe()?;
        }
        if events > 0 {
            return Ok(Arm::Ready);
        }
        self.posting.check()?;
        if !self.will_be_woken() {
            return Ok(self.waiting.no_event());
        }
        let keepalive = self.waiting.common.keepalive;
        Ok(self.waiting.event(None, keepalive)?)
    }

    /// Reports whether something completes here when the oldest message is acknowledged.
    fn will_be_woken(&self) -> bool {
        let comes = self.wakeup || self.pull.is_some() || self.config.ack.notifies();
        // There is no room to ask for a wakeup now: a signalled request on its way makes some, and
        // completes.
        let is_full = self.posting.control_room() == 0;
        comes || is_full || self.offers.awaited().is_none()
    }

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

    fn request_wakeup(&mut self) -> Result<(), SendError> {
        if self.will_be_woken() {
            return Ok(());
        }
        let Some(number) = self.offers.awaited() else { return Ok(()) };
        if self.has_woken(number) {
            self.vain_looks += 1;
            return Ok(());
        }
        if self.posting.control_room() == 0 {
            return Ok(());
        }
        let imm = Notice::Wakeup(Notice::low(number)).encode();
        self.stage(SendOp::SendImm { len: 0, imm }, WrClass::Control, false)?;
        (self.wakeup, self.wakeup_for) = (true, number);
        Ok(self.posting.post()?)
    }

    /// In calls that do not wait: learns of a peer that has gone, and probes a receiver of which
    /// nothing is heard, as long as the program sends nothing either.
    #[inline]
    pub(in crate::direct_read) fn look_after_peer(&mut self) -> Result<(), SendError> {
        match self.waiting.look() {
            Look::No => Ok(()),
            look => self.look_after_peer_now(look),
        }
    }

    #[cold]
    fn look_after_peer_now(&mut self, look: Look) -> Result<(), SendError> {
        if self.posting.ended().is_some() {
            return Ok(());
        }
        self.progress(false)?;
        let heard = self.stats.messages + self.offers.acked();
        let is_silent = look == Look::Round && self.waiting.watch.is_silent(heard);
        // After the end, `try_take` still hands out what was acknowledged.
        let is_alive = self.posting.ended().is_none();
        if is_silent && is_alive && !self.posting.awaits_completion() {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.posting.probe()?;
        }
        Ok(())
    }
}

/// Ending.
impl<B: Offer> Sender<B> {
    /// Waits for what was offered, and says goodbye. Whichever end closes first, and also if
    /// both do at once, the result is a close unless a message or the goodbye was not acknowledged.
    /// The half has ended then, also where time was up.
    pub(in crate::direct_read) fn end_until(
        &mut self,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        let done = self.say_goodbye(deadline);
        self.abandon();
        match done {
            Err(SendError::Ended(CloseReason::Closed)) => Ok(()),
            done => done,
        }
    }

    pub(in crate::direct_read) fn say_goodbye(
        &mut self,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        self.drain_until(deadline)?;
        // A peer that has stopped does not receive the goodbye.
        self.progress(false)?;
        self.posting.check()?;
        let mut idle = self.waiting.idle(deadline);
        while self.posting.control_room() == 0 {
            self.wait_a_little(&mut idle)?;
            self.posting.check()?;
        }
        let op = SendOp::SendImm { len: 0, imm: Notice::Fin.encode() };
        let id = self.stage(op, WrClass::Control, true)?;
        self.posting.post()?;
        // A probe behind the goodbye may fail where the receiver has gone: that does not count.
        while !self.posting.is_complete(id) {
            self.posting.check()?;
            self.wait_a_little(&mut idle)?;
        }
        self.abandon();
        Ok(())
    }

    /// Marks the sender as closed: dropping it then sends no goodbye.
    pub(crate) fn abandon(&mut self) {
        self.posting.close();
    }
}
