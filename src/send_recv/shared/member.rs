//! A connection's part of a pool.

use std::sync::atomic::Ordering;

use conn_core::control::Control;
use conn_core::loan::{LoanGrantor, LoanWire};
use verbs_safe::{Completion, CompletionBatch, QueueId, RecvBuf, RecvPool, RecvRun, TakeError};

use super::SharedPool;
use super::config::Reposting;
use super::state::{LinkAddress, NO_MEMBER, SlotReturn, UNCOUNTED};
use crate::error::{CloseReason, ConnectError, ProtocolError, close_reason};

/// A connection's part of a pool: its buffers in use, and the credits of its sender.
#[derive(Debug)]
pub(crate) struct PoolMember {
    shared: SharedPool,
    /// A handle of its own, which takes references to the pool in bulk.
    pool: RecvPool<SlotReturn>,
    index: u32,
    /// The origin that is noted for the buffers of its messages.
    origin: u32,
    /// `None` in the uncontrolled mode.
    loans: Option<LoanGrantor>,
    /// The lender may have something for it.
    is_told: bool,
    /// It may be granted its share, when the receiver is idle: a busy one has a WANT coming.
    has_share_due: bool,
    /// Times that it was looked at while the receiver was idle, since something was due.
    idle_looks: u32,
    /// Buffers freed on the receiver's thread, gathered for one doorbell.
    own: Vec<u32>,
    /// True if they are gathered; otherwise they go the way of all others.
    gathers: bool,
    has_left: bool,
}

impl SharedPool {
    /// Adds a connection, with loans of up to `max_loan` credits, or without credits. Its
    /// notifications go to `address`.
    pub(crate) fn join(
        &self,
        address: &LinkAddress,
        max_loan: Option<u32>,
    ) -> Result<PoolMember, ConnectError> {
        let inner = &self.owner.inner;
        let index = inner.join(address, max_loan.unwrap_or(1))?;
        let gathers = inner.config.reposting == Reposting::Combining;
        Ok(PoolMember {
            pool: self.owner.pool.clone(),
            shared: self.clone(),
            index,
            origin: if max_loan.is_some() { index } else { UNCOUNTED | index },
            loans: max_loan.map(|_| LoanGrantor::new()),
            is_told: false,
            has_share_due: false,
            idle_looks: 0,
            own: Vec::new(),
            gathers,
            has_left: false,
        })
    }
}

impl PoolMember {
    /// The queue that receives complete as.
    pub(crate) fn queue_id(&self) -> QueueId {
        self.pool.queue_id()
    }

    /// Messages that may come.
    #[inline]
    pub(crate) fn expected(&self) -> u32 {
        self.loans.as_ref().map_or(u32::MAX, LoanGrantor::expected)
    }

    pub(crate) fn take_run(
        &mut self,
        batch: &mut CompletionBatch,
        most: u32,
        run: &mut RecvRun<SlotReturn>,
    ) -> u32 {
        let taken = self.pool.take_run(batch, most, run);
        let inner = &self.shared.owner.inner;
        run.slots().for_each(|slot| inner.set_origin(slot, self.origin));
        self.book(taken);
        taken
    }

    pub(crate) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        let buffer = self.pool.take_plain(completion)?;
        self.shared.owner.inner.set_origin(buffer.slot(), self.origin);
        self.book(1);
        Ok(buffer)
    }

    #[inline]
    fn book(&mut self, messages: u32) {
        if let Some(loans) = &mut self.loans {
            let booked = loans.on_receive_many(messages);
            debug_assert!(booked.is_ok(), "there was room, so there were credits");
        }
    }

    /// Takes the buffer of a completion that [`take`](Self::take) did not take, and posts it
    /// again at once: it brought a control message, or one that the sender may not send.
    pub(crate) fn take_control(&mut self, completion: Completion<'_>) -> Result<(), CloseReason> {
        let taken = self.pool.take_prepaid(completion);
        let slot = match taken {
            Ok(buffer) => {
                self.shared.owner.inner.set_origin(buffer.slot(), NO_MEMBER);
                self.pool.reclaim(buffer)
            }
            Err(e) => return Err(self.give_up(&e)),
        };
        slot.into_iter().for_each(|slot| self.shared.owner.inner.post(&[slot]));
        Ok(())
    }

    /// Reposts the buffer of a failed receive to the shared queue. Returns the reason for which the
    /// connection ends.
    #[cold]
    fn give_up(&mut self, error: &TakeError) -> CloseReason {
        if let Some(slot) = error.slot() {
            // It had no message of this member.
            self.shared.owner.inner.set_origin(slot, NO_MEMBER);
            self.shared.owner.inner.post(&[slot]);
        }
        close_reason(error)
    }

    /// Takes a buffer back on the receiver's thread. The buffer of another member's message is
    /// not gathered: its receiver may wait for it before this member gathers more.
    #[inline]
    pub(crate) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        if !self.gathers || !self.shared.owner.inner.is_origin(buffer.slot(), self.origin) {
            return drop(buffer);
        }
        if let Some(slot) = self.pool.reclaim(buffer) {
            self.own.push(slot);
            if self.own.len() >= self.shared.owner.inner.config.repost_batch as usize {
                self.post_own();
            }
        }
    }

    fn post_own(&mut self) {
        self.shared.owner.inner.post(&self.own);
        self.own.clear();
    }
}

/// Loans.
impl PoolMember {
    /// Idle looks after which a share is granted without a request: a sender that keeps
    /// sending asks before that, and gets a loan.
    const LOOKS_FOR_SHARE: u32 = 8;

    /// The sender asks for a loan; the buffer of that is posted again.
    pub(crate) fn want(&mut self) -> Result<(), ProtocolError> {
        let loans = self.loans.as_mut().ok_or(ProtocolError::Control(Control::Want.encode()))?;
        loans.on_want().map_err(ProtocolError::Want)?;
        self.shared.owner.inner.want(self.index);
        Ok(())
    }

    /// The sender gives credits back; the buffer of that is posted again.
    pub(crate) fn give_back(&mut self, wire: LoanWire) -> Result<(), ProtocolError> {
        let control = Control::Return(wire);
        let loans = self.loans.as_mut().ok_or(ProtocolError::Control(control.encode()))?;
        let credits = loans.on_return(wire).map_err(ProtocolError::Return)?;
        self.shared.owner.inner.give_back(self.index, credits);
        Ok(())
    }

    /// The lender may have something for it.
    pub(crate) fn tell(&mut self) {
        self.is_told = true;
    }

    /// The receiver is about to sleep, and settles once more before that: nothing waits.
    pub(crate) fn hurry(&mut self) {
        self.idle_looks = Self::LOOKS_FOR_SHARE;
    }

    /// Posts gathered buffers when the receiver is idle, or the sender has no credit; takes the
    /// lender's `Due` for this member. A due share that was not requested is granted after
    /// [`LOOKS_FOR_SHARE`](Self::LOOKS_FOR_SHARE) calls in which the receiver was idle, or at once
    /// when it is about to [sleep](Self::hurry). Returns true if more work is left for an idle
    /// receiver. A close of the sender does not wait for any of this.
    pub(crate) fn settle(&mut self, idle: bool) -> Result<bool, CloseReason> {
        // A sender that is out of credits waits for every single buffer, even while others
        // keep the receiver busy.
        if !self.own.is_empty() && (idle || self.expected() == 0) {
            self.post_own();
        }
        let inner = &self.shared.owner.inner;
        // Acquire: set before this member was notified.
        if inner.failed.load(Ordering::Acquire) {
            return Err(CloseReason::Device("the shared receive queue takes no buffers".into()));
        }
        let Some(loans) = &mut self.loans else { return Ok(!self.own.is_empty()) };
        if std::mem::take(&mut self.is_told) {
            loans.lend(inner.take_due(self.index));
            (self.has_share_due, self.idle_looks) = (true, 0);
        }
        self.idle_looks = self.idle_looks.saturating_add(u32::from(idle));
        self.has_share_due &= loans.unused() == 0 && !loans.is_wanting();
        if self.has_share_due && self.idle_looks >= Self::LOOKS_FOR_SHARE {
            self.has_share_due = false;
            if inner.take_share(self.index) {
                loans.restore_share();
            }
        }
        Ok(self.has_share_due || !self.own.is_empty())
    }

    /// The control message that is due to the sender.
    #[inline]
    pub(crate) fn due(&self) -> Option<Control> {
        self.loans.as_ref()?.due()
    }

    /// That was posted.
    pub(crate) fn mark_sent(&mut self, control: Control) {
        if let Some(loans) = &mut self.loans {
            loans.mark_sent(control);
        }
    }

    /// Posts gathered buffers; from now on none is gathered.
    pub(crate) fn post_gathered(&mut self) {
        self.gathers = false;
        if !self.own.is_empty() {
            self.post_own();
        }
    }

    /// Returns all buffers and credits that bring no message any more, once. Buffers of messages
    /// come back when these are freed; later arrivals belong to no member.
    pub(crate) fn leave(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        self.post_gathered();
        let unused = self.loans.as_ref().map_or(1, LoanGrantor::unused);
        self.shared.owner.inner.leave(self.index, unused);
    }
}

impl Drop for PoolMember {
    fn drop(&mut self) {
        self.leave();
    }
}
