//! Waiting, and ending.

use conn_core::wr::WrId;

use super::{ReceiverSnapshot, Sender};
use crate::checked;
use crate::error::{CloseReason, Full, SendError};
use crate::posting::field;
use crate::sending::{Driving, Half, Sends};
use crate::wait::{Deadline, Idle};
use crate::waiting::WaitFor;

impl Sends for Sender {
    field!(half, half_mut: Half);

    /// Returns 1 if the receiver has made progress since the last call, else 0.
    fn progress(&mut self) -> Result<usize, SendError> {
        self.look_around()?;
        let known = self.known_of_receiver();
        Ok(usize::from(std::mem::replace(&mut self.known, known) != known))
    }

    fn look_around(&mut self) -> Result<usize, SendError> {
        self.hear_answers()?;
        self.look().map(usize::from)
    }

    fn request_wakeup(&mut self) -> Result<(), SendError> {
        self.wake_receiver_for_certain();
        Ok(())
    }

    fn heard(&self) -> u64 {
        let (head, landed, _) = self.known_of_receiver();
        head.wrapping_add(landed)
    }

    fn last(&self) -> u64 {
        self.source.ring().tail()
    }

    fn was_acked(&self, number: u64) -> bool {
        self.source.has_landed(number)
    }

    /// The receiver reads messages from the ring: there is nothing to push.
    fn push_all(&mut self, _awaited: bool) -> Result<(), SendError> {
        Ok(())
    }

    fn awaits(&self, _number: u64) -> WaitFor {
        WaitFor::Read
    }

    fn before_wait(&mut self, _number: u64) -> Result<(), SendError> {
        self.request_wakeup()
    }

    fn ask_for(&mut self, _number: u64) -> Result<(), SendError> {
        self.half.posting.check()?;
        self.look_after_peer()?;
        self.look().map(drop)
    }

    /// The receiver reads the goodbye behind all messages.
    fn before_goodbye(&mut self, _deadline: Deadline) -> Result<(), SendError> {
        Ok(())
    }

    /// A word in this end's memory: no request.
    fn stage_goodbye(&mut self) -> Result<WrId, SendError> {
        self.source.finish();
        self.block.publish_tail(self.source.tail_word());
        self.wake_receiver_for_certain();
        // FIN is a word in this end's memory: only a probe detects a dead receiver.
        self.ask_peer()?;
        Ok(WrId(0))
    }

    fn has_said_goodbye(&self, _goodbye: WrId) -> bool {
        self.source.is_seen()
    }

    /// The answer to another request tells as much.
    fn ask_peer(&mut self) -> Result<(), SendError> {
        self.half.posting.check()?;
        if self.on_their_way() == 0 {
            self.half.posting.probe()?;
        }
        Ok(())
    }
}

impl Driving for Sender {
    fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
        self.grant(bytes).map(drop)
    }

    fn on_stall(&mut self, _full: Full, stalled: bool, _: &mut Idle) -> bool {
        if !stalled {
            self.stats.stalls += 1;
            self.wake_receiver_for_certain();
        }
        true
    }
}

/// Waiting.
impl Sender {
    /// Returns the known state of the receiver, which changes with its progress.
    fn known_of_receiver(&self) -> ReceiverSnapshot {
        (self.source.ring().head(), self.source.landed(), self.source.is_seen())
    }

    /// Probes and wake-ups that are on their way. One that has failed behind the receiver's last
    /// word ends nothing, and is not.
    pub(super) fn on_their_way(&self) -> u64 {
        let queue = self.half.posting.queue();
        queue.posted_total() - queue.retired_total()
    }

    /// Takes in the completions of probes and wake-ups; only polls if one is on its way.
    pub(super) fn hear_answers(&mut self) -> Result<(), SendError> {
        if self.on_their_way() == 0 {
            return Ok(());
        }
        let polled = self.half.waiting.cq.poll(&mut self.batch);
        polled.map_err(|e| self.half.posting.fail(CloseReason::device(e)))?;
        let mut lost = None;
        for completion in self.batch.drain() {
            // Nothing else completes here.
            lost = lost.or(self.half.posting.retire(&completion).err());
        }
        let Some(reason) = lost else { return Ok(()) };
        // The receiver may have written its reason before it was lost.
        let words = checked::last_look(|| self.words());
        self.take_in(words)?;
        if self.source.is_seen() {
            return Ok(()); // it has all, and may have gone
        }
        Err(self.half.posting.fail(reason).into())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
