//! The requester of a reliable connection: which packet goes next, what an answer means, which
//! requests are complete.
//!
//! # The drive loop
//!
//! The caller has the bytes, the socket and the clock. With `requester` a [`Requester`]:
//!
//! 1. [`post`](Requester::post) gives a request its [`WqeIndex`].
//! 2. While there is room in the socket, send what [`next_packet`](Requester::next_packet) gives.
//! 3. For each response, call [`on_response`](Requester::on_response), and do what it says: a
//!    payload, or the value that an atomic has found, belongs to the request that it names.
//! 4. Take completions with [`next_completion`](Requester::next_completion), then go to step 2
//!    before you wait: each response may let packets go, and there may be no deadline for them.
//! 5. At [`deadline_ns`](Requester::deadline_ns), call [`on_timer`](Requester::on_timer), then go
//!    to step 2.
//!
//! **The contract: what [`on_response`](Requester::on_response) says is done before completions are
//! taken, and the clock does not go back.**
//!
//! A request whose own memory is not accessible is not for the machine to know: the caller ends it,
//! and takes the queue pair to the error state.
//!
//! # Positions
//!
//! Packets are counted by positions of 64 bits, which do not wrap. The wire carries the low 24 bits
//! of a position: the packet sequence number.
//!
//! ```text
//!  unacked        next          sent                  posted
//!     |  under way  |  sent once  |  not sent yet       |
//!     |             |  and lost   |                     |
//!  unacked <= next <= sent <= posted
//! ```
//!
//! What is lost is sent again from `unacked` on (go-back-N): `next` goes back to `unacked`. A READ
//! takes a position for each packet of its response; one of more than
//! [`read_packets`](RequesterConfig::read_packets) packets is asked for in parts, so that the
//! responder sends no more at once than the receiving socket holds. The ends of the parts depend on
//! the length alone: what is left of a part when it is asked for again never crosses the end of
//! what was asked for before, as the responder requires.
//!
//! # What repeats packets
//!
//! | cause | counts as a retry | halves the window |
//! |---|---|---|
//! | NAK: sequence error | yes | yes |
//! | no response of a READ or atomic, though a later answer arrives (implied NAK) | yes | yes |
//! | no answer within the timeout | yes | yes |
//! | RNR NAK, after its time | as an RNR retry | no |
//! | no answer within two round trips: a probe, the packet at `unacked` alone | no | no |
//! | the probe is acknowledged, and nothing behind it | no | yes |
//!
//! A [congestion notification](crate::congestion) repeats nothing, and makes the window smaller by
//! as much as the path was congested before: by half at most, once in a round trip, and never to
//! less than one packet.
//!
//! Progress of any kind restores both retry counts. The time until a probe doubles with each one
//! that follows without progress.

mod config;
mod congestion;
#[cfg(any(test, feature = "oracle"))]
mod invariants;
mod receive;
mod recovery;
mod round_trip;
#[cfg(test)]
mod tests;
mod transmit;
mod window;

use congestion::Congestion;
use round_trip::RttEstimator;
use window::CongestionWindow;

pub use config::{Changeable, ConfigError, RNR_RETRY_FOREVER, RequesterConfig};
pub use window::MAX_WINDOW;

use crate::lengths::ATOMIC_WRITE;
use crate::psn::Psn;
use crate::request::{MAX_MESSAGE, Operation, Request, WqeIndex};

/// A request that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No entry is free: take completions, then try again.
    #[error("the send queue is full")]
    Full,
    /// It is longer than [`MAX_MESSAGE`].
    #[error("length ({0}) must be at most {MAX_MESSAGE} bytes")]
    TooLong(u32),
    /// An ATOMIC WRITE that is not of eight bytes.
    #[error("length ({0}) of an ATOMIC WRITE must be {ATOMIC_WRITE} bytes")]
    NotAWord(u32),
    /// A READ, an atomic or an ATOMIC WRITE, and `max_rd_atomic` is 0.
    #[error("max_rd_atomic is 0: no READ or atomic can be sent")]
    NoReads,
    /// A request has failed: all later ones are flushed by the caller.
    #[error("an earlier request has failed")]
    Failed,
}

/// Result of a request, as in `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// `IBV_WC_SUCCESS`
    Success,
    /// `IBV_WC_LOC_LEN_ERR`: a response to a READ has a length that its place does not have.
    LocalLength,
    /// `IBV_WC_BAD_RESP_ERR`: a response that does not belong to the request.
    BadResponse,
    /// `IBV_WC_REM_INV_REQ_ERR`
    RemoteInvalidRequest,
    /// `IBV_WC_REM_ACCESS_ERR`
    RemoteAccess,
    /// `IBV_WC_REM_OP_ERR`
    RemoteOperation,
    /// `IBV_WC_RETRY_EXC_ERR`
    RetryExceeded,
    /// `IBV_WC_RNR_RETRY_EXC_ERR`
    RnrRetryExceeded,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub index: WqeIndex,
    /// Its result.
    pub status: CompletionStatus,
}

/// Meaning of a response for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing: it repeats what is known, or answers what was not asked.
    Ignored,
    /// It was taken in: requests may be complete, or packets may be due.
    Noted,
    /// The payload belongs into the bytes of a READ.
    Place {
        /// The READ that the payload belongs to.
        index: WqeIndex,
        /// Offset of the payload in the READ's bytes.
        offset: u32,
        /// Length of the payload.
        length: u32,
    },
    /// Value that an atomic has found.
    Original {
        /// The atomic.
        index: WqeIndex,
        /// Value of the memory before the atomic.
        value: u64,
    },
}

/// Counts of losses that were repaired so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// RNR NAKs after which a request was sent again.
    pub rnr_naks: u64,
    /// Times that packets were sent again because they, or what answers them, were lost or late.
    pub retries: u64,
}

/// An entry of the send queue: storage of a [`Requester`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSlot {
    request: Request,
    /// The position of its first packet.
    first: u64,
    /// The position behind its last packet.
    end: u64,
}

impl SendSlot {
    /// An entry that is not used yet.
    pub const fn new() -> Self {
        let request = Request::new(Operation::Send, 0, 0, 0);
        Self { request, first: 0, end: 0 }
    }
}

impl Default for SendSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// The requester of one queue pair. See the [module](self).
// Invariants: of requests, reported <= oldest <= current <= tail <= reported + entries, where
// `oldest` holds the position `unacked` and `current` the position `next`, if there are such
// requests. Of positions, unacked <= next <= sent <= posted. `reads` is how many parts of READs and
// atomics lie between `unacked` and `next`, and at most max_rd_atomic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester<S> {
    slots: S,
    config: RequesterConfig,
    /// The oldest request whose completion was not taken.
    reported: u64,
    /// The oldest request that is not complete.
    oldest: u64,
    /// The request that `next` belongs to.
    current: u64,
    /// The next one to be posted.
    tail: u64,
    unacked: u64,
    next: u64,
    sent: u64,
    posted: u64,
    reads: u32,
    /// Packets since the last one that asks for an acknowledgement.
    unasked: u32,
    window: CongestionWindow,
    congestion: Congestion,
    recovery: Recovery,
    counts: RetryCounts,
    /// Status with which the request `oldest` failed.
    failure: Option<CompletionStatus>,
}

/// Times, counts of retries, and what is being repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Recovery {
    round_trip: RttEstimator,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Since when the oldest packet waits for an answer.
    waits_since_ns: Option<u64>,
    /// Time at which the last packet went, or progress was made.
    active_ns: u64,
    /// Nothing is sent before: a receive request was missing.
    rnr_until_ns: Option<u64>,
    /// Packets were sent again from this position on because of a NAK. Another NAK that finds
    /// `unacked` there is a copy.
    nak_at: Option<u64>,
    /// A probe is to be sent.
    is_probe_due: bool,
    /// The position of the last probe of a SEND or WRITE that went.
    probed: Option<u64>,
    /// Probes since the last progress.
    probes: u8,
}

impl Recovery {
    fn new(config: &RequesterConfig) -> Self {
        Self {
            round_trip: RttEstimator::default(),
            retries_left: config.retry_cnt,
            rnr_retries_left: config.rnr_retry,
            waits_since_ns: None,
            active_ns: 0,
            rnr_until_ns: None,
            nak_at: None,
            is_probe_due: false,
            probed: None,
            probes: 0,
        }
    }
}

impl<S> Requester<S> {
    /// The attributes.
    pub fn config(&self) -> &RequesterConfig {
        &self.config
    }

    /// Changes attributes: what waits for an answer has the new retries, and the new timeout since
    /// it was sent. READs and atomics that were posted go, one at a time if no others may be.
    ///
    /// # Errors
    /// [`ConfigError`], and nothing has changed.
    pub fn change(&mut self, to: Changeable) -> Result<(), ConfigError> {
        let Changeable { timeout, retry_cnt, rnr_retry, max_rd_atomic } = to;
        let config =
            RequesterConfig { timeout, retry_cnt, rnr_retry, max_rd_atomic, ..self.config };
        config.check()?;
        self.config = config;
        self.recovery.retries_left = retry_cnt;
        self.recovery.rnr_retries_left = rnr_retry;
        Ok(())
    }

    /// Returns the counts of losses that were repaired so far.
    pub fn counts(&self) -> RetryCounts {
        self.counts
    }

    /// The packets that may be under way now.
    pub fn window(&self) -> u32 {
        self.window.size()
    }

    /// The smoothed round trip, if one was measured.
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.recovery.round_trip.smoothed_ns()
    }

    /// Packets that were sent and are not acknowledged, and those of responses that were asked for.
    pub fn in_flight(&self) -> u64 {
        self.next - self.unacked
    }

    /// Requests whose completions were not taken.
    pub fn outstanding(&self) -> u64 {
        self.tail - self.reported
    }

    /// Reports whether a request has failed. Its completion, and those before it, can still be
    /// taken.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The number of the oldest packet that is not acknowledged, or of the next one to be sent.
    pub fn unacked_psn(&self) -> Psn {
        Self::psn(self.unacked)
    }

    fn psn(position: u64) -> Psn {
        Psn::new(position as u32)
    }

    fn fail(&mut self, status: CompletionStatus) {
        debug_assert!(self.oldest < self.tail, "a request that is not complete has failed");
        self.failure = Some(status);
        self.recovery.waits_since_ns = None;
        self.recovery.rnr_until_ns = None;
        self.recovery.is_probe_due = false;
    }
}

/// Operations of the program.
impl<S: AsRef<[SendSlot]> + AsMut<[SendSlot]>> Requester<S> {
    /// A requester whose send queue has as many entries as `slots`.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn new(slots: S, config: RequesterConfig) -> Result<Self, ConfigError> {
        config.check()?;
        if slots.as_ref().is_empty() {
            return Err(ConfigError::NoSlots);
        }
        let first = u64::from(config.first_psn.get());
        Ok(Self {
            slots,
            reported: 0,
            oldest: 0,
            current: 0,
            tail: 0,
            unacked: first,
            next: first,
            sent: first,
            posted: first,
            reads: 0,
            unasked: 0,
            window: CongestionWindow::new(config.max_window),
            congestion: Congestion::new(),
            recovery: Recovery::new(&config),
            counts: RetryCounts::default(),
            failure: None,
            config,
        })
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`PostError`], and nothing has changed.
    pub fn post(&mut self, request: Request) -> Result<WqeIndex, PostError> {
        if self.failure.is_some() {
            return Err(PostError::Failed);
        }
        if self.tail - self.reported == self.slots.as_ref().len() as u64 {
            return Err(PostError::Full);
        }
        if request.length > MAX_MESSAGE && !request.kind.is_atomic() {
            return Err(PostError::TooLong(request.length));
        }
        if request.kind == Operation::AtomicWrite && request.length != ATOMIC_WRITE as u32 {
            return Err(PostError::NotAWord(request.length));
        }
        if request.kind.has_response() && self.config.max_rd_atomic == 0 {
            return Err(PostError::NoReads);
        }
        let (index, first) = (self.tail, self.posted);
        let end = first + u64::from(request.packets(self.config.mtu));
        let at = self.slot_index(index);
        self.slots.as_mut()[at] = SendSlot { request, first, end };
        self.tail += 1;
        self.posted = end;
        Ok(WqeIndex(index))
    }

    /// The next request that has ended, in the order of their posts. After one that has failed
    /// there are no others: the caller flushes those that remain.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let index = self.reported;
        let status = if index < self.oldest {
            CompletionStatus::Success
        } else if index == self.oldest {
            self.failure?
        } else {
            return None;
        };
        self.reported += 1;
        Some(Completion { index: WqeIndex(index), status })
    }

    fn slot_index(&self, index: u64) -> usize {
        (index % self.slots.as_ref().len() as u64) as usize
    }

    fn slot(&self, index: u64) -> SendSlot {
        self.slots.as_ref()[self.slot_index(index)]
    }

    /// The position behind the packets that the one at `position` stands for: of a READ, those of
    /// the rest of its part.
    fn span_end(&self, slot: &SendSlot, position: u64) -> u64 {
        if slot.request.kind != Operation::Read {
            return position + 1;
        }
        let part = u64::from(self.config.read_packets);
        let parts = (position - slot.first) / part + 1;
        slot.end.min(slot.first + parts * part)
    }

    /// The bytes that the packets from `position` to `end` carry: offset and length.
    fn bytes(&self, slot: &SendSlot, position: u64, end: u64) -> (u32, u32) {
        if slot.request.kind.is_atomic() {
            return (0, 0);
        }
        let (mtu, length) = (u64::from(self.config.mtu), u64::from(slot.request.length));
        let offset = (position - slot.first) * mtu;
        let until = length.min((end - slot.first) * mtu);
        (offset as u32, (until - offset) as u32)
    }
}
