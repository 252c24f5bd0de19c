//! The set-up of a connection: joins the halves of one end to those of its peer.
//!
//! ```text
//!  initiator                                  acceptor
//!      | Hello: queue pairs, its memory ------> |  makes its halves, and what belongs to
//!      |                                        |  the initiator's; connects them
//!      | <---- Accept: queue pairs, its memory  |
//!      |  makes what belongs to the acceptor's; |
//!      |  connects its halves                   |
//!      | Ready -------------------------------> |  messages may flow both ways
//! ```
//!
//! A protocol makes its halves ([`NewSender`], [`NewLink`]) and says what a peer has to know of
//! their memory ([`HalfTerms`]); the exchange is the same for all.

use conn_core::handshake::{Endpoint, Frame, MAX_APPLICATION, Options, Parameters, ProtocolId};

use crate::acceptor::Hello;
use crate::device::Device;
use crate::error::ConnectError;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::peer::Peer;
use crate::qp::Transport;
use crate::wire::{Port, Wire};

/// What an end says of its memory for one direction, in front of the user's data.
pub trait HalfTerms: Copy {
    /// Writes the terms of both directions and the user's data: how many bytes.
    fn encode(
        terms: &ByDirection<Option<Self>>,
        user: &[u8],
        out: &mut [u8; MAX_APPLICATION],
    ) -> Result<usize, ConnectError>;

    /// The terms of a peer, if they fit the directions that its frame has.
    fn decode(
        peer: &Parameters<'_>,
        from_initiator: bool,
    ) -> Result<ByDirection<Option<Self>>, ConnectError>;

    /// Refuses a peer whose options do not go with ours. Most protocols have none.
    fn check_options(ours: Options, theirs: Options) -> Result<(), ConnectError> {
        let _ = ours;
        match theirs {
            Options::NONE => Ok(()),
            Options(bits) => {
                Err(unfit(format!("it wants options that this protocol does not have ({bits:#x})")))
            }
        }
    }
}

/// Terms of a fixed length, those of each direction in turn, and the user's data behind them: how
/// many bytes.
pub(crate) fn encode_terms<const N: usize>(
    terms: [Option<[u8; N]>; 2],
    user: &[u8],
    out: &mut [u8; MAX_APPLICATION],
) -> Result<usize, ConnectError> {
    let said = terms.iter().flatten().flatten();
    let bytes: Vec<u8> = said.chain(user).copied().collect();
    let limit = MAX_APPLICATION - (bytes.len() - user.len());
    let too_long = || unfit(format!("{} bytes of application data; at most {limit}", user.len()));
    out.get_mut(..bytes.len()).ok_or_else(too_long)?.copy_from_slice(&bytes);
    Ok(bytes.len())
}

/// The terms of a peer that [`encode_terms`] has written: a sender's where it sends.
pub(crate) fn decode_terms<T, E: std::fmt::Display>(
    peer: &Parameters<'_>,
    from_initiator: bool,
    decode: impl Fn(&[u8]) -> Result<(T, &[u8]), E>,
    is_sender: impl Fn(&T) -> bool,
) -> Result<ByDirection<Option<T>>, ConnectError> {
    let mut said = peer.application;
    let mut next = |end: Option<Endpoint>, sends: bool| {
        if end.is_none() {
            return Ok(None);
        }
        let (terms, rest) = decode(said).map_err(unfit)?;
        said = rest;
        match is_sender(&terms) == sends {
            true => Ok(Some(terms)),
            false => Err(unfit("the terms of the other direction")),
        }
    };
    let to_acceptor = next(peer.initiator_to_acceptor, from_initiator)?;
    let to_initiator = next(peer.acceptor_to_initiator, !from_initiator)?;
    Ok(ByDirection { to_acceptor, to_initiator })
}

/// Something for each direction.
#[derive(Debug, Clone, Copy)]
pub struct ByDirection<T> {
    pub(crate) to_acceptor: T,
    pub(crate) to_initiator: T,
}

impl<T> ByDirection<T> {
    fn new(out: T, back: T, is_initiator: bool) -> ByDirection<T> {
        match is_initiator {
            true => ByDirection { to_acceptor: out, to_initiator: back },
            false => ByDirection { to_acceptor: back, to_initiator: out },
        }
    }

    /// What this end sends on, and what it receives on.
    fn out_and_back(self, is_initiator: bool) -> (T, T) {
        match is_initiator {
            true => (self.to_acceptor, self.to_initiator),
            false => (self.to_initiator, self.to_acceptor),
        }
    }
}

/// One half in the making: a queue pair in INIT, and this end's memory for it.
pub trait NewHalf: Sized {
    /// What the peer has to know of this end's memory.
    type Terms: HalfTerms;
    /// The half, when it is connected.
    type Done;

    /// What the peer has to know of the queue pair.
    fn endpoint(&self) -> Endpoint;

    /// What the peer has to know of this end's memory.
    fn terms(&self) -> Self::Terms;
}

/// A sender in the making.
pub trait NewSender: NewHalf {
    /// Makes what the peer's memory asks for, and connects the queue pair.
    fn connect(
        self,
        peer: &PeerHalf<Self::Terms>,
        wire: &Wire<'_>,
    ) -> Result<Self::Done, ConnectError>;

    /// The handshake has failed after all: ends the half without a goodbye.
    fn abandon(done: Self::Done);
}

/// A receiver's link in the making.
pub trait NewLink: NewHalf {
    /// What the link is one of.
    type Receiver;

    /// Makes what the peer's memory asks for, and connects the queue pair.
    fn connect(
        self,
        peer: &PeerHalf<Self::Terms>,
        wire: &Wire<'_>,
        receiver: &mut Self::Receiver,
    ) -> Result<Self::Done, ConnectError>;

    /// Its peer is ready: the link gets its place. Not before: a peer that never gets so far
    /// takes no place.
    fn join(done: Self::Done, receiver: &mut Self::Receiver) -> Peer;

    /// The handshake has failed after all. The peer may have sent already: buffers that the
    /// receiver's links share must not go with this one.
    fn abandon(done: Self::Done, receiver: &mut Self::Receiver);
}

/// The peer's end of a half.
#[derive(Debug, Clone, Copy)]
pub struct PeerHalf<T> {
    pub(crate) endpoint: Endpoint,
    pub(crate) terms: T,
    pub(crate) options: Options,
}

/// A connection in the making.
#[derive(Debug)]
pub struct Draft<'a, S, L: NewLink> {
    pub(crate) device: &'a Device,
    pub(crate) transport: &'a Transport,
    pub(crate) protocol: ProtocolId,
    pub(crate) options: Options,
    /// READs in flight, of either end; at least 1: some devices refuse 0.
    pub(crate) rd_atomic: u8,
    pub(crate) port: Port,
    pub(crate) sender: Option<S>,
    pub(crate) link: Option<(L, &'a mut L::Receiver)>,
}

/// The halves of one end, connected to a peer that may not be ready.
struct Connected<'a, S: NewSender, L: NewLink> {
    sender: Option<S::Done>,
    link: Option<(L::Done, &'a mut L::Receiver)>,
}

impl<'a, S, L> Draft<'a, S, L>
where
    S: NewSender,
    L: NewLink<Terms = S::Terms>,
{
    /// The parameters for the peer.
    fn parameters<'b>(
        &self,
        is_initiator: bool,
        user: &[u8],
        buffer: &'b mut [u8; MAX_APPLICATION],
    ) -> Result<Parameters<'b>, ConnectError> {
        let (sender, link) = (self.sender.as_ref(), self.link.as_ref().map(|(link, _)| link));
        let ends = (sender.map(S::endpoint), link.map(L::endpoint));
        let ends = ByDirection::new(ends.0, ends.1, is_initiator);
        let terms = ByDirection::new(sender.map(S::terms), link.map(L::terms), is_initiator);
        let length = HalfTerms::encode(&terms, user, buffer)?;
        Ok(Parameters {
            protocol: self.protocol,
            options: self.options,
            initiator_to_acceptor: ends.to_acceptor,
            acceptor_to_initiator: ends.to_initiator,
            lid: self.port.attr.lid,
            gid: self.port.gid.gid,
            mtu: self.port.mtu(),
            application: &buffer[..length],
        })
    }

    /// Connects the halves to the peer's.
    fn connect(
        self,
        peer: &Parameters<'_>,
        is_initiator: bool,
    ) -> Result<Connected<'a, S, L>, ConnectError> {
        if peer.protocol != self.protocol {
            let (theirs, ours) = (peer.protocol.0, self.protocol.0);
            return Err(HandshakeError::OtherProtocol { theirs, ours }.into());
        }
        S::Terms::check_options(self.options, peer.options)?;
        let terms = S::Terms::decode(peer, !is_initiator)?;
        let half = |endpoint: Option<Endpoint>, terms: Option<S::Terms>| {
            Some(PeerHalf { endpoint: endpoint?, terms: terms?, options: peer.options })
        };
        let halves = ByDirection {
            to_acceptor: half(peer.initiator_to_acceptor, terms.to_acceptor),
            to_initiator: half(peer.acceptor_to_initiator, terms.to_initiator),
        };
        let (out, back) = halves.out_and_back(is_initiator);
        if (self.sender.is_some(), self.link.is_some()) != (out.is_some(), back.is_some()) {
            return Err(unfit("the ends disagree on the directions"));
        }
        let (device, transport, rd_atomic) = (self.device, self.transport, self.rd_atomic);
        let wire = Wire { device, transport, port: &self.port, rd_atomic, peer };
        // The link first: a sender that is made, and dropped, tries to say goodbye.
        let mut connected = Connected { sender: None, link: None };
        if let (Some((link, receiver)), Some(back)) = (self.link, back) {
            let done = link.connect(&back, &wire, receiver)?;
            connected.link = Some((done, receiver));
        }
        if let (Some(sender), Some(out)) = (self.sender, out) {
            match sender.connect(&out, &wire) {
                Ok(sender) => connected.sender = Some(sender),
                Err(e) => return Err(connected.abandon(e)),
            }
        }
        Ok(connected)
    }
}

impl<S: NewSender, L: NewLink> Connected<'_, S, L> {
    fn finish(self) -> (Option<S::Done>, Option<Peer>) {
        (self.sender, self.link.map(|(link, receiver)| L::join(link, receiver)))
    }

    fn abandon(self, error: impl Into<ConnectError>) -> ConnectError {
        self.sender.into_iter().for_each(S::abandon);
        if let Some((link, receiver)) = self.link {
            L::abandon(link, receiver);
        }
        error.into()
    }
}

/// A peer that does not fit.
pub(crate) fn unfit(why: impl std::fmt::Display) -> ConnectError {
    HandshakeError::Unfit(why.to_string()).into()
}

/// The initiator's part of the set-up.
pub(crate) fn initiate<S, L, T>(
    stream: &mut T,
    draft: Draft<'_, S, L>,
    user: &[u8],
) -> Result<Option<S::Done>, ConnectError>
where
    S: NewSender,
    L: NewLink<Terms = S::Terms>,
    T: Stream,
{
    let mut buffer = [0; MAX_APPLICATION];
    let hello = draft.parameters(true, user, &mut buffer)?;
    // The peer's time begins here: memory was registered before.
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    exchange.send(&Frame::Hello(hello))?;
    let connected = exchange.receive(|frame| match frame {
        Frame::Accept(peer) => Ok(draft.connect(peer, true)),
        _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
    })?;
    let connected = connected.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    match exchange.send(&Frame::Ready) {
        Ok(()) => Ok(connected.finish().0),
        Err(e) => Err(connected.abandon(e)),
    }
}

/// The acceptor's part, after the Hello. `draft` makes the halves, a sender among them if the
/// initiator receives.
pub(crate) fn accept<'a, S, L, T>(
    stream: &mut T,
    hello: &Hello,
    draft: impl FnOnce(bool) -> Result<Draft<'a, S, L>, ConnectError>,
) -> Result<(Option<S::Done>, Option<Peer>), ConnectError>
where
    S: NewSender,
    L: NewLink<Terms = S::Terms> + 'a,
    T: Stream,
{
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    let mut buffer = [0; MAX_APPLICATION];
    let peer = Parameters { application: &hello.application, ..hello.parameters };
    let made = draft(peer.acceptor_to_initiator.is_some()).and_then(|draft| {
        let answer = draft.parameters(false, b"", &mut buffer)?;
        Ok((draft.connect(&peer, false)?, answer))
    });
    let (connected, answer) = made.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    match exchange.conclude(answer) {
        Ok(()) => Ok(connected.finish()),
        Err(e) => Err(connected.abandon(e)),
    }
}
