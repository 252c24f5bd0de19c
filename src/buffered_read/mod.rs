//! The Buffered Read connection: the receiver reads the sender's ring.
//!
//! ```text
//!       sender                                        receiver
//!   ring [m m m . . .]     <------ READ, … --------   ring [m m m . . .]
//!   tail, FIN              <------ READ -----------        | lend, free
//!   head, landed           <------ WRITE ----------        v
//! ```
//!
//! The sender is passive: to send is to copy a message into a ring and to publish how far
//! it is filled. The receiver reads that, then all that is there, in READs that bring many
//! small messages at once; it hands them out where they have landed, and writes back how far
//! they were freed. So the rate of small messages is the highest of all connections, and
//! messages of all sizes go without slots of a fixed size; the latency is that of two READs,
//! or of one while messages flow, since each posting of READs brings the tail along.
//!
//! 1. [`connect`] to a [`Listener`], or [`pair`] within a process.
//! 2. [`Sender::send_async`] copies; [`Sender::reserve`] lends room to be filled in place.
//! 3. [`Receiver::recv`] gives a [`Message`] that derefs to its bytes;
//!    [`Receiver::try_recv_each`] shows all that there is.
//!
//! A connection is duplex: two one-way halves, each with a queue pair, a ring and a
//! completion queue of its own. A [`Receiver`] may have many senders ([`join`]), which take
//! turns. Several threads may share an end: [`Sender::into_shared`],
//! [`Receiver::into_shared`].
//!
//! Nothing wakes a receiver: it looks. One that waits for long looks every now and then
//! (see [`Config::wait`]). Who needs to sleep until a message comes uses
//! [`send_recv`](crate::send_recv).

mod config;
mod landing;
mod link;
mod listener;
mod message;
mod receiver;
mod sender;
mod setup;

use std::net::ToSocketAddrs;
use std::os::unix::net::UnixStream;

pub use config::Config;
pub use listener::{BufferedRead, Incoming, Listener};
pub use message::Message;
pub use receiver::{Receiver, ReceiverStats, SharedMessage, SharedReceiver, Transfers};
pub use sender::{Reserved, Sender, SenderStats, SharedSender, Ticket};

use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::{dial, within_process};
use crate::ring::setup::initiate;
use crate::sealed::sealed_bytes;
use crate::send_recv::ConnectError;
use link::Link;

/// What a receiver writes: its head, how far it has read, and the seal of both.
const WORDS_BYTES: u32 = sealed_bytes(2) as u32;

/// Both halves of one end of a connection. Take it apart to give each half to a thread of
/// its own.
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

/// As [`connect`], over any stream, with some bytes for the peer's application, up to
/// [`MAX_USER`](conn_core::ring::offer::MAX_USER).
///
/// # Errors
/// As [`connect`].
pub fn connect_over<S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &Config,
    application: &[u8],
) -> Result<Connection, ConnectError> {
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    let draft = setup::draft(device, config, (true, true))?;
    let (sender, link) = initiate(&mut exchange, draft, application)?;
    Ok(Connection { sender: present(sender)?, receiver: receiver_of(config, present(link)?) })
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

/// As [`connect_sender`], over any stream, with some bytes for the peer's application.
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
    let draft = setup::draft(device, config, (true, false))?;
    let (sender, _) = initiate(&mut exchange, draft, application)?;
    present(sender)
}

/// Connects two ends within this process, which may be on different devices.
///
/// ```
/// use rdma_conn::buffered_read::{Config, pair};
///
/// let device = rdma_conn::device::soft()?;
/// let (mut left, mut right) = pair(&device, &device, &Config::default())?;
/// left.sender.send_async(b"hello")?;
/// assert_eq!(&*right.receiver.recv()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`connect`].
pub fn pair(
    left: &Device,
    right: &Device,
    config: &Config,
) -> Result<(Connection, Connection), ConnectError> {
    let initiator = |stream: &mut UnixStream| connect_over(stream, left, config, b"");
    let acceptor = |stream| Incoming::greet(stream)?.accept(right, config);
    within_process(initiator, acceptor)
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
    let acceptor = |stream| Incoming::greet(stream)?.accept_into(receiver, receiver_device, config);
    Ok(within_process(initiator, acceptor)?.0)
}

/// A receiver without senders yet, for up to `max_peers` of them, which take turns.
/// Senders come by [`join`], or by [`Incoming::accept_into`].
///
/// # Errors
/// [`ConnectError::Config`].
pub fn receiver(config: &Config, max_peers: u32) -> Result<Receiver, ConnectError> {
    config.validate()?;
    Ok(Receiver::new(config, max_peers))
}

fn receiver_of(config: &Config, link: Link) -> Receiver {
    let mut receiver = Receiver::new(config, 1);
    receiver.add(Box::new(link));
    receiver
}

/// A half that the handshake has made on both ends, or on neither.
fn present<T>(made: Option<T>) -> Result<T, ConnectError> {
    let missing = || HandshakeError::Unfit("the ends disagree on the directions".into());
    Ok(made.ok_or_else(missing)?)
}
