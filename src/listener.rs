//! Listening for connections, of any protocol that is [`Served`].

use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use conn_core::handshake::Reason;

use crate::acceptor::{Acceptor, ConnectRequest, Hello};
use crate::device::Device;
use crate::draft::{self, DraftEnd};
use crate::error::ConnectError;
use crate::handshake::{HandshakeError, Stream, TIME_LIMIT, Within, present};
use crate::peer::Peer;
use crate::protocol::{Connection, Protocol, Served};
use crate::setup::HalfTerms;
use crate::wait::Deadline;

/// Listens for connections on a TCP port.
///
/// ```
/// use rdma_conn::{Listener, RecvHalf, SendHalf, SendRecv, connect};
///
/// let device = rdma_conn::device::soft()?;
/// let listener = Listener::<SendRecv>::bind("127.0.0.1:0")?;
/// let address = listener.local_addr();
/// # let there = device.clone();
/// let client = std::thread::spawn(move || {
///     let connected = connect::<SendRecv>(address, &there, &Default::default());
///     connected.expect("the listener accepts").sender.send_acked(b"hi")
/// });
/// let mut connection = listener.next()?.accept(&device, &Default::default())?;
/// assert_eq!(&*connection.receiver.recv()?, b"hi");
/// client.join().expect("it does not panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clients of another protocol are refused with a reason; the listener keeps listening. It
/// reads the Hellos of all clients at the same time, so that a silent client does not hold up
/// the others; it is refused after [`HELLO_LIMIT`](crate::handshake::HELLO_LIMIT). Several
/// threads may wait at once.
#[derive(Debug)]
pub struct Listener<P: Served> {
    acceptor: Acceptor,
    protocol: PhantomData<fn() -> P>,
}

/// An initiator that has requested a connection and waits for the answer.
#[derive(Debug)]
pub struct Incoming<P: Served, S: Stream = TcpStream> {
    pub(crate) request: ConnectRequest<S>,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Served> Listener<P> {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener<P>, ConnectError> {
        let acceptor = Acceptor::bind(address, P::ID)?;
        Ok(Listener { acceptor, protocol: PhantomData })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.acceptor.local_addr()
    }

    /// Waits for the next initiator's Hello. A handshake error concerns one initiator, which
    /// was refused with the reason; the listener keeps listening.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it uses another protocol or version, sends malformed
    /// bytes, or exceeds the time limit; [`ConnectError::System`] when the operating system
    /// has nothing left to accept with (descriptors, mostly), which may change.
    pub fn next(&self) -> Result<Incoming<P>, ConnectError> {
        Ok(Incoming::new(self.acceptor.next()?))
    }

    /// As [`next`](Listener::next), for at most `timeout`; `None` when no initiator connected.
    ///
    /// # Errors
    /// As [`next`](Listener::next).
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Incoming<P>>, ConnectError> {
        Ok(self.acceptor.next_until(Deadline::after(timeout))?.map(Incoming::new))
    }
}

impl<P: Served> AsFd for Listener<P> {
    /// Readable when [`next_timeout`](Listener::next_timeout) of no time may have something, for an
    /// event loop of the program's own. Read nothing from it. A client that is silent for too long
    /// makes nothing readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.acceptor.as_fd()
    }
}

impl<P: Served, S: Stream> Incoming<P, S> {
    fn new(request: ConnectRequest<S>) -> Incoming<P, S> {
        Incoming { request, protocol: PhantomData }
    }

    /// Reads the Hello of the initiator at the other end of `stream`.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it uses another protocol or version, sends malformed
    /// bytes, or exceeds the time limit. It is sent the reason.
    pub fn greet(stream: S) -> Result<Incoming<P, S>, ConnectError> {
        Ok(Incoming::new(ConnectRequest::read(stream, None, TIME_LIMIT, P::ID)?))
    }

    /// Limits `accept` and `refuse` to `timeout` from now.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Incoming<P, Within<S>> {
        let ConnectRequest { stream, from, hello } = self.request;
        Incoming::new(ConnectRequest { stream: Within::new(stream, timeout), from, hello })
    }

    /// Returns the source address, when that is known.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.request.from
    }

    /// The stream of its handshake. Once the handshake is over, the stream is free for the
    /// users' own data: keep a clone of it for that.
    #[must_use]
    pub fn stream(&self) -> &S {
        &self.request.stream
    }

    /// Returns the data of the initiator's application, up to 512 bytes, less the connection's own.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        let Hello { parameters, application } = &self.request.hello;
        let ends = [parameters.initiator_to_acceptor, parameters.acceptor_to_initiator];
        P::Terms::user_data(application, ends.iter().flatten().count())
    }

    /// Reports whether it wants to send only.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        self.request.is_one_way()
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.request.tell(Reason::PARAMETERS, why);
    }
}

impl<P: Protocol, S: Stream> Incoming<P, S> {
    /// Accepts a connection that goes both ways.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is sent the reason.
    pub fn accept(
        mut self,
        device: &Device,
        config: &P::Config,
    ) -> Result<Connection<P>, ConnectError> {
        self.request.require_both_ways()?;
        let made = draft::receiver::<P>(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.request.tell(e.reason(), &e.to_string()))?;
        let end = DraftEnd::<P> { device, config, receiver: Some(&mut receiver), pool: None };
        let ConnectRequest { stream, hello, .. } = &mut self.request;
        let (sender, _) = draft::accept(stream, hello, |sends| end.draft(sends))?;
        Ok(Connection { sender: present(sender)?, receiver })
    }

    /// Accepts an initiator that only sends, with a receiver of its own.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is sent the reason.
    pub fn accept_receiver(
        mut self,
        device: &Device,
        config: &P::Config,
    ) -> Result<P::Receiver, ConnectError> {
        let made = draft::receiver::<P>(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.request.tell(e.reason(), &e.to_string()))?;
        self.accept_into(&mut receiver, device, config)?;
        Ok(receiver)
    }

    /// Accepts an initiator that only sends, as one more peer of `receiver`.
    ///
    /// `receiver` receives nothing meanwhile: an initiator that is accepted and then does not
    /// say that it is ready keeps the receiver's other peers waiting for up to
    /// [`READY_LIMIT`](crate::handshake::READY_LIMIT). Where that is too long, give
    /// initiators that are not trusted receivers of their own.
    ///
    /// # Errors
    /// [`ConnectError`]; the initiator is sent the reason.
    pub fn accept_into(
        self,
        receiver: &mut P::Receiver,
        device: &Device,
        config: &P::Config,
    ) -> Result<Peer, ConnectError> {
        self.accept_as(DraftEnd { device, config, receiver: Some(receiver), pool: None })
    }

    /// As [`accept_into`](Incoming::accept_into), with receive buffers of a shared pool, if there
    /// is one.
    ///
    /// # Errors
    /// As [`accept_into`](Incoming::accept_into), and [`ConnectError::SharedPoolFull`].
    pub fn accept_into_shared<'a>(
        self,
        receiver: &mut P::Receiver,
        pool: impl Into<Option<&'a P::Pool>>,
        device: &Device,
        config: &P::Config,
    ) -> Result<Peer, ConnectError> {
        self.accept_as(DraftEnd { device, config, receiver: Some(receiver), pool: pool.into() })
    }

    fn accept_as(mut self, end: DraftEnd<'_, P>) -> Result<Peer, ConnectError> {
        self.request.require_one_way()?;
        let ConnectRequest { stream, hello, .. } = &mut self.request;
        let (_, peer) = draft::accept(stream, hello, |sends| end.draft(sends))?;
        peer.ok_or_else(|| HandshakeError::Unfit("it does not send".into()).into())
    }
}
