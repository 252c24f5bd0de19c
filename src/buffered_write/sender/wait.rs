//! Waiting, and ending.

use std::time::Duration;

use super::{Sender, Ticket};
use crate::error::{Full, SendError};
use crate::half::driven::Sender as _;
use crate::half::{SendHalf, driven};
use crate::keepalive::{Look, SILENT};
use crate::wait::{Deadline, Idle, Step};
use crate::wire::ConnectedQp;

/// Event that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// Completions, which ring the channel.
    Completion,
    /// Words of the control block, which ring nothing.
    Word,
}

impl driven::Sender for Sender {
    fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if self.was_acked(ticket) {
            return Ok(());
        }
        let mut idle = self.waiting.idle(deadline);
        while !self.is_acked(ticket)? {
            let what = if self.core.pushed() < ticket.number { For::Word } else { For::Completion };
            match self.wait_a_little(&mut idle, what) {
                // The end may acknowledge the message: the loop checks once more.
                Err(SendError::Ended(_)) => {}
                waited => waited?,
            }
        }
        Ok(())
    }

    fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let last = Ticket { sender: self.number, number: self.core.tail() };
        self.wait_until(last, deadline)
    }

    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        let (mut idle, mut stalled) = (self.waiting.idle(deadline), false);
        loop {
            match self.grant(bytes) {
                Err(SendError::Full(full)) => stalled |= full == Full::Ring,
                other => {
                    self.stats.ring_stalls += u64::from(stalled);
                    return other.map(drop);
                }
            }
            self.wait_a_little(&mut idle, For::Word)?;
        }
    }

    fn gather(&mut self, on: bool) -> bool {
        let before = std::mem::replace(&mut self.gathers, on);
        if !on && self.posting.ended().is_none() {
            // What fails ends the half, and is reported by the next call.
            let _ = self.push(false);
        }
        before
    }

    fn qp(&self) -> &ConnectedQp {
        self.posting.qp()
    }

    fn abandon(&mut self) {
        self.posting.close();
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain(deadline)?;
        self.posting.check()?;
        self.core.close();
        let mut idle = self.waiting.idle(deadline);
        while !self.core.has_said_goodbye() {
            self.push(true)?;
            if !self.core.has_said_goodbye() {
                self.wait_a_little(&mut idle, For::Word)?;
            }
        }
        let goodbye = self.marks.back().map(|(id, _)| *id);
        let is_complete = |me: &Self| goodbye.is_none_or(|id| me.posting.is_complete(id));
        while !is_complete(self) {
            let waited = self.wait_a_little(&mut idle, For::Completion);
            // A probe behind the goodbye may fail where the receiver has gone: that does not count.
            waited.or_else(|e| if is_complete(self) { Ok(()) } else { Err(e) })?;
        }
        self.abandon();
        Ok(())
    }
}

/// Waiting.
impl Sender {
    /// Reports whether this sender has given the ticket out.
    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        ticket.sender == self.number && ticket.number <= self.core.tail()
    }

    /// Waits until all that was accepted was pushed.
    #[cold]
    pub(super) fn pushed_until(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.waiting.idle(deadline);
        loop {
            self.push(false)?;
            if self.core.gathered() == 0 {
                return Ok(());
            }
            self.wait_a_little(&mut idle, For::Word)?;
        }
    }

    /// Reports whether the message of `ticket` is acknowledged, as far as is known.
    pub(super) fn was_acked(&self, ticket: Ticket) -> bool {
        self.acknowledged.end >= ticket.number
    }

    /// A push that was not signalled is acknowledged by the next request that is signalled:
    /// when none is on its way, a write of no bytes is sent behind it.
    pub(super) fn nudge(&mut self, ticket: Ticket) -> Result<(), SendError> {
        let is_asked_for = self.marks.back().is_some_and(|(_, reach)| reach.end >= ticket.number);
        if is_asked_for || self.core.pushed() < ticket.number || self.was_acked(ticket) {
            return Ok(());
        }
        self.probe()
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

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    fn wait_a_little(&mut self, idle: &mut Idle, what: For) -> Result<(), SendError> {
        let events = self.progress()?;
        match idle.after(events) {
            Step::Again => Ok(()),
            Step::Sleep(time) if what == For::Word => self.sleep(idle.word_sleep(time)),
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

    /// Arms the queue, looks once more, and sleeps. A completion that comes between the look
    /// and the sleep rings the channel; a word rings nothing, so that waiting for one polls.
    fn sleep(&mut self, time: Duration) -> Result<(), SendError> {
        let armed = self.waiting.arm().map_err(|reason| self.posting.fail(reason))?;
        if self.progress()? > 0 {
            return Ok(());
        }
        let slept = self.waiting.wait(&armed, None, time);
        Ok(slept.map_err(|reason| self.posting.fail(reason))?)
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
