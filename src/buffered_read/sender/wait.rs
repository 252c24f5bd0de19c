//! Waiting, and ending.

use super::{Sender, Ticket};
use crate::checked;
use crate::error::{CloseReason, SendError};
use crate::half::driven::Sender as _;
use crate::half::{SendHalf, driven};
use crate::keepalive::{Look, SILENT};
use crate::wait::{Deadline, SleepBackoff, Step};
use crate::wire::ConnectedQp;

impl driven::Sender for Sender {
    fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.wait_until(self.last_ticket(), deadline)
    }

    fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        self.wait_for(deadline, |sender| sender.is_acked(ticket))
    }

    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
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

    /// A message lies where the receiver reads it: there is nothing to gather.
    fn gather(&mut self, _on: bool) -> bool {
        false
    }

    fn qp(&self) -> &ConnectedQp {
        self.posting.qp()
    }

    fn abandon(&mut self) {
        self.posting.close();
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.posting.check()?;
        self.source.finish();
        self.block.publish_tail(self.source.tail_word());
        self.wake_receiver_for_certain();
        // A receiver that has gone answers nothing to a word in this end's memory.
        self.probe()?;
        self.wait_for(deadline, |sender| {
            sender.look()?;
            Ok(sender.source.is_seen())
        })?;
        self.abandon();
        Ok(())
    }
}

/// Waiting.
impl Sender {
    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        ticket.sender == self.number && ticket.number <= self.source.ring().tail()
    }

    pub(super) fn last_ticket(&self) -> Ticket {
        Ticket { sender: self.number, number: self.source.ring().tail() }
    }

    /// Waits until `is_done`, which looks at the receiver's words. Probes the receiver when
    /// nothing has come from it for a keepalive interval.
    fn wait_for(
        &mut self,
        deadline: Deadline,
        mut is_done: impl FnMut(&mut Sender) -> Result<bool, SendError>,
    ) -> Result<(), SendError> {
        if is_done(self)? {
            return Ok(());
        }
        self.wake_receiver_for_certain();
        let (mut idle, mut backoff) = (self.waiting.idle(deadline), SleepBackoff::new());
        let mut heard = self.heard();
        while !is_done(self)? {
            // A wake-up that could not be sent has ended it.
            self.posting.check()?;
            let has_news = heard != self.heard();
            if has_news {
                (heard, backoff) = (self.heard(), SleepBackoff::new());
            }
            match idle.after(has_news.into()) {
                Step::Again => {}
                Step::Sleep(time) => {
                    self.wake_receiver_for_certain();
                    backoff.sleep(time);
                }
                Step::Probe => {
                    tracing::debug!(qp = self.qp_num(), "{SILENT}");
                    self.probe()?;
                }
                Step::TimedOut => {
                    self.waiting.time_out(&idle);
                    return Err(SendError::TimedOut { unflushed: 0 });
                }
            }
            self.hear_answers()?;
        }
        Ok(())
    }

    /// Returns what is known of the receiver; it changes when the receiver has made progress.
    fn heard(&self) -> (u64, u64, bool) {
        (self.source.ring().head(), self.source.landed(), self.source.is_seen())
    }

    /// In calls that do not wait: takes in what has come of probes, and probes a receiver from
    /// which nothing has come since the round before.
    #[cold]
    pub(super) fn look_after_peer(&mut self) -> Result<(), SendError> {
        let look = self.waiting.look();
        if look == Look::No || self.posting.ended().is_some() {
            return Ok(());
        }
        self.hear_answers()?;
        self.look()?;
        let (head, landed, _) = self.heard();
        if look == Look::Round && self.waiting.watch.is_silent(head.wrapping_add(landed)) {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.probe()?;
        }
        Ok(())
    }

    /// Asks the peer's device whether it is there, unless the answer to another request will tell.
    pub(super) fn probe(&mut self) -> Result<(), SendError> {
        self.posting.check()?;
        if self.on_their_way() == 0 {
            self.posting.probe()?;
        }
        Ok(())
    }

    /// Probes and wake-ups that are on their way. One that has failed behind the receiver's last
    /// word ends nothing, and is not.
    pub(super) fn on_their_way(&self) -> u64 {
        let queue = self.posting.queue();
        queue.posted_total() - queue.retired_total()
    }

    /// Takes in the completions of probes and wake-ups; only polls if one is on its way.
    pub(super) fn hear_answers(&mut self) -> Result<(), SendError> {
        if self.on_their_way() == 0 {
            return Ok(());
        }
        let polled = self.waiting.cq.poll(&mut self.batch);
        polled.map_err(|e| self.posting.fail(CloseReason::Device(e.to_string())))?;
        let mut lost = None;
        for completion in self.batch.drain() {
            // Nothing else completes here.
            lost = lost.or(self.posting.retire(&completion).err());
        }
        let Some(reason) = lost else { return Ok(()) };
        // The receiver may have written its reason before it went.
        let words = checked::last_look(|| self.words());
        self.take_in(words)?;
        if self.source.is_seen() {
            return Ok(()); // it has all, and may have gone
        }
        Err(self.posting.fail(reason).into())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.posting.ended().is_some() {
            return;
        }
        if let Err(e) = self.goodbye(Deadline::after(self.waiting.common.linger)) {
            tracing::warn!(qp = self.qp_num(), error = %e, "sender dropped before all was read");
        }
    }
}

#[cfg(test)]
mod tests;
