//! The handshake of raw queue pairs.

use std::net::SocketAddr;

use conn_core::handshake::{self, Frame, MAX_APPLICATION, Options, Parameters, ProtocolId, Reason};
use conn_core::raw::{Memory, Transport};
use verbs_safe::{Endpoint, PeerId, RemoteSpan};

use super::{Offer, RawEnd, RawPeer};
use crate::device::translation;
use crate::error::ConnectError;
use crate::handshake::{Exchange, HandshakeError, READY_LIMIT, Stream, TIME_LIMIT};
use crate::setup::unfit;

/// The contents of a Hello or Accept; owned, because the stream's buffer is not.
#[derive(Debug, Clone)]
struct PeerParameters {
    peer: RawPeer,
    transport: Transport,
    qkey: u32,
    mtu_bytes: u32,
}

/// An initiator that wants to join its queue pair to one of ours, and waits for the answer.
#[derive(Debug)]
pub struct Incoming<'s, S: Stream> {
    stream: &'s mut S,
    said: PeerParameters,
}

impl RawEnd {
    /// Joins the queue pair to that of the peer at the other end of `stream`, which
    /// [accepts](Incoming::accept). The caller may send when this returns: the peer has
    /// posted its first receives before.
    ///
    /// # Errors
    /// [`ConnectError`]; the peer is sent the reason. A queue pair for datagrams can be joined to
    /// others, any other queue pair is of no further use.
    pub fn connect<S: Stream>(
        &mut self,
        stream: &mut S,
        offer: &Offer<'_>,
    ) -> Result<RawPeer, ConnectError> {
        let ends = stream.ends();
        let mut exchange = Exchange::new(stream, TIME_LIMIT);
        let mut buffer = [0; MAX_APPLICATION];
        exchange.send(&Frame::Hello(self.parameters(offer, &mut buffer)?))?;
        let said = exchange.receive(|frame| match frame {
            Frame::Accept(parameters) => PeerParameters::new(parameters),
            _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
        });
        let said = said.inspect_err(|e| exchange.tell(e))?;
        self.compare(ends, &said);
        let joined = self.join_said(&said);
        let id = joined.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
        let ready = exchange.send(&Frame::Ready);
        ready.inspect_err(|_| self.part_from(id))?;
        Ok(RawPeer { id, ..said.peer })
    }

    /// The parameters for the peer.
    fn parameters<'b>(
        &self,
        offer: &Offer<'_>,
        buffer: &'b mut [u8; MAX_APPLICATION],
    ) -> Result<Parameters<'b>, ConnectError> {
        let memory = |span: RemoteSpan| Memory { addr: span.addr, len: span.len, rkey: span.rkey };
        let (transport, memory) = (self.transport, offer.memory.map(memory));
        let offer = conn_core::raw::Offer { transport, qkey: self.qkey, memory, user: offer.user };
        let length = offer.encode(buffer).map_err(unfit)?;
        let end = handshake::Endpoint {
            qp_num: self.queues.control.qp_num(),
            psn: self.psn,
            recv_depth: self.recv_slots,
            max_message: self.recv_slot_bytes,
        };
        Ok(Parameters {
            protocol: ProtocolId::RAW,
            options: Options::NONE,
            initiator_to_acceptor: Some(end),
            acceptor_to_initiator: None,
            lid: self.port.attr.lid,
            gid: self.port.gid.gid,
            mtu: self.port.mtu(),
            application: &buffer[..length],
        })
    }

    fn join_said(&mut self, said: &PeerParameters) -> Result<Option<PeerId>, ConnectError> {
        if said.transport != self.transport {
            let (theirs, ours) = (said.transport.name(), self.transport.name());
            return Err(unfit(format!("the peer's queue pair is {theirs}, this one {ours}")));
        }
        match self.transport {
            Transport::Ud => self.reach(&said.peer.endpoint, said.qkey).map(Some),
            _ => self.join(&said.peer.endpoint, said.mtu_bytes).map(|()| None),
        }
    }

    /// Warns of address translation between the ends.
    fn compare(&self, ends: Option<(SocketAddr, SocketAddr)>, said: &PeerParameters) {
        if self.is_wired {
            translation::look(&self.port.gid.gid, ends, &said.peer.endpoint.gid);
        }
    }

    /// Forgets a peer if its handshake failed after it was joined: a queue pair that serves many
    /// peers keeps no state of vanished ones.
    fn part_from(&mut self, peer: Option<PeerId>) {
        if let Some(id) = peer {
            self.queues.send.remove_peer(id);
        }
    }
}

impl<'s, S: Stream> Incoming<'s, S> {
    /// Reads the Hello of the initiator at the other end of `stream`.
    ///
    /// # Errors
    /// [`ConnectError::Handshake`] when it speaks another protocol or version, or
    /// something else, or too slowly. It is sent the reason.
    pub fn greet(stream: &'s mut S) -> Result<Incoming<'s, S>, ConnectError> {
        let mut exchange = Exchange::new(stream, READY_LIMIT);
        let said = exchange.receive(|frame| match frame {
            Frame::Hello(parameters) => PeerParameters::new(parameters),
            _ => Err(HandshakeError::OutOfOrder { expected: "Hello" }),
        });
        let said = said.inspect_err(|e| exchange.tell(e))?;
        Ok(Incoming { stream, said })
    }

    /// Returns the initiator.
    #[must_use]
    pub fn peer(&self) -> &RawPeer {
        &self.said.peer
    }

    /// The transport of its queue pair.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.said.transport
    }

    /// Joins `end` to it: one end to one peer, but one for datagrams to any number of them. Post
    /// receives before: the peer may send as soon as it gets the answer.
    ///
    /// # Errors
    /// [`ConnectError`]; the peer is sent the reason. A queue pair for datagrams can be joined to
    /// others, any other queue pair is of no further use.
    pub fn accept(self, end: &mut RawEnd, offer: &Offer<'_>) -> Result<RawPeer, ConnectError> {
        end.compare(self.stream.ends(), &self.said);
        let mut exchange = Exchange::new(self.stream, TIME_LIMIT);
        let mut buffer = [0; MAX_APPLICATION];
        let answer = end.parameters(offer, &mut buffer);
        let joined = answer.and_then(|answer| Ok((answer, end.join_said(&self.said)?)));
        let (answer, id) = joined.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
        let ready = exchange.send(&Frame::Accept(answer)).and_then(|()| exchange.ready());
        ready.inspect_err(|_| end.part_from(id))?;
        Ok(RawPeer { id, ..self.said.peer })
    }

    /// Refuses it, with the reason.
    pub fn refuse(self, why: &str) {
        Exchange::new(self.stream, TIME_LIMIT).refuse(Reason::PARAMETERS, why);
    }
}

impl PeerParameters {
    fn new(parameters: &Parameters<'_>) -> Result<PeerParameters, HandshakeError> {
        let unfit = |why: String| Err(HandshakeError::Unfit(why));
        if parameters.protocol != ProtocolId::RAW {
            let (theirs, ours) = (parameters.protocol.0, ProtocolId::RAW.0);
            return Err(HandshakeError::OtherProtocol { theirs, ours });
        }
        let Some(end) = parameters.initiator_to_acceptor else {
            return unfit("raw queue pairs have the direction initiator to acceptor".into());
        };
        let offer = match conn_core::raw::Offer::decode(parameters.application) {
            Ok(offer) => offer,
            Err(e) => return unfit(e.to_string()),
        };
        let span = |m: Memory| RemoteSpan { addr: m.addr, rkey: m.rkey, len: m.len };
        let (lid, gid) = (parameters.lid, parameters.gid);
        let peer = RawPeer {
            endpoint: Endpoint { qp_num: end.qp_num, psn: end.psn, lid, gid },
            memory: offer.memory.map(span),
            recv_slots: end.recv_depth,
            recv_slot_bytes: end.max_message,
            id: None,
            user: offer.user.to_vec(),
        };
        let (transport, qkey, mtu_bytes) = (offer.transport, offer.qkey, parameters.mtu.bytes());
        Ok(PeerParameters { peer, transport, qkey, mtu_bytes })
    }
}
