//! A receiver's side of one queue pair.

use std::collections::VecDeque;
use std::time::Duration;

use host::plant::{Plant, is_planted};

use conn_core::checksum::CHECKED_BYTES;
use conn_core::direct_read::{
    Ack, AckMode, DecodeError, Notice, Place, ReadPart, ReadRequest, ReadSlot, Reads, Refusal,
};
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{
    Completion, LoanId, RecvQueue, RemoteSpan, SendFlags, SendOp, SharedRegion, WcError, WcStatus,
};

use super::room::{ReadSink, SinkKind};
use crate::checked;
use crate::error::{BadRequest, CloseReason, ProtocolError, internal_error};
use crate::peer::Peer;
use crate::posting::{QpPosting, in_room};
use crate::wait::{Deadline, SILENT_DEVICE};
use crate::wire::PROBE;

/// One sender, as its receiver knows it.
#[derive(Debug)]
pub struct DirectReadLink {
    pub(crate) peer: Peer,
    pub(crate) posting: QpPosting,
    /// Its own buffers for requests; `None` where they are shared.
    pub(crate) recv: Option<RecvQueue<()>>,
    reads: Reads<Box<[ReadSlot]>>,
    /// The count that the sender reads.
    memory: Option<SharedRegion>,
    /// The count of the sender that is written.
    counts: Option<Place>,
    too_early: bool,
    /// Signals of messages that are not acknowledged, by their numbers.
    signals: VecDeque<Place>,
    /// Messages that are being read, in order.
    landings: VecDeque<ReadInProgress>,
    /// READs in flight, in order.
    posted: VecDeque<WrId>,
    /// True if something has arrived from it since the last probe.
    pub(crate) heard: bool,
    /// Its end was reported.
    pub(crate) reported: bool,
    /// Stop was posted.
    has_stopped: bool,
    /// Until when its queue pair waits for the device to say that it keeps no buffer.
    goes_by: Option<Deadline>,
    /// That time is over, and the device has not.
    pub(crate) is_unaccounted: bool,
    /// The device has said that it keeps no shared buffer.
    is_drained: bool,
    /// Buffers of the receiver's own that stay in the queue for good.
    pub(crate) lost_buffers: usize,
}

/// A message that is being read.
#[derive(Debug)]
struct ReadInProgress {
    number: u64,
    ticket: u64,
    loan: LoanId,
    kind: SinkKind,
    remote: RemoteSpan,
}

/// A request, before it is decided.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) peer: Peer,
    pub(crate) len: u64,
    memory: Place,
    pub(crate) app: Vec<u8>,
}

/// A message that was read, or could not be.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) ticket: u64,
    pub(crate) peer: Peer,
    pub(crate) len: u64,
    pub(crate) room: ReadSink,
    pub(crate) ended: Option<CloseReason>,
}

/// A message from the sender.
pub(crate) enum SenderMessage {
    Request(Arrived),
    Notice,
}

/// Making.
impl DirectReadLink {
    /// It gets its peer's number when it joins a receiver.
    pub(crate) fn new(
        posting: QpPosting,
        recv: Option<RecvQueue<()>>,
        reads: Reads<Box<[ReadSlot]>>,
        memory: Option<SharedRegion>,
        counts: Option<Place>,
        too_early: bool,
    ) -> DirectReadLink {
        DirectReadLink {
            peer: Peer(u32::MAX),
            posting,
            recv,
            reads,
            memory,
            counts,
            too_early,
            signals: VecDeque::new(),
            landings: VecDeque::new(),
            posted: VecDeque::new(),
            heard: true,
            reported: false,
            has_stopped: false,
            goes_by: None,
            is_unaccounted: false,
            is_drained: false,
            lost_buffers: 0,
        }
    }

    /// Reports whether its sender has said goodbye, and all is done.
    pub(crate) fn is_over(&self) -> bool {
        self.reads.is_over()
    }

    /// Reports whether no message is being read.
    pub(crate) fn is_idle(&self) -> bool {
        self.landings.is_empty()
    }

    /// Reports whether all requests have completed, and no message is being read.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && self.has_no_requests()
    }

    /// Reports whether all requests that the device has taken have completed.
    fn has_no_requests(&self) -> bool {
        let queue = self.posting.queue();
        queue.retired_total() == queue.posted_total()
    }

    /// Ends the link; the first reason is kept.
    pub(crate) fn fail(&mut self, reason: CloseReason) {
        // A sender that has said goodbye need not answer later requests.
        let reason = match reason {
            CloseReason::PeerLost(_) if self.is_over() => CloseReason::Closed,
            other => other,
        };
        self.posting.fail(reason);
    }

    /// Reports whether its queue pair may be destroyed, now that all is done. That is so if the
    /// device reported, before the last completions were polled, that it keeps no shared buffer; or
    /// if it did not report it within the shorter of `linger` and [`SILENT_DEVICE`].
    pub(crate) fn keeps_no_buffer(&mut self, linger: Duration) -> bool {
        if self.recv.is_some() {
            return true;
        }
        if self.goes_by.is_none()
            && let Err(e) = self.posting.qp().to_error()
        {
            tracing::debug!(peer = self.peer.0, error = %e, "not moved to ERR");
        }
        let goes_by =
            *self.goes_by.get_or_insert_with(|| Deadline::after(linger.min(SILENT_DEVICE)));
        if self.is_drained {
            return true;
        }
        // Earlier completions are polled before the next call.
        self.is_drained = self.posting.qp().has_reached_last_wqe().unwrap_or(false);
        self.is_unaccounted = !self.is_drained && goes_by.has_passed(host::time::now());
        self.is_unaccounted
    }
}

/// Messages from the sender, and completions.
impl DirectReadLink {
    /// A received message: a request, or a notice if it has an immediate.
    pub(crate) fn received(
        &mut self,
        imm: Option<u32>,
        bytes: &[u8],
    ) -> Result<SenderMessage, CloseReason> {
        self.heard = true;
        let protocol = |violation| CloseReason::Protocol(violation);
        let Some(imm) = imm else {
            let bad = |e| protocol(ProtocolError::Request(e));
            return self.request(bytes).map(SenderMessage::Request).map_err(bad);
        };
        let notice = Notice::decode(imm).map_err(|e| protocol(ProtocolError::Control(e.0)))?;
        let taken = self.reads.on_notice(notice).map_err(BadRequest::Untimely);
        taken.map_err(|e| protocol(ProtocolError::Request(e)))?;
        Ok(SenderMessage::Notice)
    }

    fn request(&mut self, bytes: &[u8]) -> Result<Arrived, BadRequest> {
        let request = ReadRequest::decode(bytes).map_err(BadRequest::Malformed)?;
        if request.signal.is_some() != self.reads.config().ack.signals() {
            return Err(BadRequest::Signal);
        }
        // A message that no buffer could hold is malformed.
        if usize::try_from(request.len).is_err() {
            return Err(BadRequest::Malformed(DecodeError::Wraps));
        }
        self.reads.on_request(request.number).map_err(BadRequest::Untimely)?;
        self.signals.extend(request.signal);
        let ReadRequest { len, memory, app, .. } = request;
        Ok(Arrived { peer: self.peer, len, memory, app: app.to_vec() })
    }

    /// A request of ours has completed.
    pub(crate) fn completed(&mut self, completion: &Completion<'_>) {
        self.heard = true;
        let total = match self.posting.retire(completion) {
            Ok(total) => total,
            Err(ended) => return self.fail(completion.error().map_or(ended, close_reason)),
        };
        while self.posted.front().is_some_and(|id| id.0 <= total) {
            self.posted.pop_front();
            if self.reads.on_read_done().is_err() {
                self.fail(CloseReason::Protocol(ProtocolError::Completion));
            }
        }
    }
}

/// Distinguishes a sender that offers memory which it may not offer from one that has gone.
fn close_reason(error: WcError) -> CloseReason {
    match error.status {
        WcStatus::REM_ACCESS | WcStatus::REM_INV_REQ | WcStatus::REM_OP => {
            CloseReason::BadOffer(error)
        }
        // A file that has become shorter, or a hole in it on a full disk.
        WcStatus::LOC_PROT => {
            CloseReason::Device(format!("a READ had no memory to land in: {error}"))
        }
        _ => CloseReason::from(error),
    }
}

/// Deciding.
impl DirectReadLink {
    /// Reads a request that arrived here into a buffer or a file.
    pub(crate) fn read(
        &mut self,
        arrived: &Arrived,
        room: ReadSink,
        ticket: u64,
    ) -> Result<(), ReadSink> {
        let kind = room.kind();
        let loan = room.lend(self.posting.queue_mut())?;
        let Ok(number) = self.reads.read(arrived.len) else {
            debug_assert!(false, "a request that arrived is undecided");
            let room = ReadSink::reclaim(loan, kind, self.posting.queue_mut());
            return Err(room.expect("nothing uses it yet"));
        };
        let Place { addr, rkey } = arrived.memory;
        let remote = RemoteSpan { addr, rkey, len: arrived.len };
        self.landings.push_back(ReadInProgress { number, ticket, loan, kind, remote });
        Ok(())
    }

    /// Bytes of the longest READ.
    pub(crate) fn max_read(&self) -> u32 {
        self.reads.config().max_read
    }

    /// Reports whether the message of this ticket is being read here.
    pub(crate) fn is_reading(&self, ticket: u64) -> bool {
        self.landings.iter().any(|landing| landing.ticket == ticket)
    }

    /// Decides for a request without bytes.
    pub(crate) fn take_empty(&mut self) {
        let taken = self.reads.read(0);
        debug_assert!(taken.is_ok(), "a request that arrived is undecided");
    }

    pub(crate) fn refuse(&mut self, why: Refusal) {
        let refused = self.reads.refuse(why);
        debug_assert!(refused.is_ok(), "a request that arrived is undecided");
    }

    /// The next message that was read, or, when the link has ended, the next one that is
    /// not in the device's hands any more.
    pub(crate) fn landed(&mut self) -> Option<Landed> {
        loop {
            let &ReadInProgress { number, ticket, loan, kind, remote } = self.landings.front()?;
            let finished = number <= self.reads.finished();
            if !finished && self.posting.ended().is_none() {
                return None;
            }
            let room = ReadSink::reclaim(loan, kind, self.posting.queue_mut());
            if room.is_none() && !self.is_given_up() {
                return None;
            }
            self.landings.pop_front();
            if let Some(room) = room {
                let ended = self.posting.ended().filter(|_| !finished).cloned();
                return Some(Landed { ticket, peer: self.peer, len: remote.len, room, ended });
            }
            self.lost_buffers += usize::from(kind == SinkKind::Message);
        }
    }

    /// Reports whether requests stay in the queue because the device refused to take them: their
    /// buffers stay, too.
    fn is_given_up(&self) -> bool {
        let has_staged = self.posting.queue().staged() > 0;
        self.posting.ended().is_some() && has_staged && self.has_no_requests()
    }
}

/// Posting.
impl DirectReadLink {
    /// Posts the READs and acknowledgements that are due and have room.
    pub(crate) fn work(&mut self) {
        if self.posting.ended().is_some() {
            return;
        }
        if let Err(ended) = self.stage_all().and_then(|()| self.posting.post()) {
            self.fail(ended);
        }
    }

    fn stage_all(&mut self) -> Result<(), CloseReason> {
        loop {
            let mut part = None;
            if self.posting.room() > 0 {
                part = self.reads.next_read();
            }
            if let Some(part) = part {
                self.stage_read(part)?;
            }
            // With a fence, acknowledgements are posted between READs.
            while self.posting.room() > 0
                && let Some(ack) = self.reads.next_ack()
            {
                self.stage_ack(ack)?;
                self.reads.mark_acked(ack);
            }
            if part.is_none() {
                return Ok(());
            }
        }
    }

    fn stage_read(&mut self, part: ReadPart) -> Result<(), CloseReason> {
        // The newest ones are at the end, and READs are posted as soon as there is room.
        let landing = self.landings.iter().rev().find(|l| l.number == part.number);
        let Some(ReadInProgress { loan, remote, .. }) = landing else {
            return Err(internal_error(verbs_safe::StageError::UnknownRegion));
        };
        // The request was checked: its memory does not wrap the address space.
        let addr = remote.addr.wrapping_add(part.offset);
        let (loan, remote) = (*loan, RemoteSpan { addr, len: part.len.into(), ..*remote });
        let op = SendOp::Read { len: part.len, remote };
        let at = (loan, part.offset);
        let staged = self.posting.stage_lent(at, op, WrClass::Data, part.signalled)?;
        self.posted.push_back(in_room(staged)?);
        Ok(())
    }

    fn stage_ack(&mut self, ack: Ack) -> Result<(), CloseReason> {
        match ack {
            Ack::Signal { number, outcome } => {
                let Some(place) = self.take_signal(number) else {
                    return Err(internal_error(verbs_safe::StageError::UnknownRegion));
                };
                let fence = self.reads.config().ack == AckMode::FencedWrite
                    && !self.too_early
                    && !is_planted(Plant::EarlyAck);
                self.stage_write(place, &[outcome.code()], fence)
            }
            Ack::Notice(notice) => {
                let op = SendOp::SendImm { len: 0, imm: notice.encode() };
                self.stage(op, SendFlags::default())
            }
            Ack::Count(word) => {
                let word = word.encode();
                if let Some(memory) = &self.memory {
                    let stored = checked::publish(memory, 0, word);
                    return stored.map_err(|e| CloseReason::Device(e.to_string()));
                }
                let place = self.counts.unwrap_or(ReadRequest::NOWHERE);
                let mut bytes = [0; CHECKED_BYTES as usize];
                let put = checked::put(&[word], &mut bytes);
                debug_assert!(put.is_some());
                self.stage_write(place, &bytes, false)
            }
        }
    }

    /// Takes the place for the outcome of the oldest unacknowledged message.
    fn take_signal(&mut self, number: u64) -> Option<Place> {
        debug_assert_eq!(number, self.reads.acked() + 1, "acknowledged in order");
        self.signals.pop_front()
    }

    fn stage_write(&mut self, place: Place, bytes: &[u8], fence: bool) -> Result<(), CloseReason> {
        let slot =
            self.posting.slot().ok_or_else(|| internal_error(verbs_safe::StageError::NoSlot));
        slot?[..bytes.len()].copy_from_slice(bytes);
        let len = bytes.len() as u32;
        let remote = RemoteSpan { addr: place.addr, rkey: place.rkey, len: len.into() };
        let flags = SendFlags { fence, ..SendFlags::default() };
        self.stage(SendOp::Write { len, remote }, flags)
    }

    /// Stages an acknowledgement.
    fn stage(&mut self, op: SendOp, flags: SendFlags) -> Result<(), CloseReason> {
        in_room(self.posting.stage_with(op, flags, WrClass::Data)?).map(drop)
    }

    /// Asks the sender's device whether it is there.
    pub(crate) fn ask(&mut self) {
        self.control(PROBE);
    }

    /// Tells the sender that nothing more is read, and how much was: a sender that pulls the
    /// count could not read it any more. Where there is no room, ask again after completions.
    pub(crate) fn stop(&mut self) {
        if self.has_stopped || self.posting.ended().is_some() {
            return;
        }
        self.work();
        let imm = Notice::Stop(Notice::low(self.reads.acked())).encode();
        self.has_stopped = self.control(SendOp::SendImm { len: 0, imm });
    }

    /// Reports whether it has stopped, or has ended, and nothing is on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        let has_ended = self.posting.ended().is_some() || self.is_over();
        has_ended || self.has_stopped && self.is_empty()
    }

    /// Posts a request, unless there is no room.
    fn control(&mut self, op: SendOp) -> bool {
        // A full control share has a signalled request on its way already.
        if self.posting.ended().is_some() || self.posting.control_room() == 0 {
            return false;
        }
        // A failure ends the link.
        let _ = self.posting.stage(op, WrClass::Control, true);
        self.work();
        true
    }
}

#[cfg(test)]
mod tests;
