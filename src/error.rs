//! Reasons why a connection of any kind ends, and errors that its calls return. Each connection's
//! module has the errors of its calls under its own path, too.

use conn_core::direct_read::{DecodeError, Refusal};
use conn_core::handshake::Reason;
use std::net::SocketAddr;
use std::ops::RangeBounds;

use verbs_safe::{StageError, WcError, WcStatus};

use crate::device::DeviceError;
use crate::peer::Peer;

/// Reason why a connection, or one of its halves, has ended. Every waiter gets it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The transport gave up: the peer died, was unreachable for longer than the
    /// retries last, or answered with an error.
    #[error(transparent)]
    PeerLost(Loss),
    /// The peer offered memory that it may not offer, or has taken the offer back: its device
    /// refused the access.
    #[error("the peer's device refused what the peer had offered: {0}")]
    BadOffer(WcError),
    /// The peer sent something that the protocol does not allow.
    #[error("the peer broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// The peer closed its receiver, or dropped it, before it had acknowledged everything that this
    /// end sent.
    #[error("the peer closed the connection: {unacked} messages were not acknowledged")]
    PeerClosed {
        /// Messages that were accepted and are not acknowledged, at least 1.
        unacked: u64,
    },
    /// The peer's program refused a message that this end had to deliver (Direct Read).
    #[error("the peer refused a message: {0:?}")]
    Refused(Refusal),
    /// One of the ends has closed the connection, and every accepted message is acknowledged.
    #[error("the connection is closed")]
    Closed,
    /// The local device failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// A lost peer. The text has its address and a remedy; the queue pair's status is the
/// [`source`](std::error::Error::source).
///
/// ```
/// use std::error::Error;
/// use rdma_conn::error::{CloseReason, Loss};
/// use rdma_conn::verbs_safe::{WcError, WcStatus};
///
/// let cause = WcError { status: WcStatus::RETRY_EXC, vendor_err: 0, qp_num: 7 };
/// let lost = Loss { peer: Some("10.0.0.2:7471".parse()?), cause };
/// assert!(lost.to_string().starts_with("the peer at 10.0.0.2:7471 was lost: it does not answer"));
/// assert!(CloseReason::PeerLost(lost).source().is_some_and(|e| e.to_string().contains("queue pair 7")));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} was lost: {}", named(*peer), explained(cause.status))]
pub struct Loss {
    /// Its address on the stream that the connection was set up over, if that went over a network.
    pub peer: Option<SocketAddr>,
    /// The completion, as the device has reported it.
    #[source]
    pub cause: WcError,
}

fn named(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "the peer".to_owned(), |address| format!("the peer at {address}"))
}

fn explained(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RETRY_EXC => {
            "it does not answer; its program or its machine has ended or hangs, or the network between is down: \
             see to that, and connect again"
        }
        WcStatus::RNR_RETRY_EXC => {
            "it takes no messages, though its device answers; its program hangs, or is too slow: see to that, and \
             connect again"
        }
        _ => {
            "its device has refused a request, as where its program has ended: see to that, and connect again"
        }
    }
}

impl From<WcError> for CloseReason {
    /// A lost peer, known only by the queue pair's status.
    fn from(cause: WcError) -> CloseReason {
        CloseReason::PeerLost(Loss { peer: None, cause })
    }
}

impl CloseReason {
    /// Names the peer, unless the reason does.
    pub(crate) fn with_peer(mut self, address: Option<SocketAddr>) -> CloseReason {
        if let CloseReason::PeerLost(lost) = &mut self {
            lost.peer = lost.peer.or(address);
        }
        self
    }

    /// The local device has failed so.
    pub(crate) fn device(error: impl std::fmt::Display) -> CloseReason {
        CloseReason::Device(error.to_string())
    }

    /// The peer has closed its receiver, and `unacked` messages are not acknowledged.
    pub(crate) fn by_peer(unacked: u64) -> CloseReason {
        if unacked == 0 { CloseReason::Closed } else { CloseReason::PeerClosed { unacked } }
    }

    /// Reports whether one of the ends has closed the connection, on purpose: with
    /// [`PeerClosed`](CloseReason::PeerClosed), messages are missing.
    #[must_use]
    pub fn is_close(&self) -> bool {
        matches!(self, CloseReason::Closed | CloseReason::PeerClosed { .. })
    }
}

/// Act of the peer that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A credit that revokes granted credits, or grants more than there are buffers.
    #[error("impossible credit: {0}")]
    Credit(conn_core::credit::CreditError),
    /// A message beyond the credits.
    #[error("a message without a credit for it")]
    Overrun,
    /// A loan that answers no request for one.
    #[error("impossible loan: {0}")]
    Loan(conn_core::loan::LoanError),
    /// A request for a loan that no honest sender makes.
    #[error("impossible request for a loan: {0}")]
    Want(conn_core::loan::WantError),
    /// Credits given back that the peer does not have.
    #[error("impossible return of credits: {0}")]
    Return(conn_core::loan::ReturnError),
    /// An immediate that means nothing, or nothing in this direction.
    #[error("unknown control message {0:#010x}")]
    Control(
        /// The immediate, as it was received.
        u32,
    ),
    /// A packed message with records that do not fit it.
    #[error("malformed packed message: {0}")]
    Pack(conn_core::pack::UnpackError),
    /// A ring's head that no honest receiver tells.
    #[error("impossible head: {0}")]
    Head(conn_core::ring::HeadError),
    /// A ring's tail that no honest sender tells.
    #[error("impossible tail: {0}")]
    Tail(conn_core::ring::TailError),
    /// Words that no honest receiver of a ring writes.
    #[error("{0}")]
    Update(conn_core::buffered_write::UpdateError),
    /// A push that no honest sender into a ring makes.
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
    Request(BadRequest),
    /// Words of a Buffered Read receiver that no honest one writes.
    #[error("impossible words: {0}")]
    Words(conn_core::buffered_read::WordError),
    /// Slots of a Direct Write receiver that no honest one writes.
    #[error("impossible slot: {0}")]
    Slot(conn_core::direct_write::SlotError),
    /// Something in a buffer that no honest Direct Write sender writes.
    #[error("impossible message: {0}")]
    Arrival(conn_core::direct_write::ArrivalError),
    /// Words of a Shared Write receiver that no honest one writes.
    #[error("impossible words: {0}")]
    Claim(conn_core::shared_write::ClaimError),
    /// Something in a shared ring that no honest sender writes.
    #[error("impossible message: {0}")]
    Extent(conn_core::shared_write::ExtentError),
    /// A completion that belongs to no request of ours.
    #[error("a completion for no request")]
    Completion,
}

/// Fault of a request of a Direct Read sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// Decoding failed.
    #[error(transparent)]
    Malformed(DecodeError),
    /// It arrives at the wrong time.
    #[error(transparent)]
    Untimely(conn_core::direct_read::RequestError),
    /// The signal field does not match the acknowledgement mode: it is missing in a mode with
    /// signals, or present in a mode without them.
    #[error("the signal field does not match the acknowledgement mode")]
    Signal,
}

/// Returns the reason why the connection ends when a completion gives no buffer.
pub(crate) fn close_reason(error: &verbs_safe::TakeError) -> CloseReason {
    match error {
        verbs_safe::TakeError::Failed { error, .. } => CloseReason::from(*error),
        _ => CloseReason::Protocol(ProtocolError::Completion),
    }
}

/// Reason why a message was not sent.
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
    /// There is no room for the message, and nothing was sent: wait for a ticket, or try later.
    #[error("no room: {0} are used up")]
    Full(Full),
    /// The caller's timeout passed; nothing was lost, and the caller may wait again.
    #[error("timed out{}", unflushed_note(*unflushed))]
    TimedOut {
        /// Accepted messages that are still being gathered: call `flush` to have them sent.
        /// None, unless the configuration asks for gathering.
        unflushed: u64,
    },
    /// No message of this sender has this ticket: it is another sender's.
    #[error("the ticket is another sender's, or its buffer was taken, or nothing is on offer")]
    UnknownTicket,
    /// The connection has ended.
    #[error(transparent)]
    Ended(#[from] CloseReason),
}

fn unflushed_note(messages: u64) -> String {
    match messages {
        0 => String::new(),
        1 => "; 1 accepted message is not flushed".into(),
        more => format!("; {more} accepted messages are not flushed"),
    }
}

/// Resource that a sender has run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// Unacknowledged messages.
    Window,
    /// The receiver's credits.
    Credits,
    /// The bytes of the ring.
    Ring,
    /// The extents of a shared ring that the receiver has granted.
    Extents,
    /// The work requests of the send queue.
    Requests,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Full::Window => "the unacknowledged messages",
            Full::Credits => "the receiver's credits",
            Full::Ring => "the bytes of the ring",
            Full::Extents => "the extents that the receiver has granted",
            Full::Requests => "the work requests of the send queue",
        })
    }
}

/// Reason why no message was received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// There is none now.
    #[error("no message yet")]
    Empty,
    /// The caller's timeout passed.
    #[error("timed out")]
    TimedOut,
    /// There is no peer any more, and all that they sent was handed out: the only one has said
    /// goodbye, or there were several. Or there has been none yet that could be waited for.
    #[error("the connection is closed")]
    Closed,
    /// One peer's connection has ended with an error, which is reported once as this; all
    /// that it sent before was handed out. The other peers are not affected.
    #[error("peer {peer}: {reason}")]
    Peer {
        /// The peer.
        peer: Peer,
        /// The reason.
        reason: CloseReason,
    },
    /// The receiver itself has failed; or the only peer that it has had has ended with this error,
    /// which was reported.
    #[error(transparent)]
    Ended(#[from] CloseReason),
}

/// The end of a receiver without peers: if it has had only one, that peer's end. Of several, each
/// end was reported.
#[derive(Debug, Default)]
pub(crate) struct Losses(Option<CloseReason>);

impl Losses {
    /// A peer's connection has ended with an error, which is reported once.
    pub(crate) fn report(&mut self, peer: Peer, reason: CloseReason) -> RecvError {
        self.0.get_or_insert_with(|| reason.clone());
        RecvError::Peer { peer, reason }
    }

    /// The receiver has no peer any more; `peers` is the number that it had.
    pub(crate) fn end(&self, peers: u32) -> RecvError {
        let only = self.0.clone().filter(|_| peers == 1);
        only.map_or(RecvError::Closed, RecvError::Ended)
    }
}

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {rule}")]
pub struct ConfigError {
    /// The field of the configuration.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The requirement on it.
    pub rule: &'static str,
}

/// Refuses the value of a field if it is not `ok`, with the rule.
pub(crate) fn check(
    field: &'static str,
    value: impl Into<u64>,
    ok: bool,
    rule: &'static str,
) -> Result<(), ConfigError> {
    if ok { Ok(()) } else { Err(ConfigError { field, value: value.into(), rule }) }
}

/// Refuses the value of a field if it is not in `range`, with the rule.
pub(crate) fn check_in<T: Copy + PartialOrd + Into<u64>>(
    field: &'static str,
    value: T,
    range: impl RangeBounds<T>,
    rule: &'static str,
) -> Result<(), ConfigError> {
    check(field, value, range.contains(&value), rule)
}

/// The value of a field; where that is 0, which lets the library choose, its `choice`.
pub(crate) fn chosen<T: Default + PartialEq>(value: T, choice: T) -> T {
    if value == T::default() { choice } else { value }
}

/// Reason why a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A verb failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] crate::handshake::HandshakeError),
    /// The shared queue of a receiver has too few buffers for one more connection.
    #[error(
        "the shared queue has {free} of {buffers} buffers left, the connection asks for {wanted}: \
         make the queue larger or the window smaller"
    )]
    SharedPoolFull {
        /// Not yet promised to a connection.
        free: u32,
        /// In all.
        buffers: u32,
        /// Buffers that were asked for.
        wanted: u32,
    },
    /// The receiver has as many peers as it was made for.
    #[error("the receiver already has its {0} peers: make it with a larger max_peers")]
    TooManyPeers(
        /// Peers that it was made for.
        u32,
    ),
    /// There is no stream to the listening end.
    #[error(
        "cannot connect to {address}: {error}; start the listening end first, and give it the \
         same address"
    )]
    Unreached {
        /// The last address that was tried.
        address: std::net::SocketAddr,
        /// The reason why it was not reached.
        error: std::io::Error,
    },
    /// The operating system refused something that is not a verb.
    #[error("{what}: {error}")]
    System {
        /// Name of the requested feature.
        what: &'static str,
        /// The refusal.
        error: std::io::Error,
    },
}

impl ConnectError {
    /// Reports whether a time was over: the caller's, or one of the handshake's own.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        use crate::handshake::HandshakeError;
        match self {
            ConnectError::Handshake(HandshakeError::TimedOut(_)) => true,
            ConnectError::System { error, .. } | ConnectError::Unreached { error, .. } => {
                error.kind() == std::io::ErrorKind::TimedOut
            }
            _ => false,
        }
    }

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

/// A request that could not be staged although there was room: a bug of ours.
pub(crate) fn internal_error(error: StageError) -> CloseReason {
    debug_assert!(false, "room was counted that the send queue does not have: {error}");
    CloseReason::Device(error.to_string())
}
