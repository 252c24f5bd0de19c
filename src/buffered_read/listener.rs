//! Accepting connections.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::{ProtocolId, Reason};

use super::{Config, Connection, Link, Receiver, Sender, present, receiver_of, setup};
use crate::device::Device;
use crate::handshake::{Exchange, Stream, TIME_LIMIT};
use crate::reception::{Caller, Reception};
use crate::ring::setup::{accept, user_data};
use crate::send_recv::{ConnectError, Peer};
use crate::wait::Deadline;

/// Listens for connections on a TCP port, as
/// [`send_recv::Listener`](crate::send_recv::Listener) does.
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
        Ok(Listener(Reception::bind(address, ProtocolId::BUFFERED_READ)?))
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
        Ok(Incoming(Caller::greet(stream, from, limit, ProtocolId::BUFFERED_READ)?))
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
        self.0.require_one_way()?;
        let vacancy = receiver.check_vacancy();
        vacancy.inspect_err(|e| self.0.tell(e.reason(), &e.to_string()))?;
        let (_, link) = self.made(device, config, false)?;
        Ok(receiver.add(Box::new(present(link)?)))
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.0.tell(Reason::PARAMETERS, why);
    }

    fn made(
        &mut self,
        device: &Device,
        config: &Config,
        sends: bool,
    ) -> Result<(Option<Sender>, Option<Link>), ConnectError> {
        let mut exchange = Exchange::new(&mut self.0.stream, TIME_LIMIT);
        let draft = setup::draft(device, config, (sends, true));
        accept(&mut exchange, &self.0.hello, draft, b"")
    }
}
