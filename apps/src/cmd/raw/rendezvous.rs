//! Waiting room of connections, until they have said what they want: all wait at once, so that a
//! silent one delays no other.
//!
//! Bytes are only peeked at here: the session that serves a connection reads all of them.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::{remark, signals};
use rdma_conn::conn_core::handshake::{DecodeError, Frame, MAX_FRAME, Reason, Refusal, decode};
use rdma_conn::conn_core::rc_pingpong;
use rdma_conn::handshake::HELLO_LIMIT;
use rustix::event::epoll;

use crate::session::{self, GLANCE};

/// Pending connections at most. If one more connects, the one that has waited longest is refused.
const PLACES: usize = 64;
/// Until it is tried again to accept a connection, where there was nothing left to accept
/// it with, and how often.
const RECOVERY: Duration = Duration::from_millis(200);
const RECOVERIES: u32 = 50;

/// First message of a connecting end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Language {
    /// A Hello.
    Handshake,
    /// A destination, as `ibv_rc_pingpong` sends it.
    RcPingpong,
}

/// A listening socket, and the connections that have not said anything whole yet, the oldest
/// one first.
#[derive(Debug)]
pub(super) struct ClientListener {
    tcp: TcpListener,
    language: Language,
    /// Wakes us when a client connects or says more.
    epoll_fd: OwnedFd,
    pending: Vec<PendingClient>,
}

#[derive(Debug)]
struct PendingClient {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
}

impl Language {
    /// Reports whether these bytes are a whole first message, or cannot become one.
    fn is_told(self, bytes: &[u8]) -> bool {
        match self {
            Language::Handshake => !matches!(decode(bytes), Err(DecodeError::Incomplete { .. })),
            Language::RcPingpong => !matches!(
                rc_pingpong::Destination::decode(bytes),
                Err(rc_pingpong::DecodeError::Incomplete)
            ),
        }
    }

    /// Tells a client why it is refused, if its language has a message for that.
    fn refuse(self, mut stream: &TcpStream, text: &str) {
        let Language::Handshake = self else { return };
        let (mut bytes, reason) = ([0; MAX_FRAME], Reason::PROTOCOL);
        if let Ok(length) = Frame::Refuse(Refusal { reason, text }).encode(&mut bytes)
            && let Err(e) = stream.write_all(&bytes[..length])
        {
            tracing::debug!(error = %e, "a refusal was not delivered");
        }
    }
}

impl ClientListener {
    /// Listens on `address`, and says where.
    pub(super) fn listen(address: SocketAddr, language: Language) -> Result<ClientListener> {
        let tcp = TcpListener::bind(address);
        let tcp = tcp.map_err(|e| session::cannot_listen(address, e.kind(), e.into()))?;
        remark!("listening on {}", tcp.local_addr()?);
        ClientListener::new(tcp, language)
    }

    pub(super) fn new(tcp: TcpListener, language: Language) -> Result<ClientListener> {
        tcp.set_nonblocking(true)?;
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let rendezvous = ClientListener { tcp, language, epoll_fd, pending: Vec::new() };
        rendezvous.watch(&rendezvous.tcp, epoll::EventFlags::IN)?;
        Ok(rendezvous)
    }

    fn watch(&self, source: impl AsFd, events: epoll::EventFlags) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll_fd, source, epoll::EventData::new_u64(0), events)?)
    }

    /// The next connection that has sent a complete or invalid hello, or has closed. One that has
    /// done neither within [`HELLO_LIMIT`] is refused.
    ///
    /// # Errors
    /// The operating system has failed to accept connections for long; or a signal has arrived.
    pub(super) fn next(&mut self) -> Result<(TcpStream, SocketAddr)> {
        let mut failures = 0;
        loop {
            signals::go_on()?;
            match self.let_in() {
                Ok(()) => failures = 0,
                Err(e) if failures == RECOVERIES => {
                    return Err(e).context("cannot accept a connection: too many open files?");
                }
                Err(e) => {
                    tracing::warn!(error = %e, "tries again to accept");
                    failures += 1;
                    host::time::sleep(RECOVERY);
                }
            }
            if let Some(at) = self.pending.iter().position(|client| client.has_told(self.language))
            {
                let PendingClient { stream, from, .. } = self.pending.remove(at);
                epoll::delete(&self.epoll_fd, &stream)?;
                stream.set_nonblocking(false)?;
                return Ok((stream, from));
            }
            self.see_off(host::time::now());
            self.sleep(host::time::now())?;
        }
    }

    /// Accepts pending connections, as far as there are places, and one more.
    #[expect(clippy::disallowed_methods, reason = "the listener does not block")]
    fn let_in(&mut self) -> std::io::Result<()> {
        while self.pending.len() <= PLACES {
            match self.tcp.accept() {
                Ok((stream, from)) => self.seat(stream, from),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // It has gone again.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn seat(&mut self, stream: TcpStream, from: SocketAddr) {
        let ready = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        // What is left unread must not wake us again: only more of it does.
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        match ready.and_then(|()| self.watch(&stream, events)) {
            Ok(()) => self.pending.push(PendingClient { stream, from, since: host::time::now() }),
            Err(e) => session::refused(Some(from), &e.to_string()),
        }
    }

    /// Refuses connections whose time is over, and the oldest one if there is one too many.
    fn see_off(&mut self, now: Instant) {
        let crowded = self.pending.len() > PLACES;
        let language = self.language;
        let mut at = 0;
        self.pending.retain(|client| {
            let has_place = !(crowded && at == 0);
            at += 1;
            let had = now.saturating_duration_since(client.since);
            let stays = has_place && had < HELLO_LIMIT;
            if !stays {
                let why = format!(
                    "the connecting end has not said what it wants in {:.1} s",
                    had.as_secs_f64()
                );
                session::refused(Some(client.from), &why);
                language.refuse(&client.stream, &why);
            }
            stays
        });
    }

    /// Sleeps until a client connects, says more, or is out of time; [`GLANCE`] at most, to look
    /// for a signal.
    fn sleep(&self, now: Instant) -> Result<()> {
        let first = self.pending.first().map(|client| client.since + HELLO_LIMIT);
        let time = first.map_or(GLANCE, |end| end.saturating_duration_since(now).min(GLANCE));
        match host::fd::epoll_wait(&self.epoll_fd, &mut Vec::with_capacity(1), Some(time)) {
            // An interrupted sleep is one that ends early.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl PendingClient {
    /// Reports whether the client has sent a whole first message, or what cannot become one, or has
    /// gone.
    fn has_told(&self, language: Language) -> bool {
        let mut bytes = [0; MAX_FRAME];
        match self.stream.peek(&mut bytes) {
            Ok(0) => true,
            Ok(length) => language.is_told(&bytes[..length]),
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

#[cfg(test)]
mod tests;
