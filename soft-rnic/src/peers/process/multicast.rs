//! The state of a process's part in multicast groups.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeSet;
use std::time::Instant;

use host::sync::{Condvar, Mutex};

/// The part of this process in the multicast groups of its user's processes.
#[derive(Debug, Default)]
pub(crate) struct Participation {
    pub(crate) meeting: Mutex<Meeting>,
    /// A meeting is over.
    pub(crate) is_over: Condvar,
    /// The marker is shown, and all that had one before have been introduced to.
    pub(crate) has_met: AtomicBool,
    /// A thread is making pairs. A process that has seen our introduction takes us for met,
    /// before it is among our pairs.
    pub(crate) is_taking_in: AtomicBool,
}

/// The state of meeting the others: one thread at a time does that, and holds no lock meanwhile.
///
/// ```text
///            an attachment, a message                all were introduced to
///   nothing ──────────────────────────> is_running ──────────────────────────> has_met
///      ▲                                    │
///      └────────────────────────────────────┘
///        some could not be: messages begin no other one for a while
/// ```
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    pub(crate) is_running: bool,
    /// Queue pairs, by their numbers, with a message that waits for the end of this meeting.
    pub(crate) waiting: BTreeSet<u32>,
    /// Some could not be introduced to: messages begin no other meeting until then.
    pub(crate) rests_until: Option<Instant>,
}

/// The next step for a message to a group that was not sent because others have to be met first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It proceeds: they have been met, or were tried to.
    GoesOn,
    /// It waits for the end of the meeting.
    Waits,
    /// The caller holds the meeting, for the end of which it waits.
    Begins,
}

impl Participation {
    /// Reports whether all processes that have members, and know that this one may send to them,
    /// are among its pairs.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        // Acquire: the pairs were made before.
        self.has_met.load(Ordering::Acquire) && !self.is_taking_in.load(Ordering::Acquire)
    }

    fn has_met(&self) -> bool {
        // Relaxed: it is set under the lock that the caller has.
        self.has_met.load(Ordering::Relaxed)
    }

    /// Begins a meeting, which the caller holds then; false if the others have been met. It waits
    /// while another thread holds one, and takes over where that one failed.
    pub(crate) fn begin(&self) -> bool {
        let mut meeting = self.meeting.lock();
        while meeting.is_running {
            self.is_over.wait(&mut meeting);
        }
        meeting.is_running = !self.has_met();
        meeting.is_running
    }

    /// Returns the next step for a message of a queue pair, without waiting.
    pub(crate) fn begin_for(&self, qpn: u32) -> Next {
        let mut meeting = self.meeting.lock();
        let rests = meeting.rests_until.is_some_and(|until| host::time::now() < until);
        if !meeting.is_running && (self.has_met() || rests) {
            return Next::GoesOn;
        }
        meeting.waiting.insert(qpn);
        if core::mem::replace(&mut meeting.is_running, true) { Next::Waits } else { Next::Begins }
    }

    /// The meeting of the caller is over; the result are the queue pairs that have waited for that.
    pub(crate) fn end(&self, has_met: bool, rests_until: Option<Instant>) -> BTreeSet<u32> {
        let mut meeting = self.meeting.lock();
        if has_met {
            // Release: see `is_settled`.
            self.has_met.store(true, Ordering::Release);
        }
        (meeting.is_running, meeting.rests_until) = (false, rests_until);
        self.is_over.notify_all();
        core::mem::take(&mut meeting.waiting)
    }
}
