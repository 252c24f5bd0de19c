//! Where initiators come to: a listening socket, and what they have said.

mod lobby;

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conn_core::handshake::{Frame, Parameters, ProtocolId, Reason};

use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::send_recv::ConnectError;
use crate::wait::Deadline;
use lobby::{Door, Lobby};

/// A listening socket for initiators that want one protocol.
#[derive(Debug)]
pub(crate) struct Reception {
    tcp: TcpListener,
    address: SocketAddr,
    lobby: Mutex<Lobby>,
    door: Door,
}

impl Reception {
    pub(crate) fn bind(
        address: impl ToSocketAddrs,
        protocol: ProtocolId,
    ) -> Result<Reception, ConnectError> {
        let system = |error| ConnectError::System { what: "the address to listen on", error };
        let tcp = TcpListener::bind(address).map_err(system)?;
        let address = tcp.local_addr().map_err(system)?;
        let door = Door::new(&tcp).map_err(system)?;
        let lobby = Mutex::new(Lobby::new(protocol));
        Ok(Reception { tcp, address, lobby, door })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next initiator that has said its Hello.
    pub(crate) fn next(&self) -> Result<Caller<TcpStream>, ConnectError> {
        loop {
            if let Some(caller) = self.next_until(Deadline::NEVER)? {
                return Ok(caller);
            }
        }
    }

    /// As [`next`](Reception::next), until then; `None` when nobody came.
    pub(crate) fn next_until(
        &self,
        deadline: Deadline,
    ) -> Result<Option<Caller<TcpStream>>, ConnectError> {
        let system = |error| ConnectError::System { what: "a connection", error };
        loop {
            let now = Instant::now();
            let patience = {
                // A guest is done or not, whoever has panicked meanwhile.
                let mut lobby = self.lobby.lock().unwrap_or_else(PoisonError::into_inner);
                let admitted = lobby.let_in(&self.tcp, &self.door);
                if let Some(done) = lobby.attend(&self.door, now) {
                    return Ok(Some(done?));
                }
                admitted.map_err(system)?;
                lobby.patience(now)
            };
            if deadline.has_passed(now) {
                return Ok(None);
            }
            self.door.wait(patience.min(deadline.remaining(now))).map_err(system)?;
        }
    }
}

/// Somebody who wants a connection, and waits for the answer.
#[derive(Debug)]
pub(crate) struct Caller<S: Stream> {
    pub(crate) stream: S,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) hello: Hello,
}

impl<S: Stream> Caller<S> {
    /// Reads the Hello of whoever is at the other end of `stream`.
    pub(crate) fn greet(
        mut stream: S,
        from: Option<SocketAddr>,
        limit: Duration,
        protocol: ProtocolId,
    ) -> Result<Caller<S>, ConnectError> {
        let mut exchange = Exchange::new(&mut stream, limit);
        match exchange.receive(|frame| Hello::of(frame, protocol)) {
            Ok(hello) => Ok(Caller { stream, from, hello }),
            Err(e) => {
                exchange.refuse(e.reason(), &e.to_string());
                Err(e.into())
            }
        }
    }

    /// Whether it wants to send only.
    pub(crate) fn is_one_way(&self) -> bool {
        self.hello.parameters.acceptor_to_initiator.is_none()
    }

    /// Refuses one that does not connect both ways.
    pub(crate) fn require_both_ways(&mut self) -> Result<(), ConnectError> {
        let Parameters { initiator_to_acceptor: to, acceptor_to_initiator: fro, .. } =
            &self.hello.parameters;
        if to.is_some() && fro.is_some() {
            return Ok(());
        }
        Err(self.unfit("it connects one way, and both ways are served here"))
    }

    /// Refuses one that does not send only.
    pub(crate) fn require_one_way(&mut self) -> Result<(), ConnectError> {
        if self.is_one_way() {
            return Ok(());
        }
        Err(self.unfit("it connects both ways, and messages are only taken here"))
    }

    /// Refuses it, and says the same to our side.
    fn unfit(&mut self, why: &str) -> ConnectError {
        self.tell(Reason::PARAMETERS, why);
        HandshakeError::Unfit(why.into()).into()
    }

    /// Refuses it, with the reason.
    pub(crate) fn tell(&mut self, reason: Reason, why: &str) {
        Exchange::new(&mut self.stream, TIME_LIMIT).refuse(reason, why);
    }
}

/// What the initiator's Hello said; owned, because the stream's buffer is not.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    pub(crate) parameters: Parameters<'static>,
    pub(crate) application: Vec<u8>,
}

impl Hello {
    /// The first frame of an initiator that wants this protocol.
    pub(crate) fn of(frame: &Frame<'_>, ours: ProtocolId) -> Result<Hello, HandshakeError> {
        let Frame::Hello(parameters) = frame else {
            return Err(HandshakeError::OutOfOrder { expected: "Hello" });
        };
        if parameters.protocol != ours {
            let (theirs, ours) = (parameters.protocol.0, ours.0);
            return Err(HandshakeError::OtherProtocol { theirs, ours });
        }
        let application = parameters.application.to_vec();
        Ok(Hello { parameters: Parameters { application: b"", ..*parameters }, application })
    }
}

/// Connects to whoever listens on `address`.
pub(crate) fn dial(address: impl ToSocketAddrs) -> Result<TcpStream, ConnectError> {
    let system = |error| ConnectError::System { what: "the peer's address", error };
    let stream = TcpStream::connect(address).map_err(system)?;
    stream.set_nodelay(true).map_err(system)?;
    Ok(stream)
}

/// The handshake of two ends in one process: the initiator on a thread of its own.
pub(crate) fn within_process<A: Send, B>(
    initiator: impl FnOnce(&mut UnixStream) -> Result<A, ConnectError> + Send,
    acceptor: impl FnOnce(UnixStream) -> Result<B, ConnectError>,
) -> Result<(A, B), ConnectError> {
    let system = |error| ConnectError::System { what: "a socket pair", error };
    let (mut near, far) = UnixStream::pair().map_err(system)?;
    std::thread::scope(|scope| {
        let initiating = scope.spawn(move || initiator(&mut near));
        let accepted = acceptor(far);
        let initiated = initiating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (initiated, accepted) {
            (Ok(initiated), Ok(accepted)) => Ok((initiated, accepted)),
            // Whoever refused says why; the other one only that it was.
            (Err(ConnectError::Handshake(HandshakeError::Refused { .. })), Err(e))
            | (Ok(_), Err(e)) => Err(e),
            // The initiator's own error says more than our being cut off by it.
            (Err(e), _) => Err(e),
        }
    })
}
