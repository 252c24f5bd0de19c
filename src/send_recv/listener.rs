//! Accepting connections.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conn_core::handshake::{Frame, Parameters, ProtocolId, Reason};

use super::lobby::{Door, Lobby};
use super::setup::{self, Inbox};
use super::{Config, ConnectError, Connection, Peer, Receiver, SharedPool, sender_of};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
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
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    lobby: Mutex<Lobby>,
    door: Door,
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
pub(super) struct Hello {
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
        let door = Door::new(&tcp).map_err(system)?;
        Ok(Listener { tcp, address, lobby: Mutex::new(Lobby::new()), door })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next initiator's Hello. An error concerns one initiator, who was
    /// told; the listener goes on.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly; [`ConnectError::System`] when the operating system
    /// has nothing left to accept with (descriptors, mostly), which may change.
    pub fn next(&self) -> Result<Incoming, ConnectError> {
        loop {
            if let Some(incoming) = self.next_until(Deadline::NEVER)? {
                return Ok(incoming);
            }
        }
    }

    /// As [`next`](Listener::next), for at most `timeout`; `None` when nobody came.
    ///
    /// # Errors
    /// As [`next`](Listener::next).
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Incoming>, ConnectError> {
        self.next_until(Deadline::after(timeout))
    }

    fn next_until(&self, deadline: Deadline) -> Result<Option<Incoming>, ConnectError> {
        let system = |source| ConnectError::System { what: "a connection", source };
        loop {
            let now = Instant::now();
            let patience = {
                // A guest is done or not, whoever has panicked meanwhile.
                let mut lobby = self.lobby.lock().unwrap_or_else(PoisonError::into_inner);
                let admitted = lobby.let_in(&self.tcp, &self.door);
                if let Some(done) = lobby.attend(&self.door, now) {
                    return Ok(Some(done?));
                }
                admitted.map_err(system)?;
                lobby.patience(now)
            };
            if deadline.has_passed(now) {
                return Ok(None);
            }
            self.door.wait(patience.min(deadline.remaining(now))).map_err(system)?;
        }
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
        match exchange.receive(Hello::of) {
            Ok(hello) => Ok(Incoming::new(stream, from, hello)),
            Err(e) => {
                exchange.refuse(e.reason(), &e.to_string());
                Err(e.into())
            }
        }
    }

    /// Somebody who has said its Hello.
    pub(super) fn new(stream: S, from: Option<SocketAddr>, hello: Hello) -> Incoming<S> {
        Incoming { stream, from, hello }
    }

    /// Where it comes from, when that is known.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// The stream that it came by. Once the handshake is over, the stream is the users':
    /// keep a clone of it for what they have to say to each other.
    #[must_use]
    pub fn stream(&self) -> &S {
        &self.stream
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
        let made = setup::receiver(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.tell(e.reason(), &e.to_string()))?;
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
        self.tell(Reason::PARAMETERS, why);
        HandshakeError::Unfit(why.into()).into()
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.tell(Reason::PARAMETERS, why);
    }

    fn tell(&mut self, reason: Reason, why: &str) {
        Exchange::new(&mut self.stream, TIME_LIMIT).refuse(reason, why);
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
    /// The first frame of an initiator that wants this protocol.
    pub(super) fn of(frame: &Frame<'_>) -> Result<Hello, HandshakeError> {
        let Frame::Hello(parameters) = frame else {
            return Err(HandshakeError::OutOfOrder { expected: "Hello" });
        };
        if parameters.protocol != ProtocolId::SEND_RECV {
            return Err(HandshakeError::OtherProtocol(parameters.protocol.0));
        }
        let application = parameters.application.to_vec();
        Ok(Hello { parameters: Parameters { application: b"", ..*parameters }, application })
    }
}
