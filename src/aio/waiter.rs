//! How a half waits on the reactor.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use verbs_safe::Readable;

use crate::arm::{Arm, start, timer};
use crate::error::CloseReason;

/// What a half waits by. Its descriptors are registered when they are first needed.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    /// A copy of the half's own descriptor, which is always the same one.
    descriptor: Option<Readable>,
    /// For a half that no event tells of what it waits for. (The runtime's timers have a
    /// resolution of a millisecond.)
    timer: Option<Readable>,
    /// Looks since something was found.
    looks: u32,
    /// Sleeps since something was found that only a look could end.
    naps: u32,
    /// What was found since the task has last let others run.
    streak: u32,
}

impl Waiter {
    /// Looks that find nothing before the half is armed, which takes system calls: meanwhile the
    /// task lets others run, which may be its peer.
    const LOOKS: u32 = 16;
    /// What a task may find before it lets others run.
    const STREAK: u32 = 64;
    /// The first sleep of a half that no event tells of what it waits for; each further one is
    /// twice as long, up to what its [`Arm::Poll`] says.
    const FIRST_NAP: Duration = Duration::from_micros(5);

    /// Something was found.
    pub(super) fn found(&mut self) {
        (self.looks, self.naps) = (0, 0);
        self.streak += 1;
    }

    /// Lets other tasks run after many calls that have found something at once.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.streak < Self::STREAK { Poll::Ready(()) } else { self.give_way(cx) }
    }

    fn give_way<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.streak = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Nothing was found: ready when it is worth to look again.
    pub(super) fn poll<'h, E: From<CloseReason>>(
        &mut self,
        cx: &mut Context<'_>,
        arm: impl FnOnce() -> Result<Arm<'h>, E>,
    ) -> Poll<Result<(), E>> {
        if self.looks < Self::LOOKS {
            self.looks += 1;
            return self.give_way(cx);
        }
        self.streak = 0;
        let woken = match arm()? {
            Arm::Ready => return self.give_way(cx),
            Arm::Fd(descriptor) => {
                let new = || descriptor.try_clone_to_owned();
                registered(&mut self.descriptor, new)
            }
            Arm::Poll(most) => {
                let nap = Self::FIRST_NAP.saturating_mul(1 << self.naps.min(16));
                self.naps = self.naps.saturating_add(1);
                registered(&mut self.timer, timer)
                    .and_then(|timer| start(timer, nap.min(most)).map(|()| timer))
            }
        };
        let device = |e: io::Error| E::from(CloseReason::Device(e.to_string()));
        let woken = woken.map_err(device)?;
        // What comes from here on makes it ready again.
        woken.poll_became_readable(cx).map_err(device)
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
