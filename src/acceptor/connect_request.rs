//! An initiator with a complete Hello.

use std::net::SocketAddr;
use std::time::Duration;

use conn_core::handshake::{Frame, Parameters, ProtocolId, Reason};

use crate::error::ConnectError;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};

/// An initiator that has requested a connection and waits for the answer.
#[derive(Debug)]
pub(crate) struct ConnectRequest<S: Stream> {
    pub(crate) stream: S,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) hello: Hello,
}

impl<S: Stream> ConnectRequest<S> {
    /// Reads the Hello of the initiator at the other end of `stream`.
    pub(crate) fn read(
        mut stream: S,
        from: Option<SocketAddr>,
        limit: Duration,
        protocol: ProtocolId,
    ) -> Result<ConnectRequest<S>, ConnectError> {
        let mut exchange = Exchange::new(&mut stream, limit);
        match exchange.receive(|frame| Hello::from_frame(frame, protocol)) {
            Ok(hello) => Ok(ConnectRequest { stream, from, hello }),
            Err(e) => {
                exchange.refuse(e.reason(), &e.to_string());
                Err(e.into())
            }
        }
    }

    /// Reports whether the initiator wants to send only.
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
        Err(self.unfit("it sends only, and this end serves both ways: it has to `connect`, or this end to `accept_receiver` or `accept_into`"))
    }

    /// Refuses one that does not send only.
    pub(crate) fn require_one_way(&mut self) -> Result<(), ConnectError> {
        if self.is_one_way() {
            return Ok(());
        }
        Err(self.unfit("it connects both ways, and messages are only taken here"))
    }

    /// Refuses it, and returns the same reason to our side.
    fn unfit(&mut self, why: &str) -> ConnectError {
        self.tell(Reason::PARAMETERS, why);
        HandshakeError::Unfit(why.into()).into()
    }

    /// Refuses it, with the reason.
    pub(crate) fn tell(&mut self, reason: Reason, why: &str) {
        Exchange::new(&mut self.stream, TIME_LIMIT).refuse(reason, why);
    }
}

/// Contents of the initiator's Hello, copied out of the stream's buffer.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    pub(crate) parameters: Parameters<'static>,
    pub(crate) application: Vec<u8>,
}

impl Hello {
    /// The first frame of an initiator that wants this protocol.
    pub(crate) fn from_frame(frame: &Frame<'_>, ours: ProtocolId) -> Result<Hello, HandshakeError> {
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
