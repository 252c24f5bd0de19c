//! The Direct Read connection: true zero copy.
//!
//! 1. [`connect`] a [`Sender`] to a [`Listener`], or make a [`pair`] within a process.
//! 2. [`offer`](ZeroCopySend::offer) offers a buffer; [`wait_sent`](ZeroCopySend::wait_sent) gives
//!    it back, with the outcome.
//! 3. [`next_request`](ZeroCopyRecv::next_request) shows the oldest message that is offered and not decided:
//!    [`read_into`](OfferedMessage::read_into) reads it into a buffer, [`Request::read_into_file`] into a file, and
//!    [`Request::refuse`] refuses it.
//! 4. [`wait`](ZeroCopyRecv::wait) gives the message that was read, in its buffer.
//!
//! A sender offers a registered buffer. The receiver sees its length and the application data,
//! chooses a place, and reads the message there from the sender's memory. Only the devices copy
//! bytes.
//!
//! ```text
//!        sender                                     receiver
//!   [buffer, owned by the   SEND: where it is   [request buffers]
//!    sender while offered] -------------------->   | reposted at once
//!             ^            RDMA READ               | decides
//!             `=================================   v
//!                           acknowledgement     [buffer, the device's while it
//!   [signal]  <---------------------------------  lands, given back by wait]
//! ```
//!
//! The design is Fischer's ("Know Your Memory: RDMA-Based Protocols for Data Exchange", 2021).
//! [`AckMode`] selects the acknowledgement that returns the buffer to the sender:
//!
//! | mode | carried by | costs |
//! |---|---|---|
//! | `FencedWrite` | a WRITE behind the READ, with a fence | READs do not overlap |
//! | `Write` (default) | a WRITE when the READ has completed | a poll and a post between them |
//! | `Send` | a SEND when READs have completed | an interrupt, one receive |
//! | `Cumulative` | one WRITE for many messages | buffers come back later |
//! | `Pull` | a READ by the sender when it wants to know | a round trip of the sender |
//!
//! The signal of the first two is one byte, apart from the message or behind it
//! ([`SignalAt`]). In all modes either end may sleep: a sender that expects no completion
//! requests a notice behind the next acknowledgement.
//!
//! Both ends have a window of messages (32); each request has a posted buffer. Both devices limit
//! the READs in flight. Messages longer than the device's longest are read in parts.
//!
//! [`pair()`], [`join()`] and [`connect()`] of this module make one direction, for any kind of
//! [`Offer`]; those of the crate connect both ways, as for every
//! [`Protocol`](crate::Protocol). Its calls ([`SendHalf`](crate::SendHalf),
//! [`RecvHalf`](crate::RecvHalf)) copy a message of up to
//! [`message_bytes`](Config::message_bytes) into a registered buffer of the sender's, and read it
//! into one of the receiver's; both make these buffers when they first lack one.
//!
//! N:1: one [`Receiver`] takes many senders ([`receiver()`]), with request buffers of each, or shared ones
//! ([`receiver_shared`]). 1:N: a [`FrozenBuffer`] is offered by many senders at a time.
//!
//! # What a peer can do
//!
//! A receiver can read an offered buffer as long as it is registered. It can acknowledge the buffer
//! before it has read it: then the sender may change the bytes before the READ. It can write to
//! signals only. A sender can offer memory that is not its own, or change it meanwhile: the READ
//! fails ([`CloseReason::BadOffer`]), or reads the changed bytes. Neither can access the other's
//! memory otherwise, nor make it wait for ever. The connections that are made with one [`Device`]
//! handle share its protection domain: a key that one peer passes to another, or guesses, opens the
//! same memory to it. [`Device::isolated`] gives a handle with a domain of its own.

mod config;
mod landing;
mod link;
mod message;
mod messages;
mod receiver;
mod request;
mod room;
mod sender;
mod setup;

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

pub use conn_core::direct_read::{AckMode, Outcome, Refusal, SignalAt};
pub use verbs_safe::{Buffer, BufferConfig, FileRegion, FrozenBuffer};

pub use crate::error::{
    BadRequest, CloseReason, ConnectError, Full, ProtocolError, RecvError, SendError,
};
pub use crate::peer::Peer;
pub use crate::qp::Transport;
pub use crate::ticket::Ticket;
pub use crate::zero_copy::{
    NotRead, NotReadReason, NotSent, Offer, OfferError, OfferedMessage, ReadError, Sent,
    ZeroCopyRecv, ZeroCopySend,
};
pub use config::Config;
pub use message::{FileReading, Message, Reading};
pub use receiver::{Receiver, ReceiverStats};
pub use request::{NotReadIntoFile, Request};
pub use sender::{Sender, SenderStats};
pub use setup::DirectRead;

use crate::acceptor::{dial, dial_timeout, within_process};
use crate::device::Device;
use crate::draft::{self, DraftEnd};
use crate::handshake::{Stream, present};
use crate::listener;

/// Listens for Direct Read connections.
pub type Listener = listener::Listener<DirectRead>;

/// An initiator that has requested such a connection and waits for the answer.
pub type Incoming<S = TcpStream> = listener::Incoming<DirectRead, S>;

/// Connects a sender to the [`Listener`] on `address`.
///
/// # Errors
/// [`ConnectError`].
pub fn connect<B: Offer>(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &Config,
) -> Result<Sender<B>, ConnectError> {
    connect_over(&mut dial(address)?, device, config, b"")
}

/// As [`connect`], for at most `timeout` in all. (Looking up a name in place of an address takes its
/// own time.)
///
/// # Errors
/// As [`connect`]; [`ConnectError::is_timeout`] tells that the time was over.
pub fn connect_timeout<B: Offer>(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &Config,
    timeout: Duration,
) -> Result<Sender<B>, ConnectError> {
    connect_over(&mut dial_timeout(address, timeout)?, device, config, b"")
}

/// Connects a sender over a byte stream, and tells the listener's application up to 492
/// bytes. The stream is free for other uses afterwards.
///
/// # Errors
/// [`ConnectError`].
pub fn connect_over<B: Offer, S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &Config,
    application: &[u8],
) -> Result<Sender<B>, ConnectError> {
    let end = DraftEnd::<DirectRead>::sending(device, config);
    let draft =
        end.draft_with(|device, config| setup::new_sender::<B>(device, config).map(Some))?;
    Ok(present(draft::initiate(stream, draft, application)?)?)
}

/// A receiver without peers, for up to `max_peers` senders.
///
/// # Errors
/// [`ConnectError`].
pub fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
) -> Result<Receiver, ConnectError> {
    setup::receiver(device, config, max_peers, None)
}

/// As [`receiver()`], with a shared receive queue: `request_buffers` of them serve all
/// peers. Each peer may use as many as its window and 4 more, which must be there.
///
/// # Errors
/// [`ConnectError`].
pub fn receiver_shared(
    device: &Device,
    config: &Config,
    max_peers: u32,
    request_buffers: u32,
) -> Result<Receiver, ConnectError> {
    setup::receiver(device, config, max_peers, Some(request_buffers))
}

/// Both ends of a connection within this process.
///
/// # Errors
/// [`ConnectError`].
pub fn pair<B: Offer + Send>(
    sender: &Device,
    receiver: &Device,
    config: &Config,
) -> Result<(Sender<B>, Receiver), ConnectError> {
    let mut end = self::receiver(receiver, config, 1)?;
    let sender = join(&mut end, receiver, sender, config)?;
    Ok((sender, end))
}

/// One more sender for `receiver`, within this process.
///
/// # Errors
/// [`ConnectError`].
pub fn join<B: Offer + Send>(
    receiver: &mut Receiver,
    receiver_device: &Device,
    device: &Device,
    config: &Config,
) -> Result<Sender<B>, ConnectError> {
    let initiator = |stream: &mut _| connect_over(stream, device, config, b"");
    let acceptor = |stream| Incoming::greet(stream)?.accept_into(receiver, receiver_device, config);
    let (sender, _) = within_process(initiator, acceptor)?;
    Ok(sender)
}
