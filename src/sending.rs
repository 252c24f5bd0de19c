//! A sending half of WRITEs: tickets, acknowledgements by completions, waiting. What a protocol
//! adds is where its messages go, and what its receiver writes back ([`Driving`]).

use std::collections::VecDeque;
use std::time::Duration;

use host::plant::{Plant, is_planted};

use conn_core::wr::{WrClass, WrId};
use verbs_safe::{CompletionBatch, CompletionChannel, CompletionQueue, SendOp};

use crate::arm::Arm;
use crate::common::Common;
use crate::error::{CloseReason, Full, SendError};
use crate::half::driven;
use crate::keepalive::{Look, SILENT};
use crate::posting::{Posting, Staged};
use crate::ticket::{Ticket, sender_number};
use crate::wait::{Deadline, Idle, Step};
use crate::waiting::Waiting;
use crate::wire::ConnectedQp;

/// The part of a sender that every protocol of WRITEs has.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) posting: Posting,
    waiting: Waiting,
    number: u32,
    batch: CompletionBatch,
    /// Requests that will complete visibly, and how many messages are acknowledged then.
    marks: VecDeque<(WrId, u64)>,
    acked: u64,
    /// Messages that were staged.
    messages: u64,
    /// Messages that were posted.
    posted: u64,
    /// Messages that are posted together.
    group: u64,
    gathers: bool,
}

impl Sending {
    /// Completions polled at a time: each stands for many requests.
    const POLL_BATCH: usize = 16;

    pub(crate) fn new(
        posting: Posting,
        cq: CompletionQueue,
        channel: Option<CompletionChannel>,
        common: Common,
        group: u32,
    ) -> Sending {
        Sending {
            posting,
            waiting: Waiting::new(cq, channel, common),
            number: sender_number(),
            batch: CompletionBatch::new(Self::POLL_BATCH),
            marks: VecDeque::new(),
            acked: 0,
            messages: 0,
            posted: 0,
            group: group.into(),
            gathers: false,
        }
    }

    /// Messages that were accepted.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Messages that are acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Messages that were accepted and not posted yet.
    pub(crate) fn unflushed(&self) -> u64 {
        self.messages - self.posted
    }

    /// The ticket of the last message.
    #[inline]
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { sender: self.number, number: self.messages }
    }

    fn is_known(&self, ticket: Ticket) -> bool {
        ticket.sender == self.number && ticket.number <= self.messages
    }

    #[inline]
    fn was_acked(&self, ticket: Ticket) -> bool {
        self.acked >= ticket.number
    }

    /// Stages a request of data; `ends` if it is the last one of a message. There is room.
    #[inline]
    pub(crate) fn stage(&mut self, op: SendOp, ends: bool) -> Result<(), SendError> {
        self.messages += u64::from(ends);
        self.stage_as(op, WrClass::Data, false)
    }

    /// Stages a request; its completion acknowledges all messages that were staged.
    #[inline]
    pub(crate) fn stage_as(
        &mut self,
        op: SendOp,
        class: WrClass,
        awaited: bool,
    ) -> Result<(), SendError> {
        let staged = self.posting.stage(op, class, awaited)?;
        self.mark(staged).map(drop)
    }

    /// Remembers what the completion of a staged request acknowledges.
    #[inline]
    pub(crate) fn mark(&mut self, staged: Option<Staged>) -> Result<WrId, SendError> {
        let staged = staged.ok_or(SendError::Full(Full::Requests))?;
        if staged.is_signalled {
            self.marks.push_back((staged.id, self.messages));
        }
        Ok(staged.id)
    }

    /// Posts what was staged, unless more messages are gathered.
    #[inline]
    pub(crate) fn post(&mut self) -> Result<(), SendError> {
        if self.gathers || self.unflushed() < self.group { Ok(()) } else { self.flush() }
    }

    /// Posts what was staged.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), SendError> {
        self.posting.post()?;
        self.posted = self.messages;
        Ok(())
    }

    fn probe(&mut self) -> Result<(), SendError> {
        if let Some(id) = self.posting.probe()? {
            self.posted = self.messages;
            self.marks.push_back((id, self.messages));
        }
        Ok(())
    }

    /// Probes a receiver of which nothing is heard, as long as the program sends nothing either.
    fn ask_if_silent(&mut self) -> Result<(), SendError> {
        if self.waiting.watch.is_silent(self.messages) && !self.posting.awaits_completion() {
            tracing::debug!(qp = self.posting.qp_num(), "{SILENT}");
            self.probe()?;
        }
        Ok(())
    }

    /// Makes sure that an acknowledgement of the message will come: one that was not signalled
    /// is acknowledged by the next request that is.
    fn nudge(&mut self, ticket: Ticket) -> Result<(), SendError> {
        let is_asked_for = self.marks.back().is_some_and(|(_, reach)| *reach >= ticket.number);
        if is_asked_for || self.was_acked(ticket) { Ok(()) } else { self.probe() }
    }

    /// Says what is missing for so many requests of data. Completions make room: where none is
    /// on its way, one is asked for.
    #[cold]
    pub(crate) fn check_room(&mut self, requests: u32) -> Result<(), SendError> {
        if self.posting.room() >= requests {
            return Ok(());
        }
        self.flush()?;
        if !self.posting.awaits_completion() {
            self.probe()?;
        }
        Err(SendError::Full(Full::Requests))
    }

    /// Takes completions: how many there were, and the reason if one ends the half, which is
    /// still to be told.
    fn poll(&mut self) -> (usize, Option<CloseReason>) {
        let polled = match self.waiting.cq.poll(&mut self.batch) {
            Ok(polled) => polled,
            Err(e) => return (0, Some(CloseReason::Device(e.to_string()))),
        };
        let mut failure = None;
        while let Some(completion) = self.batch.pop() {
            // The first error is the reason, the flushed rest follows from it.
            failure = failure.or(self.posting.retire(&completion).err());
        }
        while let Some((id, reach)) = self.marks.front()
            && self.posting.is_complete(*id)
        {
            self.acked = *reach;
            self.marks.pop_front();
        }
        (polled, failure)
    }

    /// The receiver has taken so many messages, and takes no more: how this half has ended. What
    /// it has taken is acknowledged by that.
    #[cold]
    pub(crate) fn peer_stopped(&mut self, taken: u64) -> SendError {
        self.acked = self.acked.max(taken.min(self.messages));
        let reason = CloseReason::by_peer(self.messages - self.acked);
        self.posting.fail(reason).into()
    }
}

/// Event that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Completions, which ring the channel.
    Completion,
    /// Words that the receiver writes, which ring nothing.
    Word,
}

/// A sender that is driven by the calls below.
pub(crate) trait Driving: std::fmt::Debug + Sized {
    fn sending(&self) -> &Sending;
    fn sending_mut(&mut self) -> &mut Sending;

    /// Takes in what the receiver has written; whether something is new. `is_last` if no look
    /// follows: then words that are still being written are waited for.
    fn listen(&mut self, is_last: bool) -> Result<bool, SendError>;

    /// Checks that a message of `bytes` bytes has room now: [`SendError::Full`] if it has none.
    fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError>;

    /// Stages the goodbye, in a request that is awaited; all was acknowledged.
    fn stage_goodbye(&mut self) -> Result<(), SendError>;

    /// Takes completions, and what the receiver has written; returns how much was new.
    fn progress(&mut self) -> Result<usize, SendError> {
        self.progress_of_all()
    }

    /// As [`progress`](Self::progress), and every completion counts.
    fn progress_of_all(&mut self) -> Result<usize, SendError> {
        let (polled, failure) = self.sending_mut().poll();
        // Also before a failure: the receiver may have written its reason before it went.
        let heard = self.listen(failure.is_some())?;
        match failure {
            None => Ok(polled + usize::from(heard)),
            Some(reason) => Err(self.sending_mut().posting.fail(reason).into()),
        }
    }

    /// In calls that do not wait: learns of a peer that has gone.
    #[inline]
    fn look_after_peer(&mut self) -> Result<(), SendError> {
        match self.sending_mut().waiting.look() {
            Look::No => Ok(()),
            look => self.look_after_peer_now(look),
        }
    }

    #[cold]
    fn look_after_peer_now(&mut self, look: Look) -> Result<(), SendError> {
        self.sending().posting.check()?;
        self.progress()?;
        if look == Look::Round { self.sending_mut().ask_if_silent() } else { Ok(()) }
    }

    fn is_acked_now(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        if !self.sending().is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if !self.sending().was_acked(ticket) && self.sending().posting.ended().is_none() {
            // Also if this ends the sender, the check below sees what was acknowledged before.
            let _ = self.sending_mut().flush();
            let _ = self.sending_mut().nudge(ticket);
            let _ = self.progress();
        }
        let sending = self.sending();
        match (sending.was_acked(ticket), sending.posting.ended()) {
            (true, _) => Ok(true),
            (false, Some(ended)) => Err(ended.clone().into()),
            (false, None) => Ok(false),
        }
    }

    /// Returns the event to wait for: room, which nothing announces, or an acknowledgement, which a
    /// completion announces.
    fn arm_half(&mut self, longest: usize) -> Result<Arm<'_>, SendError> {
        self.sending().posting.check()?;
        self.sending_mut().waiting.disarm().map_err(|reason| self.fail(reason))?;
        self.sending_mut().flush()?;
        let last = self.sending().ticket();
        let by_word = match self.look_for_room(longest) {
            Ok(()) => self.sending().was_acked(last),
            Err(SendError::Full(_)) => true,
            Err(ended) => return Err(ended),
        };
        let is_announced = !by_word && self.sending().waiting.channel.is_some();
        if is_announced {
            self.sending_mut().nudge(last)?;
            self.sending_mut().waiting.arm_loop().map_err(|reason| self.fail(reason))?;
        }
        let events = self.progress()?;
        if self.sending_mut().waiting.is_silent(events) {
            self.sending_mut().probe()?;
        }
        if events > 0 {
            return Ok(Arm::Ready);
        }
        let waiting = &mut self.sending_mut().waiting;
        let keepalive = waiting.common.keepalive;
        if is_announced { Ok(waiting.event(None, keepalive)?) } else { Ok(waiting.no_event()) }
    }

    #[cold]
    fn fail(&mut self, reason: CloseReason) -> SendError {
        self.sending_mut().posting.fail(reason).into()
    }

    /// Nothing can be done now: spins, sleeps, probes, or says that time is up.
    fn wait_a_little(&mut self, idle: &mut Idle, what: For) -> Result<(), SendError> {
        let marks = self.sending().marks.len();
        let events = self.progress()?;
        // What has completed may be what the caller waits for, whether it counts as an event or
        // not: nothing else may come that would end a sleep.
        let has_completed = self.sending().marks.len() < marks;
        match idle.after(events) {
            Step::Again => Ok(()),
            Step::Sleep(_) if has_completed => Ok(()),
            Step::Sleep(time) if what == For::Word => self.sleep(idle.word_sleep(time)),
            Step::Sleep(time) => self.sleep(time),
            Step::Probe => {
                tracing::debug!(qp = self.sending().posting.qp_num(), "{SILENT}");
                self.sending_mut().probe()
            }
            Step::TimedOut => {
                self.sending_mut().waiting.time_out(idle);
                Err(SendError::TimedOut { unflushed: self.sending().unflushed() })
            }
        }
    }

    /// Arms the queue, looks once more, and sleeps. A completion that comes between the look and
    /// the sleep rings the channel; a word rings nothing, so that waiting for one polls.
    fn sleep(&mut self, time: Duration) -> Result<(), SendError> {
        let armed = self.sending().waiting.arm().map_err(|reason| self.fail(reason))?;
        // Each completion counts: it may be what the caller waits for, and rings only once.
        if self.progress_of_all()? > 0 {
            return Ok(());
        }
        let slept = self.sending().waiting.wait(&armed, None, time);
        slept.map_err(|reason| self.fail(reason))
    }

    /// Dropping it says goodbye, for a while.
    fn end(&mut self) {
        if self.sending().posting.ended().is_some() {
            return;
        }
        let deadline = Deadline::after(self.sending().waiting.common.linger);
        if let Err(e) = driven::Sender::goodbye(self, deadline) {
            let qp = self.sending().posting.qp_num();
            tracing::warn!(qp, error = %e, "sender dropped before all was delivered");
        }
    }
}

impl<S: Driving> driven::Sender for S {
    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.sending_mut().waiting.idle(deadline);
        loop {
            match self.look_for_room(bytes) {
                Err(SendError::Full(Full::Requests)) => {
                    self.wait_a_little(&mut idle, For::Completion)?;
                }
                Err(SendError::Full(_)) => self.wait_a_little(&mut idle, For::Word)?,
                other => return other,
            }
        }
    }

    fn gather(&mut self, on: bool) -> bool {
        let sending = self.sending_mut();
        let before = std::mem::replace(&mut sending.gathers, on);
        if !on {
            // What fails ends the half, and is reported by the next call.
            let _ = sending.flush();
        }
        before
    }

    fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.sending_mut().waiting.idle(deadline);
        while !self.is_acked_now(ticket)? {
            match self.wait_a_little(&mut idle, For::Completion) {
                // The end may acknowledge the message: the loop checks once more.
                Err(SendError::Ended(_)) => {}
                waited => waited?,
            }
        }
        Ok(())
    }

    fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.wait_until(self.sending().ticket(), deadline)
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain(deadline)?;
        self.sending().posting.check()?;
        if !is_planted(Plant::LostGoodbye) {
            self.stage_goodbye()?;
        }
        self.sending_mut().flush()?;
        let mut idle = self.sending_mut().waiting.idle(deadline);
        let goodbye = self.sending().marks.back().map(|(id, _)| *id);
        let is_complete = |me: &Self| goodbye.is_none_or(|id| me.sending().posting.is_complete(id));
        while !is_complete(self) {
            let waited = self.wait_a_little(&mut idle, For::Completion);
            // A probe behind the goodbye may fail where the receiver has gone: that does not count.
            waited.or_else(|e| if is_complete(self) { Ok(()) } else { Err(e) })?;
        }
        self.abandon();
        Ok(())
    }

    fn qp(&self) -> &ConnectedQp {
        self.sending().posting.qp()
    }

    fn abandon(&mut self) {
        self.sending_mut().posting.close();
    }
}
