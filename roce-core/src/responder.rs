//! The responder of a reliable connection: what a request does to memory and receive requests, and
//! which packets answer it.
//!
//! # The drive loop
//!
//! With `responder` a [`Responder`], and `target` a [`Target`]: the caller's memory, keys and
//! receive requests.
//!
//! 1. Receive a batch of packets, and call [`on_request`](Responder::on_request) for each. (Those
//!    that the codec does not accept go to [`on_malformed`](Responder::on_malformed), if its error
//!    [is an invalid request](crate::codec::ParseError::is_invalid_request).)
//! 2. Behind the batch, send what [`next_response`](Responder::next_response) gives, until it gives
//!    nothing or the socket is full. What was received is acknowledged once, not once a packet.
//! 3. If [`on_request`](Responder::on_request) gave [`Outcome::Failed`], or
//!    [`has_failed`](Responder::has_failed), send the NAK, and take the queue pair to the error
//!    state.
//!
//! The source of a packet, its queue pair number and its P_Key are the caller's to check, and
//! that the first one moves a queue pair that is not connected yet (`COMM_EST`).
//!
//! **The contract: one target for the whole life of a responder, and responses are sent in the
//! order in which they are given.**
//!
//! # What it remembers
//!
//! The last READs and atomics, as many as `max_dest_rd_atomic`. A READ that is repeated is read
//! again, from where the repetition begins, and its key is checked again: if it is not valid, the
//! requester gets a NAK, and the responder continues, because it may be a late copy. An atomic that
//! is repeated is answered with what it found the first time, and an ATOMIC WRITE is not executed
//! again. WRITEs and SENDs that are repeated are only acknowledged. Nothing else grows, whatever
//! the peer sends: a packet makes the responder do the work of one packet, and a READ that of its
//! responses, which are sent one by one when the caller asks for them.
//!
//! # Order
//!
//! Responses to READs and atomics go in the order of their requests, and an acknowledgement or NAK
//! behind all of them: to the requester, it would say that the responses are lost.

mod accept;
mod answer;
mod memory;
mod receive;
mod repeat;
mod slots;
#[cfg(test)]
mod tests;

pub use answer::Response;
pub use slots::ResponseSlot;

use slots::ResponseSlots;

use crate::headers::{NakCode, RnrTimer};
use crate::lengths::PATH_MTUS;
use crate::message::IncomingMessage;
use crate::psn::Psn;
use crate::requester::MAX_WINDOW;

/// Packets before and after the expected one that may be answered although they are not expected:
/// as many as a requester of ours has under way. A random number is within it once in 128 times.
///
/// Other requesters may have more under way, or go further by a long READ. If all that they send
/// behind a loss is beyond it, they get no NAK and repeat after their timeout. READs and atomics
/// that are remembered are answered again at any distance.
pub const PSN_WINDOW: u32 = MAX_WINDOW;

/// The attributes of the queue pair that the responder obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// The path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu: u32,
    /// The peer's queue pair.
    pub dest_qpn: u32,
    /// Partition key of all packets.
    pub pkey: u16,
    /// The number of the first packet (`rq_psn`).
    pub first_psn: Psn,
    /// Time that a requester waits if it meets no receive request, or memory that is not there yet.
    pub min_rnr_timer: RnrTimer,
}

/// A path MTU that is none of the five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mtu ({0}) must be 256, 512, 1024, 2048 or 4096")]
pub struct MtuError(pub u32);

/// Access of a request to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `IBV_ACCESS_REMOTE_READ`
    Read,
    /// `IBV_ACCESS_REMOTE_WRITE`
    Write,
    /// `IBV_ACCESS_REMOTE_ATOMIC`
    Atomic,
    /// `IBV_ACCESS_REMOTE_WRITE`, of eight bytes at a multiple of eight.
    AtomicWrite,
}

/// An atomic operation on eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Stores `swap` if `compare` is there.
    CmpSwap {
        /// Value that the memory has to hold.
        compare: u64,
        /// Value that is stored then.
        swap: u64,
    },
    /// Adds.
    FetchAdd {
        /// Value that is added.
        add: u64,
    },
}

/// Reason for which a request is refused. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue pair does not permit it, or it makes no sense: the requester gets
    /// `IBV_WC_REM_INV_REQ_ERR`.
    Invalid,
    /// The key, its range or its permission: `IBV_WC_REM_ACCESS_ERR`.
    Access,
    /// It cannot be executed here: `IBV_WC_REM_OP_ERR`.
    Operation,
}

impl Refusal {
    /// The code of its NAK.
    pub const fn nak(self) -> NakCode {
        match self {
            Self::Invalid => NakCode::InvalidRequest,
            Self::Access => NakCode::RemoteAccessError,
            Self::Operation => NakCode::RemoteOperationalError,
        }
    }
}

/// Reason for which a receive request that was taken fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveFault {
    /// `IBV_WC_LOC_LEN_ERR`: the message is longer.
    Length,
    /// `IBV_WC_LOC_PROT_ERR`: its memory is not accessible.
    Protection,
    /// `IBV_WC_REM_INV_REQ_ERR`: the key to invalidate is not one that the peer may invalidate.
    Invalidate,
    /// `IBV_WC_WR_FLUSH_ERR`: the message did not end.
    Flushed,
}

/// A receive request that completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveDone {
    /// Bytes of the message. Those of a WRITE are not in the buffer.
    pub length: u32,
    /// The immediate, if there is one.
    pub imm: Option<u32>,
    /// The key that was invalidated.
    pub invalidated: Option<u32>,
    /// The completion is a solicited event.
    pub is_solicited: bool,
    /// It was a WRITE with immediate.
    pub is_write: bool,
}

/// State that a responder acts on: memory, its keys, and receive requests. A target that is only
/// read has [`read`](Target::read) alone: it has no receive requests, and refuses other accesses.
pub trait Target {
    /// Takes the oldest receive request; returns how many bytes it has room for. The request
    /// remains taken until it is completed or has failed.
    fn take_receive(&mut self) -> Option<u32> {
        None
    }

    /// The receive request that was taken has room for `_room` bytes, and its message has more:
    /// exactly `_needs` bytes if `_is_all`, else at least `_needs`. Called before the receive
    /// request fails, or the message is dropped. For reports; nothing has to be done.
    fn note_short(&mut self, _room: u32, _needs: u32, _is_all: bool) {}

    /// The next bytes of a SEND, into the receive request that was taken.
    ///
    /// # Errors
    /// [`AccessError`]: its memory is not there yet, and nothing was copied; or it is not
    /// accessible.
    fn place(&mut self, _offset: u32, _payload: &[u8]) -> Result<(), AccessError> {
        Err(Refusal::Access.into())
    }

    /// Completes the receive request that was taken.
    fn complete_receive(&mut self, _done: ReceiveDone) {}

    /// The receive request that was taken fails.
    fn fail_receive(&mut self, _fault: ReceiveFault) {}

    /// Checks whether a request may access `_len` bytes of memory. It is called for the whole
    /// length before a byte is read or written, and not for a length of 0.
    ///
    /// # Errors
    /// [`AccessError`]
    fn check(&mut self, _: Access, _rkey: u32, _va: u64, _len: u32) -> Result<(), AccessError> {
        Err(Refusal::Access.into())
    }

    /// Bytes of a WRITE. The key was checked when the WRITE began.
    ///
    /// # Errors
    /// [`AccessError`], if the key is no longer valid, or the memory is there no longer.
    fn write(&mut self, _rkey: u32, _va: u64, _payload: &[u8]) -> Result<(), AccessError> {
        Err(Refusal::Access.into())
    }

    /// Bytes for the response that [`Responder::next_response`] returns: the caller's next packet.
    /// The key was checked when the READ began; a READ that is repeated is checked by this alone.
    ///
    /// # Errors
    /// [`AccessError`], if the key is no longer valid, or the memory is there no longer.
    fn read(&mut self, rkey: u32, va: u64, length: u32) -> Result<(), AccessError>;

    /// Executes an atomic at a multiple of eight, and returns what was there. The key was checked.
    ///
    /// # Errors
    /// [`AccessError`]
    fn atomic(&mut self, _rkey: u32, _va: u64, _op: AtomicOp) -> Result<u64, AccessError> {
        Err(Refusal::Access.into())
    }

    /// Stores eight bytes at a multiple of eight, at once: a reader that sees them sees all that
    /// was stored before. The key was checked.
    ///
    /// # Errors
    /// [`AccessError`]
    fn atomic_write(&mut self, _rkey: u32, _va: u64, _: [u8; 8]) -> Result<(), AccessError> {
        Err(Refusal::Access.into())
    }

    /// Invalidates a key for the peer.
    ///
    /// # Errors
    /// [`Refusal`], if the peer may not.
    fn invalidate(&mut self, _rkey: u32) -> Result<(), Refusal> {
        Err(Refusal::Access)
    }
}

/// Reason for which memory is not accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// It is not there yet, as pages of on-demand memory may be. Nothing has changed; a requester
    /// of a reliable connection gets an RNR NAK, and sends the request again.
    NotPresent,
    /// The request is refused. (Of a receive request: its memory is not accessible.)
    Refused(Refusal),
}

impl From<Refusal> for AccessError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Result of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was the expected one, and is executed.
    Accepted,
    /// It was executed before.
    Duplicate,
    /// One before it is missing.
    OutOfSequence,
    /// There is no receive request for it, or its memory is not there yet.
    NotReady,
    /// The connection fails.
    Failed(Refusal),
    /// It is no request, or the connection has failed.
    Dropped,
}

/// Answer that is to be sent behind the responses to READs and atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueAnswer {
    Nothing,
    Ack,
    SequenceNak,
    RnrNak,
    /// The request at this position is refused.
    Nak(Refusal, u64),
}

/// Contents of an acknowledgement: those for the last packet of a SEND or WRITE that was executed.
/// The numbers of READs and atomics are left to their responses: Linux's soft-RoCE takes an
/// acknowledgement with one of those for the response, and completes the READ without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AckPosition {
    /// The position behind the packet.
    end: u64,
    /// Messages that were completed then.
    msn: u32,
}

/// The responder of one queue pair. See the [module](self).
// Invariants: `expected` counts packets as the requester's positions do. `is_gap_reported` from a
// NAK (sequence or RNR) until the expected packet is accepted. `held` is None during a SEND. After
// a failure, `message` is None and no packet is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder<S> {
    slots: ResponseSlots<S>,
    config: ResponderConfig,
    /// The position of the next packet.
    expected: u64,
    /// Messages that were completed.
    msn: u32,
    plain: AckPosition,
    message: IncomingMessage,
    /// The room of a receive request that was taken for a message of which nothing is executed.
    held: Option<u32>,
    due: DueAnswer,
    is_gap_reported: bool,
    has_failed: bool,
}

impl<S> Responder<S> {
    /// The attributes.
    pub fn config(&self) -> &ResponderConfig {
        &self.config
    }

    /// The wait of a requester that meets no receive request, from now on.
    pub fn set_min_rnr_timer(&mut self, timer: RnrTimer) {
        self.config.min_rnr_timer = timer;
    }

    /// The number of the packet that is expected.
    pub fn expected_psn(&self) -> Psn {
        Psn::new(self.expected as u32)
    }

    /// Reports whether the connection has failed: its NAK may still be due.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Reports whether [`next_response`](Self::next_response) has something.
    pub fn has_response(&self) -> bool {
        self.slots.has_pending() || self.due != DueAnswer::Nothing
    }

    /// Reports whether the next response reports a gap: the requester's packets are dropped until
    /// it has that response.
    pub fn reports_gap(&self) -> bool {
        self.due == DueAnswer::SequenceNak && !self.slots.has_pending()
    }

    /// The request at `position` is refused, and nothing after it is answered. The receive request
    /// of the message that is being received fails.
    fn refuse<T: Target>(
        &mut self,
        refusal: Refusal,
        position: u64,
        fault: ReceiveFault,
        target: &mut T,
    ) {
        if matches!(self.message, IncomingMessage::Send { .. }) || self.held.take().is_some() {
            target.fail_receive(fault);
        }
        self.has_failed = true;
        self.message = IncomingMessage::None;
        self.due = DueAnswer::Nak(refusal, position);
    }

    fn complete_message(&mut self) {
        self.message = IncomingMessage::None;
        self.msn = self.msn.wrapping_add(1) & 0xff_ffff;
    }
}

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> Responder<S> {
    /// Remembers as many READs and atomics as `slots` has entries, from now on:
    /// `max_dest_rd_atomic` has changed. Of those that are remembered, the newest stay.
    pub fn replace_slots(&mut self, slots: S) {
        self.slots.replace(slots);
    }

    /// A responder that remembers as many READs and atomics as `slots` has entries:
    /// `max_dest_rd_atomic`. With none, it refuses them.
    ///
    /// # Errors
    /// [`MtuError`]
    pub fn new(slots: S, config: ResponderConfig) -> Result<Self, MtuError> {
        if !PATH_MTUS.contains(&(config.mtu as usize)) {
            return Err(MtuError(config.mtu));
        }
        Ok(Self {
            slots: ResponseSlots::new(slots),
            expected: config.first_psn.get().into(),
            msn: 0,
            plain: AckPosition { end: config.first_psn.get().into(), msn: 0 },
            message: IncomingMessage::None,
            held: None,
            due: DueAnswer::Nothing,
            is_gap_reported: false,
            has_failed: false,
            config,
        })
    }
}
