//! The Buffered Write connection: low latency with messages of any size.
//!
//! A connection is duplex: two one-way halves, each with a queue pair and a completion queue
//! of its own, so that each is usable by its own thread and the two share nothing.
//!
//! ```text
//!        sender                                          receiver
//!   a ring of its own         WRITE records           the ring, registered
//!   [ . . r r r . . ]   ----------------------->      [ . . r r r . . ]
//!                             tail: immediate, or              | copy out,
//!   control block             WRITE of its own                 | hand out
//!   [ head, taken ]     <-----------------------               v
//!                             WRITE head
//! ```
//!
//! The sender builds each message as a record in a ring of its own, and WRITEs whatever has
//! gathered since the last push to the same place of the receiver's ring, in one request.
//! Then it tells its tail. The receiver polls, copies what has come out of the ring, hands
//! out the messages, and writes its head back into the sender's control block: a position
//! that is the sender's credit. So messages may have any size up to that of the ring, small
//! ones share requests without being delayed for it, and nobody is ever told "not ready".
//!
//! Where the tail is written, a lone message of up to 40 bytes goes in the cache line of the
//! tail, and lands in the ring behind it: whoever waits for it waits for one line
//! ([`beside`](conn_core::buffered_write::beside)).
//!
//! The peer can write to the ring at any time, also to what it has told. So messages are
//! copied first and looked at then, and headers are trusted in the copy only: whatever the
//! peer does, a message does not change once it was handed out.
//!
//! ```
//! use rdma_conn::buffered_write::{Config, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let (mut left, mut right) = pair(&device, &device, &Config::default())?;
//! left.sender.send_async(b"hello")?;
//! left.sender.send_async(&[7; 60_000])?;
//! assert_eq!(&*right.receiver.recv()?, b"hello");
//! assert_eq!(right.receiver.recv()?.len(), 60_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk;
mod config;
mod link;
mod listener;
mod receiver;
mod sender;
mod setup;

use std::net::ToSocketAddrs;
use std::os::unix::net::UnixStream;

pub use chunk::Message;
pub use config::{Config, Tail};
pub use listener::{BufferedWrite, Incoming, Listener};
pub use receiver::{Receiver, ReceiverStats};
pub use sender::{Reserved, Sender, SenderStats, Ticket};

use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::{dial, within_process};
pub use crate::send_recv::{ConnectError, Ended, Full, Peer, RecvError, SendError, Violation};

/// Both halves of one end of a connection. Take it apart to give each half to a
/// thread of its own.
#[derive(Debug)]
pub struct Connection {
    /// To the peer.
    pub sender: Sender,
    /// From the peer.
    pub receiver: Receiver,
}

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

/// As [`connect`], over any stream, with up to
/// [`MAX_USER`](conn_core::ring::offer::MAX_USER) bytes for the peer's application.
///
/// # Errors
/// As [`connect`].
pub fn connect_over<S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &Config,
    application: &[u8],
) -> Result<Connection, ConnectError> {
    let mut receiver = setup::receiver(device, config, 1)?;
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    let into = Some(&mut receiver);
    let sender = setup::initiate(&mut exchange, device, config, true, into, application)?;
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

/// As [`connect_sender`], over any stream, with up to
/// [`MAX_USER`](conn_core::ring::offer::MAX_USER) bytes for the peer's application.
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
    within_process(
        |stream: &mut UnixStream| connect_over(stream, left, config, b""),
        |far| Incoming::greet(far)?.accept(right, config),
    )
}

/// A receiver without senders yet, for up to `max_peers` of them: the single-receiver mode.
/// Senders come by [`join`], or by [`Incoming::accept_into`].
///
/// # Errors
/// [`ConnectError::Device`], [`ConnectError::Config`].
pub fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
) -> Result<Receiver, ConnectError> {
    setup::receiver(device, config, max_peers)
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
    let initiator = |stream: &mut UnixStream| connect_sender_over(stream, device, config, b"");
    let acceptor = |far| Incoming::greet(far)?.accept_into(receiver, receiver_device, config);
    Ok(within_process(initiator, acceptor)?.0)
}

fn sender_of(made: Option<Sender>) -> Result<Sender, ConnectError> {
    let missing = || HandshakeError::Unfit("the ends disagree on the directions".into());
    Ok(made.ok_or_else(missing)?)
}
