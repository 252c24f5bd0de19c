//! Accepting connections.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::{ProtocolId, Reason};

use super::setup::{self, Inbox};
use super::{Config, ConnectError, Connection, Peer, Receiver, SharedPool, sender_of};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::{Caller, Reception};
use crate::wait::Deadline;

/// Listens for connections on a TCP port.
///
/// Whoever speaks something else there is told so and refused; the listener goes on. All
/// who connect are listened to at the same time, so that one who says nothing holds
/// nobody up; it is refused after [`HELLO_LIMIT`](crate::handshake::HELLO_LIMIT). Several
/// threads may wait at once.
///
/// ```
/// use rdma_conn::send_recv::{Config, Listener, connect};
///
/// let (device, config) = (rdma_conn::device::soft()?, Config::default());
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr();
/// let client = std::thread::spawn({
///     let device = device.clone();
///     move || connect(address, &device, &config)?.sender.send(b"hi").map_err(anyhow)
/// });
/// let mut connection = listener.next()?.accept(&device, &config)?;
/// assert_eq!(&*connection.receiver.recv()?, b"hi");
/// client.join().unwrap()?;
/// # fn anyhow(e: impl std::error::Error + Send + Sync + 'static) -> Box<dyn std::error::Error + Send + Sync> { Box::new(e) }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Listener(Reception);

/// Somebody who wants a connection, and waits for the answer.
#[derive(Debug)]
pub struct Incoming<S: Stream = TcpStream>(Caller<S>);

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        Ok(Listener(Reception::bind(address, ProtocolId::SEND_RECV)?))
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Waits for the next initiator's Hello. An error concerns one initiator, who was
    /// told; the listener goes on.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly; [`ConnectError::System`] when the operating system
    /// has nothing left to accept with (descriptors, mostly), which may change.
    pub fn next(&self) -> Result<Incoming, ConnectError> {
        Ok(Incoming(self.0.next()?))
    }

    /// As [`next`](Listener::next), for at most `timeout`; `None` when nobody came.
    ///
    /// # Errors
    /// As [`next`](Listener::next).
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Incoming>, ConnectError> {
        Ok(self.0.next_until(Deadline::after(timeout))?.map(Incoming))
    }
}

impl<S: Stream> Incoming<S> {
    /// Reads the Hello of whoever is at the other end of `stream`.
    pub(super) fn greet(
        stream: S,
        from: Option<SocketAddr>,
        limit: Duration,
    ) -> Result<Incoming<S>, ConnectError> {
        Ok(Incoming(Caller::greet(stream, from, limit, ProtocolId::SEND_RECV)?))
    }

    /// Where it comes from, when that is known.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.0.from
    }

    /// The stream that it came by. Once the handshake is over, the stream is the users':
    /// keep a clone of it for what they have to say to each other.
    #[must_use]
    pub fn stream(&self) -> &S {
        &self.0.stream
    }

    /// What the initiator's application said, up to 512 bytes.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        &self.0.hello.application
    }

    /// Whether it wants to send only.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        self.0.is_one_way()
    }

    /// Accepts a connection that goes both ways.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is told.
    pub fn accept(mut self, device: &Device, config: &Config) -> Result<Connection, ConnectError> {
        self.0.require_both_ways()?;
        let made = setup::receiver(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.0.tell(e.reason(), &e.to_string()))?;
        let inbox = Inbox { receiver: &mut receiver, shared: None };
        let (sender, _) = self.accept_inbox(device, config, Some(inbox), b"")?;
        Ok(Connection { sender: sender_of(sender)?, receiver })
    }

    /// Accepts an initiator that only sends, as one more peer of `receiver`, with
    /// receive buffers of its own, or from `pool`.
    ///
    /// Nobody receives meanwhile, so that an initiator that is accepted and then does not
    /// say that it is ready keeps the receiver's other peers waiting for up to
    /// [`READY_LIMIT`](crate::handshake::READY_LIMIT). Where that is too long, give
    /// initiators that are not trusted receivers of their own.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is told.
    pub fn accept_into(
        self,
        receiver: &mut Receiver,
        pool: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<Peer, ConnectError> {
        let mut incoming = self;
        incoming.0.require_one_way()?;
        let inbox = Inbox { receiver, shared: pool };
        let (_, peer) = incoming.accept_inbox(device, config, Some(inbox), b"")?;
        peer.ok_or_else(|| HandshakeError::Unfit("it does not send".into()).into())
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.0.tell(Reason::PARAMETERS, why);
    }

    pub(super) fn accept_inbox(
        mut self,
        device: &Device,
        config: &Config,
        inbox: Option<Inbox<'_>>,
        application: &[u8],
    ) -> Result<(Option<super::Sender>, Option<Peer>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.0.stream, TIME_LIMIT);
        let hello = &self.0.hello.parameters;
        setup::accept(&mut exchange, hello, device, config, inbox, application)
    }
}
