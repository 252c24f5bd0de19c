//! Waiting, and ending.

use std::time::{Duration, Instant};

use conn_core::control::Control;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::SendOp;

use super::{Sender, Ticket};
use crate::send_recv::{Ended, PROBE, SendError};
use crate::wait::{Deadline, Idle, SILENT, Step};

/// Waiting.
impl Sender {
    pub(super) fn idle(&mut self, deadline: Deadline) -> Idle {
        let idle = Idle::new(self.config.wait, deadline, self.config.keepalive);
        idle.resume(&mut self.silence)
    }

    /// Whether this sender has given the ticket out: it is one of its own, and there is a
    /// message of that number, or the pack that is open will get it.
    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        let open = self.packer.as_ref().is_some_and(|packer| packer.count() > 0);
        let last = self.queue.staged_total() + u64::from(open);
        ticket.sender == self.number && ticket.id.0 <= last
    }

    pub(super) fn wait_until(
        &mut self,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        // Before anything is sent that would get its number.
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if self.tracker.is_complete(ticket.id) {
            return Ok(());
        }
        let mut idle = self.idle(deadline);
        while !self.is_sent(ticket)? {
            self.wait_a_little(&mut idle)?;
        }
        Ok(())
    }

    /// A request whose completion nobody asked for completes with the next one
    /// that is signalled: when none is on its way, a zero-length write is sent
    /// behind it, which is answered when everything before it was.
    pub(super) fn nudge(&mut self, ticket: Ticket) -> Result<(), SendError> {
        if self.tracker.will_complete(ticket.id) {
            return Ok(());
        }
        self.probe()
    }

    pub(super) fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.flush()?;
        let last = WrId(self.tracker.next_id().0 - 1);
        self.wait_until(self.ticket(last), deadline)
    }

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    pub(super) fn wait_a_little(&mut self, idle: &mut Idle) -> Result<(), SendError> {
        if self.progress()? > 0 {
            idle.reset();
            return Ok(());
        }
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

    /// Arms the queue, looks once more, and sleeps: a completion that comes
    /// between the look and the sleep rings the channel.
    fn sleep(&mut self, time: Duration) -> Result<(), SendError> {
        if let Err(e) = self.cq.arm(false) {
            return Err(self.fail_device(&e));
        }
        if self.progress()? > 0 {
            return Ok(());
        }
        let Some(channel) = &mut self.channel else { return Ok(()) };
        match channel.wait(Some(time)) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.fail_device(&e)),
        }
    }

    /// Asks after a receiver that has granted nothing for a keepalive interval: whoever
    /// only tries to send has no wait that would do it.
    pub(super) fn ask_if_silent(&mut self, now: Instant) -> Result<(), SendError> {
        let accepted = self.stats.messages;
        let (since, had) = *self.asked.get_or_insert((now, accepted));
        if now.duration_since(since) < self.config.keepalive {
            return Ok(());
        }
        self.asked = Some((now, accepted));
        if had == accepted && !self.tracker.signalled_outstanding() {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.probe()?;
        }
        Ok(())
    }

    /// Asks the peer's device whether it is there: a write of no bytes needs no
    /// buffer, no key and no credit, and fails when nobody answers.
    fn probe(&mut self) -> Result<(), SendError> {
        self.check_alive()?;
        self.book();
        // A full control share has a signalled request on its way already.
        let Ok(planned) = self.tracker.plan_signalled(WrClass::Control) else { return Ok(()) };
        self.queue.stage(PROBE, planned.signalled).map_err(|e| self.fail_device(&e))?;
        self.post()
    }
}

/// Ending.
impl Sender {
    pub(super) fn goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain(deadline)?;
        let Ok(planned) = self.tracker.plan_signalled(WrClass::Control) else {
            return Err(SendError::TimedOut);
        };
        let op = SendOp::SendImm { len: 0, imm: Control::Fin.encode() };
        self.queue.stage(op, planned.signalled).map_err(|e| self.fail_device(&e))?;
        self.post()?;
        self.wait_until(self.ticket(planned.id), deadline)?;
        self.abandon();
        Ok(())
    }

    /// Ends it without a word: there is nobody to say goodbye to.
    pub(crate) fn abandon(&mut self) {
        self.ended.get_or_insert(Ended::Closed);
        self.queue.close_run();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Err(e) = self.goodbye(Deadline::after(self.config.linger)) {
            tracing::warn!(qp = self.qp_num(), error = %e, "sender dropped before all was delivered");
        }
    }
}
