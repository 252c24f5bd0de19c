//! The meeting in which a process that begins to use multicast groups meets the others that do.
//!
//! They may be stopped, so that it takes until a deadline. A thread of the program does it itself
//! where it attaches a queue pair, or where a message to a group is the first: it posts, or its
//! poll resumes that message. Threads that others rely on leave it to one that may wait. While a
//! meeting is under way, other messages wait for its end at the heads of their queues, and no
//! thread does: it may be the one that holds the meeting, and resumes them.

use std::sync::Arc;
use std::time::Duration;

use host::sync::Mutex;
use rustix::io::Errno;

use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, PeerProcesses, Qp};
use crate::queues::outcome::WaitCause;

use crate::peers::process::directory::INDEX_BITS;
use crate::peers::process::marker::MarkerProbe;
use crate::peers::process::multicast::Next;
use crate::peers::process::serving::{BLOCKED_RETRY_NS, Serving, serves};

/// Longest time that a process that begins to take part waits for the answers of all others
/// together. One that answers later is met then.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which messages begin no other meeting after some process could not be introduced to.
const PAUSE: Duration = Duration::from_secs(2);

impl Device {
    /// Takes part in multicast groups: all other processes that do are met, as far as they answer
    /// in time; the error is that of one that could not be introduced to. It waits for a thread
    /// that is at it: no lock of a queue may be held, and no other thread may rely on this one.
    pub(crate) fn take_part(self: &Arc<Device>) -> Result<(), Errno> {
        let Some(peers) = &self.peers else { return Ok(()) };
        if !peers.participation.begin() {
            return Ok(());
        }
        let mut deferred = DeferredWork::default();
        let met = self.hold_meeting(peers, &mut deferred);
        deferred.run();
        met
    }

    /// Meets the others, and resumes the messages that have waited for that.
    pub(in crate::fabric::process) fn hold_meeting(
        self: &Arc<Device>,
        peers: &PeerProcesses,
        deferred: &mut DeferredWork,
    ) -> Result<(), Errno> {
        let met = {
            // Messages and attachments wait for this thread: what waits for another process's
            // memory is left to others.
            let _serving = Serving::begin();
            self.meet_participants(peers)
        };
        let rests_until = met.is_err().then(|| host::time::now() + PAUSE);
        let waiting = peers.participation.end(met.is_ok(), rests_until);
        // Those that are taken in are pairs when the lock is free.
        drop(peers.rendezvous.lock());
        for qp in waiting.into_iter().filter_map(|number| self.qps.get(number)) {
            // It does not ask again for this message. Without descriptors it sends to those that it
            // knows.
            qp.met(false, deferred);
        }
        met
    }

    /// Meets those that have a marker. All are introduced to before any is waited for.
    fn meet_participants(self: &Arc<Device>, peers: &PeerProcesses) -> Result<(), Errno> {
        // Where there are no others, members are of this process.
        let Ok(here) = peers.here() else { return Ok(()) };
        // Others may call at once.
        self.start_progress_thread()?;
        here.marker.show()?;
        let mut unmet = marked(peers)?;
        let mut refused = None;
        let end = host::time::now() + TIMEOUT;
        loop {
            unmet.retain(|slot| match self.meet_unasked(*slot) {
                Ok(is_met) => !is_met && peers.rendezvous.lock().awaits(*slot).is_some(),
                Err(error) => {
                    refused.get_or_insert(error);
                    false
                }
            });
            if unmet.is_empty() || host::time::now() >= end {
                return refused.map_or(Ok(()), Err);
            }
            host::thread::yield_now();
        }
    }

    /// Leaves a meeting, which has begun, to a thread that may wait; false if there is none.
    fn leave_meeting(self: &Arc<Device>, peers: &PeerProcesses) -> bool {
        let (device, deferred) = (Arc::clone(self), Arc::new(Mutex::new(DeferredWork::default())));
        let left = Arc::clone(&deferred);
        let wait = move || {
            if let Some(peers) = &device.peers {
                let _ = device.hold_meeting(peers, &mut left.lock());
            }
        };
        let rest = move || {
            // What waits for another process is left to other threads.
            let _serving = Serving::begin();
            core::mem::take(&mut *deferred.lock()).run();
        };
        // It waits for any process, and is counted with this one's.
        let reservation = peers.workers.reserve(std::process::id().cast_signed());
        reservation.is_some_and(|it| it.run(wait, rest))
    }
}

/// The slots of other processes that take part.
fn marked(peers: &PeerProcesses) -> Result<Vec<u32>, Errno> {
    let (mut probe, mut marked) = (MarkerProbe::new()?, Vec::new());
    for slot in (0..peers.names.slots).filter(|slot| peers.is_foreign(slot << INDEX_BITS)) {
        if probe.sees(&peers.names, slot)? {
            marked.push(slot);
        }
    }
    Ok(marked)
}

impl Qp {
    /// Has the others met, and resumes the head of the send queue then.
    pub(crate) fn go_and_meet_members(self: &Arc<Qp>, deferred: &mut DeferredWork) {
        let device = &self.pd.context.device;
        let Some(peers) = &device.peers else { return self.met(false, deferred) };
        match peers.participation.begin_for(self.num) {
            Next::Waits => {}
            Next::GoesOn => {
                // Those that are taken in are pairs when the lock is free.
                drop(peers.rendezvous.lock());
                self.met(false, deferred);
            }
            Next::Begins if !serves() => {
                let _ = device.hold_meeting(peers, deferred);
            }
            Next::Begins => {
                if !device.leave_meeting(peers) {
                    let waiting = peers.participation.end(false, None);
                    let waiting = waiting.into_iter().filter_map(|number| device.qps.get(number));
                    waiting.for_each(|qp| qp.meet_members_later());
                }
            }
        }
    }

    /// Without a thread: the timer tries again.
    fn meet_members_later(&self) {
        let Some(mut sq) = self.sq_unless_blocked() else { return };
        let waits = &mut sq.requester.waits;
        if matches!(waits, Some((WaitCause::Meeting, _))) {
            let token = self.pd.context.device.arm(self.num, Some(BLOCKED_RETRY_NS));
            *waits = Some((WaitCause::Delay, token));
        }
    }
}
