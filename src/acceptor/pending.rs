//! Pending connections, until their Hellos are complete: all are read at once, so that a
//! silent one does not hold up the others.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use conn_core::handshake::ProtocolId;
use rustix::event::epoll;

use super::connect_request::{ConnectRequest, Hello};
use crate::handshake::{Arriving, Exchange, HELLO_LIMIT, HandshakeError};

/// Pending connections at most. One more, and the oldest is refused: a flood of silent
/// clients costs no more memory than this, and does not hold up the others.
const MAX_PENDING: usize = 64;

/// The pending connections, with incomplete Hellos, oldest first.
#[derive(Debug)]
pub(super) struct PendingConnections {
    protocol: ProtocolId,
    connections: Vec<PendingConnection>,
}

/// The epoll set that threads sleep on: the listening socket, and those of all pending connections.
#[derive(Debug)]
pub(super) struct Poller(OwnedFd);

#[derive(Debug)]
struct PendingConnection {
    stream: TcpStream,
    from: SocketAddr,
    arriving: Arriving,
    since: Instant,
}

impl Poller {
    /// The poller of a listening socket, which does not block from here on.
    pub(super) fn new(tcp: &TcpListener) -> io::Result<Poller> {
        tcp.set_nonblocking(true)?;
        let poller = Poller(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        poller.watch(tcp)?;
        Ok(poller)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn watch(&self, source: impl std::os::fd::AsFd) -> io::Result<()> {
        let unused = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.0, source, unused, epoll::EventFlags::IN)?)
    }

    /// Sleeps until a client connects or sends something, for at most `time`.
    pub(super) fn wait(&self, time: Duration) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        match host::fd::epoll_wait(&self.0, &mut events, Some(time)) {
            // An interrupted sleep ends early: the caller polls again.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl PendingConnections {
    pub(super) fn new(protocol: ProtocolId) -> PendingConnections {
        PendingConnections { protocol, connections: Vec::new() }
    }

    /// Accepts the connections that wait at the socket, until more than
    /// `MAX_PENDING` are pending.
    ///
    /// # Errors
    /// The operating system has nothing left to accept with. Pending connections are kept.
    #[expect(clippy::disallowed_methods, reason = "the listener does not block")]
    pub(super) fn accept(&mut self, tcp: &TcpListener, poller: &Poller) -> io::Result<()> {
        while self.connections.len() <= MAX_PENDING {
            match tcp.accept() {
                Ok((stream, from)) => self.add(stream, from, poller),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The client has closed the connection.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn add(&mut self, stream: TcpStream, from: SocketAddr, poller: &Poller) {
        let ready = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        match ready.and_then(|()| poller.watch(&stream)) {
            Ok(()) => {
                let (arriving, since) = (Arriving::default(), host::time::now());
                self.connections.push(PendingConnection { stream, from, arriving, since });
            }
            Err(e) => tracing::debug!(%from, error = %e, "a connection was dropped"),
        }
    }

    /// The first connection that is done: it has sent its Hello, or something else, or its time is
    /// over, or it has to make room.
    pub(super) fn next_ready(
        &mut self,
        poller: &Poller,
        now: Instant,
    ) -> Option<Result<ConnectRequest<TcpStream>, HandshakeError>> {
        let protocol = self.protocol;
        let done =
            |connection: &mut PendingConnection| connection.listen(protocol, now).transpose();
        let told = self.connections.iter_mut().enumerate().find_map(|(at, g)| Some((at, done(g)?)));
        let crowded = || {
            (self.connections.len() > MAX_PENDING)
                .then(|| (0, Err(self.connections[0].too_slow(now))))
        };
        let (at, said) = told.or_else(crowded)?;
        let PendingConnection { mut stream, from, .. } = self.connections.remove(at);
        let blocks = epoll::delete(&poller.0, &stream).map_err(io::Error::from);
        let blocks = blocks.and_then(|()| stream.set_nonblocking(false));
        let said = blocks.map_err(HandshakeError::Stream).and(said);
        Some(match said {
            Ok(hello) => Ok(ConnectRequest { stream, from: Some(from), hello }),
            Err(e) => {
                Exchange::new(&mut stream, HELLO_LIMIT).refuse(e.reason(), &e.to_string());
                Err(e)
            }
        })
    }

    /// Time until the next connection times out.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        let first = self.connections.iter().map(|connection| connection.since).min();
        first.map_or(HELLO_LIMIT, |since| (since + HELLO_LIMIT).saturating_duration_since(now))
    }
}

impl PendingConnection {
    /// Its Hello, once it is whole.
    fn listen(
        &mut self,
        protocol: ProtocolId,
        now: Instant,
    ) -> Result<Option<Hello>, HandshakeError> {
        while let lacks @ 1.. = self.arriving.lacks()? {
            match self.arriving.read(&mut self.stream, lacks) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let has_time = now.saturating_duration_since(self.since) < HELLO_LIMIT;
                    return if has_time { Ok(None) } else { Err(self.too_slow(now)) };
                }
                read => read?,
            }
        }
        self.arriving.take(|frame| Hello::from_frame(frame, protocol)).map(Some)
    }

    fn too_slow(&self, now: Instant) -> HandshakeError {
        let had = now.saturating_duration_since(self.since);
        HandshakeError::TimedOut(Duration::from_millis(had.as_millis() as u64))
    }
}
