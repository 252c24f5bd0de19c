//! Accepting connections.

use std::net::TcpStream;

use conn_core::handshake::ProtocolId;

use super::{Config, ConnectError, Connection, Peer, Receiver, sender_of, setup};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::listener::served::Sealed;
use crate::listener::{self, Served};
use crate::ring::setup::user_data;

/// Listens for Buffered Write connections on a TCP port.
///
/// ```
/// use rdma_conn::buffered_write::{Config, Listener, connect};
///
/// let (device, config) = (rdma_conn::device::soft()?, Config::default());
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr();
/// # let there = device.clone();
/// let client = std::thread::spawn(move || {
///     connect(address, &there, &config).expect("somebody listens").sender.send(b"hi")
/// });
/// let mut connection = listener.next()?.accept(&device, &config)?;
/// assert_eq!(&*connection.receiver.recv()?, b"hi");
/// client.join().expect("it does not panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Listener = listener::Listener<BufferedWrite>;

/// Somebody who wants such a connection, and waits for the answer.
pub type Incoming<S = TcpStream> = listener::Incoming<BufferedWrite, S>;

/// The Buffered Write connection, as what can be listened for.
#[derive(Debug)]
pub enum BufferedWrite {}

impl Served for BufferedWrite {
    const PROTOCOL: ProtocolId = ProtocolId::BUFFERED_WRITE;
}

impl Sealed for BufferedWrite {
    fn user_data(said: &[u8]) -> &[u8] {
        user_data(said)
    }
}

impl<S: Stream> Incoming<S> {
    /// Accepts a connection that goes both ways.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is told.
    pub fn accept(mut self, device: &Device, config: &Config) -> Result<Connection, ConnectError> {
        self.caller.require_both_ways()?;
        let made = setup::receiver(device, config, 1);
        let mut receiver = made.inspect_err(|e| self.caller.tell(e.reason(), &e.to_string()))?;
        let (sender, _) = self.accept_halves(device, config, Some(&mut receiver), b"")?;
        Ok(Connection { sender: sender_of(sender)?, receiver })
    }

    /// Accepts an initiator that only sends, as one more peer of `receiver`.
    ///
    /// Nobody receives meanwhile, so that an initiator that is accepted and then does not
    /// say that it is ready keeps the receiver's other peers waiting for up to
    /// [`READY_LIMIT`](crate::handshake::READY_LIMIT).
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is told.
    pub fn accept_into(
        mut self,
        receiver: &mut Receiver,
        device: &Device,
        config: &Config,
    ) -> Result<Peer, ConnectError> {
        self.caller.require_one_way()?;
        let (_, peer) = self.accept_halves(device, config, Some(receiver), b"")?;
        peer.ok_or_else(|| HandshakeError::Unfit("it does not send".into()).into())
    }

    fn accept_halves(
        mut self,
        device: &Device,
        config: &Config,
        receiver: Option<&mut Receiver>,
        application: &[u8],
    ) -> Result<(Option<super::Sender>, Option<Peer>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.caller.stream, TIME_LIMIT);
        setup::accept(&mut exchange, &self.caller.hello, device, config, receiver, application)
    }
}
