//! Connecting and listening.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use verbs_safe::Readable;

use super::blocking::BlockingTask;
use super::{Receiver, Sender};
use crate::device::Device;
use crate::error::ConnectError;
use crate::handshake::HELLO_LIMIT;
use crate::protocol::{self, Protocol};
use crate::{connection, listener};

/// Both halves of one end of a connection, on a tokio runtime.
#[derive(Debug)]
pub struct Connection<P: Protocol> {
    /// To the peer.
    pub sender: Sender<P::Sender>,
    /// From the peer.
    pub receiver: Receiver<P::Receiver>,
}

impl<P: Protocol> From<protocol::Connection<P>> for Connection<P> {
    fn from(connection: protocol::Connection<P>) -> Connection<P> {
        let protocol::Connection { sender, receiver } = connection;
        Connection { sender: Sender::new(sender), receiver: Receiver::new(receiver) }
    }
}

/// As [`connect`](crate::connect()), to any address that `tokio::net::TcpStream::connect` takes.
/// The handshake runs on a thread of the runtime for blocking work. If the future is dropped, it
/// continues for [`TIME_LIMIT`](crate::handshake::TIME_LIMIT) at most, and its connection is
/// closed.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect<P: Protocol>(
    address: impl tokio::net::ToSocketAddrs,
    device: &Device,
    config: &P::Config,
) -> Result<Connection<P>, ConnectError> {
    let found = tokio::net::lookup_host(address).await;
    let found = found.map_err(|error| ConnectError::System { what: "the peer's address", error });
    let addresses: Vec<SocketAddr> = found?.collect();
    let (device, config) = (device.clone(), config.clone());
    let connecting = move || connection::connect::<P>(&*addresses, &device, &config);
    Ok(BlockingTask::new(connecting).await.map_err(system)??.into())
}

/// A [`Listener`](crate::Listener) on a tokio runtime.
#[derive(Debug)]
pub struct Listener<P: Protocol> {
    listener: listener::Listener<P>,
    /// A copy of its descriptor.
    readable: Readable,
}

/// An initiator that has requested a connection and waits for the answer.
#[derive(Debug)]
pub struct Incoming<P: Protocol> {
    incoming: listener::Incoming<P>,
}

impl<P: Protocol> Listener<P> {
    /// As [`Listener::bind`](crate::Listener::bind), on the runtime that calls it.
    ///
    /// # Errors
    /// [`ConnectError::System`].
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener<P>, ConnectError> {
        let listener = listener::Listener::<P>::bind(address)?;
        let copy = listener.as_fd().try_clone_to_owned().map_err(system)?;
        Ok(Listener { listener, readable: Readable::new(copy).map_err(system)? })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Waits for the next initiator's Hello, as [`Listener::next`](crate::Listener::next).
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`Listener::next`](crate::Listener::next).
    #[expect(clippy::disallowed_methods, reason = "a runtime has it, which is in no world")]
    pub async fn next(&self) -> Result<Incoming<P>, ConnectError> {
        loop {
            if let Some(incoming) = self.listener.next_timeout(Duration::ZERO)? {
                return Ok(Incoming { incoming });
            }
            // The time limit of a silent client makes no descriptor readable.
            let readable = self.readable.became_readable();
            if let Ok(readable) = tokio::time::timeout(HELLO_LIMIT, readable).await {
                readable.map_err(system)?;
            }
        }
    }
}

impl<P: Protocol> Incoming<P> {
    /// The request itself, to be refused, or accepted otherwise.
    #[must_use]
    pub fn into_inner(self) -> listener::Incoming<P> {
        self.incoming
    }

    /// As [`Incoming::accept`](crate::Incoming::accept), on a thread of the runtime for blocking
    /// work.
    ///
    /// # Errors
    /// As [`Incoming::accept`](crate::Incoming::accept).
    pub async fn accept(
        self,
        device: &Device,
        config: &P::Config,
    ) -> Result<Connection<P>, ConnectError> {
        let (device, config) = (device.clone(), config.clone());
        let accepting = move || self.incoming.accept(&device, &config);
        Ok(BlockingTask::new(accepting).await.map_err(system)??.into())
    }
}

fn system(error: io::Error) -> ConnectError {
    ConnectError::System { what: "the runtime", error }
}
