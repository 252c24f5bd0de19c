//! Waiting, and ending.

use std::time::Duration;

use conn_core::direct_read::Notice;
use conn_core::wr::WrClass;
use verbs_safe::SendOp;

use super::{Sender, Sent, Ticket};
use crate::direct_read::{Offer, PROBE, SendError};
use crate::send_recv::Ended;
use crate::wait::{Deadline, Idle, SILENT, Step};

/// Waiting.
impl<B: Offer> Sender<B> {
    pub(super) fn idle(&mut self, deadline: Deadline) -> Idle {
        let idle = Idle::new(self.config.wait, deadline, self.config.keepalive);
        idle.resume(&mut self.silence)
    }

    pub(super) fn check_known(&self, ticket: Ticket) -> Result<(), SendError> {
        let known = ticket.sender == self.serial && ticket.number <= self.offers.sent();
        if known { Ok(()) } else { Err(SendError::UnknownTicket) }
    }

    pub(super) fn wait_until(
        &mut self,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<Sent<B>, SendError> {
        self.check_known(ticket)?;
        let mut idle = self.idle(deadline);
        loop {
            if ticket.number <= self.offers.acked() {
                let at = self.done.iter().position(|(number, _)| *number == ticket.number);
                let sent = at.and_then(|at| self.done.remove(at));
                return sent.map(|(_, sent)| sent).ok_or(SendError::UnknownTicket);
            }
            self.check_alive()?;
            self.wait_a_little(&mut idle)?;
        }
    }

    pub(super) fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.idle(deadline);
        while self.offers.awaited().is_some() {
            self.check_alive()?;
            self.wait_a_little(&mut idle)?;
        }
        Ok(())
    }

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    pub(super) fn wait_a_little(&mut self, idle: &mut Idle) -> Result<(), SendError> {
        if self.progress(true)? > 0 {
            idle.reset();
            return Ok(());
        }
        self.check_alive()?;
        match idle.step() {
            Step::Again => Ok(()),
            Step::Sleep(time) => self.sleep(time),
            Step::Probe => {
                tracing::debug!(qp = self.qp_num(), "{SILENT}");
                self.probe()
            }
            Step::TimedOut => {
                self.silence = idle.silence();
                Err(SendError::TimedOut)
            }
        }
    }

    /// Arms the queue, looks once more, and sleeps. Where acknowledgements make no
    /// completion here, the receiver is asked for a notice behind the next one.
    fn sleep(&mut self, time: Duration) -> Result<(), SendError> {
        self.ask_for_bell()?;
        if let Err(e) = self.cq.arm(false) {
            return Err(self.fail(Ended::Device(e.to_string())).into());
        }
        // A pull in flight completes; none is begun that would only say "not yet".
        if self.progress(false)? > 0 {
            return Ok(());
        }
        // A pull may have come back in vain: then nothing would wake us but a bell, which
        // the next round asks for.
        if !self.will_be_woken() {
            return Ok(());
        }
        let Some(channel) = &mut self.channel else { return Ok(()) };
        match channel.wait(Some(time)) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.fail(Ended::Device(e.to_string())).into()),
        }
    }

    /// Whether something completes here when the oldest message is acknowledged.
    fn will_be_woken(&self) -> bool {
        let comes = self.bell || self.pull.is_some() || self.config.ack.notifies();
        comes || self.offers.awaited().is_none()
    }

    /// Looks for the acknowledgement that a bell has told of. It comes before the bell, and
    /// may only be half-written yet.
    const LOOKS_BEHIND_A_BELL: u32 = 64;

    /// Whether the receiver has told by a bell that this message is acknowledged, and is
    /// still believed: whoever rings without an acknowledgement is asked again.
    pub(super) fn has_rung(&self, number: u64) -> bool {
        let is_believed = self.vain_looks < Self::LOOKS_BEHIND_A_BELL;
        !self.bell && number <= self.bell_for && is_believed
    }

    fn ask_for_bell(&mut self) -> Result<(), SendError> {
        if self.will_be_woken() {
            return Ok(());
        }
        let Some(number) = self.offers.awaited() else { return Ok(()) };
        if self.has_rung(number) {
            self.vain_looks += 1;
            return Ok(());
        }
        if self.tracker.available(WrClass::Control) == 0 {
            return Ok(());
        }
        let imm = Notice::Bell(Notice::low(number)).encode();
        self.stage(SendOp::SendImm { len: 0, imm }, WrClass::Control, false)?;
        (self.bell, self.bell_for) = (true, number);
        self.post()
    }

    /// Asks the peer's device whether it is there.
    fn probe(&mut self) -> Result<(), SendError> {
        // A full control share has a signalled request on its way already.
        if self.tracker.available(WrClass::Control) == 0 {
            return Ok(());
        }
        self.stage(PROBE, WrClass::Control, true)?;
        self.post()
    }
}

/// Ending.
impl<B: Offer> Sender<B> {
    pub(super) fn goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain(deadline)?;
        self.check_alive()?;
        let mut idle = self.idle(deadline);
        while self.tracker.available(WrClass::Control) == 0 {
            self.wait_a_little(&mut idle)?;
        }
        let op = SendOp::SendImm { len: 0, imm: Notice::Fin.encode() };
        let id = self.stage(op, WrClass::Control, true)?;
        self.post()?;
        while self.queue.retired_total() < id.0 {
            self.check_alive()?;
            self.wait_a_little(&mut idle)?;
        }
        self.abandon();
        Ok(())
    }

    /// Ends it without a word: there is nobody to say goodbye to.
    pub(crate) fn abandon(&mut self) {
        self.ended.get_or_insert(Ended::Closed);
    }
}
