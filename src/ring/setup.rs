//! Joining the halves of a ring connection to the peer's: what both protocols do alike.
//!
//! ```text
//!  initiator                                  acceptor
//!      | Hello: queue pairs, its memory ------> |  makes its halves, and counterparts of
//!      |                                        |  the initiator's rings; connects them
//!      | <---- Accept: queue pairs, its memory  |
//!      |  makes counterparts of the acceptor's  |
//!      |  rings; connects its halves            |
//!      | Ready -------------------------------> |  messages may flow both ways
//! ```

use conn_core::handshake::{Endpoint, Frame, MAX_APPLICATION, Options, Parameters, ProtocolId};
use conn_core::ring::offer::{HalfOffer, Offer};

use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::Hello;
use crate::send_recv::{ConnectError, Transport};
use crate::wire::{Port, Wire};

/// One half in the making: a queue pair in INIT, and this end's memory for it.
pub(crate) trait Half: Sized {
    /// The half, when it is connected.
    type Done;

    /// What the peer has to know of the queue pair.
    fn endpoint(&self) -> Endpoint;

    /// What the peer has to know of this end's memory.
    fn offer(&self) -> HalfOffer;

    /// Makes whatever the peer's memory asks for, and connects the queue pair.
    fn finish(self, peer: &PeerHalf, wire: &Wire<'_>) -> Result<Self::Done, ConnectError>;

    /// The handshake has failed after all: nobody is there to say goodbye to.
    fn abandon(done: Self::Done);
}

/// The peer's end of a half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerHalf {
    pub(crate) endpoint: Endpoint,
    pub(crate) offer: HalfOffer,
}

/// A connection in the making.
pub(crate) struct Draft<'a, S, R> {
    pub(crate) device: &'a Device,
    pub(crate) transport: &'a Transport,
    pub(crate) protocol: ProtocolId,
    /// READs in flight, of either end; at least 1.
    pub(crate) rd_atomic: u8,
    pub(crate) port: Port,
    pub(crate) sender: Option<S>,
    pub(crate) receiver: Option<R>,
}

/// Both halves of one end, those that there are.
pub(crate) type Made<S, R> = (Option<<S as Half>::Done>, Option<<R as Half>::Done>);

impl<S: Half, R: Half> Draft<'_, S, R> {
    /// What we tell the peer. `initiator` says which of the two we are.
    fn parameters<'b>(
        &self,
        initiator: bool,
        user: &[u8],
        buffer: &'b mut [u8; MAX_APPLICATION],
    ) -> Result<Parameters<'b>, ConnectError> {
        let in_order = |out, back| if initiator { (out, back) } else { (back, out) };
        let (to_acceptor, to_initiator) = in_order(
            self.sender.as_ref().map(|s| (s.endpoint(), s.offer())),
            self.receiver.as_ref().map(|r| (r.endpoint(), r.offer())),
        );
        let offer = Offer {
            initiator_to_acceptor: to_acceptor.map(|(_, offer)| offer),
            acceptor_to_initiator: to_initiator.map(|(_, offer)| offer),
            user,
        };
        let length = offer.encode(buffer).map_err(unfit)?;
        Ok(Parameters {
            protocol: self.protocol,
            options: Options::NONE,
            initiator_to_acceptor: to_acceptor.map(|(end, _)| end),
            acceptor_to_initiator: to_initiator.map(|(end, _)| end),
            lid: self.port.attr.lid,
            gid: self.port.gid.gid,
            mtu: self.port.mtu(),
            application: &buffer[..length],
        })
    }

    /// Connects the halves to the peer's.
    fn connect(self, peer: &Parameters<'_>, initiator: bool) -> Result<Made<S, R>, ConnectError> {
        let offer = fitting(self.protocol, peer, !initiator)?;
        let there = half(peer.initiator_to_acceptor, offer.initiator_to_acceptor);
        let back = half(peer.acceptor_to_initiator, offer.acceptor_to_initiator);
        let (out, back) = if initiator { (there, back) } else { (back, there) };
        let wire = Wire {
            device: self.device,
            transport: self.transport,
            port: &self.port,
            rd_atomic: self.rd_atomic,
            peer,
        };
        // The receiver first: a sender that is made, and dropped, tries to say goodbye.
        let receiver = finished(self.receiver, back, &wire)?;
        let sender = finished(self.sender, out, &wire)?;
        Ok((sender, receiver))
    }
}

fn half(endpoint: Option<Endpoint>, offer: Option<HalfOffer>) -> Option<PeerHalf> {
    Some(PeerHalf { endpoint: endpoint?, offer: offer? })
}

fn finished<H: Half>(
    half: Option<H>,
    peer: Option<PeerHalf>,
    wire: &Wire<'_>,
) -> Result<Option<H::Done>, ConnectError> {
    match (half, peer) {
        (None, None) => Ok(None),
        (Some(half), Some(peer)) => half.finish(&peer, wire).map(Some),
        _ => Err(unfit("the ends disagree on the directions")),
    }
}

/// The peer's offer, if we can talk to it at all.
fn fitting<'p>(
    ours: ProtocolId,
    peer: &Parameters<'p>,
    from_initiator: bool,
) -> Result<Offer<'p>, ConnectError> {
    if peer.protocol != ours {
        let (theirs, ours) = (peer.protocol.0, ours.0);
        return Err(HandshakeError::OtherProtocol { theirs, ours }.into());
    }
    if peer.options != Options::NONE {
        let bits = peer.options.0;
        return Err(unfit(format!("it wants options that rings do not have ({bits:#x})")));
    }
    let offer = Offer::decode(peer.application).map_err(unfit)?;
    offer.fits(peer, from_initiator).map_err(unfit)?;
    Ok(offer)
}

/// What the peer's user said in a Hello of this protocol.
pub(crate) fn user_data(said: &[u8]) -> &[u8] {
    Offer::decode(said).map_or(&[], |offer| offer.user)
}

/// A peer that does not fit.
pub(crate) fn unfit(why: impl std::fmt::Display) -> ConnectError {
    HandshakeError::Unfit(why.to_string()).into()
}

/// The initiator's part of the set-up.
pub(crate) fn initiate<S: Half, R: Half, T: Stream>(
    exchange: &mut Exchange<'_, T>,
    draft: Draft<'_, S, R>,
    user: &[u8],
) -> Result<Made<S, R>, ConnectError> {
    // The peer's time begins here: memory was registered before.
    exchange.limit(TIME_LIMIT);
    let mut buffer = [0; MAX_APPLICATION];
    exchange.send(&Frame::Hello(draft.parameters(true, user, &mut buffer)?))?;
    let connected = exchange.receive(|frame| match frame {
        Frame::Accept(peer) => Ok(draft.connect(peer, true)),
        _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
    })?;
    let made = connected.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    match exchange.send(&Frame::Ready) {
        Ok(()) => Ok(made),
        Err(e) => Err(abandoned::<S, R>(made, e)),
    }
}

/// The acceptor's part, after the Hello. `draft` makes halves for the directions that the
/// initiator asks for.
pub(crate) fn accept<S: Half, R: Half, T: Stream>(
    exchange: &mut Exchange<'_, T>,
    hello: &Hello,
    draft: Result<Draft<'_, S, R>, ConnectError>,
    user: &[u8],
) -> Result<Made<S, R>, ConnectError> {
    let mut buffer = [0; MAX_APPLICATION];
    let peer = Parameters { application: &hello.application, ..hello.parameters };
    let made = draft.and_then(|draft| {
        let answer = draft.parameters(false, user, &mut buffer)?;
        Ok((draft.connect(&peer, false)?, answer))
    });
    let (made, answer) = made.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    match exchange.conclude(answer) {
        Ok(()) => Ok(made),
        Err(e) => Err(abandoned::<S, R>(made, e)),
    }
}

fn abandoned<S: Half, R: Half>(made: Made<S, R>, error: HandshakeError) -> ConnectError {
    let (sender, receiver) = made;
    sender.into_iter().for_each(S::abandon);
    receiver.into_iter().for_each(R::abandon);
    error.into()
}
