//! A send queue with its accounting, for one end of a connection.

use conn_core::wr::{Planned, WrClass, WrId};
use verbs_safe::{
    Completion, LoanId, QueueId, RegionId, RemoteSpan, SendFlags, SendOp, SendQueue, StageError,
};

use crate::checked;
use crate::doorbell;
use crate::error::{CloseReason, ProtocolError, internal_error};
use crate::wire::{ConnectedQp, PROBE, Tracker};

/// One end of a queue pair that posts requests, until it ends.
#[derive(Debug)]
pub(crate) struct QpPosting {
    control: ConnectedQp,
    queue: SendQueue,
    tracker: Tracker,
    ended: Option<CloseReason>,
    at_end: AtEnd,
}

/// Fate of the queue pair when its end [fails](QpPosting::fail). In ERR, its device does not answer
/// the peer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// It stays as it is.
    Answers,
    /// ERR, unless one of the ends has closed the connection.
    ErrUnlessClosed,
    /// ERR.
    Err,
}

/// A request that was staged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Staged {
    pub(crate) id: WrId,
    pub(crate) is_signalled: bool,
}

/// Returns the id of a request for which room was counted.
///
/// # Errors
/// It was not staged: a bug of ours.
#[inline]
pub(crate) fn in_room(staged: Option<Staged>) -> Result<WrId, CloseReason> {
    let full = || internal_error(StageError::QueueFull);
    staged.map(|staged| staged.id).ok_or_else(full)
}

/// Implements the methods of a trait that give a field: shared, and mutable.
macro_rules! field {
    ($field:ident, $field_mut:ident: $of:ty) => {
        #[inline]
        fn $field(&self) -> &$of {
            &self.$field
        }

        #[inline]
        fn $field_mut(&mut self) -> &mut $of {
            &mut self.$field
        }
    };
}

pub(crate) use field;

impl QpPosting {
    pub(crate) fn new(
        control: ConnectedQp,
        queue: SendQueue,
        tracker: Tracker,
        at_end: AtEnd,
    ) -> QpPosting {
        QpPosting { control, queue, tracker, ended: None, at_end }
    }

    pub(crate) fn qp(&self) -> &ConnectedQp {
        &self.control
    }

    pub(crate) fn qp_num(&self) -> u32 {
        self.control.qp_num()
    }

    #[inline]
    pub(crate) fn queue_id(&self) -> QueueId {
        self.queue.queue_id()
    }

    #[inline]
    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// The queue itself, to stage requests that were [planned](Self::plan).
    #[inline]
    pub(crate) fn queue_mut(&mut self) -> &mut SendQueue {
        &mut self.queue
    }

    /// Requests that the queue has executed, or has yet to execute.
    pub(crate) fn posted_total(&self) -> u64 {
        self.queue.posted_total()
    }

    /// Returns the reason why it has ended, if it has.
    #[inline]
    pub(crate) fn ended(&self) -> Option<&CloseReason> {
        self.ended.as_ref()
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<(), CloseReason> {
        match &self.ended {
            None => Ok(()),
            Some(ended) => Err(ended.clone()),
        }
    }

    /// Requests of data that may be staged.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.tracker.available(WrClass::Data)
    }

    /// Requests of any class that may be staged.
    #[inline]
    pub(crate) fn control_room(&self) -> u32 {
        self.tracker.available(WrClass::Control)
    }

    #[inline]
    pub(crate) fn is_complete(&self, id: WrId) -> bool {
        self.tracker.is_complete(id)
    }

    /// Reports whether the request has completed, or will without another one being posted.
    #[inline]
    pub(crate) fn will_complete(&self, id: WrId) -> bool {
        self.tracker.will_complete(id)
    }

    /// The id of the request that is staged next.
    #[inline]
    pub(crate) fn next_id(&self) -> WrId {
        self.tracker.next_id()
    }

    /// The last id that is known to be complete.
    pub(crate) fn last_completed(&self) -> WrId {
        self.tracker.last_completed()
    }

    /// Requests that are not known to be complete.
    pub(crate) fn outstanding(&self) -> u32 {
        self.tracker.outstanding()
    }

    /// Reports whether a completion will come without more requests.
    #[inline]
    pub(crate) fn awaits_completion(&self) -> bool {
        self.tracker.signalled_outstanding()
    }

    /// The memory that the next request goes out of.
    #[inline]
    pub(crate) fn slot(&mut self) -> Option<&mut [u8]> {
        self.queue.next_slot()
    }

    /// Plans the next request to stage; `None` if the queue has no room for this class. It is
    /// signalled if it is `awaited`.
    // Always inlined: this is a large part of the cost of a short message.
    #[inline(always)]
    pub(crate) fn plan(&mut self, class: WrClass, awaited: bool) -> Option<Planned> {
        let planned = match awaited {
            true => self.tracker.plan_signalled(class),
            false => self.tracker.plan(class),
        };
        planned.ok()
    }

    /// Stages a request; `None` if the queue has no room for one of this class.
    ///
    /// # Errors
    /// It has ended, or ends by this.
    #[inline]
    pub(crate) fn stage(
        &mut self,
        op: SendOp,
        class: WrClass,
        awaited: bool,
    ) -> Result<Option<Staged>, CloseReason> {
        self.stage_by(class, awaited, |queue, signalled| queue.stage(op, signalled))
    }

    /// As [`stage`](Self::stage), with all flags: of a request that is awaited if they say that it is
    /// signalled.
    ///
    /// # Errors
    /// It has ended, or ends by this.
    #[inline]
    pub(crate) fn stage_with(
        &mut self,
        op: SendOp,
        flags: SendFlags,
        class: WrClass,
    ) -> Result<Option<Staged>, CloseReason> {
        self.stage_by(class, flags.signalled, |queue, signalled| {
            queue.stage_with(op, SendFlags { signalled, ..flags })
        })
    }

    /// As [`stage`](Self::stage), with bytes at `offset` of memory that was lent to the queue.
    ///
    /// # Errors
    /// It has ended, or ends by this.
    #[inline]
    pub(crate) fn stage_lent(
        &mut self,
        (loan, offset): (LoanId, u64),
        op: SendOp,
        class: WrClass,
        awaited: bool,
    ) -> Result<Option<Staged>, CloseReason> {
        self.stage_by(class, awaited, |queue, signalled| {
            let flags = SendFlags { signalled, ..SendFlags::default() };
            queue.stage_lent(loan, offset as usize, op, flags)
        })
    }

    /// As [`stage`](Self::stage), with bytes at `offset` of a region. A fenced request waits for
    /// the READs and atomics before it.
    ///
    /// # Errors
    /// It has ended, or ends by this.
    pub(crate) fn stage_at(
        &mut self,
        (region, offset): (RegionId, u64),
        op: SendOp,
        fence: bool,
        class: WrClass,
        awaited: bool,
    ) -> Result<Option<Staged>, CloseReason> {
        self.stage_by(class, awaited, |queue, signalled| {
            let flags = SendFlags { signalled, fence, ..SendFlags::default() };
            queue.stage_at(region, offset as usize, op, flags)
        })
    }

    /// As [`stage`](Self::stage), of a WRITE of words and their checksum, which go out of a slot.
    ///
    /// # Errors
    /// It has ended, or ends by this.
    pub(crate) fn stage_words(
        &mut self,
        words: &[u64],
        remote: RemoteSpan,
        class: WrClass,
        awaited: bool,
    ) -> Result<Option<Staged>, CloseReason> {
        let put = self.slot().and_then(|slot| checked::put(words, slot));
        let op = SendOp::Write { len: remote.len as u32, remote };
        put.map_or(Ok(None), |()| self.stage(op, class, awaited))
    }

    #[inline]
    fn stage_by(
        &mut self,
        class: WrClass,
        awaited: bool,
        stage: impl FnOnce(&mut SendQueue, bool) -> Result<(), StageError>,
    ) -> Result<Option<Staged>, CloseReason> {
        self.check()?;
        let Some(planned) = self.plan(class, awaited) else { return Ok(None) };
        match stage(&mut self.queue, planned.signalled) {
            Ok(()) => Ok(Some(Staged { id: planned.id, is_signalled: planned.signalled })),
            Err(e) => Err(self.fail(internal_error(e))),
        }
    }

    /// Begins a run, as [`SendQueue::open_run`]: only its last SEND may be signalled.
    /// [`book`](Self::book) earlier requests before.
    #[inline]
    pub(crate) fn open_run(&mut self, most: u32, max_len: usize) {
        let most = most.min(self.tracker.run(WrClass::Data));
        self.queue.open_run(most, max_len);
    }

    /// Requests that were staged in a run and are not [booked](Self::book) yet: all others are
    /// planned when they are staged.
    #[inline]
    pub(crate) fn unbooked(&self) -> u32 {
        (self.queue.staged_total() + 1 - self.tracker.next_id().0) as u32
    }

    /// Plans the requests staged in a run, and returns their number. Call it before anything else
    /// is staged or posted.
    #[inline]
    pub(crate) fn book(&mut self) -> u32 {
        let staged = self.unbooked();
        if staged > 0 {
            let planned = self.tracker.plan_run(WrClass::Data, staged);
            debug_assert!(planned.is_ok(), "there was room");
            if planned.is_ok_and(|planned| planned.signalled) {
                self.queue.signal_last();
            }
        }
        staged
    }

    /// Rings the doorbell for everything staged.
    ///
    /// # Errors
    /// It ends by this.
    // Always: the result would be returned by memory, for each message.
    #[inline(always)]
    pub(crate) fn post(&mut self) -> Result<(), CloseReason> {
        doorbell::ring(&mut self.queue).map_err(|e| self.fail(CloseReason::Device(e.to_string())))
    }

    /// Asks whether the peer's device still answers; `None` if the queue has no room for that: then
    /// it was asked already.
    ///
    /// # Errors
    /// It has ended, or ends by this.
    pub(crate) fn probe(&mut self) -> Result<Option<WrId>, CloseReason> {
        let staged = self.stage(PROBE, WrClass::Control, true)?;
        self.post()?;
        Ok(staged.map(|staged| staged.id))
    }

    /// Takes a completion of this queue, and returns how many requests are retired in all. A request
    /// that has failed is retired, too.
    ///
    /// # Errors
    /// The reason why it ends; the caller may have something to look at before it
    /// [fails](Self::fail).
    // Always: the result would be returned by memory, for each completion.
    #[inline(always)]
    pub(crate) fn retire(&mut self, completion: &Completion<'_>) -> Result<u64, CloseReason> {
        let retired = self.queue.retire(completion).ok();
        if let Some(error) = completion.error() {
            return Err(CloseReason::from(error));
        }
        let known = retired.filter(|number| self.tracker.complete(WrId(*number)).is_ok());
        known.ok_or(CloseReason::Protocol(ProtocolError::Completion))
    }

    /// Waits for no completion any more: one has failed, and the others follow.
    pub(crate) fn give_up(&mut self) {
        let last = WrId(self.tracker.next_id().0 - 1);
        let _ = self.tracker.complete_failed(last);
    }

    /// Ends it, unless it has ended already: the reason that holds.
    #[cold]
    pub(crate) fn fail(&mut self, reason: CloseReason) -> CloseReason {
        self.queue.close_run();
        let goes_to_err = match self.at_end {
            AtEnd::Answers => false,
            AtEnd::ErrUnlessClosed => !reason.is_close(),
            AtEnd::Err => true,
        };
        if self.ended.is_none() && goes_to_err {
            // In ERR, our device does not answer the peer's probes any more.
            if let Err(e) = self.control.to_error() {
                tracing::debug!(qp = self.qp_num(), error = %e, "not moved to ERR");
            }
        }
        self.ended.get_or_insert(self.control.explain(reason)).clone()
    }

    /// Ends it as closed, unless it has ended already. Its device goes on answering the peer.
    pub(crate) fn close(&mut self) {
        self.queue.close_run();
        self.ended.get_or_insert(CloseReason::Closed);
    }
}
