//! What can end a connection, and what each call may answer.

use conn_core::handshake::Reason;
use verbs_safe::WcError;

use crate::device::DeviceError;

/// Why a connection, or one of its halves, has ended. Every waiter gets it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The transport gave up: the peer died, was unreachable for longer than the
    /// retries last, or answered with an error.
    #[error("the peer was lost: {0}")]
    PeerLost(WcError),
    /// The peer offered memory that is not its own to offer, or has taken the offer back:
    /// its device refused the access.
    #[error("the peer's device refused what the peer had offered: {0}")]
    BadOffer(WcError),
    /// The peer said something that the protocol does not allow.
    #[error("the peer broke the protocol: {0}")]
    Protocol(Violation),
    /// The peer stopped receiving (its receiver was closed or dropped).
    #[error("the peer stopped receiving")]
    PeerStopped,
    /// The peer said goodbye after its last message, or this end did.
    #[error("the connection is closed")]
    Closed,
    /// The local device failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// What the peer did that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A credit that takes back what was granted, or grants more than there are
    /// buffers.
    #[error("impossible credit: {0}")]
    Credit(conn_core::credit::CreditError),
    /// A message beyond the credits.
    #[error("a message without a credit for it")]
    Overrun,
    /// An immediate that means nothing, or nothing in this direction.
    #[error("unknown control message {0:#010x}")]
    Control(
        /// The immediate, as it was received.
        u32,
    ),
    /// A packed message whose records do not fit it.
    #[error("malformed packed message: {0}")]
    Pack(conn_core::pack::UnpackError),
    /// A ring's head that no honest receiver tells.
    #[error("impossible head: {0}")]
    Head(conn_core::ring::HeadError),
    /// A ring's tail that no honest sender tells.
    #[error("impossible tail: {0}")]
    Tail(conn_core::ring::TailError),
    /// What no receiver of a ring can tell.
    #[error("{0}")]
    Told(conn_core::buffered_write::ToldError),
    /// What no sender into a ring can tell.
    #[error("{0}")]
    Pushed(conn_core::buffered_write::PushedError),
    /// Something in a ring that is no record.
    #[error("malformed record: {0}")]
    Record(conn_core::ring::RecordError),
    /// A message that is acknowledged out of turn.
    #[error("impossible acknowledgement: {0}")]
    Acknowledgement(conn_core::direct_read::AckError),
    /// A request that cannot be followed.
    #[error("impossible read request: {0}")]
    Request(crate::direct_read::BadRequest),
    /// Words of a Buffered Read receiver that no honest one writes.
    #[error("impossible words: {0}")]
    Words(conn_core::buffered_read::WordError),
    /// A completion that belongs to no request of ours.
    #[error("a completion for no request")]
    Completion,
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Longer than the receiver's buffers; nothing was sent.
    #[error("the message has {bytes} bytes, the receiver takes {limit} at most")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest message that would fit.
        limit: usize,
    },
    /// The window or the credits are used up: wait for a ticket, or try later.
    #[error("no room: {0} are used up")]
    Full(Full),
    /// The caller's timeout passed; nothing was lost, and waiting may go on.
    #[error("timed out")]
    TimedOut,
    /// No message of this sender has this ticket: it is another sender's.
    #[error("the ticket is another sender's")]
    UnknownTicket,
    /// The connection has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// What a sender has run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// Unacknowledged messages.
    Window,
    /// The receiver's credits.
    Credits,
    /// The bytes of the ring.
    Ring,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Full::Window => "the unacknowledged messages",
            Full::Credits => "the receiver's credits",
            Full::Ring => "the bytes of the ring",
        })
    }
}

/// Why no message was received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// There is none now.
    #[error("no message yet")]
    Empty,
    /// The caller's timeout passed.
    #[error("timed out")]
    TimedOut,
    /// Every peer has said goodbye, and all that they sent was handed out; or there
    /// is no peer that could be waited for.
    #[error("the connection is closed")]
    Closed,
    /// One peer's connection has ended with an error, which is reported once; all
    /// that it sent before was handed out. The other peers go on.
    #[error("peer {peer}: {ended}")]
    Peer {
        /// Which one.
        peer: crate::send_recv::Peer,
        /// Why.
        ended: Ended,
    },
    /// The receiver itself cannot go on.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] super::ConfigError),
    /// A verb failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] crate::handshake::HandshakeError),
    /// The shared pool has too few buffers for one more connection.
    #[error(
        "the shared pool has {free} of {buffers} buffers left, the connection asks for {wanted}: \
         make the pool larger or recv_window smaller"
    )]
    SharedPoolFull {
        /// Not yet promised to a connection.
        free: u32,
        /// In all.
        buffers: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// The receiver has as many peers as it was made for.
    #[error("the receiver already has its {0} peers: make it with a larger max_peers")]
    TooManyPeers(
        /// How many it was made for.
        u32,
    ),
    /// The operating system refused something that is not a verb.
    #[error("{what}: {error}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// The refusal.
        error: std::io::Error,
    },
}

impl ConnectError {
    /// The code that tells the peer.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            ConnectError::Handshake(e) => e.reason(),
            ConnectError::SharedPoolFull { .. } | ConnectError::TooManyPeers(_) => Reason::BUSY,
            ConnectError::Config(_) => Reason::PARAMETERS,
            _ => Reason::INTERNAL,
        }
    }
}
