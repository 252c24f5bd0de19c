//! Accepting connections.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::{ProtocolId, Reason};

use super::{Config, ConnectError, Connection, Peer, Receiver, sender_of, setup};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::{Caller, Reception};
use crate::ring::setup::user_data;
use crate::wait::Deadline;

/// Listens for Buffered Write connections on a TCP port.
///
/// It treats strangers and the slow as [`send_recv::Listener`](crate::send_recv::Listener)
/// does.
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
        Ok(Listener(Reception::bind(address, ProtocolId::BUFFERED_WRITE)?))
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
    /// has nothing left to accept with, which may change.
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
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly. It is told so.
    pub fn greet(stream: S) -> Result<Incoming<S>, ConnectError> {
        Ok(Incoming(Caller::greet(stream, None, TIME_LIMIT, ProtocolId::BUFFERED_WRITE)?))
    }

    /// Where it comes from, when that is known.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.0.from
    }

    /// The stream that it came by. Once the handshake is over, the stream is the users'.
    #[must_use]
    pub fn stream(&self) -> &S {
        &self.0.stream
    }

    /// What the initiator's application said.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        user_data(&self.0.hello)
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
        let made = setup::receiver(device, config, 1);
        let mut receiver = made.inspect_err(|e| self.0.tell(e.reason(), &e.to_string()))?;
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
        self.0.require_one_way()?;
        let (_, peer) = self.accept_halves(device, config, Some(receiver), b"")?;
        peer.ok_or_else(|| HandshakeError::Unfit("it does not send".into()).into())
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.0.tell(Reason::PARAMETERS, why);
    }

    fn accept_halves(
        mut self,
        device: &Device,
        config: &Config,
        receiver: Option<&mut Receiver>,
        application: &[u8],
    ) -> Result<(Option<super::Sender>, Option<Peer>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.0.stream, TIME_LIMIT);
        setup::accept(&mut exchange, &self.0.hello, device, config, receiver, application)
    }
}
