//! A sender that WRITEs its messages, which completions acknowledge. A protocol adds the places of
//! its messages, and its receiver's writes ([`Writes`]).

mod slots;

use std::collections::VecDeque;
use std::fmt::Debug;

use host::plant::{Plant, is_planted};

use conn_core::wr::{WrClass, WrId};
use verbs_safe::{CompletionBatch, SendOp, StageError};

use crate::error::{CloseReason, Full, SendError};
use crate::posting::{QpPosting, Staged};
use crate::sending::{Half, Sends};
use crate::ticket::Ticket;
use crate::waiting::{CqWaiting, WaitFor};

pub(crate) use slots::sends_from_slots;

/// The part of a sender that every protocol of WRITEs has.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) half: Half,
    batch: CompletionBatch,
    /// Signalled requests, and the number of messages that each acknowledges.
    marks: VecDeque<(WrId, u64)>,
    acked: u64,
    /// Messages that were staged.
    messages: u64,
    /// Messages that were posted.
    posted: u64,
    /// Messages that are posted together.
    group: u64,
    /// The message that found no room last.
    stalled_at: Option<u64>,
}

impl Writing {
    /// Completions polled at a time: each stands for many requests.
    const POLL_BATCH: usize = 16;

    pub(crate) fn new(posting: QpPosting, waiting: CqWaiting, group: u32) -> Writing {
        Writing {
            marks: VecDeque::with_capacity(posting.queue().depth() as usize),
            half: Half::new(posting, waiting),
            batch: CompletionBatch::new(Self::POLL_BATCH),
            acked: 0,
            messages: 0,
            posted: 0,
            group: group.into(),
            stalled_at: None,
        }
    }

    /// Messages that were staged.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Messages that are acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Messages that were staged and not posted yet.
    pub(crate) fn unflushed(&self) -> u64 {
        self.messages - self.posted
    }

    /// The ticket of the last one.
    #[inline]
    pub(crate) fn ticket(&self) -> Ticket {
        self.half.ticket(self.messages)
    }

    /// Stages a request of data; `ends` if it is the last one of a message. There is room.
    #[inline]
    pub(crate) fn stage(&mut self, op: SendOp, ends: bool) -> Result<(), SendError> {
        self.messages += u64::from(ends);
        self.stage_as(op, WrClass::Data, false).map(drop)
    }

    /// Sets the total of staged messages, including the next request.
    #[inline]
    pub(crate) fn mark_staged(&mut self, messages: u64) {
        self.messages = messages;
    }

    /// Plans the data request that the caller stages next; returns true if it is signalled.
    // Always inlined: otherwise the result passes through memory for each short message.
    #[inline(always)]
    pub(crate) fn plan(&mut self, awaited: bool) -> Result<bool, StageError> {
        let planned = self.half.posting.plan(WrClass::Data, awaited);
        let planned = planned.ok_or(StageError::QueueFull)?;
        if planned.signalled {
            self.marks.push_back((planned.id, self.messages));
        }
        Ok(planned.signalled)
    }

    /// Stages a request; its completion acknowledges all messages that were staged.
    #[inline]
    pub(crate) fn stage_as(
        &mut self,
        op: SendOp,
        class: WrClass,
        awaited: bool,
    ) -> Result<WrId, SendError> {
        let staged = self.half.posting.stage(op, class, awaited)?;
        self.mark(staged)
    }

    /// Stores the number of messages that the completion of a staged request acknowledges.
    #[inline]
    pub(crate) fn mark(&mut self, staged: Option<Staged>) -> Result<WrId, SendError> {
        let staged = staged.ok_or(SendError::Full(Full::Requests))?;
        if staged.is_signalled {
            self.marks.push_back((staged.id, self.messages));
        }
        Ok(staged.id)
    }

    /// Posts staged requests, unless more messages are gathered.
    #[inline]
    pub(crate) fn post(&mut self) -> Result<(), SendError> {
        if self.half.gathers || self.unflushed() < self.group { Ok(()) } else { self.flush() }
    }

    /// Posts staged requests.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), SendError> {
        self.half.posting.post()?;
        self.mark_posted();
        Ok(())
    }

    /// Notes that staged requests are posted.
    #[inline]
    pub(crate) fn mark_posted(&mut self) {
        self.posted = self.messages;
    }

    /// Probes the peer's device. The probe acknowledges staged messages, too.
    fn ask_peer(&mut self) -> Result<(), SendError> {
        if let Some(id) = self.half.posting.probe()? {
            self.mark_posted();
            self.marks.push_back((id, self.messages));
        }
        Ok(())
    }

    /// The next message finds no room: true once for each message, however often it is looked.
    pub(crate) fn stalls(&mut self) -> bool {
        self.stalled_at.replace(self.messages) != Some(self.messages)
    }

    /// Says what is missing for so many requests of data. Completions make room: where none is
    /// on its way, one is asked for.
    #[cold]
    pub(crate) fn check_room(&mut self, requests: u32) -> Result<(), SendError> {
        if self.half.posting.room() >= requests {
            return Ok(());
        }
        self.flush()?;
        if !self.half.posting.awaits_completion() {
            self.ask_peer()?;
        }
        Err(SendError::Full(Full::Requests))
    }

    /// Takes completions; returns their number, and the reason if one ends the half, which the
    /// caller has to report.
    fn poll(&mut self) -> (usize, Option<CloseReason>) {
        let polled = match self.half.waiting.cq.poll(&mut self.batch) {
            Ok(polled) => polled,
            Err(e) => return (0, Some(CloseReason::device(e))),
        };
        let mut failure = None;
        while let Some(completion) = self.batch.pop() {
            // The first error is the reason, the flushed rest follows from it.
            failure = failure.or(self.half.posting.retire(&completion).err());
        }
        while let Some((id, reach)) = self.marks.front()
            && self.half.posting.is_complete(*id)
        {
            self.acked = *reach;
            self.marks.pop_front();
        }
        (polled, failure)
    }
}

/// A sender of WRITEs.
pub(crate) trait Writes: Debug + Sized {
    fn writing(&self) -> &Writing;
    fn writing_mut(&mut self) -> &mut Writing;

    /// Takes the receiver's words; returns true if one is new. `is_last` if no look follows: then
    /// it waits for words that are being written.
    fn listen(&mut self, is_last: bool) -> Result<bool, SendError>;

    /// Stages the goodbye, as [`Sends::stage_goodbye`].
    fn stage_last(&mut self) -> Result<WrId, SendError>;

    /// Messages that were accepted.
    fn accepted(&self) -> u64 {
        self.writing().messages
    }

    /// Sends accepted messages, as [`Sends::push_all`].
    fn push_staged(&mut self, _awaited: bool) -> Result<(), SendError> {
        self.writing_mut().flush()
    }

    /// Takes completions and the receiver's words; returns the number of new events.
    fn take_news(&mut self) -> Result<usize, SendError> {
        self.take_all()
    }

    /// As [`take_news`](Self::take_news), and every completion counts.
    fn take_all(&mut self) -> Result<usize, SendError> {
        let (polled, failure) = self.writing_mut().poll();
        // Also before a failure: the receiver may have written its reason before it was lost.
        let heard = self.listen(failure.is_some())?;
        match failure {
            None => Ok(polled + usize::from(heard)),
            Some(reason) => Err(self.writing_mut().half.posting.fail(reason).into()),
        }
    }

    /// Ends the half after a STOP that counts `taken` messages, which are acknowledged by it;
    /// returns the error.
    #[cold]
    fn peer_stopped(&mut self, taken: u64) -> SendError {
        let accepted = self.accepted();
        let writing = self.writing_mut();
        writing.acked = writing.acked.max(taken.min(writing.messages));
        let reason = CloseReason::by_peer(accepted - writing.acked);
        writing.half.posting.fail(reason).into()
    }
}

impl<W: Writes> Sends for W {
    #[inline]
    fn half(&self) -> &Half {
        &self.writing().half
    }

    #[inline]
    fn half_mut(&mut self) -> &mut Half {
        &mut self.writing_mut().half
    }

    fn progress(&mut self) -> Result<usize, SendError> {
        self.take_news()
    }

    fn last_look(&mut self) -> Result<usize, SendError> {
        self.take_all()
    }

    fn heard(&self) -> u64 {
        self.accepted()
    }

    fn gathered(&self) -> u64 {
        self.accepted() - self.writing().posted
    }

    fn last(&self) -> u64 {
        self.accepted()
    }

    #[inline]
    fn was_acked(&self, number: u64) -> bool {
        self.writing().acked >= number
    }

    fn push_all(&mut self, awaited: bool) -> Result<(), SendError> {
        self.push_staged(awaited)
    }

    /// Messages that are not posted wait for the receiver's words.
    fn awaits(&self, number: u64) -> WaitFor {
        if self.writing().posted < number { WaitFor::Word } else { WaitFor::Completion }
    }

    fn awaits_room(&self, full: Full) -> WaitFor {
        if full == Full::Requests { WaitFor::Completion } else { WaitFor::Word }
    }

    /// A request that was not signalled is acknowledged by the next one that is.
    fn nudge(&mut self, number: u64) -> Result<(), SendError> {
        let Writing { marks, posted, acked, .. } = self.writing();
        let is_asked_for = marks.back().is_some_and(|(_, reach)| *reach >= number);
        let is_of_no_use = *posted < number || *acked >= number;
        if is_asked_for || is_of_no_use { Ok(()) } else { self.ask_peer() }
    }

    fn ask_for(&mut self, number: u64) -> Result<(), SendError> {
        self.half().posting.check()?;
        let asked = self.push_all(true).and_then(|()| self.nudge(number));
        self.progress()?;
        asked
    }

    fn stage_goodbye(&mut self) -> Result<WrId, SendError> {
        if is_planted(Plant::LostGoodbye) { Ok(WrId(0)) } else { self.stage_last() }
    }

    fn ask_peer(&mut self) -> Result<(), SendError> {
        self.writing_mut().ask_peer()
    }
}
