//! The Send/Receive connection.
//!
//! A connection is duplex: two one-way halves, each with a queue pair and a
//! completion queue of its own, so that each is usable by its own thread and the
//! two share nothing.
//!
//! ```text
//!        sender                                  receiver
//!   send ring (unacked)      SEND, plain        k + 1 receive buffers
//!   [m m m m . . . .]  --------------------->   [m m . . . . . . .]
//!                        SEND with immediate          | lend, free,
//!   16 empty buffers   <---------------------         | repost
//!   [. . . . . . . .]     credit, no payload          v
//! ```
//!
//! The sender keeps up to `unacked` messages on their way, posts them in postlists
//! of `batch`, and asks for a completion now and then: a completion acknowledges
//! everything before it, and in-order delivery makes "acknowledged" mean "lies in
//! the receiver's memory". The receiver polls up to 32 completions at a time, lends
//! the messages out, and reposts what was freed in batches.
//!
//! A message that finds no buffer costs the sender a long back-off or the
//! connection ("reader not ready"; the specification leaves the cure to production
//! systems). Here the receiver grants credits: cumulative counts of messages that
//! it will have room for, told when half of its buffers have come back, or at once
//! when the sender may have none left. So no message is ever sent without a buffer
//! waiting for it. `credits: false` is the uncontrolled mode, for measuring.
//!
//! To receive from many senders there are the single-receiver mode (one
//! [`Receiver`], many senders) and shared receive queues ([`SharedPool`]).

mod config;
mod error;
pub(crate) mod index;
mod link;
mod links;
mod listener;
mod message;
mod receiver;
mod returns;
mod sender;
mod setup;
mod shared;

use std::net::ToSocketAddrs;
use std::os::unix::net::UnixStream;

pub use config::{Config, ConfigError, Inline, Preset, Transport, UnknownPreset};
pub use error::{ConnectError, Ended, Full, RecvError, SendError, Violation};
pub use listener::{Incoming, Listener, SendRecv};
pub use message::{Message, Peer};
pub use receiver::{Receiver, ReceiverStats};
pub use sender::{Sender, SenderStats, Ticket};
pub use shared::{Reposting, SharedConfig, SharedPool};

use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::{self, dial};
use setup::Inbox;

/// Both halves of one end of a connection. Take it apart to give each half to a
/// thread of its own.
#[derive(Debug)]
pub struct Connection {
    /// To the peer.
    pub sender: Sender,
    /// From the peer.
    pub receiver: Receiver,
}

/// A question to the peer's device: a write of no bytes needs no buffer, no key and
/// no credit, and fails when nobody answers.
pub(crate) const PROBE: verbs_safe::SendOp = verbs_safe::SendOp::Write {
    len: 0,
    remote: verbs_safe::RemoteSpan { addr: 0, rkey: 0, len: 0 },
};

/// Connects to a [`Listener`], both ways.
///
/// # Errors
/// [`ConnectError`]; the peer's reason when it refuses.
pub fn connect(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &Config,
) -> Result<Connection, ConnectError> {
    connect_over(&mut dial(address)?, device, config, b"")
}

/// As [`connect`], over any stream, with up to 512 bytes for the peer's application.
///
/// # Errors
/// As [`connect`].
pub fn connect_over<S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &Config,
    application: &[u8],
) -> Result<Connection, ConnectError> {
    let mut receiver = setup::receiver(device, config, 1, None)?;
    let inbox = Inbox { receiver: &mut receiver, shared: None };
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    let sender = setup::initiate(&mut exchange, device, config, true, Some(inbox), application)?;
    Ok(Connection { sender: sender_of(sender)?, receiver })
}

/// Connects to a listener one way: this end sends.
///
/// # Errors
/// As [`connect`].
pub fn connect_sender(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &Config,
) -> Result<Sender, ConnectError> {
    connect_sender_over(&mut dial(address)?, device, config, b"")
}

/// As [`connect_sender`], over any stream, with up to 512 bytes for the peer's
/// application.
///
/// # Errors
/// As [`connect`].
pub fn connect_sender_over<S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &Config,
    application: &[u8],
) -> Result<Sender, ConnectError> {
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    sender_of(setup::initiate(&mut exchange, device, config, true, None, application)?)
}

/// Connects two ends within this process, which may be on different devices.
///
/// # Errors
/// As [`connect`].
pub fn pair(
    left: &Device,
    right: &Device,
    config: &Config,
) -> Result<(Connection, Connection), ConnectError> {
    let mut receiver = setup::receiver(right, config, 1, None)?;
    let inbox = Inbox { receiver: &mut receiver, shared: None };
    let initiator = |stream: &mut UnixStream| connect_over(stream, left, config, b"");
    let (near, far) = within_process(initiator, right, config, inbox)?;
    Ok((near, Connection { sender: sender_of(far)?, receiver }))
}

/// Connects a new sender on `device` to a receiver of this process.
///
/// # Errors
/// As [`connect`], and [`ConnectError::TooManyPeers`].
pub fn join(
    receiver: &mut Receiver,
    receiver_device: &Device,
    device: &Device,
    config: &Config,
) -> Result<Sender, ConnectError> {
    let inbox = Inbox { receiver, shared: None };
    join_inbox(inbox, receiver_device, device, config)
}

/// As [`join`], with receive buffers from a shared pool.
///
/// # Errors
/// As [`join`], and [`ConnectError::SharedPoolFull`].
pub fn join_shared(
    receiver: &mut Receiver,
    pool: &SharedPool,
    receiver_device: &Device,
    device: &Device,
    config: &Config,
) -> Result<Sender, ConnectError> {
    let inbox = Inbox { receiver, shared: Some(pool) };
    join_inbox(inbox, receiver_device, device, config)
}

fn join_inbox(
    inbox: Inbox<'_>,
    receiver_device: &Device,
    device: &Device,
    config: &Config,
) -> Result<Sender, ConnectError> {
    let initiator = |stream: &mut UnixStream| connect_sender_over(stream, device, config, b"");
    let (sender, _) = within_process(initiator, receiver_device, config, inbox)?;
    Ok(sender)
}

/// The handshake of two ends in one process.
fn within_process<T: Send>(
    initiator: impl FnOnce(&mut UnixStream) -> Result<T, ConnectError> + Send,
    device: &Device,
    config: &Config,
    inbox: Inbox<'_>,
) -> Result<(T, Option<Sender>), ConnectError> {
    reception::within_process(initiator, |far| {
        let incoming = Incoming::greet(far)?;
        Ok(incoming.accept_inbox(device, config, Some(inbox), b"")?.0)
    })
}

/// A receiver without senders yet, for up to `max_peers` of them: the
/// single-receiver mode. Senders come by [`join`], or by [`Incoming::accept_into`].
///
/// With a pool, its completion queue has room for the pool's completions.
///
/// # Errors
/// [`ConnectError::Device`], [`ConnectError::Config`].
pub fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
    pool: Option<&SharedPool>,
) -> Result<Receiver, ConnectError> {
    setup::receiver(device, config, max_peers, pool)
}

fn sender_of(made: Option<Sender>) -> Result<Sender, ConnectError> {
    let missing = || HandshakeError::Unfit("the ends disagree on the directions".into());
    Ok(made.ok_or_else(missing)?)
}

/// What it means that a completion gives no buffer.
pub(crate) fn ended_by(error: &verbs_safe::TakeError) -> Ended {
    match error {
        verbs_safe::TakeError::Failed { error, .. } => Ended::PeerLost(*error),
        _ => Ended::Protocol(Violation::Completion),
    }
}
