//! Connections in the making: makes the halves of one end, and exchanges the terms with the peer
//! ([`setup`](crate::setup) has the order).

use conn_core::handshake::{Endpoint, Frame, MAX_APPLICATION, Options, Parameters, ProtocolId};

use crate::acceptor::Hello;
use crate::device::{Device, translation};
use crate::error::ConnectError;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::peer::Peer;
use crate::protocol::Protocol;
use crate::qp::Transport;
use crate::setup::{Agreement, ByDirection, HalfTerms, NewLink, NewSender, PeerHalf, unfit};
use crate::wire::{ConnectionPort, StreamAddresses, Wire, check_reach};

/// A connection in the making.
#[derive(Debug)]
pub(crate) struct ConnectionDraft<'a, S, L: NewLink> {
    device: &'a Device,
    transport: &'a Transport,
    protocol: ProtocolId,
    agreement: Agreement,
    check_options: fn(Options, Options) -> Result<(), ConnectError>,
    port: ConnectionPort,
    sender: Option<S>,
    link: Option<(L, &'a mut L::Receiver)>,
}

/// The halves of one end, connected to a peer that may not be ready.
struct Connected<'a, S: NewSender, L: NewLink> {
    sender: Option<S::Done>,
    link: Option<(L::Done, &'a mut L::Receiver)>,
}

/// A receiver without peers, of a configuration that is checked first.
pub(crate) fn receiver<P: Protocol>(
    device: &Device,
    config: &P::Config,
    max_peers: u32,
    pool: Option<&P::Pool>,
) -> Result<P::Receiver, ConnectError> {
    P::validate(config)?;
    P::receiver(device, config, max_peers, pool)
}

/// One end of a connection in the making.
#[derive(Debug)]
pub(crate) struct DraftEnd<'a, P: Protocol> {
    pub(crate) device: &'a Device,
    pub(crate) config: &'a P::Config,
    /// Receiver that the peer's messages go to; `None` if the peer sends none.
    pub(crate) receiver: Option<&'a mut P::Receiver>,
    /// Pool that the receiver takes its buffers from.
    pub(crate) pool: Option<&'a P::Pool>,
}

impl<'a, P: Protocol> DraftEnd<'a, P> {
    /// An end that only sends.
    pub(crate) fn sending(device: &'a Device, config: &'a P::Config) -> DraftEnd<'a, P> {
        DraftEnd { device, config, receiver: None, pool: None }
    }

    /// Makes a sender if this end `sends`, and a link of its receiver if it has one.
    pub(crate) fn draft(
        self,
        sends: bool,
    ) -> Result<ConnectionDraft<'a, P::NewSender, P::NewLink>, ConnectError> {
        self.draft_with(|device, config| sends.then(|| P::new_sender(device, config)).transpose())
    }

    /// As [`draft`](Self::draft), with a sender of another kind.
    pub(crate) fn draft_with<S: NewSender<Terms = P::Terms>>(
        self,
        sender: impl FnOnce(&Device, &P::Config) -> Result<Option<S>, ConnectError>,
    ) -> Result<ConnectionDraft<'a, S, P::NewLink>, ConnectError> {
        let DraftEnd { device, config, receiver, pool } = self;
        P::validate(config)?;
        let transport = &config.as_ref().transport;
        let link = |receiver: &'a mut P::Receiver| {
            P::new_link(device, config, receiver, pool).map(|link| (link, receiver))
        };
        let shares = receiver.is_some() && pool.is_some();
        Ok(ConnectionDraft {
            device,
            transport,
            protocol: P::ID,
            agreement: P::agreement(device, config, shares)?,
            check_options: P::check_options,
            port: ConnectionPort::query(device, transport.port, transport.gid_index)?,
            sender: sender(device, config)?,
            link: receiver.map(link).transpose()?,
        })
    }
}

impl<'a, S, L> ConnectionDraft<'a, S, L>
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
            options: self.agreement.options,
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
        ends: Option<StreamAddresses>,
    ) -> Result<Connected<'a, S, L>, ConnectError> {
        if peer.protocol != self.protocol {
            let (theirs, ours) = (peer.protocol.0, self.protocol.0);
            return Err(HandshakeError::OtherProtocol { theirs, ours }.into());
        }
        check_reach(self.device.is_local(), &self.port.gid, &peer.gid)?;
        if self.device.is_wired() {
            translation::look(&self.port.gid.gid, ends, &peer.gid);
        }
        (self.check_options)(self.agreement.options, peer.options)?;
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
        let (device, transport, rd_atomic) =
            (self.device, self.transport, self.agreement.rd_atomic);
        let wire = Wire { device, transport, port: &self.port, rd_atomic, peer, ends };
        // The link first: dropping a new sender would say goodbye.
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

/// The initiator's part of the set-up.
pub(crate) fn initiate<S, L, T>(
    stream: &mut T,
    draft: ConnectionDraft<'_, S, L>,
    user: &[u8],
) -> Result<Option<S::Done>, ConnectError>
where
    S: NewSender,
    L: NewLink<Terms = S::Terms>,
    T: Stream,
{
    let (ends, mut buffer) = (stream.ends(), [0; MAX_APPLICATION]);
    let hello = draft.parameters(true, user, &mut buffer)?;
    // The peer's time limit begins here, after memory was registered.
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    exchange.send(&Frame::Hello(hello))?;
    let connected = exchange.receive(|frame| match frame {
        Frame::Accept(peer) => Ok(draft.connect(peer, true, ends)),
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
    draft: impl FnOnce(bool) -> Result<ConnectionDraft<'a, S, L>, ConnectError>,
) -> Result<(Option<S::Done>, Option<Peer>), ConnectError>
where
    S: NewSender,
    L: NewLink<Terms = S::Terms> + 'a,
    T: Stream,
{
    let ends = stream.ends();
    let mut exchange = Exchange::new(stream, TIME_LIMIT);
    let mut buffer = [0; MAX_APPLICATION];
    let peer = Parameters { application: &hello.application, ..hello.parameters };
    let made = draft(peer.acceptor_to_initiator.is_some()).and_then(|draft| {
        let answer = draft.parameters(false, b"", &mut buffer)?;
        Ok((draft.connect(&peer, false, ends)?, answer))
    });
    let (connected, answer) = made.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    match exchange.conclude(answer) {
        Ok(()) => Ok(connected.finish()),
        Err(e) => Err(connected.abandon(e)),
    }
}
