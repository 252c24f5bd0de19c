//! Waiting, and ending.

use std::time::Duration;

use super::{Sender, Ticket};
use crate::buffered_write::{Ended, Full, SendError};
use crate::wait::{Deadline, Idle, NAP, SILENT, Step};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// Completions, which ring the channel.
    Completion,
    /// Words of the control block, which ring nothing.
    Word,
}

/// Waiting.
impl Sender {
    fn idle(&mut self, deadline: Deadline) -> Idle {
        let idle = Idle::new(self.config.wait, deadline, self.config.keepalive);
        idle.resume(&mut self.silence)
    }

    /// Whether this sender has given the ticket out.
    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        ticket.sender == self.number && ticket.end <= self.core.tail()
    }

    /// A message that found no room, or whose push found no receive for its tail.
    #[cold]
    pub(super) fn send_late(
        &mut self,
        tried: Result<Ticket, SendError>,
        message: &[u8],
    ) -> Result<Ticket, SendError> {
        let ticket = match tried {
            Err(SendError::Full(_)) => self.send_when_free(message, Deadline::NEVER)?,
            tried => tried?,
        };
        if self.config.batch_bytes == 0 {
            self.pushed_until(Deadline::NEVER)?;
        }
        Ok(ticket)
    }

    #[cold]
    pub(super) fn send_when_free(
        &mut self,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<Ticket, SendError> {
        self.room_until(message.len(), deadline)?;
        self.try_send(message)
    }

    pub(super) fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        let (mut idle, mut stalled) = (self.idle(deadline), false);
        loop {
            match self.grant(bytes) {
                Err(SendError::Full(Full::Ring)) => stalled = true,
                other => {
                    self.stats.ring_stalls += u64::from(stalled);
                    return other.map(drop);
                }
            }
            self.wait_a_little(&mut idle, For::Word)?;
        }
    }

    /// Waits until all that was accepted was pushed.
    #[cold]
    pub(super) fn pushed_until(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.idle(deadline);
        loop {
            self.push(false)?;
            if self.core.gathered() == 0 {
                return Ok(());
            }
            self.wait_a_little(&mut idle, For::Word)?;
        }
    }

    pub(super) fn wait_until(
        &mut self,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if self.acknowledged >= ticket.end {
            return Ok(());
        }
        let mut idle = self.idle(deadline);
        while !self.is_sent(ticket)? {
            let what = if self.core.pushed() < ticket.end { For::Word } else { For::Completion };
            self.wait_a_little(&mut idle, what)?;
        }
        Ok(())
    }

    /// A push whose completion nobody asked for is acknowledged by the next request that is
    /// signalled: when none is on its way, a write of no bytes is sent behind it.
    pub(super) fn nudge(&mut self, ticket: Ticket) -> Result<(), SendError> {
        let is_asked_for = self.marks.back().is_some_and(|(_, end)| *end >= ticket.end);
        if is_asked_for || self.core.pushed() < ticket.end || self.acknowledged >= ticket.end {
            return Ok(());
        }
        self.probe()
    }

    pub(super) fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let last = Ticket { sender: self.number, end: self.core.tail() };
        self.check_alive()?;
        self.wait_until(last, deadline)
    }

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    fn wait_a_little(&mut self, idle: &mut Idle, what: For) -> Result<(), SendError> {
        if self.progress()? > 0 {
            idle.reset();
            return Ok(());
        }
        match idle.step() {
            Step::Again => Ok(()),
            Step::Sleep(time) => self.sleep(time, what),
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

    /// Arms the queue, looks once more, and sleeps. A completion that comes between the look
    /// and the sleep rings the channel; for a word it naps.
    fn sleep(&mut self, time: Duration, what: For) -> Result<(), SendError> {
        if let Err(e) = self.cq.arm(false) {
            return Err(self.fail_device(&e));
        }
        if self.progress()? > 0 {
            return Ok(());
        }
        let time = if what == For::Word { time.min(NAP) } else { time };
        let Some(channel) = &self.channel else { return Ok(()) };
        match channel.wait(Some(time)) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.fail_device(&e)),
        }
    }
}

/// Ending.
impl Sender {
    pub(super) fn goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain(deadline)?;
        self.core.close();
        let mut idle = self.idle(deadline);
        while !self.core.has_said_goodbye() {
            self.push(true)?;
            if !self.core.has_said_goodbye() {
                self.wait_a_little(&mut idle, For::Word)?;
            }
        }
        // The goodbye is acknowledged when nothing is outstanding any more.
        while !self.marks.is_empty() {
            self.wait_a_little(&mut idle, For::Completion)?;
        }
        self.abandon();
        Ok(())
    }

    /// Ends it without a word: there is nobody to say goodbye to.
    pub(crate) fn abandon(&mut self) {
        self.ended.get_or_insert(Ended::Closed);
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
