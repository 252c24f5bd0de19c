//! Reasons why a buffer was not offered, or not read.

use verbs_safe::{Buffer, RegionError};

use crate::error::{CloseReason, RecvError, SendError};
use crate::peer::Peer;

/// Reason why a buffer was not offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// More application data than a request of the receiver holds.
    #[error("{bytes} bytes of application data, the receiver takes {limit}")]
    AppTooLong {
        /// Their length.
        bytes: usize,
        /// Bytes that would fit.
        limit: usize,
    },
    /// The message is not inside its buffer, or the buffer is not for peers to read.
    #[error("the message cannot be offered: {0}")]
    Memory(#[from] RegionError),
    /// Signals are at the tail of messages, and the buffer has none
    /// ([`BufferConfig::signal`](verbs_safe::BufferConfig)).
    #[error("signals are at the tail of messages, and this buffer has none")]
    NoSignal,
    /// Error that keeps any message from being sent: the window is full, or the connection has
    /// ended.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl From<CloseReason> for OfferError {
    fn from(reason: CloseReason) -> OfferError {
        OfferError::Send(reason.into())
    }
}

/// A message was not offered: its buffer, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSent<B> {
    /// The buffer.
    pub buffer: B,
    /// The reason.
    #[source]
    pub error: OfferError,
}

/// Reason why a message was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The message could not be read: its buffer, in which there may be a part of it.
    #[error("peer {peer}: {reason}")]
    Unread {
        /// The buffer.
        buffer: Buffer,
        /// The peer that offered the message.
        peer: Peer,
        /// The reason.
        reason: CloseReason,
    },
    /// The message of [`read_next_into`](crate::direct_read::Receiver::read_next_into) was longer
    /// than the buffer: it was refused, and its sender knows.
    #[error("a message of {len} bytes for a buffer of {}: it was refused", buffer.len())]
    BufferTooShort {
        /// The buffer.
        buffer: Buffer,
        /// Bytes of the message.
        len: u64,
    },
    /// No message of this receiver has this [`Reading`](crate::direct_read::Reading), or it was
    /// taken.
    #[error("the reading is another receiver's, or its message was taken")]
    UnknownReading,
    /// Error that keeps any message from being received: time is up, no sender is left, a peer or
    /// the receiver has failed.
    #[error(transparent)]
    Recv(#[from] RecvError),
}

impl From<CloseReason> for ReadError {
    fn from(reason: CloseReason) -> ReadError {
        ReadError::Recv(reason.into())
    }
}

/// Reason why a request was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReadReason {
    /// The message is longer than the buffer.
    #[error(
        "a message of {len} bytes for {room} bytes of a buffer: read it into a longer one, or refuse it"
    )]
    BufferTooShort {
        /// Bytes of the message.
        len: u64,
        /// Bytes for it.
        room: u64,
    },
    /// A file takes READs of 4096 bytes or more, and so no message that is shorter, or ends
    /// in a shorter one.
    #[error("a message of {len} bytes does not land in a file: it takes a READ of few bytes")]
    NotForFiles {
        /// Bytes of the message.
        len: u64,
    },
    /// The buffer is of another device than the receiver's.
    #[error(
        "the buffer is of another opening of a device: register it with the receiver's `Device`, or a clone of that"
    )]
    OtherDevice,
    /// The peer has gone.
    #[error(transparent)]
    Ended(#[from] CloseReason),
}

/// A message was not read into the buffer; both are here again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotRead<R> {
    /// The request, still undecided; `None` where its peer has gone.
    pub request: Option<R>,
    /// The buffer.
    pub buffer: Buffer,
    /// The reason.
    pub error: NotReadReason,
}
