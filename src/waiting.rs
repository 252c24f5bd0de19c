//! Waits of a half: the queue that it polls, the channel that it sleeps on, the times at which it
//! looks after its peers ([`CqWaiting`]), and the one way in which every half waits ([`Waits`]).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use verbs_safe::{Armed, CompletionChannel, CompletionQueue};

use crate::arm::{Arm, Arming};
use crate::common::Common;
use crate::device::Device;
use crate::error::{CloseReason, ConnectError};
use crate::keepalive::{KeepaliveDue, PeerWatch};
use crate::wait::{Deadline, Idle, Silence, WaitStep, poll_after};
use crate::wire::completion_queue;

/// A half's completion queue, and the state of its waits from one to the next.
#[derive(Debug)]
pub(crate) struct CqWaiting {
    pub(crate) common: Common,
    pub(crate) cq: CompletionQueue,
    /// `None` where nothing announces completions: the half polls.
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) watch: PeerWatch,
    arming: Arming,
    silence: Silence,
}

impl CqWaiting {
    /// Makes a queue of `entries` entries, with a channel if the half may sleep.
    pub(crate) fn create(
        device: &Device,
        entries: u32,
        common: Common,
    ) -> Result<CqWaiting, ConnectError> {
        let (cq, channel) = completion_queue(device, entries, common.wait)?;
        let (watch, arming, silence) =
            (PeerWatch::default(), Arming::default(), Silence::default());
        Ok(CqWaiting { common, cq, channel, watch, arming, silence })
    }

    /// The work for the peers in a call that does not wait.
    #[inline]
    pub(crate) fn look(&mut self) -> KeepaliveDue {
        self.watch.look(self.common.keepalive)
    }

    /// True if a round of probes is due: it begins now.
    pub(crate) fn begins_round(&mut self) -> bool {
        self.watch.begins_round(self.common.keepalive)
    }

    /// The time until the next round.
    pub(crate) fn left(&self) -> Duration {
        self.watch.left(self.common.keepalive)
    }
}

/// Waits.
impl CqWaiting {
    /// The idle time of a wait, which continues the silence of one that timed out before it.
    pub(crate) fn idle(&mut self, deadline: Deadline) -> Idle {
        let idle = Idle::new(self.common.wait, deadline, self.common.keepalive);
        idle.resume(&mut self.silence)
    }

    /// A wait has timed out: the next one continues its silence.
    pub(crate) fn time_out(&mut self, idle: &Idle) {
        self.silence = idle.silence();
    }

    /// Requests an event for the next completion: [`wait`](Self::wait) for it.
    pub(crate) fn arm(&self) -> Result<Armed, CloseReason> {
        self.cq.arm(false).map_err(CloseReason::device)
    }

    /// Sleeps until a completion or `wakeup`, at most so long. Nothing would wake a half without a
    /// channel: it does not sleep here.
    pub(crate) fn wait(
        &self,
        armed: &Armed,
        wakeup: Option<BorrowedFd<'_>>,
        most: Duration,
    ) -> Result<(), CloseReason> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let woken = channel.wait_with(&[armed], wakeup.as_slice(), Some(most));
        woken.map(drop).map_err(CloseReason::device)
    }
}

/// Event loops of the program's own.
impl CqWaiting {
    /// Takes the event of the last arming.
    pub(crate) fn disarm(&mut self) -> Result<(), CloseReason> {
        self.arming.disarm(self.channel.as_ref()).map_err(CloseReason::device)
    }

    /// Requests an event for the next completion, for [`event`](Self::event).
    pub(crate) fn arm_loop(&mut self) -> Result<(), CloseReason> {
        let armed = self.arm()?;
        self.arming.note(armed);
        Ok(())
    }

    /// Reports whether nothing has arrived for a keepalive interval, once in each interval;
    /// `events` events have arrived since the last call.
    pub(crate) fn is_silent(&mut self, events: usize) -> bool {
        self.arming.is_silent(events, self.common.keepalive)
    }

    /// The descriptor of its channel and of `wakeup`, readable `within` a time; a time to poll
    /// after where there is no channel.
    pub(crate) fn event(
        &mut self,
        wakeup: Option<BorrowedFd<'_>>,
        within: Duration,
    ) -> Result<Arm<'_>, CloseReason> {
        let Some(channel) = &self.channel else { return Ok(self.no_event()) };
        let descriptor = self.arming.descriptor(channel, wakeup, within);
        descriptor.map(Arm::Fd).map_err(CloseReason::device)
    }

    /// Has the program poll.
    pub(crate) fn no_event(&self) -> Arm<'static> {
        Arm::Poll(poll_after(self.common.wait))
    }
}

/// Event that a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Completions, which ring the channel.
    Completion,
    /// Words that the peer writes, which ring nothing.
    Word,
    /// Words that the peer writes when it has read: as it may be quick, sleeps begin short.
    Read,
    /// An event that may have arrived already: then no later event may end a sleep.
    Known,
}

/// A half that waits.
pub(crate) trait Waits: Sized {
    /// Reason why a wait ends without its event.
    type Error;

    fn waiting(&self) -> &CqWaiting;
    fn waiting_mut(&mut self) -> &mut CqWaiting;

    /// Ends the half, unless it has ended already: the reason that holds.
    fn fail(&mut self, reason: CloseReason) -> Self::Error;

    /// Probes the peers after a silent keepalive interval.
    fn ask(&mut self) -> Result<(), Self::Error>;

    /// The error of a wait that timed out.
    fn timed_out(&self) -> Self::Error;

    /// Looks on, in a wait that does not sleep yet.
    fn look_on(&mut self) {}

    /// Prepares a sleep of at most `most`; returns the time that it may take.
    fn before_sleep(&mut self, most: Duration) -> Result<Duration, Self::Error> {
        Ok(most)
    }

    /// The time to sleep, at most `most`, now that the last look has found nothing; `None` if
    /// there is no sleep now.
    fn sleep_time(&self, most: Duration) -> Option<Duration> {
        Some(most)
    }

    /// A descriptor that ends a sleep when it is readable, besides completions.
    fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the events that have ended a sleep.
    fn woken(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Takes back an announcement made [before a sleep](Self::before_sleep), or in the last look.
    fn after_sleep(&mut self) {}

    /// Waits a little: spins, sleeps, probes, or times out. `events` is the number of events since
    /// the last call. Returns the result of the last look before a sleep.
    fn wait_a_little<T>(
        &mut self,
        idle: &mut Idle,
        events: usize,
        what: WaitFor,
        last_look: impl FnOnce(&mut Self) -> Result<Option<T>, Self::Error>,
    ) -> Result<Option<T>, Self::Error> {
        match (idle.after(events), what) {
            (WaitStep::Again, _) => self.look_on(),
            (WaitStep::Sleep(_), WaitFor::Known) => {}
            (WaitStep::Sleep(time), WaitFor::Word) => {
                return self.sleep(idle.word_sleep(time), last_look);
            }
            (WaitStep::Sleep(time), WaitFor::Read) => {
                return self.sleep(idle.short_sleep(time), last_look);
            }
            (WaitStep::Sleep(time), WaitFor::Completion) => {
                return self.sleep(time, last_look);
            }
            (WaitStep::Probe, _) => self.ask()?,
            (WaitStep::TimedOut, _) => {
                self.waiting_mut().time_out(idle);
                return Err(self.timed_out());
            }
        }
        Ok(None)
    }

    /// Arms the queue, looks once more, and sleeps. A completion that comes between the look and
    /// the sleep rings the channel; a word rings nothing, so that waiting for one polls. Where there
    /// is no channel, it just sleeps.
    fn sleep<T>(
        &mut self,
        most: Duration,
        last_look: impl FnOnce(&mut Self) -> Result<Option<T>, Self::Error>,
    ) -> Result<Option<T>, Self::Error> {
        let most = self.before_sleep(most)?;
        let slept = if self.waiting().channel.is_some() {
            self.sleep_armed(most, last_look)
        } else {
            host::time::sleep(most);
            Ok(None)
        };
        self.after_sleep();
        slept
    }

    fn sleep_armed<T>(
        &mut self,
        most: Duration,
        last_look: impl FnOnce(&mut Self) -> Result<Option<T>, Self::Error>,
    ) -> Result<Option<T>, Self::Error> {
        let armed = self.waiting().arm().map_err(|reason| self.fail(reason))?;
        if let Some(found) = last_look(self)? {
            return Ok(Some(found));
        }
        let Some(time) = self.sleep_time(most) else { return Ok(None) };
        let slept = self.waiting().wait(&armed, self.wakeup(), time);
        slept.map_err(|reason| self.fail(reason))?;
        self.woken().map(|()| None)
    }
}
