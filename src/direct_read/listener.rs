//! Accepting senders.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::ProtocolId;

use super::{Config, ConnectError, Peer, Receiver, setup};
use crate::device::Device;
use crate::handshake::{Exchange, Stream, TIME_LIMIT};
use crate::reception::{Caller, Reception};
use crate::wait::Deadline;

/// Listens for senders on a TCP port, as
/// [`send_recv::Listener`](crate::send_recv::Listener) does.
///
/// ```
/// use rdma_conn::direct_read::{BufferConfig, Config, Listener, Sender, connect};
///
/// let (device, config) = (rdma_conn::device::soft()?, Config::default());
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr();
/// let thread = std::thread::spawn({
///     let device = device.clone();
///     move || {
///         let mut sender: Sender = connect(address, &device, &config).unwrap();
///         let buffer = device.pd().register_buffer(5, BufferConfig::READABLE).unwrap();
///         let ticket = sender.send_async(buffer, b"five zeroes").unwrap();
///         sender.wait(ticket).unwrap().outcome
///     }
/// });
/// let mut receiver = listener.next()?.accept(&device, &config)?;
/// let reading = receiver.request_async(device.pd().register_buffer(8, BufferConfig::default())?)?;
/// assert_eq!(&*receiver.wait(reading)?, [0; 5]);
/// assert_eq!(thread.join().unwrap(), rdma_conn::direct_read::Outcome::Read);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener(Reception);

/// A sender that wants a connection, and waits for the answer.
#[derive(Debug)]
pub struct Incoming<S: Stream = TcpStream>(Caller<S>);

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        Ok(Listener(Reception::bind(address, ProtocolId::DIRECT_READ)?))
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Waits for the next sender's Hello. An error concerns one of them, who was told; the
    /// listener goes on.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`], [`ConnectError::System`].
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
    /// [`ConnectError::Handshake`]; it is told.
    pub fn greet(stream: S) -> Result<Incoming<S>, ConnectError> {
        Ok(Incoming(Caller::greet(stream, None, TIME_LIMIT, ProtocolId::DIRECT_READ)?))
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

    /// What the sender's application said, up to 496 bytes.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        setup::user_data(&self.0.hello)
    }

    /// Accepts it, with a receiver of its own.
    ///
    /// # Errors
    /// [`ConnectError`]; the sender is told.
    pub fn accept(mut self, device: &Device, config: &Config) -> Result<Receiver, ConnectError> {
        let made = setup::receiver(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.0.tell(e.reason(), &e.to_string()))?;
        self.accept_into(&mut receiver, device)?;
        Ok(receiver)
    }

    /// Accepts it as one more peer of `receiver`. Nobody receives meanwhile.
    ///
    /// # Errors
    /// [`ConnectError`]; the sender is told.
    pub fn accept_into(
        mut self,
        receiver: &mut Receiver,
        device: &Device,
    ) -> Result<Peer, ConnectError> {
        let mut exchange = Exchange::new(&mut self.0.stream, TIME_LIMIT);
        setup::accept(&mut exchange, &self.0.hello, device, receiver, b"")
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.0.tell(setup::REFUSED, why);
    }
}
