//! The sending half.

use std::time::{Duration, Instant};

use conn_core::ring::offer::Place;
use conn_core::shared_write::{
    ANNOUNCED_AT, Claim, DECIDED_AT, ENTRY_BYTES, ExtentSender, GOODBYE, GOODBYE_AT, REPORTED_AT,
    STOP_BYTES, Spot, TAIL_AT, TRAILER_BYTES, padded,
};
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{RegionId, RemoteSpan, SendFlags, SendOp, SharedRegion};

use crate::checked;
use crate::error::{CloseReason, Full, ProtocolError, SendError};
use crate::half::check_within;
use crate::posting::field;
use crate::ring::memory::remote;
use crate::sending::{Driving, Sends};
use crate::ticket::Ticket;
use crate::wait::POLL_SLEEP;
use crate::waiting::Waits;
use crate::writing::{Writes, Writing, sends_from_slots};

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queue: messages, tickets, keepalives and the goodbye.
    pub work_requests: u64,
    /// Tickets taken, each for an extent; also those that were passed over.
    pub tickets: u64,
    /// Times that a message found no extent with room.
    pub credit_stalls: u64,
}

/// The sending half of a connection: one queue pair, one completion queue, one thread.
///
/// A message is copied into the next slot of the send queue and written from there into an extent
/// of the receiver's ring. The next extent is taken while the last one fills.
///
/// Dropping a sender delivers what was accepted and says goodbye, for at most
/// [`linger`](crate::Common::linger); [`close`](crate::SendHalf::close) does the same and tells how
/// it went. A sender that has ended with an error says no goodbye.
#[derive(Debug)]
pub struct Sender {
    writing: Writing,
    core: ExtentSender,
    peer: PeerRing,
    /// The receiver's stop, and the results of this end's requests.
    memory: SharedRegion,
    landing: RegionId,
    limit: u32,
    /// The last request for a ticket, or for its entry.
    pending: Option<PendingRequest>,
    /// Time when the entry is read once more, and the length of that rest.
    rests_until: Option<Instant>,
    rest: Duration,
    /// Steps towards the next extent that progress has not counted yet.
    news: usize,
    stats: SenderStats,
}

/// The receiver's memory, and this end's part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerRing {
    pub(super) place: Place,
    pub(super) link: u32,
    /// Trailers are requests of their own.
    pub(super) apart: bool,
}

#[derive(Debug, Clone, Copy)]
enum PendingRequest {
    Claim(WrId),
    Look(WrId),
}

/// Offset at which a fetch-and-add lands, in the sender's memory.
const TICKET_LANDS_AT: u64 = 64;
/// Offset at which the count of decided tickets lands.
const DECIDED_LANDS_AT: u64 = 128;
/// Offset at which an entry lands.
const ENTRY_LANDS_AT: u64 = 192;
/// Bytes of a sender's memory.
pub(super) const MEMORY_BYTES: u64 = 256;

/// Requests for a ticket.
const CLAIM_REQUESTS: u32 = 4;
/// Requests that are neither data nor tickets: probes and the goodbye.
const OTHER_REQUESTS: u32 = 2;
/// Slots of the send queue that data cannot take.
pub(super) const CONTROL: u32 = CLAIM_REQUESTS + OTHER_REQUESTS;
/// The shortest rest between two looks at an entry: it doubles with each.
const FIRST_REST: Duration = Duration::from_micros(1);
/// Messages between two looks at the completions of the requests for a ticket.
const MESSAGES_PER_LOOK: u64 = 8;

impl Sender {
    /// `landing` names the memory in the send queue.
    pub(super) fn new(
        writing: Writing,
        core: ExtentSender,
        peer: PeerRing,
        (memory, landing): (SharedRegion, RegionId),
        limit: u32,
    ) -> Sender {
        Sender {
            writing,
            core,
            peer,
            memory,
            landing,
            limit,
            pending: None,
            rests_until: None,
            rest: Duration::ZERO,
            news: 0,
            stats: SenderStats::default(),
        }
    }
}

sends_from_slots!(Sender, ());

/// Accepting a message.
impl Sender {
    /// Requests of a message: its payload and its trailer, and the end of an extent before.
    #[inline]
    fn requests(&self) -> u32 {
        if self.peer.apart { 3 } else { 2 }
    }

    /// Makes sure that a message of `bytes` bytes has all that it takes.
    #[inline]
    fn claim(&mut self, bytes: usize) -> Result<(), SendError> {
        if self.has_all(bytes) { Ok(()) } else { self.claim_late(bytes) }
    }

    #[inline]
    fn has_all(&self, bytes: usize) -> bool {
        bytes <= self.limit as usize
            && self.writing.half.posting.room() >= self.requests()
            && self.writing.half.posting.ended().is_none()
            && self.core.spot(bytes as u32).is_some()
    }

    /// Slow path of a claim: polls again, and returns the missing resource as an error.
    #[cold]
    fn claim_late(&mut self, bytes: usize) -> Result<(), SendError> {
        check_within(bytes, self.limit as usize)?;
        self.writing.half.posting.check()?;
        // If only completions were missing, gathered messages stay gathered.
        self.progress()?;
        if self.has_all(bytes) {
            return Ok(());
        }
        self.writing.flush()?;
        // On a synchronous device each iteration completes one step.
        for _ in 0..4 {
            self.progress()?;
            self.writing.half.posting.check()?;
            if self.core.spot(bytes as u32).is_some() {
                return self.writing.check_room(self.requests());
            }
        }
        self.stats.credit_stalls += u64::from(self.writing.stalls());
        Err(SendError::Full(Full::Extents))
    }

    fn write(&self, at: u64, len: u64) -> SendOp {
        SendOp::Write { len: len as u32, remote: remote(self.peer.place, at, len) }
    }

    /// Stages a WRITE of words, out of the next slot.
    fn stage_words(
        &mut self,
        at: u64,
        words: &[u64],
        class: WrClass,
        awaited: bool,
    ) -> Result<WrId, SendError> {
        let to = self.remote(at, checked::checked_bytes(words.len()) as u64);
        let staged = self.writing.half.posting.stage_words(words, to, class, awaited)?;
        self.writing.mark(staged)
    }

    /// Sends the first `bytes` bytes of the next slot.
    #[inline]
    fn stage_message(&mut self, _: (), bytes: usize) -> Result<Ticket, SendError> {
        let spot = self.core.spot(bytes as u32).ok_or(SendError::Full(Full::Extents))?;
        let len = padded(bytes as u32);
        self.slot(bytes)?[bytes..len as usize].fill(0);
        if self.peer.apart && len > 0 {
            self.writing.stage(self.write(spot.payload_at, len), false)?;
            self.stage_end(&spot, false)?;
            let _ = checked::put(&spot.trailer, self.slot(0)?);
            self.writing.stage(self.write(spot.trailer_at, TRAILER_BYTES), true)?;
        } else {
            let _ = checked::put(&spot.trailer, &mut self.slot(bytes)?[len as usize..]);
            let record = self.write(spot.payload_at, len + TRAILER_BYTES);
            self.writing.stage(record, spot.end.is_none())?;
            // With this, the receiver finds it.
            self.stage_end(&spot, true)?;
        }
        self.core.mark_sent(&spot);
        self.stats.bytes += bytes as u64;
        self.writing.post()?;
        self.go_on();
        Ok(self.writing.ticket())
    }

    /// Ends the extent in use, if the message lies in the next one; `ends` is true if the message
    /// ends with that.
    #[inline]
    fn stage_end(&mut self, spot: &Spot, ends: bool) -> Result<(), SendError> {
        let Some((at, words)) = spot.end else { return Ok(()) };
        let _ = checked::put(&words, self.slot(0)?);
        self.writing.stage(self.write(at, TRAILER_BYTES), ends)
    }
}

/// Tickets.
impl Sender {
    /// Takes the next ticket in time.
    #[inline]
    fn go_on(&mut self) {
        let looks = self.core.sent().is_multiple_of(MESSAGES_PER_LOOK);
        if (self.pending.is_some() && looks) || (self.pending.is_none() && self.core.is_due()) {
            // A failure ends the sender, and the next call reports it.
            let _ = self.progress();
        }
    }

    /// Takes the results of the requests on their way, if they are complete; returns true if there
    /// is something new.
    fn take_in(&mut self) -> Result<bool, SendError> {
        let (Some(PendingRequest::Claim(id)) | Some(PendingRequest::Look(id))) = self.pending
        else {
            return Ok(false);
        };
        if !self.writing.half.posting.is_complete(id) {
            return Ok(false);
        }
        let word = |at: u64| checked::observe(&self.memory, at as usize).map(|[word]| word);
        let is_new = match self.pending.take() {
            Some(PendingRequest::Claim(_)) => {
                let ticket = self.memory.observe_arrival(TICKET_LANDS_AT as usize);
                self.core.on_claimed(ticket.unwrap_or_default()).map(|()| true)
            }
            _ => self.core.on_entry(word(DECIDED_LANDS_AT), word(ENTRY_LANDS_AT)),
        };
        let is_new =
            is_new.map_err(|e| self.fail(CloseReason::Protocol(ProtocolError::Claim(e))))?;
        self.news += usize::from(is_new);
        self.rest = if is_new { Duration::ZERO } else { (2 * self.rest).max(FIRST_REST) };
        self.rest = self.rest.min(POLL_SLEEP);
        self.rests_until = (!is_new).then(|| host::time::now() + self.rest);
        Ok(is_new)
    }

    /// Posts the requests for a ticket, or for its entry, if one is due.
    fn ask(&mut self) -> Result<(), SendError> {
        let has_room = self.writing.half.posting.control_room() >= CONTROL;
        // Gathered messages would be sent with it: a call flushes them before the room runs out.
        if self.pending.is_some() || !has_room || self.writing.unflushed() > 0 {
            return Ok(());
        }
        if let Some(claim) = self.core.claim_due() {
            self.pending = Some(PendingRequest::Claim(self.stage_claim(claim)?));
        } else if let Some(ticket) = self.core.looks_for() {
            if self.rests_until.is_some_and(|until| host::time::now() < until) {
                return Ok(());
            }
            let entry_at = self.core.layout().entry_at(ticket);
            self.stage_read(DECIDED_AT, DECIDED_LANDS_AT, false)?;
            let id = self.stage_read(entry_at, ENTRY_LANDS_AT, true)?;
            self.pending = Some(PendingRequest::Look(id));
        } else {
            return Ok(());
        }
        self.writing.flush()
    }

    fn stage_claim(&mut self, Claim { words, place }: Claim) -> Result<WrId, SendError> {
        self.stats.tickets += 1;
        let link_at = self.core.layout().link_at(self.peer.link);
        self.stage_words(link_at + ANNOUNCED_AT, &words, WrClass::Control, false)?;
        let add = SendOp::FetchAdd { remote: self.remote(TAIL_AT, 8), add: 1 };
        self.stage_landing(TICKET_LANDS_AT, add, false, false)?;
        // The device fetches the ticket, and passes it on, without this program.
        let report = self.write(link_at + place, 8);
        self.stage_landing(TICKET_LANDS_AT, report, true, false)?;
        self.stage_words(link_at + REPORTED_AT, &words, WrClass::Control, true)
    }

    fn stage_read(&mut self, from: u64, to: u64, awaited: bool) -> Result<WrId, SendError> {
        let remote = self.remote(from, ENTRY_BYTES);
        let op = SendOp::Read { len: ENTRY_BYTES as u32, remote };
        self.stage_landing(to, op, false, awaited)
    }

    fn stage_landing(
        &mut self,
        at: u64,
        op: SendOp,
        fence: bool,
        awaited: bool,
    ) -> Result<WrId, SendError> {
        let bytes = (self.landing, at);
        let posting = &mut self.writing.half.posting;
        let staged = posting.stage_at(bytes, op, fence, WrClass::Control, awaited)?;
        self.writing.mark(staged)
    }

    fn remote(&self, at: u64, len: u64) -> RemoteSpan {
        remote(self.peer.place, at, len)
    }
}

impl Writes for Sender {
    field!(writing, writing_mut: Writing);

    fn listen(&mut self, is_last: bool) -> Result<bool, SendError> {
        let look = || checked::observe(&self.memory, 0);
        let words = if is_last { checked::last_look(look) } else { look() };
        match self.core.on_stop(words.unwrap_or_default()) {
            Ok(None) => {}
            Ok(Some(_)) if self.writing.half.posting.ended().is_some() => return Ok(false),
            Ok(Some(taken)) => return Err(self.peer_stopped(taken)),
            Err(e) => return Err(self.fail(CloseReason::Protocol(ProtocolError::Claim(e)))),
        }
        if is_last || self.writing.half.posting.ended().is_some() {
            return Ok(false);
        }
        let is_new = self.take_in()?;
        self.ask()?;
        Ok(is_new)
    }

    /// The completion of a look that has shown nothing new is no news.
    fn take_news(&mut self) -> Result<usize, SendError> {
        let before = self.writing.acked();
        self.take_all()?;
        Ok(std::mem::take(&mut self.news) + (self.writing.acked() - before) as usize)
    }

    fn stage_last(&mut self) -> Result<WrId, SendError> {
        self.core.close();
        let at = self.core.layout().link_at(self.peer.link) + GOODBYE_AT;
        let words = [self.core.sent(), GOODBYE];
        let op = self.write(at, checked::checked_bytes(words.len()) as u64);
        let slot = self.writing.half.posting.slot().ok_or(SendError::Full(Full::Requests))?;
        let _ = checked::put(&words, slot);
        // The receiver may leave once it has the goodbye: the fence completes READs and
        // fetch-and-adds before.
        let flags = SendFlags { signalled: true, fence: true, ..SendFlags::default() };
        let staged = self.writing.half.posting.stage_with(op, flags, WrClass::Control)?;
        self.writing.mark(staged)
    }
}

const _: () = assert!(STOP_BYTES <= TICKET_LANDS_AT);
