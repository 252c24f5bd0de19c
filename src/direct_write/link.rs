//! A receiver's side of one queue pair: buffers, slots, end.

use std::collections::VecDeque;
use std::sync::Arc;

use conn_core::direct_write::{
    Arrival, ArrivalError, BufferReceiver, SLOT_BYTES, STOPPED, SlotRun, TRAILER_BYTES, padded,
    stop_at,
};
use conn_core::ring::offer::Place;
use conn_core::wr::WrClass;
use verbs_safe::{Completion, RecvQueue, SendOp, TakeError};

use super::in_place::{InPlace, LinkBuffers};
use crate::checked;
use crate::copies::{BULK, CopyPool};
use crate::doorbell;
use crate::error::{CloseReason, ProtocolError, close_reason};
use crate::peer::Peer;
use crate::places::Peered;
use crate::posting::{QpPosting, field};
use crate::receiving;
use crate::ring::memory::remote;

/// Slots that one WRITE has at most.
pub(super) const SLOTS_PER_WRITE: u32 = 64;
/// Messages that a link hands out in one turn.
const TURN: usize = 64;

/// State that the links of a receiver share.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// The current call is a `recv_in_place`: lend buffers instead of copying.
    pub(super) in_place: bool,
}

/// One peer of a receiver.
#[derive(Debug)]
pub struct DirectWriteLink {
    pub(super) posting: QpPosting,
    /// Receives for immediates; `None` where messages are polled for.
    pub(super) recv: Option<RecvQueue<()>>,
    pub(super) core: BufferReceiver<Box<[u32]>>,
    pub(super) buffers: Arc<LinkBuffers>,
    /// Buffers that are lent, at most those of the layout.
    pub(super) lent: u32,
    pub(super) peer_slots: Place,
    pub(super) peer_slot_count: u32,
    /// Credits after which the slots are written.
    pub(super) threshold: u32,
    /// True once the peer has written impossible values.
    pub(super) is_broken: bool,
    /// Messages that were just copied: where they begin, and their lengths.
    pub(super) copied: Vec<(u32, u32)>,
    pub(super) slots_told: u64,
}

impl DirectWriteLink {
    /// The next message, if it is there.
    #[inline]
    fn arrived(&mut self) -> Result<Option<Arrival>, ArrivalError> {
        let Some(buffer) = self.core.expected() else { return Ok(None) };
        let trailer_at = self.core.layout().trailer_at(buffer) as usize;
        self.core.on_trailer(checked::observe(&self.buffers.region, trailer_at))
    }

    /// The next message; where none is there, the link may have ended.
    #[inline]
    fn next(&mut self) -> Result<Option<Arrival>, ArrivalError> {
        loop {
            if let Some(arrival) = self.arrived()? {
                return Ok(Some(arrival));
            }
            if self.core.has_ended() {
                self.posting.fail(CloseReason::Closed);
                return Ok(None);
            }
            if self.core.has_heard_goodbye() {
                return Err(ArrivalError::Missing);
            }
            if !self.hear_goodbye()? {
                return Ok(None);
            }
        }
    }

    /// Takes the goodbye, if it has arrived: then all messages have, too.
    fn hear_goodbye(&mut self) -> Result<bool, ArrivalError> {
        if !self.core.awaits_goodbye() {
            return Ok(false);
        }
        let at = self.core.layout().goodbye_at() as usize;
        self.core.on_goodbye(checked::observe(&self.buffers.region, at))
    }

    fn copy_all(&mut self, copies: &mut CopyPool) -> Result<(), ArrivalError> {
        let mut at = 0;
        while at < BULK && self.copied.len() < TURN {
            let Some(arrival) = self.next()? else { break };
            copies.fill(&self.buffers.region, arrival.offset, at, padded(arrival.len));
            self.core.free(arrival.buffer);
            self.copied.push((at as u32, arrival.len));
            at += padded(arrival.len);
        }
        Ok(())
    }

    fn lend_all(&mut self, peer: Peer, out: &mut VecDeque<InPlace>) -> Result<(), ArrivalError> {
        while out.len() < TURN {
            let Some(Arrival { buffer, offset, len, .. }) = self.next()? else { break };
            out.push_back(self.buffers.lend(buffer, offset, len, peer));
            self.lent += 1;
        }
        Ok(())
    }

    /// Takes back buffers that are not lent any more.
    #[cold]
    fn take_back(&mut self) {
        let mut buffers = [0; TURN];
        loop {
            let count = self.buffers.take_back(&mut buffers);
            for buffer in &buffers[..count] {
                self.core.free(*buffer);
            }
            self.lent -= count as u32;
            if count < buffers.len() {
                return;
            }
        }
    }

    #[cold]
    fn refuse(&mut self, error: ArrivalError) {
        self.is_broken = true;
        self.posting.fail(CloseReason::Protocol(ProtocolError::Arrival(error)));
    }

    /// Writes slots; returns true if they are on their way, and there may be more to tell.
    fn tell(&mut self, run: SlotRun) -> bool {
        if let Some(recv) = &mut self.recv
            && let Err(e) = doorbell::post_gathered(recv)
        {
            // Before the sender learns that it may use them.
            self.posting.fail(CloseReason::Device(e.to_string()));
            return false;
        }
        let run = SlotRun { count: run.count.min(SLOTS_PER_WRITE), ..run };
        if self.posting.room() == 0 {
            return false;
        }
        let Some(memory) = self.posting.slot() else { return false };
        let (slots, _) = memory.as_chunks_mut::<{ SLOT_BYTES as usize }>();
        for (number, slot) in (run.number..).zip(&mut slots[..run.count as usize]) {
            let _ = checked::put(&self.core.slot_words(number), slot);
        }
        let bytes = u64::from(run.count) * SLOT_BYTES;
        let remote = remote(self.peer_slots, run.offset, bytes);
        let op = SendOp::Write { len: bytes as u32, remote };
        let is_posted = matches!(self.posting.stage(op, WrClass::Data, false), Ok(Some(_)))
            && self.posting.post().is_ok();
        if is_posted {
            self.core.mark_told(run);
            self.slots_told += u64::from(run.count);
        }
        is_posted
    }
}

impl Peered for DirectWriteLink {
    field!(posting, posting_mut: QpPosting);
}

impl receiving::ReceiverLink for DirectWriteLink {
    type Shared = Lending;
    type Taken = InPlace;

    fn is_polled(&self) -> bool {
        self.recv.is_none()
    }

    fn on_receive(&mut self, completion: Completion<'_>) {
        let Some(recv) = &mut self.recv else { return };
        let imm = completion.imm().filter(|_| completion.is_write_imm());
        match recv.take(completion) {
            Ok(buffer) => recv.put_back(buffer),
            // A completion of an earlier queue pair with the same number.
            Err(TakeError::Foreign(_)) => return,
            Err(e) => {
                if !self.core.has_heard_goodbye() {
                    self.posting.fail(close_reason(&e));
                }
                return;
            }
        };
        let arrived = imm.ok_or(ArrivalError::Immediate(0));
        if let Err(e) = arrived.and_then(|imm| self.core.on_immediate(imm)) {
            self.refuse(e);
        }
    }

    fn take(
        &mut self,
        lending: &mut Lending,
        peer: Peer,
        copies: &mut CopyPool,
        out: &mut VecDeque<InPlace>,
    ) {
        if self.is_broken {
            return;
        }
        let taken = match lending.in_place {
            false => self.copy_all(copies),
            true => self.lend_all(peer, out),
        };
        out.extend(copies.messages(self.copied.drain(..), peer).map(InPlace::from));
        if let Err(e) = taken {
            self.refuse(e);
        }
    }

    fn settle(&mut self, _: &mut Lending) -> bool {
        if self.lent > 0 {
            self.take_back();
        }
        // While buffers are lent, each free one is reported: the sender may have no other one for
        // long.
        let threshold = if self.lent > 0 { 1 } else { self.threshold };
        while self.posting.ended().is_none()
            && let Some(run) = self.core.slots_due(threshold)
        {
            if !self.tell(run) {
                return false;
            }
        }
        true
    }

    fn stop(&mut self, taken: u64) {
        let remote = remote(self.peer_slots, stop_at(self.peer_slot_count), SLOT_BYTES);
        self.write_stop([taken, STOPPED], remote);
    }

    fn lends(&self) -> bool {
        self.lent > 0
    }

    fn has_heard_goodbye(&self, _: &Lending) -> bool {
        self.core.has_heard_goodbye()
    }

    fn looks_for_goodbye(&mut self, _: &mut Lending) -> bool {
        // If it is written with an immediate, its completion arrived before this call.
        if self.core.awaits_goodbye() && !self.is_broken {
            let at = self.core.layout().goodbye_at() as usize;
            let words = checked::last_look(|| checked::observe(&self.buffers.region, at));
            if let Err(e) = self.core.on_goodbye(words) {
                self.refuse(e);
            }
        }
        self.core.has_heard_goodbye()
    }

    fn registered_bytes(&self) -> u64 {
        self.buffers.region.len() as u64
    }
}

const _: () =
    assert!(SLOT_BYTES == TRAILER_BYTES && SLOT_BYTES == checked::checked_bytes(2) as u64);
