//! A receiver's side of one queue pair: its buffers, its credits, its end.

mod buffers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conn_core::control::{Control, Taken};
use conn_core::credit::CreditGrantor;
use conn_core::wr::{WrClass, WrId};
use host::plant::{Plant, is_planted};
use verbs_safe::{Completion, CompletionBatch, RecvBuf, RecvRun, SendOp};

use super::shared::SlotReturn;
use crate::error::{CloseReason, ProtocolError};
use crate::keepalive::SILENT;
use crate::peer::Peer;
use crate::posting::Posting;
use crate::wire::{ConnectedQp, PROBE};
pub(crate) use buffers::{OwnBuffers, Source};

/// The effect of a completion that brought no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Booked; the link has not failed.
    Settled,
    /// The link has failed just now: its error waits to be reported.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Messages may come.
    Open,
    /// The sender has said goodbye; messages that come now are dropped.
    Finished,
    /// Failed, or stopped by this end.
    Dead,
}

/// The work that is left for a link that was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    /// To post what has gathered: when there is more of it, or the receiver is idle.
    Rest,
    /// More, which no completion will announce.
    More,
}

/// State of this end's goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goodbye {
    /// None is due, or the sender has gone.
    None,
    /// It has to be said, and waits for a place in the send queue.
    Due(Control),
    /// It is this request.
    Said(WrId),
}

/// The result of posting a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Posted {
    Yes,
    /// The control share is full; a completion makes room.
    Full,
    /// The link has failed.
    Failed,
}

#[derive(Debug)]
pub struct Link {
    /// It ends when the link fails; whether the link is open, `state` says.
    posting: Posting,
    /// `None` in the uncontrolled mode, and where credits are loans of a shared pool.
    grantor: Option<CreditGrantor>,
    /// Messages that may come until the link counts again, of `counted` at the last count;
    /// the ones that came since are not booked yet.
    room: u32,
    counted: u32,
    /// Messages that are booked, and messages that had come at the last check whether the
    /// sender is silent; both wrap.
    booked: u32,
    seen: u32,
    /// Booked messages that were handed out when the receiver stopped.
    taken: u32,
    source: Source,
    state: State,
    /// Set when it is open no more; its receiver's.
    one_has_ended: Arc<AtomicBool>,
    error: Option<CloseReason>,
    /// Times that it was settled since it has the error.
    unreported: u32,
    packed: bool,
    credits_sent: u64,
    goodbye: Goodbye,
    place: u32,
    peer: Peer,
    /// True if its queue pair was moved to ERR.
    is_silent: bool,
    /// True if the receiver has it on its list of links to settle.
    pub(super) marked: bool,
    /// True if it is among the links that rest until the receiver is idle.
    pub(super) rests: bool,
    /// True if it is among the links that have ended.
    pub(super) noted: bool,
}

/// Counters of a link's work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Work requests executed on its send queue.
    pub(crate) work_requests: u64,
    /// Credit messages sent.
    pub(crate) credits_sent: u64,
    /// Receive buffers of its own that were posted.
    pub(crate) buffers_posted: u64,
}

impl std::ops::Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work {
            work_requests: self.work_requests + other.work_requests,
            credits_sent: self.credits_sent + other.credits_sent,
            buffers_posted: self.buffers_posted + other.buffers_posted,
        }
    }
}

pub(crate) struct LinkParts {
    pub(crate) posting: Posting,
    pub(crate) grantor: Option<CreditGrantor>,
    pub(crate) source: Source,
    pub(crate) packed: bool,
    pub(crate) place: u32,
}

/// Making, inspecting.
impl Link {
    pub(crate) fn new(parts: LinkParts) -> Link {
        let LinkParts { posting, grantor, source, packed, place } = parts;
        Link {
            posting,
            grantor,
            room: 0,
            counted: 0,
            booked: 0,
            seen: 0,
            taken: 0,
            source,
            state: State::Open,
            one_has_ended: Arc::default(),
            error: None,
            unreported: 0,
            packed,
            credits_sent: 0,
            goodbye: Goodbye::None,
            place,
            peer: Peer(u32::MAX),
            is_silent: false,
            marked: false,
            rests: false,
            noted: false,
        }
    }

    #[inline]
    pub(crate) fn qp_num(&self) -> u32 {
        self.posting.qp_num()
    }

    #[inline]
    pub(crate) fn is_packed(&self) -> bool {
        self.packed
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Its place in the receiver.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    pub(crate) fn qp(&self) -> &ConnectedQp {
        self.posting.qp()
    }

    /// Its peer's number, once it has joined the receiver.
    #[inline]
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// It has joined its receiver: it has that number, and sets the flag when it ends.
    pub(crate) fn join(&mut self, peer: Peer, one_has_ended: Arc<AtomicBool>) {
        one_has_ended.fetch_or(!self.is_open(), Ordering::Relaxed);
        (self.peer, self.one_has_ended) = (peer, one_has_ended);
    }

    /// Changes the state to one that is not open: the only way to do so.
    fn leave_open(&mut self, state: State) {
        self.state = state;
        self.one_has_ended.store(true, Ordering::Relaxed);
    }

    /// The error that was not reported yet, with the peer's number.
    pub(crate) fn error_of(link: &mut Link) -> Option<(Peer, CloseReason)> {
        link.take_error().map(|ended| (link.peer, ended))
    }

    pub(crate) fn take_error(&mut self) -> Option<CloseReason> {
        self.book();
        self.error.take()
    }

    /// Returns the number of times that it was settled with an error that was not reported yet, if
    /// it has one.
    #[inline]
    pub(crate) fn unreported(&self) -> Option<u32> {
        self.error.as_ref().map(|_| self.unreported)
    }

    /// Reports whether its buffers belong to a shared pool.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.source, Source::Shared(_))
    }

    pub(crate) fn work(&self) -> Work {
        let buffers_posted = match &self.source {
            Source::Own(own) => own.posted,
            Source::Shared(_) => 0,
        };
        let (work_requests, credits_sent) = (self.posting.posted_total(), self.credits_sent);
        Work { work_requests, credits_sent, buffers_posted }
    }

    pub(crate) fn registered_bytes(&self) -> u64 {
        match &self.source {
            Source::Own(own) => own.registered_bytes(),
            Source::Shared(_) => 0,
        }
    }
}

/// Completions.
impl Link {
    /// The messages at the head of a batch, as many as the sender may send: the fast path.
    /// None where the next completion belongs to another link, or needs a closer look: see
    /// [`take`](Link::take). Packed messages come one by one.
    pub(crate) fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        run: &mut RecvRun<SlotReturn>,
    ) -> u32 {
        if self.packed || (self.room == 0 && self.count_room() == 0) {
            return 0;
        }
        let taken = match &mut self.source {
            Source::Own(own) => own.take_run(batch, self.room, run),
            Source::Shared(member) => member.take_run(batch, self.room, run),
        };
        self.room -= taken;
        taken
    }

    /// The message of a completion, if it has one and the sender may send it. Every other
    /// completion is for [`arrive`](Link::arrive).
    pub(crate) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        if self.room == 0 && self.count_room() == 0 {
            return Err(completion);
        }
        let buffer = match &mut self.source {
            Source::Own(own) => own.take(completion)?,
            Source::Shared(member) => member.take(completion)?,
        };
        self.room -= 1;
        Ok(buffer)
    }

    /// Counts anew how many messages may come.
    #[inline(never)]
    fn count_room(&mut self) -> u32 {
        self.book();
        let expected = self.expected();
        self.counted = if self.is_deaf() { 0 } else { expected };
        self.room = self.counted;
        self.room
    }

    /// Messages that the sender may send.
    fn expected(&self) -> u32 {
        match &self.source {
            Source::Own(_) => self.grantor.as_ref().map_or(u32::MAX, CreditGrantor::expected),
            Source::Shared(member) => member.expected(),
        }
    }

    /// Books the messages that have come: before the grantor is asked for anything, and
    /// when the state changes.
    fn book(&mut self) {
        let received = self.counted - self.room;
        (self.counted, self.room) = (0, 0);
        self.booked = self.booked.wrapping_add(received);
        if let Some(grantor) = &mut self.grantor {
            let booked = grantor.on_receive_many(received);
            debug_assert!(booked.is_ok(), "there was room, so there were credits");
        }
    }

    /// Books a completion that [`take`](Link::take) did not take.
    #[cold]
    pub(crate) fn arrive(&mut self, completion: Completion<'_>) -> Arrival {
        if completion.queue_id() == self.posting.queue_id() {
            return self.control_sent(&completion);
        }
        if completion.queue_id() != self.source.queue_id() {
            // Of a queue pair that had this number before.
            return Arrival::Settled;
        }
        let imm = completion.imm();
        let taken = match &mut self.source {
            Source::Own(own) => own.take_any(completion).map(|buffer| own.reclaim(buffer)),
            Source::Shared(member) => member.take_control(completion),
        };
        match (taken, imm) {
            // FIN is the last message of a sender.
            (Ok(()), Some(imm)) if self.state != State::Finished => self.control(imm),
            (Ok(()), _) => self.overrun(),
            (Err(ended), _) => self.fail(ended),
        }
    }

    /// Reports whether messages that come now are dropped: the link's end was reported.
    #[inline]
    fn is_deaf(&self) -> bool {
        self.state != State::Open && self.error.is_none()
    }

    /// A message that the sender may not send. After the sender's goodbye it is not reported
    /// to the application, but it takes a buffer, which may be one of a shared pool: so the
    /// link takes no more messages.
    fn overrun(&mut self) -> Arrival {
        if self.state == State::Finished {
            self.silence();
        }
        self.fail(CloseReason::Protocol(ProtocolError::Overrun))
    }

    /// Takes no more messages.
    pub(crate) fn silence(&mut self) {
        self.is_silent = true;
        if let Err(e) = self.posting.qp().to_error() {
            tracing::debug!(qp = self.qp_num(), error = %e, "a queue pair was not moved to ERR");
        }
    }

    /// Returns the share of a pool, if it has one: messages that still come are not the link's.
    pub(crate) fn give_share_back(&mut self) {
        self.book();
        self.leave_open(State::Dead);
        self.error = None;
        if let Source::Shared(member) = &mut self.source {
            member.leave();
        }
    }

    /// Reports whether the device has said that a queue pair which was silenced keeps no buffer of
    /// the pool: what it had taken has completed. One system call, if it has not.
    pub(crate) fn keeps_no_buffer(&self) -> bool {
        self.posting.qp().has_reached_last_wqe().unwrap_or_else(|e| {
            tracing::debug!(qp = self.qp_num(), error = %e, "asynchronous events");
            false
        })
    }

    /// Books a completion of a link whose messages are not handed out any more.
    pub(crate) fn absorb(&mut self, completion: Completion<'_>) {
        match self.take(completion) {
            Ok(buffer) => self.reclaim(buffer),
            Err(other) => drop(self.arrive(other)),
        }
    }

    fn control(&mut self, imm: u32) -> Arrival {
        match Control::decode(imm) {
            Ok(Control::Fin) => {
                self.book();
                self.leave_open(State::Finished);
                // The sender has gone, or is going: it needs no goodbye from us.
                self.goodbye = Goodbye::None;
                Arrival::Settled
            }
            Ok(control @ (Control::Want | Control::Return(_))) => self.borrow(control, imm),
            _ => self.fail(CloseReason::Protocol(ProtocolError::Control(imm))),
        }
    }

    /// WANT or RETURN of a sender whose credits are loans. Ignored on a link that has ended.
    fn borrow(&mut self, control: Control, imm: u32) -> Arrival {
        self.book();
        let booked = match (&mut self.source, control) {
            (Source::Shared(_), _) if self.state != State::Open => Ok(()),
            (Source::Shared(member), Control::Want) => member.want(),
            (Source::Shared(member), Control::Return(wire)) => member.give_back(wire),
            _ => Err(ProtocolError::Control(imm)),
        };
        match booked {
            Ok(()) => Arrival::Settled,
            Err(violation) => self.fail(CloseReason::Protocol(violation)),
        }
    }

    fn control_sent(&mut self, completion: &Completion<'_>) -> Arrival {
        let retired = self.posting.retire(completion);
        if !completion.is_success() {
            // Flushed or failed: nothing is outstanding any more.
            self.posting.give_up();
            self.goodbye = Goodbye::None;
        }
        match retired {
            Ok(_) => Arrival::Settled,
            Err(reason) => self.fail(reason),
        }
    }

    /// Ends the link with a reason, unless it has ended already.
    pub(crate) fn fail(&mut self, reason: CloseReason) -> Arrival {
        if self.state != State::Open {
            return Arrival::Settled;
        }
        self.book();
        self.leave_open(State::Dead);
        self.error = Some(self.posting.fail(reason));
        self.is_silent = true;
        Arrival::Failed
    }
}

/// Buffers and credits.
impl Link {
    /// A message was freed on the receiver's own thread.
    #[inline(always)]
    pub(crate) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        match &mut self.source {
            Source::Own(own) => own.reclaim(buffer),
            Source::Shared(member) => member.reclaim(buffer),
        }
    }

    /// Shows the messages of a run that is this link's, and takes each back at once.
    #[inline]
    pub(crate) fn reclaim_each(
        &mut self,
        run: &mut RecvRun<SlotReturn>,
        mut each: impl FnMut(&[u8]),
    ) {
        match &mut self.source {
            Source::Own(own) => {
                while let Some(buffer) = run.next() {
                    each(&buffer);
                    own.reclaim(buffer);
                }
            }
            Source::Shared(member) => {
                while let Some(buffer) = run.next() {
                    each(&buffer);
                    member.reclaim(buffer);
                }
            }
        }
    }

    /// A message was freed by another thread.
    pub(crate) fn free(&mut self, slot: u32) {
        if let Source::Own(own) = &mut self.source {
            own.free(slot);
        }
    }

    /// Reposts and grants what is due (all that there is when `idle`). Returns what is still
    /// owed, also where that is to report an error.
    #[inline]
    pub(crate) fn settle(&mut self, idle: bool) -> Owed {
        self.book();
        let mut waits_for_idle = false;
        if self.state == State::Open {
            // A sender that is out of credits waits for every single buffer, even
            // while others keep the receiver busy.
            let spent = |g: &CreditGrantor| g.expected() == 0;
            let all = idle || self.grantor.as_ref().is_some_and(spent);
            let settled = match &mut self.source {
                Source::Own(own) => own.repost(all).map(|count| self.grant(count)),
                Source::Shared(member) => member.settle(idle).map(|rests| {
                    waits_for_idle = rests;
                    self.lend();
                }),
            };
            if let Err(ended) = settled {
                self.fail(ended);
            }
        }
        let owed = match (self.state, &mut self.source) {
            // The error waits to be reported; and messages may have come before it, since the
            // queue was found empty.
            _ if self.error.is_some() => {
                self.unreported = self.unreported.saturating_add(1);
                Owed::More
            }
            (State::Open, Source::Own(own)) if own.waiting() == 0 => Owed::Nothing,
            (State::Open, Source::Own(_)) if !idle => Owed::Rest,
            (State::Open, Source::Own(_)) => Owed::More,
            // The pool tells the link of whatever else happens to its buffers.
            (State::Open, Source::Shared(_)) if waits_for_idle => Owed::Rest,
            (State::Open, Source::Shared(_)) => Owed::Nothing,
            (_, Source::Own(_)) => Owed::Nothing,
            // Once idle, all that had arrived is booked.
            (_, Source::Shared(_)) if !idle => Owed::More,
            // In ERR, the device may keep a buffer of a message that never came to its end: the
            // share goes back when it says that it keeps none.
            (_, Source::Shared(member)) if self.is_silent => {
                member.post_gathered();
                Owed::Nothing
            }
            (_, Source::Shared(member)) => {
                member.leave();
                Owed::Nothing
            }
        };
        self.marked = owed == Owed::More;
        owed
    }

    #[inline]
    fn grant(&mut self, reposted: u32) {
        let Some(grantor) = &mut self.grantor else { return };
        let granted = reposted + u32::from(is_planted(Plant::ExtraCredit));
        if granted > 0 && grantor.on_reposted(granted).is_err() {
            self.fail(CloseReason::Protocol(ProtocolError::Completion));
            return;
        }
        let Some(credit) = grantor.due() else { return };
        // A full control share is no loss: credits are cumulative, the next one says
        // it all, and a completion of the share brings us back here.
        if self.send_control(Control::Credit(credit), false) != Posted::Yes {
            return;
        }
        self.credits_sent += 1;
        if let Some(grantor) = &mut self.grantor {
            // It was due a moment ago, so it can be granted.
            let _ = grantor.mark_granted(credit);
        }
    }

    /// Sends the control messages that the pool has for the sender. Where the control share is
    /// full, they stay due.
    fn lend(&mut self) {
        while let Source::Shared(member) = &self.source
            && let Some(control) = member.due()
        {
            if self.send_control(control, false) != Posted::Yes {
                return;
            }
            self.credits_sent += u64::from(control != Control::Recall);
            if let Source::Shared(member) = &mut self.source {
                member.mark_sent(control);
            }
        }
    }

    /// The pool has something for the sender.
    pub(super) fn tell(&mut self) {
        if let Source::Shared(member) = &mut self.source {
            member.tell();
        }
    }

    fn send_control(&mut self, control: Control, signalled: bool) -> Posted {
        self.post_control(SendOp::SendImm { len: 0, imm: control.encode() }, signalled)
    }

    fn post_control(&mut self, op: SendOp, signalled: bool) -> Posted {
        let planned = self.posting.plan(WrClass::Control, signalled);
        let Some(planned) = planned else { return Posted::Full };
        let staged = self.posting.queue_mut().stage(op, planned.signalled);
        let staged = staged.map_err(|e| CloseReason::Device(e.to_string()));
        if let Err(reason) = staged.and_then(|()| self.posting.post()) {
            self.fail(reason);
            // Also where the link was not open any more: what is refused ends in ERR.
            self.is_silent |= self.posting.ended().is_some();
            return Posted::Failed;
        }
        Posted::Yes
    }
}

/// Life and end.
impl Link {
    /// Asks the sender's device whether it is there: see [`Sender`](super::Sender).
    pub(crate) fn ask(&mut self) {
        if is_planted(Plant::SkippedProbe) {
            return;
        }
        // An unsignalled credit message proves nothing.
        if self.state == State::Open && !self.posting.awaits_completion() {
            self.post_control(PROBE, true);
        }
    }

    /// Probes a sender from which nothing has come since the last call.
    pub(crate) fn ask_if_silent(&mut self) {
        let come = self.booked.wrapping_add(self.counted - self.room);
        if come == self.seen {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.ask();
        }
        self.seen = come;
    }

    /// No more messages are handed out: all that have come were, except the last `left`.
    pub(crate) fn close_books(&mut self, left: u32) {
        self.book();
        self.taken = self.booked.wrapping_sub(left);
    }

    /// Says goodbye to a sender that still sends.
    pub(crate) fn stop(&mut self) {
        if self.state == State::Open {
            self.book();
            self.leave_open(State::Dead);
            let taken = Taken::of_count(self.taken.into());
            self.goodbye = Goodbye::Due(Control::Stop(taken));
            self.say_goodbye();
        }
    }

    /// Posts the goodbye if it is due and there is room for it. Room comes with the
    /// completions of what is on its way, so ask again after each of them.
    pub(crate) fn say_goodbye(&mut self) {
        let Goodbye::Due(control) = self.goodbye else { return };
        let id = self.posting.next_id();
        self.goodbye = match self.send_control(control, true) {
            Posted::Yes => Goodbye::Said(id),
            Posted::Full => return,
            Posted::Failed => Goodbye::None,
        };
    }

    /// Notes that it has ended; returns its place.
    pub(crate) fn note(&mut self) -> u32 {
        self.noted = true;
        self.place
    }

    /// Reports whether it ended with the sender's goodbye, and nothing came after that.
    pub(crate) fn ended_well(&self) -> bool {
        self.state == State::Finished && !self.is_silent
    }

    /// Reports whether it can be released: its end was reported, all its messages were freed, and
    /// none of its requests will complete any more. (Receives of a queue pair in ERR all complete.
    /// Receives of a link that has ended well wait for a sender that sends no more.)
    pub(crate) fn has_settled(&self) -> bool {
        let told = self.state != State::Open && self.error.is_none();
        told && !self.marked && !self.posting.awaits_completion() && self.is_home()
    }

    /// Reports whether it has settled but for what the device has yet to complete.
    pub(crate) fn is_leaving(&self) -> bool {
        let told = self.state != State::Open && self.error.is_none();
        told && match &self.source {
            Source::Own(own) => own.lent() == 0,
            Source::Shared(_) => true,
        }
    }

    fn is_home(&self) -> bool {
        match &self.source {
            Source::Own(own) => own.lent() == 0 && (!self.is_silent || own.posted_now() == 0),
            // The pool sees to its messages.
            Source::Shared(_) => true,
        }
    }

    /// The receiver is about to sleep, and settles once more before that.
    pub(crate) fn hurry(&mut self) {
        if let Source::Shared(member) = &mut self.source {
            member.hurry();
        }
    }

    /// Reports whether the goodbye is still to arrive.
    pub(crate) fn is_saying_goodbye(&self) -> bool {
        match self.goodbye {
            Goodbye::None => false,
            Goodbye::Due(_) => true,
            Goodbye::Said(id) => !self.posting.is_complete(id),
        }
    }
}

#[cfg(test)]
mod tests;
