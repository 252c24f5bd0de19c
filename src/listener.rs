//! Listening for connections of any kind: what [`send_recv::Listener`], [`buffered_read::Listener`],
//! [`buffered_write::Listener`] and [`direct_read::Listener`] have in common. How an initiator is
//! accepted is each connection's own.
//!
//! [`send_recv::Listener`]: crate::send_recv::Listener
//! [`buffered_read::Listener`]: crate::buffered_read::Listener
//! [`buffered_write::Listener`]: crate::buffered_write::Listener
//! [`direct_read::Listener`]: crate::direct_read::Listener

use std::fmt;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::{ProtocolId, Reason};

use crate::handshake::{Stream, TIME_LIMIT};
use crate::reception::{Caller, Reception};
use crate::send_recv::ConnectError;
use crate::wait::Deadline;

/// A kind of connection that can be listened for.
pub trait Served: fmt::Debug + served::Sealed {
    /// Its number in the handshake.
    const PROTOCOL: ProtocolId;
}

pub(crate) mod served {
    pub trait Sealed {
        /// What is the users' of an initiator's application data.
        fn user_data(said: &[u8]) -> &[u8];
    }
}

/// Listens for connections on a TCP port.
///
/// Whoever speaks something else there is told so and refused; the listener goes on. All
/// who connect are listened to at the same time, so that one who says nothing holds
/// nobody up; it is refused after [`HELLO_LIMIT`](crate::handshake::HELLO_LIMIT). Several
/// threads may wait at once.
#[derive(Debug)]
pub struct Listener<P: Served> {
    reception: Reception,
    protocol: PhantomData<fn() -> P>,
}

/// Somebody who wants a connection, and waits for the answer.
#[derive(Debug)]
pub struct Incoming<P: Served, S: Stream = TcpStream> {
    pub(crate) caller: Caller<S>,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Served> Listener<P> {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener<P>, ConnectError> {
        let reception = Reception::bind(address, P::PROTOCOL)?;
        Ok(Listener { reception, protocol: PhantomData })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.reception.local_addr()
    }

    /// Waits for the next initiator's Hello. An error concerns one initiator, who was
    /// told; the listener goes on.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly; [`ConnectError::System`] when the operating system
    /// has nothing left to accept with (descriptors, mostly), which may change.
    pub fn next(&self) -> Result<Incoming<P>, ConnectError> {
        Ok(Incoming::new(self.reception.next()?))
    }

    /// As [`next`](Listener::next), for at most `timeout`; `None` when nobody came.
    ///
    /// # Errors
    /// As [`next`](Listener::next).
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Incoming<P>>, ConnectError> {
        Ok(self.reception.next_until(Deadline::after(timeout))?.map(Incoming::new))
    }
}

impl<P: Served, S: Stream> Incoming<P, S> {
    fn new(caller: Caller<S>) -> Incoming<P, S> {
        Incoming { caller, protocol: PhantomData }
    }

    /// Reads the Hello of whoever is at the other end of `stream`.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly. It is told so.
    pub fn greet(stream: S) -> Result<Incoming<P, S>, ConnectError> {
        Ok(Incoming::new(Caller::greet(stream, None, TIME_LIMIT, P::PROTOCOL)?))
    }

    /// Where it comes from, when that is known.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.caller.from
    }

    /// The stream that it came by. Once the handshake is over, the stream is the users':
    /// keep a clone of it for what they have to say to each other.
    #[must_use]
    pub fn stream(&self) -> &S {
        &self.caller.stream
    }

    /// What the initiator's application said, up to 512 bytes less what the connection itself
    /// says there.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        P::user_data(&self.caller.hello.application)
    }

    /// Whether it wants to send only.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        self.caller.is_one_way()
    }

    /// Refuses it, with the reason.
    pub fn refuse(mut self, why: &str) {
        self.caller.tell(Reason::PARAMETERS, why);
    }
}
