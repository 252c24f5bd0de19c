//! Accepting connections.

use std::net::TcpStream;

use conn_core::handshake::ProtocolId;

use super::{Config, Connection, Link, Receiver, Sender, present, receiver_of, setup};
use crate::device::Device;
use crate::handshake::{Exchange, Stream, TIME_LIMIT};
use crate::listener::served::Sealed;
use crate::listener::{self, Served};
use crate::ring::setup::{accept, user_data};
use crate::send_recv::{ConnectError, Peer};

/// Listens for connections on a TCP port.
///
/// ```
/// use rdma_conn::buffered_read::{Config, Listener, connect_sender, receiver};
///
/// let (device, config) = (rdma_conn::device::soft()?, Config::default());
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr();
/// let client = std::thread::spawn({
///     let device = device.clone();
///     move || connect_sender(address, &device, &config)?.send(b"hi").map_err(boxed)
/// });
/// let mut receiver = receiver(&config, 8)?;
/// let peer = listener.next()?.accept_into(&mut receiver, &device, &config)?;
/// let message = receiver.recv()?;
/// assert_eq!((&*message, message.peer()), (&b"hi"[..], peer));
/// # drop(message); let _ = receiver.recv();
/// client.join().unwrap()?;
/// # fn boxed(e: impl std::error::Error + Send + Sync + 'static) -> Box<dyn std::error::Error + Send + Sync> { Box::new(e) }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub type Listener = listener::Listener<BufferedRead>;

/// Somebody who wants such a connection, and waits for the answer.
pub type Incoming<S = TcpStream> = listener::Incoming<BufferedRead, S>;

/// The Buffered Read connection, as what can be listened for.
#[derive(Debug)]
pub enum BufferedRead {}

impl Served for BufferedRead {
    const PROTOCOL: ProtocolId = ProtocolId::BUFFERED_READ;
}

impl Sealed for BufferedRead {
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
        let (sender, link) = self.made(device, config, true)?;
        Ok(Connection { sender: present(sender)?, receiver: receiver_of(config, present(link)?) })
    }

    /// Accepts an initiator that only sends, as one more peer of `receiver`.
    ///
    /// Nobody receives meanwhile: see
    /// [`send_recv::Incoming::accept_into`](crate::send_recv::Incoming::accept_into).
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
        let vacancy = receiver.check_vacancy();
        vacancy.inspect_err(|e| self.caller.tell(e.reason(), &e.to_string()))?;
        let (_, link) = self.made(device, config, false)?;
        Ok(receiver.add(Box::new(present(link)?)))
    }

    fn made(
        &mut self,
        device: &Device,
        config: &Config,
        sends: bool,
    ) -> Result<(Option<Sender>, Option<Link>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.caller.stream, TIME_LIMIT);
        let draft = setup::draft(device, config, (sends, true));
        accept(&mut exchange, &self.caller.hello, draft, b"")
    }
}
