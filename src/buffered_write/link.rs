//! A receiver's side of one queue pair: ring, heads, end.

use conn_core::buffered_write::inline_record::{self, InlineRecord};
use conn_core::buffered_write::{PushedError, Update, WriteReceiver};
use conn_core::ring::AdvertisedCursor;
use conn_core::ring::offer::{HEAD_AT, Place};
use conn_core::wr::WrClass;
use verbs_safe::{Completion, RecvQueue, RemoteSpan, SendOp, SharedRegion, TakeError};

use crate::checked::{self, checked_bytes};
use crate::doorbell;
use crate::error::{CloseReason, ProtocolError};
use crate::places::Peered;
use crate::posting::{QpPosting, field};
use crate::ring::memory::{ControlBlock, remote};

/// Bytes of a head and a count.
pub(super) const UPDATE_BYTES: u32 = checked_bytes(2) as u32;

/// One peer of a receiver.
#[derive(Debug)]
pub struct BufferedWriteLink {
    /// Nothing more arrives once it has ended.
    posting: QpPosting,
    /// Receives for immediates; `None` where the tail is written.
    recv: Option<RecvQueue<()>>,
    pub(super) core: WriteReceiver,
    pub(super) ring: SharedRegion,
    block: ControlBlock,
    /// The word of the tail that was taken last.
    seen: u64,
    /// The inline record that came with it.
    inline: Option<InlineRecord>,
    peer_update: RemoteSpan,
    /// Nothing in the ring can be trusted any more.
    is_broken: bool,
    /// Looks in a row that found nothing.
    pub(super) empty_looks: u32,
    pub(super) updates: u64,
}

/// A tail as it was found.
struct SeenTail {
    word: u64,
    told: AdvertisedCursor,
    inline: Option<InlineRecord>,
}

/// Making, inspecting.
impl BufferedWriteLink {
    pub(super) fn new(
        posting: QpPosting,
        recv: Option<RecvQueue<()>>,
        core: WriteReceiver,
        ring: SharedRegion,
        block: ControlBlock,
        peer_block: Place,
    ) -> BufferedWriteLink {
        BufferedWriteLink {
            posting,
            recv,
            core,
            ring,
            block,
            seen: 0,
            inline: None,
            peer_update: remote(peer_block, HEAD_AT, UPDATE_BYTES.into()),
            is_broken: false,
            empty_looks: 0,
            updates: 0,
        }
    }

    /// Reports whether the tail is written, and so polled.
    #[inline]
    pub(super) fn is_polled(&self) -> bool {
        self.recv.is_none()
    }

    /// Reports whether more may arrive.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.posting.ended().is_none()
    }

    /// Reports whether there is something to hand out.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        !self.is_broken && self.core.next_header().is_some()
    }

    /// Returns the reason of the end, if all was handed out.
    pub(super) fn end(&self) -> Option<&CloseReason> {
        self.posting.ended().filter(|_| !self.has_more())
    }

    pub(super) fn work_requests(&self) -> u64 {
        self.posting.posted_total()
    }

    pub(super) fn registered_bytes(&self) -> u64 {
        self.ring.len() as u64
    }
}

impl Peered for BufferedWriteLink {
    field!(posting, posting_mut: QpPosting);
}

/// Arrival of tails and messages.
impl BufferedWriteLink {
    /// Reports whether the peer has written another tail, or is about to.
    #[inline]
    pub(super) fn is_news(&self) -> bool {
        self.block.tail_word() != self.seen
    }

    /// Polls the tail that the peer has written; returns true if it is new.
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        self.is_news() && self.told().is_some_and(|tail| self.take_in(tail))
    }

    #[inline]
    fn take_in(&mut self, tail: SeenTail) -> bool {
        match self.take_tail(tail) {
            Ok(0) if !self.core.has_ended() => false,
            Ok(_) => {
                self.hear();
                true
            }
            Err(e) => {
                self.refuse(e);
                true
            }
        }
    }

    #[inline]
    fn take_tail(&mut self, tail: SeenTail) -> Result<u64, PushedError> {
        let new = match &tail.inline {
            Some(record) => self.core.on_inline_tail(tail.told, record.bytes()),
            None => self.core.on_tail(tail.told),
        }?;
        (self.seen, self.inline) = (tail.word, tail.inline);
        Ok(new)
    }

    /// The tail that the peer has written; `None` while it is being written.
    #[inline]
    fn told(&self) -> Option<SeenTail> {
        let line = self.block.tail_line();
        inline_record::get(line).map(|(told, inline)| SeenTail { word: line[0], told, inline })
    }

    /// Takes the inline record of a new tail, if there is nothing else to hand out and the record
    /// is valid. Otherwise [`look`](Self::look) takes the tail.
    #[inline]
    pub(super) fn take_inline(&mut self) -> Option<(InlineRecord, u32)> {
        if !self.is_news() || !self.is_open() || self.core.next_header().is_some() {
            return None;
        }
        let line = self.block.tail_line();
        let (told, Some(record)) = inline_record::get(line)? else { return None };
        let begins = told.position.checked_sub(record.bytes())?;
        let bytes = self.core.message_bytes(record.header());
        if begins != self.core.tail() || bytes != Some(record.bytes()) {
            return None;
        }
        self.core.on_inline_tail(told, record.bytes()).ok()?;
        self.seen = line[0];
        self.hear();
        // No other record is left, and the header is that of a message.
        let Ok(Some(taken)) = self.core.take(record.header()) else {
            self.inline = Some(record);
            return None;
        };
        Some((record, taken.payload.len))
    }

    /// The record that comes next, if it is inline.
    #[inline]
    pub(super) fn inline_record(&self) -> Option<&InlineRecord> {
        self.inline.as_ref().filter(|_| self.core.is_inline())
    }

    /// Writes the record that comes next to its place in the ring, if it is inline: the peer
    /// writes the same there, sooner or later.
    pub(super) fn settle_inline(&mut self) {
        let (Some(record), Some(offset)) = (self.inline_record(), self.core.next_header()) else {
            return;
        };
        for (nth, word) in record.words().iter().enumerate() {
            // A record that does not lie inside is refused when it is taken.
            let _ = self.ring.store_u64(offset as usize + 8 * nth, word.to_le());
        }
    }

    #[inline]
    fn hear(&mut self) {
        self.empty_looks = 0;
        self.see_end();
    }

    /// The peer has said goodbye, and all was handed out.
    #[inline]
    pub(super) fn see_end(&mut self) {
        if self.core.has_ended() {
            self.posting.close();
        }
    }

    #[cold]
    fn refuse(&mut self, error: PushedError) {
        self.fail(CloseReason::Protocol(match error {
            PushedError::Tail(e) => ProtocolError::Tail(e),
            other => ProtocolError::Pushed(other),
        }));
    }

    /// Takes a completion; returns true if there are messages to hand out, or an end to report.
    pub(super) fn arrive(&mut self, completion: Completion<'_>) -> bool {
        if completion.queue_id() == self.posting.queue_id() {
            let Err(reason) = self.posting.retire(&completion) else { return false };
            self.fail(reason);
            return true;
        }
        let Some(recv) = &mut self.recv else { return false };
        let (imm, is_write) = (completion.imm(), completion.is_write_imm());
        match recv.take(completion) {
            Ok(buffer) => recv.put_back(buffer),
            // A completion of an earlier queue pair with the same number.
            Err(TakeError::Foreign(_)) => return false,
            Err(TakeError::Failed { error, .. }) => {
                self.fail(CloseReason::from(error));
                return true;
            }
            Err(_) => {
                self.fail(CloseReason::Protocol(ProtocolError::Completion));
                return true;
            }
        };
        let arrived = match imm.filter(|_| is_write) {
            Some(imm) => self.core.on_immediate(imm),
            None => Err(PushedError::Uncredited),
        };
        match arrived {
            _ if !self.is_open() => {}
            Ok(_) => self.hear(),
            Err(e) => self.refuse(e),
        }
        true
    }

    /// Ends the link: nothing more arrives. Messages that have arrived are still handed out.
    #[cold]
    pub(super) fn fail(&mut self, reason: CloseReason) {
        if !self.is_open() {
            return;
        }
        if self.is_polled() && matches!(reason, CloseReason::PeerLost(_)) {
            // The peer may have written more before it went.
            let _ = checked::last_look(|| self.told()).map(|tail| self.take_tail(tail));
        }
        // A peer that has said goodbye need not acknowledge later updates.
        let reason = match reason {
            CloseReason::PeerLost(_) if self.core.has_heard_goodbye() => CloseReason::Closed,
            other => other,
        };
        self.posting.fail(reason);
    }

    /// The next bytes in the ring are no record.
    #[cold]
    pub(super) fn fail_record(&mut self, error: conn_core::ring::RecordError) {
        self.is_broken = true;
        self.fail(CloseReason::Protocol(ProtocolError::Record(error)));
    }
}

/// Reporting to the peer.
impl BufferedWriteLink {
    /// Writes an update to the sender, if one is due; returns true if none is due any more. If the
    /// send queue is full, it stays due.
    #[inline]
    pub(super) fn settle(&mut self) -> bool {
        match self.core.update_due() {
            Some(update) if self.is_open() => self.tell(update, WrClass::Data),
            _ => true,
        }
    }

    fn tell(&mut self, update: Update, class: WrClass) -> bool {
        if let Some(recv) = &mut self.recv
            && let Err(e) = doorbell::post_gathered(recv)
        {
            // Before the sender learns that it may use them.
            self.fail(CloseReason::Device(e.to_string()));
            return true;
        }
        let Some(planned) = self.posting.plan(class, update.head.is_last) else { return false };
        let Some(slot) = self.posting.slot() else { return false };
        let put = checked::put(&[update.head.to_word(), update.taken], slot);
        debug_assert!(put.is_some(), "a slot has room for an update");
        let op = SendOp::Write { len: UPDATE_BYTES, remote: self.peer_update };
        if let Err(e) = self.posting.queue_mut().stage(op, planned.signalled) {
            self.fail(CloseReason::Device(e.to_string()));
            return true;
        }
        self.core.mark_told(update);
        self.updates += 1;
        // A failure ends the link.
        let _ = self.posting.post();
        true
    }

    /// Sends STOP after `taken` messages, to a sender that has not said goodbye.
    pub(super) fn stop(&mut self, taken: u64) {
        if self.is_open() && self.is_polled() {
            checked::last_look(|| self.told()).map(|tail| self.take_in(tail));
        }
        if self.is_open() && !self.core.has_heard_goodbye() {
            self.core.on_freed(self.core.read_pointer());
            self.core.stop(taken);
            let update = self.core.update();
            if !self.tell(update, WrClass::Control) {
                let qp = self.posting.qp_num();
                tracing::debug!(qp, "no room to say that nothing more is taken");
            }
        }
    }

    /// Reports whether the peer has acknowledged all that was sent to it, or has gone.
    pub(super) fn is_heard(&mut self) -> bool {
        if self.is_polled() {
            self.look();
        }
        let is_gone = !self.is_open() || self.core.has_heard_goodbye();
        is_gone || !self.posting.awaits_completion()
    }
}
