//! Posting, polling, and acknowledgements.

use conn_core::checksum::CHECKED_BYTES;
use conn_core::direct_read::{
    AckMode, Acknowledged, CountWord, Notice, NoticeEffect, Outcome, SignalAt,
};
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{Completion, CompletionBatch, RemoteSpan, SendOp};

use super::{OnOffer, Sender};
use crate::checked;
use crate::doorbell;
use crate::error::{CloseReason, ProtocolError, SendError, close_reason};
use crate::posting::in_room;
use crate::zero_copy::{Offer, Sent};

/// Posting.
impl<B: Offer> Sender<B> {
    /// Stages a request for which there is room: its id.
    pub(super) fn stage(
        &mut self,
        op: SendOp,
        class: WrClass,
        awaited: bool,
    ) -> Result<WrId, SendError> {
        let staged = self.half.posting.stage(op, class, awaited)?;
        in_room(staged).map_err(|bug| self.half.posting.fail(bug).into())
    }
}

/// Polling.
impl<B: Offer> Sender<B> {
    /// After many pulls that found nothing, one comes in 2 to this power of looks.
    const RAREST_PULLS: u32 = 8;

    /// Takes completions and acknowledgements, and returns their number; with `wanted`, also posts
    /// gathered requests and pulls the count.
    pub(super) fn take_news(&mut self, wanted: bool) -> Result<usize, SendError> {
        let before = self.offers.acked();
        let pulling = self.pull.is_some();
        let mut events = self.poll()?;
        // A pull that found no new count is no event.
        events -= usize::from(pulling && self.pull.is_none()).min(events);
        if self.half.posting.ended().is_none() {
            self.look().map_err(|e| self.half.posting.fail(CloseReason::Protocol(e)))?;
            if wanted && self.config.ack == AckMode::Pull {
                self.start_pull()?;
            }
            if self.half.posting.queue().staged() > 0 && (wanted || !self.half.gathers) {
                self.half.posting.post()?;
            }
        }
        events += (self.offers.acked() - before) as usize;
        Ok(events)
    }

    fn poll(&mut self) -> Result<usize, SendError> {
        let mut batch = self.batch.take().unwrap_or_else(|| CompletionBatch::new(Self::POLL_BATCH));
        let polled = self.half.waiting.cq.poll(&mut batch);
        for completion in batch.drain() {
            self.completed(completion);
        }
        self.batch = Some(batch);
        polled.map_err(|e| self.half.posting.fail(CloseReason::Device(e.to_string())).into())
    }

    fn completed(&mut self, completion: Completion<'_>) {
        let taken = if completion.queue_id() == self.notices.queue_id() {
            self.notice(completion)
        } else {
            let retired = self.half.posting.retire(&completion);
            retired.and_then(|_| self.pulled().map_err(CloseReason::Protocol))
        };
        if let Err(ended) = taken {
            self.half.posting.fail(ended);
        }
    }

    /// Takes a notice; its buffer is posted again.
    fn notice(&mut self, completion: Completion<'_>) -> Result<(), CloseReason> {
        let imm = completion.imm();
        let message = self.notices.take(completion).map_err(|e| close_reason(&e))?;
        if let Some(slot) = self.notices.reclaim(message) {
            doorbell::post_receives(&mut self.notices, &[slot])
                .map_err(|e| CloseReason::Device(e.to_string()))?;
        }
        let imm = imm.ok_or(CloseReason::Protocol(ProtocolError::Control(0)))?;
        let notice =
            Notice::decode(imm).map_err(|e| CloseReason::Protocol(ProtocolError::Control(e.0)))?;
        if matches!(notice, Notice::Stop(_)) {
            // Acknowledgements from before the stop have their outcome first.
            self.look().map_err(CloseReason::Protocol)?;
        }
        let told = self.offers.on_notice(notice);
        match told.map_err(|e| CloseReason::Protocol(ProtocolError::Acknowledgement(e)))? {
            NoticeEffect::Acknowledged(acknowledged) => self.acknowledged(acknowledged),
            NoticeEffect::Wakeup => (self.wakeup, self.vain_looks) = (false, 0),
            NoticeEffect::Stopped(acknowledged) => {
                self.acknowledged(acknowledged);
                return Err(CloseReason::by_peer(self.offers.sent() - self.offers.acked()));
            }
        }
        Ok(())
    }

    /// Takes the words that the receiver writes to this end.
    fn look(&mut self) -> Result<(), ProtocolError> {
        if self.config.ack.signals() {
            return self.look_at_signals();
        }
        if self.config.ack == AckMode::Cumulative {
            return match checked::observe(&self.memory, 0) {
                Some([word]) => self.counted(word),
                None => Ok(()),
            };
        }
        Ok(())
    }

    fn look_at_signals(&mut self) -> Result<(), ProtocolError> {
        while let Some(number) = self.offers.awaited() {
            let byte = match (self.config.signal_at, self.on_offer.front()) {
                (SignalAt::Tail, Some(on)) => {
                    on.buffer.tail().and_then(|tail| tail.observe_byte(0).ok()).unwrap_or_default()
                }
                _ => self.memory.observe_byte(self.signal_at(number)).unwrap_or_default(),
            };
            if byte == 0 {
                break;
            }
            let acknowledged = self.offers.on_signal(byte);
            self.acknowledged(acknowledged.map_err(ProtocolError::Acknowledgement)?);
        }
        Ok(())
    }

    fn counted(&mut self, word: u64) -> Result<(), ProtocolError> {
        if word == self.seen {
            return Ok(());
        }
        let acknowledged = self.offers.on_count(CountWord::decode(word));
        let acknowledged = acknowledged.map_err(ProtocolError::Acknowledgement)?;
        // A word that waits for a notice of a refusal is loaded again.
        if CountWord::decode(word).count <= self.offers.acked() {
            self.seen = word;
        }
        self.acknowledged(acknowledged);
        Ok(())
    }

    /// Begins to read the receiver's count, if that can tell anything.
    fn start_pull(&mut self) -> Result<(), SendError> {
        let (None, Some(counts), Some(number)) = (self.pull, self.counts, self.offers.awaited())
        else {
            return Ok(());
        };
        // Pulls without news make the next ones rarer, to save the receiver's device. After the
        // wakeup, the next pull finds the acknowledgement.
        self.looks += 1;
        let rare = 1 << self.vain_pulls.min(Self::RAREST_PULLS);
        let is_early = self.looks < rare && !self.has_woken(number);
        if is_early || self.half.posting.control_room() == 0 {
            return Ok(());
        }
        self.looks = 0;
        let remote = RemoteSpan { addr: counts.addr, rkey: counts.rkey, len: CHECKED_BYTES };
        let id =
            self.stage(SendOp::Read { len: CHECKED_BYTES as u32, remote }, WrClass::Control, true)?;
        self.pull = Some(id.0);
        Ok(self.half.posting.post()?)
    }

    /// Takes the count that was read, if one was.
    fn pulled(&mut self) -> Result<(), ProtocolError> {
        let Some(id) = self.pull.filter(|id| *id <= self.half.posting.queue().retired_total())
        else {
            return Ok(());
        };
        self.pull = None;
        let before = self.offers.acked();
        let word = self.half.posting.queue().landed(id).and_then(checked::get);
        word.map_or(Ok(()), |[word]| self.counted(word))?;
        if self.offers.acked() > before {
            self.vain_pulls = 0;
        } else {
            (self.vain_pulls, self.vain_looks) = (self.vain_pulls + 1, self.vain_looks + 1);
        }
        Ok(())
    }

    /// The receiver is done with the oldest messages.
    fn acknowledged(&mut self, acknowledged: Acknowledged) {
        for _ in 0..acknowledged.read {
            self.end_of_oldest(Outcome::Read);
        }
        if let Some(outcome) = acknowledged.then {
            self.end_of_oldest(outcome);
        }
    }

    fn end_of_oldest(&mut self, outcome: Outcome) {
        let Some(OnOffer { number, buffer, is_pooled }) = self.on_offer.pop_front() else { return };
        match outcome {
            Outcome::Read => self.stats.read += 1,
            Outcome::Refused(_) => self.stats.refused += 1,
        }
        if !is_pooled {
            return self.done.push_back((number, Sent { buffer, outcome }));
        }
        self.pool.push(buffer);
        if let Outcome::Refused(why) = outcome {
            self.refused.get_or_insert((number, why));
            self.half.posting.fail(CloseReason::Refused(why));
        }
    }
}
