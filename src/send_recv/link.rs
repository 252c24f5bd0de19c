//! A receiver's side of one queue pair: its buffers, its credits, its end.

mod arrivals;
mod buffers;
mod credits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conn_core::control::{Control, Taken};
use conn_core::credit::CreditGrantor;
use conn_core::wr::WrId;
use host::plant::{Plant, is_planted};

use crate::error::CloseReason;
use crate::keepalive::SILENT;
use crate::peer::Peer;
use crate::posting::QpPosting;
use crate::wire::{ConnectedQp, PROBE};
pub(crate) use buffers::{BufferSource, OwnBuffers};

/// The effect of a completion that brought no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompletionEffect {
    /// Booked; the link has not failed.
    Settled,
    /// The link has failed just now: its error waits to be reported.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// Messages may come.
    Open,
    /// The sender has said goodbye; messages that come now are dropped.
    Finished,
    /// Failed, or stopped by this end.
    Dead,
}

/// The work that is left for a link that was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwedWork {
    Nothing,
    /// Gathered buffers to post, when there are more of them, or the receiver is idle.
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
enum ControlPosted {
    Yes,
    /// The control share is full; a completion makes room.
    Full,
    /// The link has failed.
    Failed,
}

#[derive(Debug)]
pub struct SendRecvLink {
    /// It ends when the link fails; whether the link is open, `state` says.
    posting: QpPosting,
    /// `None` in the uncontrolled mode, and where credits are loans of a shared pool.
    grantor: Option<CreditGrantor>,
    /// Messages that may come until the link counts again, of `counted` at the last count;
    /// the ones that came since are not booked yet.
    room: u32,
    counted: u32,
    /// Booked messages, and messages that had arrived at the last check for a silent sender; both
    /// wrap.
    booked: u32,
    seen: u32,
    /// Booked messages that were handed out when the receiver stopped.
    taken: u32,
    source: BufferSource,
    state: LinkState,
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

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues: credits, keepalives, goodbyes.
    pub work_requests: u64,
    /// Credit messages sent.
    pub credits_sent: u64,
    /// Receive buffers posted, the first ones included.
    pub buffers_posted: u64,
    /// Buffers of a shared pool that may be lost. A device may keep a buffer if the sender dies in
    /// the middle of a message. The count rises when the queue pair of a sender that has left is
    /// destroyed before its device has reported that it keeps none: after `linger`, at most one
    /// second, or because more than 64 queue pairs wait for their device. The kernel's rxe never
    /// reports it, and keeps none: there it is the number of senders that have left.
    pub unaccounted_buffers: u64,
}

impl ReceiverStats {
    /// Adds the work of a link.
    pub(super) fn plus(self, link: &SendRecvLink) -> ReceiverStats {
        let buffers_posted = match &link.source {
            BufferSource::Own(own) => own.posted,
            BufferSource::Shared(_) => 0,
        };
        ReceiverStats {
            work_requests: self.work_requests + link.posting.posted_total(),
            credits_sent: self.credits_sent + link.credits_sent,
            buffers_posted: self.buffers_posted + buffers_posted,
            ..self
        }
    }
}

/// Making, inspecting.
impl SendRecvLink {
    pub(crate) fn new(
        posting: QpPosting,
        grantor: Option<CreditGrantor>,
        source: BufferSource,
        packed: bool,
        place: u32,
    ) -> SendRecvLink {
        SendRecvLink {
            posting,
            grantor,
            room: 0,
            counted: 0,
            booked: 0,
            seen: 0,
            taken: 0,
            source,
            state: LinkState::Open,
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
        self.state == LinkState::Open
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
    fn leave_open(&mut self, state: LinkState) {
        self.state = state;
        self.one_has_ended.store(true, Ordering::Relaxed);
    }

    /// The error that was not reported yet, with the peer's number.
    pub(crate) fn error_of(link: &mut SendRecvLink) -> Option<(Peer, CloseReason)> {
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
        matches!(self.source, BufferSource::Shared(_))
    }

    pub(crate) fn registered_bytes(&self) -> u64 {
        match &self.source {
            BufferSource::Own(own) => own.registered_bytes(),
            BufferSource::Shared(_) => 0,
        }
    }
}

/// Life and end.
impl SendRecvLink {
    /// Asks the sender's device whether it is there: see [`Sender`](super::Sender).
    pub(crate) fn ask(&mut self) {
        if is_planted(Plant::SkippedProbe) {
            return;
        }
        // An unsignalled credit message proves nothing.
        if self.state == LinkState::Open && !self.posting.awaits_completion() {
            self.post_control(PROBE, true);
        }
    }

    /// Probes a sender that was silent since the last call.
    pub(crate) fn ask_if_silent(&mut self) {
        let come = self.booked.wrapping_add(self.counted - self.room);
        if come == self.seen {
            tracing::debug!(qp = self.qp_num(), "{SILENT}");
            self.ask();
        }
        self.seen = come;
    }

    /// Closes the books: no more messages are handed out. All booked ones were, except the last
    /// `left`.
    pub(crate) fn close_books(&mut self, left: u32) {
        self.book();
        self.taken = self.booked.wrapping_sub(left);
    }

    /// Says goodbye to a sender that still sends.
    pub(crate) fn stop(&mut self) {
        if self.state == LinkState::Open {
            self.book();
            self.leave_open(LinkState::Dead);
            let taken = Taken::of_count(self.taken.into());
            self.goodbye = Goodbye::Due(Control::Stop(taken));
            self.say_goodbye();
        }
    }

    /// Posts the goodbye if it is due and there is room for it. Completions make room, so call it
    /// again after each of them.
    pub(crate) fn say_goodbye(&mut self) {
        let Goodbye::Due(control) = self.goodbye else { return };
        let id = self.posting.next_id();
        self.goodbye = match self.send_control(control, true) {
            ControlPosted::Yes => Goodbye::Said(id),
            ControlPosted::Full => return,
            ControlPosted::Failed => Goodbye::None,
        };
    }

    /// Notes that it has ended; returns its place.
    pub(crate) fn note(&mut self) -> u32 {
        self.noted = true;
        self.place
    }

    /// Reports whether it ended with the sender's goodbye, and nothing came after that.
    pub(crate) fn ended_well(&self) -> bool {
        self.state == LinkState::Finished && !self.is_silent
    }

    /// Reports whether it can be released: its end was reported, all its messages were freed, and
    /// none of its requests will complete any more. (Receives of a queue pair in ERR all complete.
    /// Receives of a link that has ended well wait for a sender that sends no more.)
    pub(crate) fn has_settled(&self) -> bool {
        let told = self.state != LinkState::Open && self.error.is_none();
        told && !self.marked && !self.posting.awaits_completion() && self.is_home()
    }

    /// Reports whether it has settled, except for requests that the device has not completed.
    pub(crate) fn is_leaving(&self) -> bool {
        let told = self.state != LinkState::Open && self.error.is_none();
        told && match &self.source {
            BufferSource::Own(own) => own.lent() == 0,
            BufferSource::Shared(_) => true,
        }
    }

    fn is_home(&self) -> bool {
        match &self.source {
            BufferSource::Own(own) => own.lent() == 0 && (!self.is_silent || own.posted_now() == 0),
            // The pool tracks its messages.
            BufferSource::Shared(_) => true,
        }
    }

    /// The receiver is about to sleep, and settles once more before that.
    pub(crate) fn hurry(&mut self) {
        if let BufferSource::Shared(member) = &mut self.source {
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
