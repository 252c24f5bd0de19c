//! Accepting connections.

use std::net::TcpStream;

use conn_core::handshake::ProtocolId;

use super::setup::{self, Inbox};
use super::{Config, ConnectError, Connection, Peer, Receiver, SharedPool, sender_of};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::listener::served::Sealed;
use crate::listener::{self, Served};

/// Listens for connections on a TCP port.
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
pub type Listener = listener::Listener<SendRecv>;

/// Somebody who wants such a connection, and waits for the answer.
pub type Incoming<S = TcpStream> = listener::Incoming<SendRecv, S>;

/// The Send/Receive connection, as what can be listened for.
#[derive(Debug)]
pub enum SendRecv {}

impl Served for SendRecv {
    const PROTOCOL: ProtocolId = ProtocolId::SEND_RECV;
}

impl Sealed for SendRecv {
    fn user_data(said: &[u8]) -> &[u8] {
        said
    }
}

impl<S: Stream> Incoming<S> {
    /// Accepts a connection that goes both ways.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is told.
    pub fn accept(mut self, device: &Device, config: &Config) -> Result<Connection, ConnectError> {
        self.caller.require_both_ways()?;
        let made = setup::receiver(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.caller.tell(e.reason(), &e.to_string()))?;
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
        incoming.caller.require_one_way()?;
        let inbox = Inbox { receiver, shared: pool };
        let (_, peer) = incoming.accept_inbox(device, config, Some(inbox), b"")?;
        peer.ok_or_else(|| HandshakeError::Unfit("it does not send".into()).into())
    }

    pub(super) fn accept_inbox(
        mut self,
        device: &Device,
        config: &Config,
        inbox: Option<Inbox<'_>>,
        application: &[u8],
    ) -> Result<(Option<super::Sender>, Option<Peer>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.caller.stream, TIME_LIMIT);
        let hello = &self.caller.hello.parameters;
        setup::accept(&mut exchange, hello, device, config, inbox, application)
    }
}
