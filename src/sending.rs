//! A sending half: tickets, acknowledgements, waits, the close. A protocol adds the transfer of its
//! messages, and their acknowledgement ([`Sends`], [`Driving`]).

use std::fmt::Debug;
use std::time::Duration;

use conn_core::wr::WrId;

use crate::arm::Arm;
use crate::error::{CloseReason, Full, SendError};
use crate::half::driven;
use crate::keepalive::{KeepaliveDue, SILENT};
use crate::posting::QpPosting;
use crate::ticket::{Ticket, sender_number};
use crate::wait::{Deadline, Idle};
use crate::waiting::{CqWaiting, WaitFor, Waits};
use crate::wire::ConnectedQp;

/// The part that every sender has: its queue pair, its waits, and its number.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) posting: QpPosting,
    pub(crate) waiting: CqWaiting,
    pub(crate) number: u32,
    /// True if accepted messages wait for a flush ([`batch`](crate::SendHalf::batch)).
    pub(crate) gathers: bool,
}

impl Half {
    pub(crate) fn new(posting: QpPosting, waiting: CqWaiting) -> Half {
        Half { posting, waiting, number: sender_number(), gathers: false }
    }

    /// The ticket of the message with this number.
    #[inline]
    pub(crate) fn ticket(&self, number: u64) -> Ticket {
        Ticket { sender: self.number, number }
    }

    fn is_open(&self) -> bool {
        self.posting.ended().is_none()
    }
}

/// A sender, which waits and says goodbye by the calls below.
pub(crate) trait Sends: Debug + Sized {
    fn half(&self) -> &Half;
    fn half_mut(&mut self) -> &mut Half;

    /// Takes completions and the receiver's writes, in a wait; returns the number of new events.
    fn progress(&mut self) -> Result<usize, SendError>;

    /// As [`progress`](Self::progress), in a call that does not wait.
    fn look_around(&mut self) -> Result<usize, SendError> {
        self.progress()
    }

    /// As [`look_around`](Self::look_around) before a sleep; counts every event that the caller may
    /// wait for, because the channel rings only once.
    fn last_look(&mut self) -> Result<usize, SendError> {
        self.look_around()
    }

    /// Makes sure, before a sleep, that an event will end it.
    fn request_wakeup(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Reports whether a completion will end a sleep.
    fn will_be_woken(&self) -> bool {
        true
    }

    /// A number that changes with each sign of life of the receiver, and each probe.
    fn heard(&self) -> u64;

    /// Messages that were accepted and not posted yet.
    fn gathered(&self) -> u64 {
        0
    }

    /// The number of the last message that was accepted.
    fn last(&self) -> u64;

    /// Reports whether the message of this number is acknowledged, as far as is known.
    fn was_acked(&self, number: u64) -> bool;

    /// Sends accepted messages, as far as there is room; `awaited` if the caller is going to wait
    /// for their acknowledgement.
    fn push_all(&mut self, awaited: bool) -> Result<(), SendError>;

    /// Event that acknowledges the message.
    fn awaits(&self, _number: u64) -> WaitFor {
        WaitFor::Completion
    }

    /// Event that makes room where this is full.
    fn awaits_room(&self, _full: Full) -> WaitFor {
        self.awaits(self.last())
    }

    /// Makes sure that an acknowledgement of the message will come.
    fn nudge(&mut self, _number: u64) -> Result<(), SendError> {
        Ok(())
    }

    /// Prepares a wait for the message, which is not acknowledged.
    fn before_wait(&mut self, _number: u64) -> Result<(), SendError> {
        Ok(())
    }

    /// Prepares a wait for all accepted messages.
    fn before_drain(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Sends accepted messages, unless the half has ended, and polls for the acknowledgement of the
    /// message, which will come.
    fn ask_for(&mut self, _number: u64) -> Result<(), SendError> {
        Ok(())
    }

    /// Waits for all acknowledgements, which precede the goodbye.
    fn before_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain_until(deadline)
    }

    /// Stages the goodbye, in a request that is awaited. Where there is no room for it
    /// ([`SendError::Full`]), a completion makes some.
    fn stage_goodbye(&mut self) -> Result<WrId, SendError>;

    /// Reports whether the peer has the goodbye, which is this request.
    fn has_said_goodbye(&self, goodbye: WrId) -> bool {
        self.half().posting.is_complete(goodbye)
    }

    /// Asks whether the peer's device still answers.
    fn ask_peer(&mut self) -> Result<(), SendError> {
        self.half_mut().posting.probe()?;
        Ok(())
    }

    /// In calls that do not wait: detects a lost peer, and probes a silent receiver while the
    /// program sends nothing either. The caller checks whether this has ended the half.
    #[inline]
    fn look_after_peer(&mut self) -> Result<(), SendError> {
        match self.half_mut().waiting.look() {
            KeepaliveDue::No => Ok(()),
            look => self.look_after_peer_now(look),
        }
    }

    #[cold]
    fn look_after_peer_now(&mut self, look: KeepaliveDue) -> Result<(), SendError> {
        if !self.half().is_open() {
            return Ok(());
        }
        self.look_around()?;
        let heard = self.heard();
        let half = self.half_mut();
        let is_silent = look == KeepaliveDue::Round && half.waiting.watch.is_silent(heard);
        if is_silent && half.is_open() && !half.posting.awaits_completion() {
            tracing::debug!(qp = half.posting.qp_num(), "{SILENT}");
            self.ask_peer()?;
        }
        Ok(())
    }

    /// Reports whether the ticket is one of this sender's.
    fn is_known(&self, ticket: Ticket) -> bool {
        ticket.sender == self.half().number && ticket.number <= self.last()
    }

    fn is_acked_now(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if !self.was_acked(ticket.number) {
            // If this ends the sender, the check below still sees earlier acknowledgements.
            let _ = self.ask_for(ticket.number);
        }
        match (self.was_acked(ticket.number), self.half().posting.ended()) {
            (true, _) => Ok(true),
            (false, Some(ended)) => Err(ended.clone().into()),
            (false, None) => Ok(false),
        }
    }

    /// Waits until the message of `ticket` is acknowledged.
    fn acked_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        // Checked first: a later message would get the ticket's number.
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if self.was_acked(ticket.number) {
            return Ok(());
        }
        self.before_wait(ticket.number)?;
        let mut idle = self.half_mut().waiting.idle(deadline);
        while !self.is_acked_now(ticket)? {
            let what = self.awaits(ticket.number);
            match self.await_news(&mut idle, what) {
                // The end may acknowledge the message: the loop checks once more.
                Err(SendError::Ended(_)) => {}
                waited => waited?,
            }
        }
        Ok(())
    }

    /// Waits until all accepted messages are acknowledged.
    fn drain_until(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.before_drain()?;
        let last = self.half().ticket(self.last());
        self.acked_until(last, deadline)
    }

    /// Takes new events, and waits a little if there are none.
    fn await_news(&mut self, idle: &mut Idle, what: WaitFor) -> Result<(), SendError> {
        let completed = self.half().posting.last_completed();
        let events = self.progress()?;
        let posting = &self.half().posting;
        if events == 0 {
            posting.check()?;
        }
        // The caller may wait for a completion that does not count as an event.
        let what = if posting.last_completed() == completed { what } else { WaitFor::Known };
        let waited = self.wait_a_little(idle, events, what, |sender| {
            Ok((sender.last_look()? > 0).then_some(()))
        });
        waited.map(drop)
    }

    /// Returns the event to wait for: room, which nothing announces (`by_word`), or an
    /// acknowledgement, which a completion announces.
    fn arm_by(
        &mut self,
        by_word: impl FnOnce(&mut Self) -> Result<bool, SendError>,
    ) -> Result<Arm<'_>, SendError> {
        self.half().posting.check()?;
        self.half_mut().waiting.disarm().map_err(|reason| self.fail(reason))?;
        self.push_all(true)?;
        let is_announced = !by_word(self)? && self.half().waiting.channel.is_some();
        if is_announced {
            self.nudge(self.last())?;
            self.request_wakeup()?;
            self.half_mut().waiting.arm_loop().map_err(|reason| self.fail(reason))?;
        }
        let events = self.look_around()?;
        if self.half_mut().waiting.is_silent(events) {
            self.ask_peer()?;
        }
        if events > 0 {
            return Ok(Arm::Ready);
        }
        self.half().posting.check()?;
        let has_event = is_announced && self.will_be_woken();
        let waiting = &mut self.half_mut().waiting;
        let keepalive = waiting.common.keepalive;
        if has_event { Ok(waiting.event(None, keepalive)?) } else { Ok(waiting.no_event()) }
    }

    /// Delivers accepted messages, and says goodbye.
    fn say_goodbye_by(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.before_goodbye(deadline)?;
        self.half().posting.check()?;
        let mut idle = self.half_mut().waiting.idle(deadline);
        let goodbye = loop {
            match self.stage_goodbye() {
                Err(SendError::Full(_)) => self.await_news(&mut idle, WaitFor::Completion)?,
                staged => break staged?,
            }
        };
        self.half_mut().posting.post()?;
        let what = self.awaits(self.last());
        while !self.has_said_goodbye(goodbye) {
            let waited = self.await_news(&mut idle, what);
            // A probe behind the goodbye may fail after the receiver has left: this is no error.
            waited.or_else(|e| if self.has_said_goodbye(goodbye) { Ok(()) } else { Err(e) })?;
        }
        self.half_mut().posting.close();
        Ok(())
    }

    /// As [`say_goodbye_by`](Self::say_goodbye_by). The half has ended then, also where time was
    /// up. A peer that closes at the same time is no error.
    fn leave(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let said = self.say_goodbye_by(deadline);
        self.half_mut().posting.close();
        match said {
            Err(SendError::Ended(CloseReason::Closed)) => Ok(()),
            said => said,
        }
    }

    /// Dropping it says goodbye, for a while.
    fn end(&mut self) {
        if !self.half().is_open() {
            return;
        }
        let deadline = Deadline::after(self.half().waiting.common.linger);
        if let Err(e) = self.leave(deadline) {
            let qp = self.half().posting.qp_num();
            tracing::warn!(qp, error = %e, "sender dropped before all was delivered");
        }
    }
}

impl<S: Sends> Waits for S {
    type Error = SendError;

    fn waiting(&self) -> &CqWaiting {
        &self.half().waiting
    }

    fn waiting_mut(&mut self) -> &mut CqWaiting {
        &mut self.half_mut().waiting
    }

    #[cold]
    fn fail(&mut self, reason: CloseReason) -> SendError {
        self.half_mut().posting.fail(reason).into()
    }

    fn ask(&mut self) -> Result<(), SendError> {
        tracing::debug!(qp = self.half().posting.qp_num(), "{SILENT}");
        self.ask_peer()
    }

    fn timed_out(&self) -> SendError {
        SendError::TimedOut { unflushed: self.gathered() }
    }

    fn before_sleep(&mut self, most: Duration) -> Result<Duration, SendError> {
        self.request_wakeup().map(|()| most)
    }

    fn sleep_time(&self, most: Duration) -> Option<Duration> {
        self.will_be_woken().then_some(most)
    }
}

/// A sender that accepts messages of the program's.
pub(crate) trait Driving: Sends {
    /// Checks that a message of `bytes` bytes has room now: [`SendError::Full`] if it has none.
    fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError>;

    /// The error of a message up to this one that was acknowledged, and refused.
    fn check_outcome(&self, _number: u64) -> Result<(), SendError> {
        Ok(())
    }

    /// Turns gathering of accepted messages on or off; returns the setting before.
    fn set_gathers(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.half_mut().gathers, on)
    }

    /// A wait for room has found this full. True if that is, or was before (`stalled`), a stall
    /// that its counters tell of.
    fn on_stall(&mut self, _full: Full, _stalled: bool, _idle: &mut Idle) -> bool {
        false
    }

    /// A wait for room is over; `counts` if it was a stall, and has its result.
    fn end_stall(&mut self, _counts: bool) {}

    /// Reports whether room is awaited, for a message of up to `longest` bytes, and no
    /// acknowledgement.
    fn awaits_word(&mut self, longest: usize) -> Result<bool, SendError> {
        let last = self.last();
        match self.look_for_room(longest) {
            Ok(()) => Ok(self.was_acked(last)),
            Err(SendError::Full(_)) => Ok(true),
            Err(ended) => Err(ended),
        }
    }
}

impl<S: Driving> driven::Sender for S {
    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        let (mut idle, mut stalled) = (self.half_mut().waiting.idle(deadline), false);
        let found = loop {
            let full = match self.look_for_room(bytes) {
                Err(SendError::Full(full)) => full,
                found => break Ok(found),
            };
            stalled = self.on_stall(full, stalled, &mut idle);
            let what = self.awaits_room(full);
            if let Err(e) = self.await_news(&mut idle, what) {
                break Err(e);
            }
        };
        self.end_stall(stalled && found.is_ok());
        found?
    }

    fn gather(&mut self, on: bool) -> bool {
        let before = self.set_gathers(on);
        if !on && self.half().is_open() {
            // A failure ends the half, and the next call reports it.
            let _ = self.push_all(false);
        }
        before
    }

    fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        self.acked_until(ticket, deadline)?;
        self.check_outcome(ticket.number)
    }

    fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.drain_until(deadline)?;
        self.check_outcome(self.last())
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.say_goodbye_by(deadline)
    }

    fn qp(&self) -> &ConnectedQp {
        self.half().posting.qp()
    }

    fn abandon(&mut self) {
        self.half_mut().posting.close();
    }
}
