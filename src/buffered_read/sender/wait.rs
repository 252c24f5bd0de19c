//! Waiting, and ending.

use verbs_safe::SendOp;

use super::{Sender, Ticket};
use crate::checked;
use crate::doorbell;
use crate::error::{CloseReason, SendError};
use crate::half::driven::Sender as _;
use crate::half::{SendHalf, driven};
use crate::keepalive::{Look, SILENT};
use crate::wait::{Deadline, Idle, SleepBackoff, Step};
use crate::wire::{ConnectedQp, PROBE};

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
        &self.control
    }

    fn abandon(&mut self) {
        self.ended.get_or_insert(CloseReason::Closed);
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.check_alive()?;
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
        let idle = Idle::new(self.config.common.wait, deadline, self.config.common.keepalive);
        let (mut idle, mut backoff) = (idle.resume(&mut self.silence), SleepBackoff::new());
        let mut heard = self.heard();
        while !is_done(self)? {
            // A wake-up that could not be sent has ended it.
            self.check_alive()?;
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
                    self.silence = idle.silence();
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
        let look = self.watch.look(self.config.common.keepalive);
        if look == Look::No || self.ended.is_some() {
            return Ok(());
        }
        self.hear_answers()?;
        self.look()?;
        let (head, landed, _) = self.heard();
        if look == Look::Round && self.watch.is_silent(head.wrapping_add(landed)) {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.probe()?;
        }
        Ok(())
    }

    /// Asks the peer's device whether it is there: a write of no bytes fails when the device
    /// does not answer.
    pub(super) fn probe(&mut self) -> Result<(), SendError> {
        self.check_alive()?;
        if self.queue.posted_total() > self.queue.retired_total() {
            return Ok(()); // one is on its way
        }
        self.post_signalled(PROBE)
    }

    pub(super) fn post_signalled(&mut self, request: SendOp) -> Result<(), SendError> {
        let staged = self.queue.stage(request, true).map_err(|e| e.to_string());
        let ring = |()| doorbell::ring(&mut self.queue).map_err(|e| e.to_string());
        staged.and_then(ring).map_err(|why| self.fail(CloseReason::Device(why)))
    }

    /// Takes in the completions of probes and wake-ups; only polls if one is on its way.
    pub(super) fn hear_answers(&mut self) -> Result<(), SendError> {
        if self.queue.posted_total() == self.queue.retired_total() {
            return Ok(());
        }
        let polled = self.cq.poll(&mut self.batch);
        polled.map_err(|e| self.fail(CloseReason::Device(e.to_string())))?;
        let mut lost = None;
        for completion in self.batch.drain() {
            // Nothing else completes here.
            let _ = self.queue.retire(&completion);
            lost = lost.or(completion.error());
        }
        let Some(error) = lost else { return Ok(()) };
        // The receiver may have written its reason before it went.
        let words = checked::last_look(|| self.words());
        self.take_in(words)?;
        if self.source.is_seen() {
            return Ok(()); // it has all, and may have gone
        }
        Err(self.fail(CloseReason::from(error)))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Err(e) = self.goodbye(Deadline::after(self.config.common.linger)) {
            tracing::warn!(qp = self.qp_num(), error = %e, "sender dropped before all was read");
        }
    }
}

#[cfg(test)]
mod tests;
