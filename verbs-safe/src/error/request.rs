//! Errors of requests and of their data: staging, posting, taking and lending.

use thiserror::Error;

use crate::errno::Errno;
use crate::ids::QueueId;
use crate::status::WcError;

/// A request was not staged; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StageError {
    /// As many requests as the queue holds are staged or in flight: retire some.
    #[error("the send queue is full")]
    QueueFull,
    /// All slots are staged or in flight: retire some.
    #[error("no send slot is free")]
    NoSlot,
    /// The message is longer than a slot.
    #[error("{len} bytes do not fit into a slot of {slot_bytes}")]
    TooLong {
        /// The message's length.
        len: usize,
        /// The slot's.
        slot_bytes: usize,
    },
    /// The datagram is longer than the port's MTU.
    #[error("{len} bytes do not fit into a datagram of {mtu}, the MTU of the port")]
    OverMtu {
        /// The message's length.
        len: usize,
        /// The port's active MTU in bytes.
        mtu: usize,
    },
    /// The queue pair's transport has no such operation.
    #[error("the transport of this queue pair has no such operation")]
    NotOffered,
    /// A datagram without a peer to send it to: it is staged with
    /// [`stage_to`](crate::SendQueue::stage_to).
    #[error("a datagram needs a peer to be sent to")]
    NoPeer,
    /// The peer was removed, or is another queue's.
    #[error("the queue has no such peer")]
    UnknownPeer,
    /// The region was detached, or is attached to another queue.
    #[error("the queue has no such region attached")]
    UnknownRegion,
    /// A SEND from a region: SENDs go from slots.
    #[error("a SEND goes from a slot, and not from a region")]
    SendFromRegion,
    /// A file is for READs of
    /// [`MIN_READ_BYTES`](crate::FileRegion::MIN_READ_BYTES) or more.
    #[error("only READs of 4096 bytes or more land in a file")]
    NotForFiles,
    /// The request reaches over the end of its local region.
    #[error("{len} bytes at {offset} do not fit into a local region of {region_len}")]
    OutsideRegion {
        /// Offset of the first byte.
        offset: usize,
        /// The request's length.
        len: usize,
        /// The region's length.
        region_len: usize,
    },
    /// The message is longer than the remote span.
    #[error("{len} bytes do not fit into a remote span of {remote_len}")]
    RemoteTooShort {
        /// The message's length.
        len: usize,
        /// The span's.
        remote_len: u64,
    },
}

/// A READ into a ring was not staged; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LandError {
    /// The ring is not attached to this queue.
    #[error("the ring's READs are another queue's")]
    OtherQueue,
    /// Fewer bytes are free: some are lent, or have landed and were not passed.
    #[error("{len} bytes are to be read into a ring that has {free} free")]
    NotFree {
        /// The READ's length.
        len: u32,
        /// Bytes that are free.
        free: u64,
    },
    /// It would cross the end of a ring that is not mirrored.
    #[error("{len} bytes are to be read where {left} are left before the ring's end")]
    CrossesEnd {
        /// The READ's length.
        len: u32,
        /// Bytes before the end.
        left: u64,
    },
    /// The queue does not take it.
    #[error(transparent)]
    Stage(#[from] StageError),
}

/// Bytes of a ring were not lent; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LendError {
    /// The bytes have not landed, were passed over, or are not contiguous; or their end is not a
    /// multiple of 8 behind all bytes lent before.
    #[error("these bytes of the ring cannot be lent")]
    NotLanded,
    /// As many pieces are lent as the ring was made for: give some up first.
    #[error("as many pieces of the ring are lent as can be")]
    TooMany,
}

/// Staged requests were not posted, or not all. Those that were not stay staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("posting sends (after {posted} of them): {errno}")]
pub struct PostSendError {
    /// Requests that were posted before the failure.
    pub posted: u32,
    /// The device's reason.
    pub errno: Errno,
    /// True if this is backpressure (`ENOMEM`): retire some requests, and post again.
    pub retry: bool,
}

/// A request with bytes of the caller was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PostInlineError {
    /// It cannot be.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The device refused it, or a request staged before it.
    #[error(transparent)]
    Post(#[from] PostSendError),
}

/// A completion that does not belong to the queue it was shown to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a completion of queue {found} was shown to queue {expected}, or is long out of date")]
pub struct ForeignCompletion {
    /// The queue it was shown to.
    pub expected: QueueId,
    /// The queue it is of.
    pub found: QueueId,
}

/// Receives were not posted, or not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("posting receives (after {posted} of them): {reason}")]
pub struct PostRecvError {
    /// Receives that were posted before the failure, from the front of the list.
    pub posted: u32,
    /// The reason why posting stopped.
    pub reason: PostRecvReason,
}

/// Reasons why a receive was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PostRecvReason {
    /// The pool has no such slot.
    #[error("there is no slot {slot}")]
    NoSuchSlot {
        /// The slot.
        slot: u32,
    },
    /// The slot is posted already, or its message is still held.
    #[error("slot {slot} is posted or lent")]
    NotHome {
        /// The slot.
        slot: u32,
    },
    /// The device refused.
    #[error("{0}")]
    Refused(Errno),
}

/// A completion gave no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TakeError {
    /// It belongs to another queue.
    #[error(transparent)]
    Foreign(#[from] ForeignCompletion),
    /// The receive failed; its slot is home again.
    #[error("receive into slot {slot}: {error}")]
    Failed {
        /// The slot, which can be posted again.
        slot: u32,
        /// The error that the device reported.
        error: WcError,
    },
    /// A datagram that is shorter than its own route header; its slot is home again.
    #[error("the device completed a datagram of {byte_len} bytes, its route header included")]
    Runt {
        /// The slot, which can be posted again.
        slot: u32,
        /// The length that the device reported.
        byte_len: u32,
    },
    /// The slot was not posted: the device completed it twice.
    #[error("the device completed slot {slot}, which was not posted")]
    NotPosted {
        /// The slot.
        slot: u32,
    },
}

impl TakeError {
    /// The slot that went home with the error.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        match *self {
            TakeError::Failed { slot, .. } | TakeError::Runt { slot, .. } => Some(slot),
            _ => None,
        }
    }
}
