//! Waiting, and ending.

use super::{Sender, Ticket};
use crate::sealed;
use crate::send_recv::{Ended, PROBE, SendError};
use crate::wait::{Deadline, Idle, Nap, SILENT, Step};

/// Waiting.
impl Sender {
    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        ticket.sender == self.number && ticket.end <= self.source.ring().tail()
    }

    pub(super) fn last_ticket(&self) -> Ticket {
        Ticket { sender: self.number, end: self.source.ring().tail() }
    }

    pub(super) fn wait_until(
        &mut self,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        self.wait_for(deadline, |sender| sender.is_sent(ticket))
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

    /// Waits for room for a message of so many bytes.
    pub(super) fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        match self.grant(bytes) {
            Ok(_) => return Ok(()),
            Err(SendError::Full(_)) => self.stats.stalls += 1,
            Err(e) => return Err(e),
        }
        self.wait_for(deadline, |sender| match sender.grant(bytes) {
            Ok(_) => Ok(true),
            Err(SendError::Full(_)) => Ok(false),
            Err(e) => Err(e),
        })
    }

    /// Waits until `is_done`, which looks at what the receiver tells. The receiver is asked
    /// after when nothing was heard of it for a keepalive interval.
    fn wait_for(
        &mut self,
        deadline: Deadline,
        mut is_done: impl FnMut(&mut Sender) -> Result<bool, SendError>,
    ) -> Result<(), SendError> {
        if is_done(self)? {
            return Ok(());
        }
        let idle = Idle::new(self.config.wait, deadline, self.config.keepalive);
        let (mut idle, mut nap) = (idle.resume(&mut self.silence), Nap::new());
        let mut heard = self.heard();
        while !is_done(self)? {
            if heard != self.heard() {
                (heard, nap) = (self.heard(), Nap::new());
                idle.reset();
            }
            match idle.step() {
                Step::Again => {}
                Step::Sleep(time) => nap.take(time),
                Step::Probe => {
                    tracing::debug!(qp = self.qp_num(), "{SILENT}");
                    self.probe()?;
                }
                Step::TimedOut => {
                    self.silence = idle.silence();
                    return Err(SendError::TimedOut);
                }
            }
            self.hear_answers()?;
        }
        Ok(())
    }

    /// What is known of the receiver; it changes when there is news.
    fn heard(&self) -> (u64, u64, bool) {
        (self.source.ring().head(), self.source.landed(), self.source.is_seen())
    }

    /// Asks the peer's device whether it is there: a write of no bytes fails when nobody
    /// answers. It is the only request of a sender.
    pub(super) fn probe(&mut self) -> Result<(), SendError> {
        self.check_alive()?;
        if self.queue.posted_total() > self.queue.retired_total() {
            return Ok(()); // one is on its way
        }
        let staged = self.queue.stage(PROBE, true).map_err(|e| e.to_string());
        let posted = staged.and_then(|()| self.queue.post().map_err(|e| e.to_string()));
        posted.map(drop).map_err(|why| self.fail(Ended::Device(why)))
    }

    /// Whether an answer is there; only looks if a question is on its way.
    pub(super) fn hear_answers(&mut self) -> Result<(), SendError> {
        if self.queue.posted_total() == self.queue.retired_total() {
            return Ok(());
        }
        let polled = self.cq.poll(&mut self.batch);
        polled.map_err(|e| self.fail(Ended::Device(e.to_string())))?;
        let mut lost = None;
        for completion in self.batch.drain() {
            // Nothing else completes here.
            let _ = self.queue.retire(&completion);
            lost = lost.or(completion.error());
        }
        let Some(error) = lost else { return Ok(()) };
        // It may have said why before it went.
        let words = sealed::last_look(|| self.words());
        self.take_in(words)?;
        Err(self.fail(Ended::PeerLost(error)))
    }
}

/// Ending.
impl Sender {
    pub(super) fn goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.check_alive()?;
        self.source.finish();
        self.block.publish_tail(self.source.tail_word());
        self.wait_for(deadline, |sender| {
            sender.look()?;
            Ok(sender.source.is_seen())
        })?;
        self.abandon();
        Ok(())
    }

    /// Ends it without a word: there is nobody to say goodbye to.
    pub(in crate::buffered_read) fn abandon(&mut self) {
        self.ended.get_or_insert(Ended::Closed);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Err(e) = self.goodbye(Deadline::after(self.config.linger)) {
            tracing::warn!(qp = self.qp_num(), error = %e, "sender dropped before all was read");
        }
    }
}
