//! Waiting of a half on the reactor.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use host::fd::{start_timer, timer};
use verbs_safe::Readable;

use crate::arm::Arm;
use crate::error::CloseReason;

/// State and descriptors by which a half waits. The descriptors are registered when they are first
/// needed.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    patience: Patience,
    /// Time of the first arming since something was found.
    armed_at: Option<Instant>,
    /// A copy of the half's own descriptor, which is always the same one.
    descriptor: Option<Readable>,
    /// For a half that waits without an event. (The runtime's timers have a resolution of a
    /// millisecond.)
    timer: Option<Readable>,
    /// Looks since something was found.
    looks: u32,
    /// Time when the first few of these looks had been made.
    looks_since: Option<Instant>,
    /// Times that something was found since the task last let others run.
    streak: u32,
}

impl Waiter {
    /// Times that a task may find something before it lets others run.
    const STREAK: u32 = 64;
    /// A half that waits without an event sleeps for this part of the time that it has waited, up
    /// to the limit of its [`Arm::Poll`]: it is late by no more than that.
    const NAPS: u32 = 4;
    /// The shortest such sleep.
    const FIRST_NAP: Duration = Duration::from_micros(5);

    /// Something was found.
    pub(super) fn found(&mut self) {
        self.looks = 0;
        self.streak += 1;
        if let Some(armed_at) = self.armed_at.take() {
            self.patience.slept(host::time::now().duration_since(armed_at));
        }
    }

    /// Lets other tasks run after many calls that have found something at once.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.streak < Self::STREAK { Poll::Ready(()) } else { self.give_way(cx) }
    }

    /// Reports whether the looks have taken longer than a short sleep. It reads the clock at few of
    /// them.
    fn looks_took_long(&mut self) -> bool {
        if self.looks < Patience::FIRST_EVENTS || !self.looks.is_power_of_two() {
            return false;
        }
        let now = host::time::now();
        if self.looks == Patience::FIRST_EVENTS {
            self.looks_since = Some(now);
        }
        self.looks_since.is_some_and(|since| now.duration_since(since) >= Patience::SHORT)
    }

    fn give_way<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.streak = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// As [`give_way`](Self::give_way), and the runtime polls the system for events of other tasks,
    /// which is a system call. While a task can run, the runtime rarely does so on its own, and
    /// this task may wait for one of those tasks.
    fn give_way_to_events<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.streak = 0;
        // Pending: the runtime has taken the waker.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        Poll::Pending
    }

    /// Waits after a look that found nothing: ready for the next look.
    pub(super) fn poll<'h, E: From<CloseReason>>(
        &mut self,
        cx: &mut Context<'_>,
        arm: impl FnOnce() -> Result<Arm<'h>, E>,
    ) -> Poll<Result<(), E>> {
        if self.looks < self.patience.looks && !self.looks_took_long() {
            self.looks += 1;
            return if self.looks >= Patience::FIRST_EVENTS && self.looks.is_power_of_two() {
                self.give_way_to_events(cx)
            } else {
                self.give_way(cx)
            };
        }
        self.streak = 0;
        self.armed_at.get_or_insert_with(host::time::now);
        let woken = match arm()? {
            Arm::Ready => return self.give_way(cx),
            Arm::Fd(descriptor) => {
                let new = || descriptor.try_clone_to_owned();
                registered(&mut self.descriptor, new)
            }
            Arm::Poll(most) => {
                let waited =
                    self.armed_at.map_or(Duration::ZERO, |at| host::time::now().duration_since(at));
                let nap = (waited / Self::NAPS).max(Self::FIRST_NAP);
                registered(&mut self.timer, timer)
                    .and_then(|timer| start_timer(timer, nap.min(most)).map(|()| timer))
            }
        };
        let device = |e: io::Error| E::from(CloseReason::Device(e.to_string()));
        let woken = woken.map_err(device)?;
        // Events from here on make it ready again.
        woken.poll_became_readable(cx).map_err(device)
    }
}

/// Looks that find nothing before the half is armed, which takes system calls. Between two looks
/// the task lets others run, which may be its peer.
///
/// A look takes about 0.1 µs, and a sleep several. A look that also flushes or drains takes
/// several, too, so there is a limit on their time. A half with short sleeps polls for longer,
/// until it sleeps no more. One with long sleeps soon polls as briefly as at first: many such
/// halves on a thread would leave no time for other tasks.
#[derive(Debug)]
struct Patience {
    looks: u32,
}

impl Patience {
    const LEAST: u32 = 4;
    /// The first look after which the runtime polls the system; the next ones are at each doubling
    /// of this number.
    const FIRST_EVENTS: u32 = 8;
    const MOST: u32 = 512;
    /// A sleep that more looks would have saved: they would take no longer.
    const SHORT: Duration = Duration::from_micros(50);

    fn slept(&mut self, time: Duration) {
        self.looks = if time < Self::SHORT {
            (2 * self.looks).min(Self::MOST)
        } else {
            (self.looks / 2).max(Self::LEAST)
        };
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { looks: Self::LEAST }
    }
}

/// A descriptor on the reactor of the runtime that runs the task.
fn registered(
    slot: &mut Option<Readable>,
    new: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<&Readable> {
    let registered = match slot.take() {
        Some(registered) => registered,
        None => Readable::new(new()?)?,
    };
    Ok(slot.insert(registered))
}

#[cfg(test)]
mod tests;
