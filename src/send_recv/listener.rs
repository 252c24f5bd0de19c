//! Accepting connections.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::{Frame, Parameters, ProtocolId, Reason};

use super::setup::{self, Inbox};
use super::{Config, ConnectError, Connection, Peer, Receiver, SharedPool, sender_of};
use crate::device::Device;
use crate::handshake::{Exchange, HELLO_LIMIT, HandshakeError, Stream, TIME_LIMIT};

/// Listens for connections on a TCP port.
///
/// Whoever speaks something else there is told so and refused; the listener goes on.
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
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
}

/// Somebody who wants a connection, and waits for the answer.
#[derive(Debug)]
pub struct Incoming<S: Stream = TcpStream> {
    stream: S,
    from: Option<SocketAddr>,
    hello: Hello,
}

/// What the initiator's Hello said; owned, because the stream's buffer is not.
#[derive(Debug, Clone)]
struct Hello {
    parameters: Parameters<'static>,
    application: Vec<u8>,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        let system = |source| ConnectError::System { what: "the address to listen on", source };
        let tcp = TcpListener::bind(address).map_err(system)?;
        let address = tcp.local_addr().map_err(system)?;
        Ok(Listener { tcp, address })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next initiator's Hello. An error concerns that one initiator,
    /// who was told; the listener goes on.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly.
    pub fn next(&self) -> Result<Incoming, ConnectError> {
        let system = |source| ConnectError::System { what: "a connection", source };
        let (stream, from) = self.tcp.accept().map_err(system)?;
        stream.set_nodelay(true).map_err(system)?;
        Incoming::greet(stream, Some(from), HELLO_LIMIT)
    }
}

impl<S: Stream> Incoming<S> {
    /// Reads the Hello of whoever is at the other end of `stream`.
    pub(super) fn greet(
        mut stream: S,
        from: Option<SocketAddr>,
        limit: Duration,
    ) -> Result<Incoming<S>, ConnectError> {
        let mut exchange = Exchange::new(&mut stream, limit);
        let hello = exchange.receive(|frame| match frame {
            Frame::Hello(parameters) => Ok(Hello::new(parameters)),
            _ => Err(HandshakeError::OutOfOrder { expected: "Hello" }),
        });
        let hello = match hello {
            Ok(hello) if hello.parameters.protocol != ProtocolId::SEND_RECV => {
                exchange.refuse(Reason::PROTOCOL, "this listener speaks Send/Receive");
                let asked = hello.parameters.protocol.0;
                return Err(HandshakeError::Unfit(format!("it wants protocol {asked}")).into());
            }
            Ok(hello) => hello,
            Err(e) => {
                exchange.refuse(e.reason(), &e.to_string());
                return Err(e.into());
            }
        };
        Ok(Incoming { stream, from, hello })
    }

    /// Where it comes from, when that is known.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// What the initiator's application said, up to 512 bytes.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        &self.hello.application
    }

    /// Whether it wants to send only.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        self.hello.parameters.acceptor_to_initiator.is_none()
    }

    /// Accepts a connection that goes both ways.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is told.
    pub fn accept(mut self, device: &Device, config: &Config) -> Result<Connection, ConnectError> {
        self.require_both_ways()?;
        let mut receiver = setup::receiver(device, config, 1, None)?;
        let inbox = Inbox { receiver: &mut receiver, shared: None };
        let (sender, _) = self.accept_inbox(device, config, Some(inbox), b"")?;
        Ok(Connection { sender: sender_of(sender)?, receiver })
    }

    /// Accepts an initiator that only sends, as one more peer of `receiver`, with
    /// receive buffers of its own, or from `pool`.
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
        if !incoming.is_one_way() {
            return Err(incoming.unfit("it connects both ways, and messages are only taken here"));
        }
        let inbox = Inbox { receiver, shared: pool };
        let (_, peer) = incoming.accept_inbox(device, config, Some(inbox), b"")?;
        peer.ok_or_else(|| HandshakeError::Unfit("it does not send".into()).into())
    }

    fn require_both_ways(&mut self) -> Result<(), ConnectError> {
        let Parameters { initiator_to_acceptor: to, acceptor_to_initiator: fro, .. } =
            &self.hello.parameters;
        if to.is_some() && fro.is_some() {
            return Ok(());
        }
        Err(self.unfit("it connects one way, and both ways are served here"))
    }

    /// Refuses it, and says the same to our side.
    fn unfit(&mut self, why: &str) -> ConnectError {
        Exchange::new(&mut self.stream, TIME_LIMIT).refuse(Reason::PARAMETERS, why);
        HandshakeError::Unfit(why.into()).into()
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        Exchange::new(&mut self.stream, TIME_LIMIT).refuse(Reason::PARAMETERS, why);
    }

    pub(super) fn accept_inbox(
        mut self,
        device: &Device,
        config: &Config,
        inbox: Option<Inbox<'_>>,
        application: &[u8],
    ) -> Result<(Option<super::Sender>, Option<Peer>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.stream, TIME_LIMIT);
        setup::accept(&mut exchange, &self.hello.parameters, device, config, inbox, application)
    }
}

impl Hello {
    fn new(parameters: &Parameters<'_>) -> Hello {
        let application = parameters.application.to_vec();
        Hello { parameters: Parameters { application: b"", ..*parameters }, application }
    }
}
