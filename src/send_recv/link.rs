//! A receiver's side of one queue pair: its buffers, its credits, its end.

mod buffers;

use conn_core::control::Control;
use conn_core::credit::{CreditGrantor, CreditWire};
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{Completion, CompletionBatch, QpControl, RecvBuf, RecvRun, SendOp, SendQueue};

use super::message::Peer;
use super::returns::SlotReturn;
use super::{Ended, PROBE, Violation};
use crate::wait::SILENT;
use crate::wire::Tracker;
pub(crate) use buffers::{OwnBuffers, Source};

/// What a completion that brought no message has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Something, or nothing.
    Settled,
    /// The link has failed just now: its error waits to be reported.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Messages may come.
    Open,
    /// The sender has said goodbye; whatever comes now does not matter.
    Finished,
    /// Failed, or stopped by this end.
    Dead,
}

/// What is still to be done for a link that was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    /// To post what has gathered: when there is more of it, or the receiver is idle.
    Rest,
    /// More, which no completion will announce.
    More,
}

/// How far this end is with its goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Farewell {
    /// There is none to be said, or nobody left to hear it.
    None,
    /// It has to be said, and waits for a place in the send queue.
    Due(Control),
    /// It is this request.
    Said(WrId),
}

/// What became of a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Posted {
    Yes,
    /// The control share is full; a completion makes room.
    Full,
    /// The link has failed.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Link {
    qp: QpControl,
    queue: SendQueue,
    tracker: Tracker,
    /// `None` in the uncontrolled mode.
    grantor: Option<CreditGrantor>,
    /// Messages that may come before anything but themselves has to be looked at, of
    /// `counted` when that was done last; what came of them is not booked yet.
    room: u32,
    counted: u32,
    /// Messages that are booked, and those that had come when it was last looked whether
    /// the sender is silent; both wrap.
    booked: u32,
    seen: u32,
    source: Source,
    state: State,
    error: Option<Ended>,
    /// How many times it was settled since it has the error.
    untold: u32,
    packed: bool,
    credits_sent: u64,
    farewell: Farewell,
    place: u32,
    peer: Peer,
    /// Whether its queue pair was moved to ERR.
    is_silent: bool,
    /// Whether the receiver has it on its list of links to settle.
    pub(super) marked: bool,
    /// Whether it is among those that rest until the receiver is idle.
    pub(super) rests: bool,
    /// Whether it is among those that have ended.
    pub(super) noted: bool,
}

/// What a link has done so far.
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
    pub(crate) qp: QpControl,
    pub(crate) queue: SendQueue,
    pub(crate) tracker: Tracker,
    pub(crate) grantor: Option<CreditGrantor>,
    pub(crate) source: Source,
    pub(crate) packed: bool,
    pub(crate) place: u32,
}

/// Making, inspecting.
impl Link {
    pub(crate) fn new(parts: LinkParts) -> Link {
        let LinkParts { qp, queue, tracker, grantor, source, packed, place } = parts;
        Link {
            qp,
            queue,
            tracker,
            grantor,
            room: 0,
            counted: 0,
            booked: 0,
            seen: 0,
            source,
            state: State::Open,
            error: None,
            untold: 0,
            packed,
            credits_sent: 0,
            farewell: Farewell::None,
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
        self.qp.qp_num()
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

    /// Its peer's number, once it has joined the receiver.
    #[inline]
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn set_peer(&mut self, peer: Peer) {
        self.peer = peer;
    }

    /// The error that was not reported yet, with the peer's number.
    pub(crate) fn error_of(link: &mut Link) -> Option<(Peer, Ended)> {
        link.take_error().map(|ended| (link.peer, ended))
    }

    pub(crate) fn take_error(&mut self) -> Option<Ended> {
        self.book();
        self.error.take()
    }

    /// How many times it was settled with an error that was not reported yet, if it has
    /// one.
    #[inline]
    pub(crate) fn untold(&self) -> Option<u32> {
        self.error.as_ref().map(|_| self.untold)
    }

    /// Whether its buffers are others' as well.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.source, Source::Shared(_))
    }

    pub(crate) fn work(&self) -> Work {
        let buffers_posted = match &self.source {
            Source::Own(own) => own.posted,
            Source::Shared(_) => 0,
        };
        let (work_requests, credits_sent) = (self.queue.posted_total(), self.credits_sent);
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
    /// The messages at the head of a batch, as long as they may be: the case that has to
    /// be fast. None where the next completion is another link's, or has to be looked at:
    /// see [`take`](Link::take). Packed messages come one by one.
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

    /// The message of a completion, if it is one of a message that may be. All else is for
    /// [`arrive`](Link::arrive).
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
        let expected = self.grantor.as_ref().map_or(u32::MAX, CreditGrantor::expected);
        self.counted = if self.is_deaf() { 0 } else { expected };
        self.room = self.counted;
        self.room
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

    /// Books a completion that is not that of a message.
    #[cold]
    pub(crate) fn arrive(&mut self, completion: Completion<'_>) -> Arrival {
        if completion.queue_id() == self.queue.queue_id() {
            return self.control_sent(&completion);
        }
        if completion.queue_id() != self.source.queue_id() {
            // Of a queue pair that had this number before.
            return Arrival::Settled;
        }
        let imm = completion.imm();
        let taken = match &mut self.source {
            Source::Own(own) => own.take_any(completion),
            Source::Shared(member) => member.take_any(completion),
        };
        match (taken, imm) {
            (Ok(buffer), None) => {
                self.reclaim(buffer);
                self.overrun()
            }
            (Ok(buffer), Some(imm)) => {
                self.reclaim(buffer);
                self.control(imm)
            }
            (Err(ended), _) => self.fail(ended),
        }
    }

    /// Whether messages that come now do not matter: the link's end was told.
    #[inline]
    fn is_deaf(&self) -> bool {
        self.state != State::Open && self.error.is_none()
    }

    /// A message that may not be. From a sender that has said goodbye it is no news
    /// for the application, but it takes a buffer, which may be others'.
    fn overrun(&mut self) -> Arrival {
        if self.state == State::Finished {
            self.silence();
        }
        self.fail(Ended::Protocol(Violation::Overrun))
    }

    /// Takes no more messages.
    pub(crate) fn silence(&mut self) {
        self.is_silent = true;
        if let Err(e) = self.qp.to_error() {
            tracing::debug!(qp = self.qp_num(), error = %e, "a queue pair was not moved to ERR");
        }
    }

    /// Books a completion when messages are not wanted any more.
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
                self.state = State::Finished;
                Arrival::Settled
            }
            _ => self.fail(Ended::Protocol(Violation::Control(imm))),
        }
    }

    fn control_sent(&mut self, completion: &Completion<'_>) -> Arrival {
        if let Some(error) = completion.error() {
            let last = self.tracker.next_id().0 - 1;
            // Flushed or failed: nothing is outstanding any more.
            let _ = self.tracker.complete_failed(WrId(last));
            self.farewell = Farewell::None;
            return self.fail(Ended::PeerLost(error));
        }
        let retired = self.queue.retire(completion).ok();
        match retired.map(|count| self.tracker.complete(WrId(count))) {
            Some(Ok(_)) => Arrival::Settled,
            _ => self.fail(Ended::Protocol(Violation::Completion)),
        }
    }

    /// Ends the link with a reason, unless it has ended already.
    pub(crate) fn fail(&mut self, ended: Ended) -> Arrival {
        if self.state != State::Open {
            return Arrival::Settled;
        }
        self.book();
        self.state = State::Dead;
        self.error = Some(ended);
        self.silence();
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
    /// owed, be it to tell an error.
    #[inline]
    pub(crate) fn settle(&mut self, idle: bool) -> Owed {
        self.book();
        if self.state == State::Open {
            // A sender that is out of credits waits for every single buffer, even
            // while others keep the receiver busy.
            let spent = |g: &CreditGrantor| g.expected() == 0;
            let all = idle || self.grantor.as_ref().is_some_and(spent);
            let reposted = match &mut self.source {
                Source::Own(own) => own.repost(all),
                Source::Shared(member) => member.take_reposted(all),
            };
            match reposted {
                Ok(count) => self.grant(count),
                Err(ended) => drop(self.fail(ended)),
            }
        }
        let owed = match (self.state, &mut self.source) {
            // It waits to be told; and messages may have come before it, since the queue
            // was found empty.
            _ if self.error.is_some() => {
                self.untold = self.untold.saturating_add(1);
                Owed::More
            }
            (State::Open, Source::Own(own)) if own.waiting() == 0 => Owed::Nothing,
            (State::Open, Source::Own(_)) if !idle => Owed::Rest,
            (State::Open, Source::Own(_)) => Owed::More,
            (State::Open, Source::Shared(member)) if !member.has_outstanding() => Owed::Nothing,
            (State::Open, Source::Shared(_)) => Owed::More,
            (_, Source::Own(_)) => Owed::Nothing,
            // Once idle, all that had arrived is booked, and the share goes back.
            (_, Source::Shared(_)) if !idle => Owed::More,
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
        if reposted > 0 && grantor.on_reposted(reposted).is_err() {
            self.fail(Ended::Protocol(Violation::Completion));
            return;
        }
        if let Some(credit) = grantor.due() {
            self.send_credit(credit);
        }
    }

    /// A full control share is no loss: credits are cumulative, the next one says
    /// it all, and a completion of the share brings us back here.
    fn send_credit(&mut self, credit: CreditWire) {
        if self.send_control(Control::Credit(credit), false) != Posted::Yes {
            return;
        }
        self.credits_sent += 1;
        if let Some(grantor) = &mut self.grantor {
            // It was due a moment ago, so it can be granted.
            let _ = grantor.mark_granted(credit);
        }
    }

    fn send_control(&mut self, control: Control, signalled: bool) -> Posted {
        self.post_control(SendOp::SendImm { len: 0, imm: control.encode() }, signalled)
    }

    fn post_control(&mut self, op: SendOp, signalled: bool) -> Posted {
        let planned = match signalled {
            true => self.tracker.plan_signalled(WrClass::Control),
            false => self.tracker.plan(WrClass::Control),
        };
        let Ok(planned) = planned else { return Posted::Full };
        let staged = self.queue.stage(op, planned.signalled).map_err(|e| e.to_string());
        let posted = staged.and_then(|()| self.queue.post().map_err(|e| e.to_string()));
        if let Err(e) = posted {
            self.fail(Ended::Device(e));
            return Posted::Failed;
        }
        Posted::Yes
    }
}

/// Life and end.
impl Link {
    /// Asks the sender's device whether it is there: see [`Sender`](super::Sender).
    pub(crate) fn probe(&mut self) {
        // A credit that nobody asked a completion for proves nothing.
        if self.state == State::Open && !self.tracker.signalled_outstanding() {
            self.post_control(PROBE, true);
        }
    }

    /// Asks after a sender of which nothing has come since this was called last.
    pub(crate) fn probe_if_silent(&mut self) {
        let come = self.booked.wrapping_add(self.counted - self.room);
        if come == self.seen {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.probe();
        }
        self.seen = come;
    }

    /// Says goodbye to a sender that still sends.
    pub(crate) fn stop(&mut self, control: Control) {
        if self.state == State::Open {
            self.book();
            self.state = State::Dead;
            self.farewell = Farewell::Due(control);
            self.say_goodbye();
        }
    }

    /// Posts the goodbye if it is due and there is room for it. Room comes with the
    /// completions of what is on its way, so ask again after each of them.
    pub(crate) fn say_goodbye(&mut self) {
        let Farewell::Due(control) = self.farewell else { return };
        let id = self.tracker.next_id();
        self.farewell = match self.send_control(control, true) {
            Posted::Yes => Farewell::Said(id),
            Posted::Full => return,
            Posted::Failed => Farewell::None,
        };
    }

    /// Notes that it has ended; its place.
    pub(crate) fn note(&mut self) -> u32 {
        self.noted = true;
        self.place
    }

    /// Whether it ended with the sender's goodbye, and the sender has kept to it.
    pub(crate) fn ended_well(&self) -> bool {
        self.state == State::Finished && !self.is_silent
    }

    /// Whether it can go: its end was told, all its messages are home, and nothing of it
    /// will complete any more. (Receives of a queue pair in ERR all complete. Those of one
    /// that has ended well wait for a sender that sends no more.)
    pub(crate) fn has_settled(&self) -> bool {
        let told = self.state != State::Open && self.error.is_none();
        told && !self.marked && !self.tracker.signalled_outstanding() && self.is_home()
    }

    fn is_home(&self) -> bool {
        match &self.source {
            Source::Own(own) => own.lent() == 0 && (!self.is_silent || own.posted_now() == 0),
            // The pool sees to its messages.
            Source::Shared(_) => true,
        }
    }

    /// The receiver is about to sleep, and looks once more after this.
    pub(crate) fn announce_sleep(&mut self) {
        if let Source::Shared(member) = &mut self.source {
            member.announce_sleep();
        }
    }

    pub(crate) fn retract_sleep(&mut self) {
        if let Source::Shared(member) = &mut self.source {
            member.retract_sleep();
        }
    }

    /// Whether the goodbye is still to arrive.
    pub(crate) fn is_saying_goodbye(&self) -> bool {
        match self.farewell {
            Farewell::None => false,
            Farewell::Due(_) => true,
            Farewell::Said(id) => !self.tracker.is_complete(id),
        }
    }
}

#[cfg(test)]
mod tests;
