//! The state of a requester, apart from its queue.

use crate::memory::mws::BindingEnd;
use crate::queues::outcome::WaitCause;
use crate::queues::transit::FaultyTransit;

/// State of a requester, apart from its queue.
#[derive(Debug, Default)]
pub(crate) struct RequesterState {
    /// Posted requests, as a position that wraps; a slot is free again when the
    /// queue pair's `freed` has passed it.
    pub(crate) posted: u32,
    /// PSN of the next request.
    pub(crate) psn: u32,
    pub(crate) dest_qpn: u32,
    /// The route leads to this device's own GID: no other can be reached.
    pub(crate) reaches_us: bool,
    /// Log2 of the path MTU in bytes.
    pub(crate) mtu_shift: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// Retries that are left for the request at the head.
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// The deadline that the head waits for; its name, so that a deadline of
    /// something that is over is not mistaken for it.
    pub(crate) waits: Option<(WaitCause, u64)>,
    /// Present once an unreliable queue pair has sent into a faulty network.
    pub(crate) transit: Option<Box<FaultyTransit>>,
    /// The head has been tried: it proceeds even while the queue drains.
    pub(crate) started: bool,
    /// The responder has done the head already; only the response was lost.
    pub(crate) done: bool,
    /// The head waits until no access is under way under the key of this binding, which has ended.
    pub(crate) ending: Option<BindingEnd>,
    /// The process that the head is for was looked for, and is not there.
    pub(crate) peer_not_found: bool,
    /// Progress of a message to a multicast group, while it waits for room in a ring.
    pub(crate) fan_out: Option<FanOut>,
    /// State of a message of an unreliable transport, while the ring that it is to go into is full.
    pub(crate) backpressure: Backpressure,
}

impl RequesterState {
    /// Advances the PSN by packets that have gone out.
    #[inline]
    pub(crate) fn advance_psn(&mut self, packets: u32) {
        self.psn = self.psn.wrapping_add(packets) & 0x00ff_ffff;
    }

    /// The head is another request now.
    #[inline]
    pub(crate) fn next_request(&mut self) {
        self.retries_left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.started = false;
        self.done = false;
        self.fan_out = None;
    }
}

/// Progress of a message to a multicast group.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FanOut {
    /// Members of this process, and of those in lower slots, have their copies.
    pub(crate) slot: u32,
    /// A queue pair has received it, or a process has.
    pub(crate) is_received: bool,
}

/// Progress of a process in the ring to it: if it makes none until a deadline, messages that may be
/// dropped do not wait for it any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingProgress {
    /// For messages to a queue pair: how far it has read.
    Read(u32),
    /// For messages to multicast groups: how often it has drained the ring.
    Drained(u32),
}

/// A process, by its slot, and what it has done.
pub(crate) type ProgressMark = (u32, RingProgress);

/// State of a requester that waits for a full ring.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// The deadline that is armed, and the mark then. It is not armed again for each wait:
    /// under load a ring is full thousands of times a second.
    pub(crate) deadline: Option<(u64, ProgressMark)>,
}

#[cfg(test)]
impl Backpressure {
    /// The deadline that is armed.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadline.map(|(token, _)| token)
    }
}
