//! Waiting, and ending.

use std::time::Duration;

use conn_core::control::Control;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::SendOp;

use super::{Sender, Ticket};
use crate::error::{Full, SendError};
use crate::half::driven::Sender as _;
use crate::half::{SendHalf, driven};
use crate::keepalive::{Look, SILENT};
use crate::wait::{Deadline, Idle, Step};
use crate::wire::{ConnectedQp, PROBE};

impl driven::Sender for Sender {
    fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        // Checked before anything is sent that would get the ticket's number.
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if self.was_acked(ticket) {
            return Ok(());
        }
        // It is the last one: there may be no call for a while.
        if self.borrower.is_some() && ticket.number >= self.posting.queue().staged_total() {
            self.flush()?;
        }
        let mut idle = self.waiting.idle(deadline);
        while !self.is_acked(ticket)? {
            self.wait_a_little(&mut idle)?;
        }
        Ok(())
    }

    fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        // After the end, it depends on the last message.
        if self.posting.ended().is_none() || self.unflushed() > 0 {
            self.flush()?;
        }
        let last = WrId(self.posting.next_id().0 - 1);
        self.wait_until(self.ticket(last), deadline)
    }

    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.waiting.idle(deadline);
        let (mut stalled, mut loan) = (false, None);
        let done = loop {
            let full = match self.prepare(bytes) {
                Err(SendError::Full(full)) => full,
                done => {
                    self.stats.credit_stalls += u64::from(stalled);
                    break done;
                }
            };
            if full != Full::Credits {
                self.loan_waits.end(&mut loan);
            } else if !stalled {
                if self.borrower.is_some() {
                    idle.set_strategy(self.loan_waits.strategy(self.waiting.common.wait));
                    loan = Some(host::time::now());
                }
                stalled = true;
            }
            if let Err(e) = self.wait_a_little(&mut idle) {
                break Err(e);
            }
        };
        self.loan_waits.end(&mut loan);
        done
    }

    fn gather(&mut self, on: bool) -> bool {
        self.book();
        let before = std::mem::replace(&mut self.gathers, on);
        if !on && self.posting.ended().is_none() {
            // What fails ends the half, and is reported by the next call.
            let _ = self.push();
        }
        self.open_run();
        before
    }

    fn qp(&self) -> &ConnectedQp {
        self.posting.qp()
    }

    fn abandon(&mut self) {
        self.posting.close();
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.posting.check()?;
        self.drain(deadline)?;
        // A peer that has stopped does not receive the goodbye.
        self.progress()?;
        self.posting.check()?;
        let op = SendOp::SendImm { len: 0, imm: Control::Fin.encode() };
        let Some(fin) = self.posting.stage(op, WrClass::Control, true)? else {
            return Err(SendError::TimedOut { unflushed: self.unflushed() });
        };
        self.controls.note(fin.id, self.posting.last_completed());
        self.has_finished = true;
        self.post()?;
        self.wait_until(self.ticket(fin.id), deadline)?;
        self.abandon();
        Ok(())
    }
}

/// Waiting.
impl Sender {
    /// Reports whether this sender has given the ticket out: it is one of its own, and there is a
    /// message of that number, or the pack that is open will get it.
    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        let open = self.packer.as_ref().is_some_and(|packer| packer.count() > 0);
        let last = self.posting.queue().staged_total() + u64::from(open);
        ticket.sender == self.number && ticket.number <= last
    }

    /// An unsignalled request completes with the next signalled one: when none is on its way,
    /// a zero-length write is sent behind it, which is answered when everything before it was.
    pub(super) fn nudge(&mut self, ticket: Ticket) -> Result<(), SendError> {
        if self.posting.will_complete(WrId(ticket.number)) {
            return Ok(());
        }
        self.probe()
    }

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    pub(super) fn wait_a_little(&mut self, idle: &mut Idle) -> Result<(), SendError> {
        let events = self.progress()?;
        match idle.after(events) {
            Step::Again => Ok(()),
            Step::Sleep(time) => self.sleep(time),
            Step::Probe => {
                tracing::debug!(qp = self.qp_num(), "{SILENT}");
                self.probe()
            }
            Step::TimedOut => {
                self.waiting.time_out(idle);
                Err(SendError::TimedOut { unflushed: self.unflushed() })
            }
        }
    }

    /// Arms the queue, looks once more, and sleeps: a completion that comes
    /// between the look and the sleep rings the channel.
    fn sleep(&mut self, time: Duration) -> Result<(), SendError> {
        let armed = self.waiting.arm().map_err(|reason| self.posting.fail(reason))?;
        if self.progress()? > 0 {
            return Ok(());
        }
        let slept = self.waiting.wait(&armed, None, time);
        Ok(slept.map_err(|reason| self.posting.fail(reason))?)
    }

    /// In calls that do not wait: learns of a peer that has gone, and probes a receiver of which
    /// nothing is heard, as long as the program sends nothing either.
    #[cold]
    pub(super) fn look_after_peer(&mut self) -> Result<(), SendError> {
        let look = self.waiting.look();
        if look == Look::No {
            return Ok(());
        }
        self.posting.check()?;
        self.progress()?;
        self.posting.check()?;
        let is_silent = look == Look::Round && self.waiting.watch.is_silent(self.stats.messages);
        if is_silent && !self.posting.awaits_completion() {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.probe()?;
        }
        Ok(())
    }

    /// Asks the peer's device whether it is there: a write of no bytes needs no
    /// buffer, no key and no credit, and fails when the device does not answer.
    pub(super) fn probe(&mut self) -> Result<(), SendError> {
        self.book();
        // A full control share has a signalled request on its way already.
        let staged = self.posting.stage(PROBE, WrClass::Control, true)?;
        let Some(probe) = staged else { return Ok(()) };
        self.controls.note(probe.id, self.posting.last_completed());
        self.post()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.posting.ended().is_some() {
            return;
        }
        if let Err(e) = self.goodbye(Deadline::after(self.waiting.common.linger)) {
            tracing::warn!(qp = self.qp_num(), error = %e, "sender dropped before all was delivered");
        }
    }
}
