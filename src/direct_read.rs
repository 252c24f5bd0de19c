//! The Direct Read connection: true zero copy.
//!
//! A sender offers a registered buffer; the receiver sees its length and what the sender's
//! application says of it, decides where it belongs, and reads it there out of the
//! sender's memory. Nothing copies a byte but the devices.
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
//! How the sender learns that it has its buffer back is selectable ([`AckMode`]):
//!
//! | mode | carried by | costs |
//! |---|---|---|
//! | `FencedWrite` | a WRITE behind the READ, with a fence | READs do not overlap |
//! | `Write` (default) | a WRITE when the READ has completed | half a round trip later |
//! | `Send` | a SEND when READs have completed | an interrupt, one receive |
//! | `Cumulative` | one WRITE for many messages | buffers come back later |
//! | `Pull` | a READ by the sender when it wants to know | a round trip of the sender |
//!
//! The signal of the first two is one byte, apart from the message or behind it
//! ([`SignalAt`]). In all modes either end may sleep: a sender for whom nothing completes
//! asks for a notice behind the next acknowledgement.
//!
//! Both ends have a window of messages (32); no request is ever sent without a buffer
//! waiting for it. READs are limited by what both devices permit, and messages longer
//! than the device's longest are read in parts.
//!
//! A connection is one way, from the initiator to the listener. N:1: one [`Receiver`]
//! takes many senders ([`receiver()`]), with request buffers of each, or shared ones
//! ([`receiver_shared`]). 1:N: a [`FrozenBuffer`] is offered by many senders at a time.
//!
//! # What a peer can do
//!
//! A receiver can read a buffer that it was once offered as long as it is registered, and
//! acknowledge it before it has read it: what it gets then is its own loss. It can write
//! to signals only. A sender can offer what is not its own, or what it changes meanwhile:
//! the READ fails ([`Ended::BadOffer`]), or reads what is there. Neither can touch the
//! other's memory otherwise, nor make it wait for ever. All connections of a device share
//! a protection domain: a key that one peer tells another opens the same memory to it.

mod config;
mod error;
mod link;
mod listener;
mod message;
mod offer;
mod receiver;
mod request;
mod room;
mod sender;
mod setup;

use std::net::ToSocketAddrs;

pub use conn_core::direct_read::{AckMode, Outcome, Refusal, SignalAt};
pub use verbs_safe::{Buffer, BufferConfig, FileRegion, FrozenBuffer};

pub use crate::send_recv::{ConnectError, Ended, Transport, Violation};
pub use config::Config;
pub use error::{
    BadRequest, NotRead, NotReadIntoFile, NotReadReason, NotSent, RecvError, SendError,
};
pub use listener::{DirectRead, Incoming, Listener};
pub use message::{FileReading, Message, Reading};
pub use offer::Offer;
pub use receiver::{Receiver, ReceiverStats};
pub use request::Request;
pub use sender::{Sender, SenderStats, Sent, Ticket};

use crate::device::Device;
use crate::handshake::{Exchange, Stream, TIME_LIMIT};
use crate::reception::{dial, within_process};

/// One of a receiver's senders. Numbers are not given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A question to the peer's device: a write of no bytes needs no buffer, no key and no
/// room, and fails when nobody answers.
const PROBE: verbs_safe::SendOp = verbs_safe::SendOp::Write {
    len: 0,
    remote: verbs_safe::RemoteSpan { addr: 0, rkey: 0, len: 0 },
};

/// Connects a sender to whoever [listens](Listener) on `address`.
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

/// Connects a sender over a byte stream, and tells the listener's application up to 496
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
    setup::initiate(&mut Exchange::new(stream, TIME_LIMIT), device, config, application)
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
    let acceptor = |stream| Incoming::greet(stream)?.accept_into(receiver, receiver_device);
    let (sender, _) = within_process(initiator, acceptor)?;
    Ok(sender)
}
