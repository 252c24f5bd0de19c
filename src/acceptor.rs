//! The listening socket for initiators, and the Hellos that they have sent.

mod connect_request;
mod pending;

use host::sync::Mutex;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use conn_core::handshake::ProtocolId;

use crate::error::ConnectError;
use crate::handshake::{HandshakeError, Within};
use crate::wait::Deadline;
pub(crate) use connect_request::{ConnectRequest, Hello};
use pending::{PendingConnections, Poller};

/// A listening socket for initiators that want one protocol.
#[derive(Debug)]
pub(crate) struct Acceptor {
    tcp: TcpListener,
    address: SocketAddr,
    pending: Mutex<PendingConnections>,
    poller: Poller,
}

impl Acceptor {
    pub(crate) fn bind(
        address: impl ToSocketAddrs,
        protocol: ProtocolId,
    ) -> Result<Acceptor, ConnectError> {
        let system = |error| ConnectError::System { what: "the address to listen on", error };
        let tcp = TcpListener::bind(address).map_err(system)?;
        let address = tcp.local_addr().map_err(system)?;
        let poller = Poller::new(&tcp).map_err(system)?;
        let pending = Mutex::new(PendingConnections::new(protocol));
        Ok(Acceptor { tcp, address, pending, poller })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next initiator that has said its Hello.
    pub(crate) fn next(&self) -> Result<ConnectRequest<TcpStream>, ConnectError> {
        loop {
            if let Some(request) = self.next_until(Deadline::NEVER)? {
                return Ok(request);
            }
        }
    }

    /// As [`next`](Acceptor::next), until `deadline`; `None` when no initiator connected.
    pub(crate) fn next_until(
        &self,
        deadline: Deadline,
    ) -> Result<Option<ConnectRequest<TcpStream>>, ConnectError> {
        let system = |error| ConnectError::System { what: "a connection", error };
        loop {
            let now = host::time::now();
            let time_left = {
                let mut pending = self.pending.lock();
                let admitted = pending.accept(&self.tcp, &self.poller);
                if let Some(done) = pending.next_ready(&self.poller, now) {
                    return Ok(Some(done?));
                }
                admitted.map_err(system)?;
                pending.time_left(now)
            };
            if deadline.has_passed(now) {
                return Ok(None);
            }
            self.poller.wait(time_left.min(deadline.remaining(now))).map_err(system)?;
        }
    }
}

/// A stream to the listener at that address.
#[expect(clippy::disallowed_methods, reason = "the kernel of a listening peer answers")]
pub(crate) fn dial(address: impl ToSocketAddrs) -> Result<TcpStream, ConnectError> {
    reach(address, TcpStream::connect)
}

/// As [`dial`], and the stream ends `timeout` from now. Looking a name up takes its own time.
#[expect(clippy::disallowed_methods, reason = "the kernel of a listening peer answers")]
pub(crate) fn dial_timeout(
    address: impl ToSocketAddrs,
    timeout: Duration,
) -> Result<Within<TcpStream>, ConnectError> {
    let deadline = Deadline::after(timeout);
    let stream = reach(address, |address| match deadline.remaining(host::time::now()) {
        Duration::ZERO => Err(std::io::ErrorKind::TimedOut.into()),
        left => TcpStream::connect_timeout(&address, left),
    })?;
    Ok(Within::until(stream, deadline))
}

/// Tries each of the addresses that a name stands for.
fn reach(
    address: impl ToSocketAddrs,
    connect: impl Fn(SocketAddr) -> std::io::Result<TcpStream>,
) -> Result<TcpStream, ConnectError> {
    let system = |error| ConnectError::System { what: "the peer's address", error };
    let mut last = system(std::io::ErrorKind::InvalidInput.into());
    for address in address.to_socket_addrs().map_err(system)? {
        match connect(address).and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = ConnectError::Unreached { address, error },
        }
    }
    Err(last)
}

/// The handshake of two ends in one process: the initiator on a thread of its own.
pub(crate) fn within_process<A: Send, B>(
    initiator: impl FnOnce(&mut UnixStream) -> Result<A, ConnectError> + Send,
    acceptor: impl FnOnce(UnixStream) -> Result<B, ConnectError>,
) -> Result<(A, B), ConnectError> {
    let system = |what| move |error| ConnectError::System { what, error };
    let (mut near, far) = UnixStream::pair().map_err(system("a socket pair"))?;
    let thread = system("a thread for the other end");
    if host::is_short() {
        return Err(thread(std::io::ErrorKind::WouldBlock.into()));
    }
    host::thread::scope(|scope| {
        let initiating = scope.spawn(move || initiator(&mut near));
        let initiating = initiating.map_err(thread)?;
        let accepted = acceptor(far);
        let initiated = initiating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (initiated, accepted) {
            (Ok(initiated), Ok(accepted)) => Ok((initiated, accepted)),
            // The error of the end that refused has the reason.
            (Err(ConnectError::Handshake(HandshakeError::Refused { .. })), Err(e))
            | (Ok(_), Err(e)) => Err(e),
            // The initiator's own error is more specific than the broken stream at the acceptor.
            (Err(e), _) => Err(e),
        }
    })
}

#[cfg(test)]
mod tests;
