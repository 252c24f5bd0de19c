//! What each call may answer.

use conn_core::direct_read::DecodeError;
use verbs_safe::{Buffer, FileRegion, RegionError, StageError};

use super::{Peer, Request};
use crate::send_recv::Ended;

/// Why a message was not offered, or not waited for to the end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The window is full: wait for a ticket, or try later.
    #[error("no room: as many messages as the window holds are not acknowledged")]
    Full,
    /// More application data than a request of the receiver holds.
    #[error("{bytes} bytes of application data, the receiver takes {limit}")]
    AppTooLong {
        /// Their length.
        bytes: usize,
        /// What would fit.
        limit: usize,
    },
    /// The message is not inside its buffer, or the buffer is not for peers to read.
    #[error("the message cannot be offered: {0}")]
    Memory(#[from] RegionError),
    /// Signals are at the tail of messages, and the buffer has none
    /// ([`BufferConfig::signal`](verbs_safe::BufferConfig)).
    #[error("signals are at the tail of messages, and this buffer has none")]
    NoSignal,
    /// The caller's timeout passed; nothing was lost, and waiting may go on.
    #[error("timed out")]
    TimedOut,
    /// No message of this sender has this ticket, or its buffer was given back.
    #[error("the ticket is another sender's, or was taken")]
    UnknownTicket,
    /// The connection has ended. Buffers come back from
    /// [`take_back`](super::Sender::take_back).
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// A message was not offered: its buffer, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSent<B> {
    /// The buffer.
    pub buffer: B,
    /// Why.
    #[source]
    pub error: SendError,
}

/// Why there is no request, or no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// There is none now.
    #[error("no request yet")]
    Empty,
    /// The caller's timeout passed.
    #[error("timed out")]
    TimedOut,
    /// Every peer has said goodbye, and all that they offered was decided; or there is no
    /// peer that could be waited for.
    #[error("the connection is closed")]
    Closed,
    /// One peer's connection has ended with an error, which is reported once. The other
    /// peers go on.
    #[error("peer {peer}: {ended}")]
    Peer {
        /// Which one.
        peer: Peer,
        /// Why.
        ended: Ended,
    },
    /// The message could not be read: its buffer, in which there may be a part of it.
    #[error("peer {peer}: {ended}")]
    Unread {
        /// The buffer.
        buffer: Buffer,
        /// Whose message it was.
        peer: Peer,
        /// Why.
        ended: Ended,
    },
    /// The message of [`request_async`](super::Receiver::request_async) was longer than
    /// the buffer: it was refused, and its sender knows.
    #[error("a message of {len} bytes for a buffer of {}: it was refused", buffer.len())]
    TooLong {
        /// The buffer.
        buffer: Buffer,
        /// Bytes of the message.
        len: u64,
    },
    /// No message of this receiver has this ticket, or it was taken.
    #[error("the ticket is another receiver's, or was taken")]
    UnknownTicket,
    /// The receiver itself cannot go on.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// A request was not read into the buffer; both are here again.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotRead<'r> {
    /// The request, still undecided; `None` where its peer has gone.
    pub request: Option<Request<'r>>,
    /// The buffer.
    pub buffer: Buffer,
    /// Why.
    pub why: NotReadReason,
}

/// A request was not read into the file; both are here again.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotReadIntoFile<'r> {
    /// The request, still undecided.
    pub request: Request<'r>,
    /// The registration of the file.
    pub region: FileRegion,
    /// Why.
    pub why: NotReadReason,
}

/// Why a request was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReadReason {
    /// The message is longer than the buffer.
    #[error("a message of {len} bytes for {room} bytes of a buffer")]
    TooShort {
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
    #[error("the buffer is another device's")]
    OtherDevice,
    /// The peer has gone.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// What a request can be that it must not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// Its bytes are none.
    #[error(transparent)]
    Malformed(DecodeError),
    /// It comes at the wrong time.
    #[error(transparent)]
    Untimely(conn_core::direct_read::RequestError),
    /// It has no signal where it should have one, or the other way round.
    #[error("a request with a signal where there is none, or without one")]
    Signal,
}

/// A request that could not be staged although there was room: a bug of ours.
pub(crate) fn misjudged(error: StageError) -> Ended {
    debug_assert!(false, "room was counted that the send queue does not have: {error}");
    Ended::Device(error.to_string())
}
