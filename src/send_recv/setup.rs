//! Making the two halves of a connection, and joining them to the peer's.

use conn_core::credit::{CreditGrantor, CreditWindow};
use conn_core::handshake::{Endpoint, Frame, Options, Parameters, ProtocolId};
use conn_core::pack::Packer;
use conn_core::pool::{PoolConfig, PoolCounts};
use verbs_safe::{
    CompletionChannel, CompletionQueue, QueuePair, QueuePairConfig, RecvSide, RemoteAccess,
};

use super::link::{Link, LinkParts, OwnBuffers, Source};
use super::receiver::{Policy, Receiver};
use super::returns::{Returns, SlotReturn};
use super::sender::{Sender, SenderParts};
use super::shared::{Member, SharedPool};
use super::{Config, ConnectError};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::wire::{Port, Wire, completion_queue, tracker};

/// Buffers that a sender posts for credits, and the depth of a receiver's send
/// queue. The receiver chooses its threshold so that they suffice.
const CONTROL_SLOTS: u32 = 16;
/// Send-queue slots of a sender that data cannot take: probes and the goodbye.
const SENDER_CONTROL: u32 = 4;
/// READs and atomics in flight: none are used, and some devices refuse 0.
const RD_ATOMIC: u8 = 1;

/// Peers may probe us with writes of no bytes. A connection registers no memory for their
/// writes. What others register in the device's protection domain for peers to write to
/// is open to ours as well, if they know its key: see
/// [`Device::pd`](crate::device::Device::pd).
const PROBES: RemoteAccess = RemoteAccess { read: false, write: true, atomic: false };

/// A sending half whose queue pair waits for its peer.
struct NewSender {
    pair: QueuePair<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    psn: u32,
}

impl NewSender {
    fn create(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let depth = config.unacked + SENDER_CONTROL;
        let (cq, channel) = completion_queue(device, depth + CONTROL_SLOTS, config.wait)?;
        let pair = device.pd().create_qp(
            &QueuePairConfig {
                port: config.transport.port,
                access: PROBES,
                max_send_wr: depth,
                send_slots: config.unacked,
                send_slot_bytes: config.message_bytes as usize,
                max_inline: config.inline.asked_bytes().min(config.message_bytes),
                recv: RecvSide::Own { slots: CONTROL_SLOTS, slot_bytes: 0 },
                ..QueuePairConfig::new(&cq, &cq)
            },
            (),
        );
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            let all: Vec<u32> = (0..CONTROL_SLOTS).collect();
            queue.post(&all).map_err(|e| device.error("post receive buffers", &e))?;
        }
        Ok(NewSender { pair, cq, channel, psn: verbs_safe::random_psn() })
    }

    fn endpoint(&self, config: &Config) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_window: CONTROL_SLOTS,
            max_message: config.message_bytes,
        }
    }

    /// Ready to send to `peer`, which is the receiver of this direction.
    fn finish(
        self,
        peer: &Endpoint,
        config: &Config,
        device: &Device,
    ) -> Result<Sender, ConnectError> {
        let QueuePair { control, send, recv } = self.pair;
        let credits =
            recv.ok_or_else(|| device.error("use a queue pair", &"it has no receive side"))?;
        let limit = peer.max_message.min(config.message_bytes);
        if config.pack_bytes > 0 && Packer::new(config.pack_bytes.min(limit)).largest().is_none() {
            let bytes = peer.max_message;
            return Err(unfit(&format!("buffers of {bytes} bytes hold no packed message")));
        }
        Ok(Sender::new(SenderParts {
            control,
            queue: send,
            credits,
            cq: self.cq,
            channel: self.channel,
            tracker: tracker(config.unacked, SENDER_CONTROL, config.signal_interval()),
            window: CreditWindow::new(peer.recv_window).map_err(|e| unfit(&e))?,
            config: *config,
            limit: limit as usize,
        }))
    }
}

/// A link of a receiver whose queue pair waits for its peer.
struct NewLink {
    pair: QueuePair<SlotReturn>,
    member: Option<Member>,
    psn: u32,
    window: u32,
    place: u32,
}

impl NewLink {
    fn create(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        shared: Option<&SharedPool>,
    ) -> Result<NewLink, ConnectError> {
        let window = config.recv_window;
        if shared.is_none() && window + 1 > receiver.returns.slots() {
            let rule = "at most that of the configuration which the receiver was made with";
            let (field, value) = ("recv_window", window.into());
            return Err(super::ConfigError { field, value, rule }.into());
        }
        receiver.sweep();
        let member = shared.map(|pool| pool.join(window + 1)).transpose()?;
        if let Some(pool) = shared {
            pool.add_receiver(&receiver.returns);
        }
        let crowded = ConnectError::TooManyPeers(receiver.links.max_peers());
        let place = receiver.links.vacancy().ok_or(crowded)?;
        let own = RecvSide::Own { slots: window + 1, slot_bytes: config.message_bytes as usize };
        let pair = device.pd().create_qp(
            &QueuePairConfig {
                port: config.transport.port,
                access: PROBES,
                max_send_wr: CONTROL_SLOTS,
                send_slots: 0,
                recv: shared.map_or(own, |pool| RecvSide::Shared(pool.queue())),
                ..QueuePairConfig::new(&receiver.cq, &receiver.cq)
            },
            SlotReturn::Receiver { returns: receiver.returns.clone(), link: place },
        );
        let pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        Ok(NewLink { pair, member, psn: verbs_safe::random_psn(), window, place })
    }

    fn endpoint(&self, config: &Config, shared: Option<&SharedPool>) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_window: self.window,
            max_message: shared.map_or(config.message_bytes, |pool| pool.config().buffer_bytes),
        }
    }

    /// Ready to receive from `peer`, which is the sender of this direction.
    fn finish(
        self,
        peer: &Endpoint,
        packed: bool,
        config: &Config,
        device: &Device,
    ) -> Result<Link, ConnectError> {
        let QueuePair { control, send, recv } = self.pair;
        let source = match (self.member, recv) {
            (Some(member), _) => Source::Shared(member),
            (None, Some(queue)) => Source::Own(own_buffers(queue, self.window, config, device)?),
            (None, None) => {
                return Err(device.error("use a queue pair", &"no receive side").into());
            }
        };
        Ok(Link::new(LinkParts {
            qp: control,
            queue: send,
            tracker: tracker(CONTROL_SLOTS - 1, 1, CONTROL_SLOTS / 4),
            grantor: grantor(self.window, peer, config)?,
            source,
            packed,
            place: self.place,
        }))
    }
}

/// A pool of `window + 1` buffers, all posted: one more than the credits, for the
/// sender's goodbye.
fn own_buffers(
    queue: verbs_safe::RecvQueue<SlotReturn>,
    window: u32,
    config: &Config,
    device: &Device,
) -> Result<OwnBuffers, ConnectError> {
    let policy = PoolConfig { repost_batch: config.repost_interval() };
    let counts = PoolCounts::new(window + 1, policy);
    let counts = counts.map_err(|e| device.error("manage buffers", &e))?;
    let mut own = OwnBuffers::new(queue, counts, config.message_bytes as usize);
    own.repost(true).map_err(|e| device.error("post receive buffers", &e))?;
    Ok(own)
}

/// Credits in chunks that the sender's control buffers can take: whatever the
/// sender does, no more than that are on their way (see
/// [`CreditGrantor::max_grants_in_flight`]). One buffer is kept for the goodbye.
fn grantor(
    window: u32,
    peer: &Endpoint,
    config: &Config,
) -> Result<Option<CreditGrantor>, ConnectError> {
    if !config.credits {
        return Ok(None);
    }
    let chosen = config.credit_interval().min(window);
    let fits = |threshold: &u32| {
        CreditGrantor::max_grants_in_flight(window, *threshold) < peer.recv_window
    };
    let threshold = (chosen..=window).find(fits);
    let threshold = threshold.ok_or_else(|| unfit(&"the sender has no buffers for credits"))?;
    Ok(Some(CreditGrantor::new(window, threshold).map_err(|e| unfit(&e))?))
}

fn unfit(why: &dyn std::fmt::Display) -> ConnectError {
    HandshakeError::Unfit(why.to_string()).into()
}

/// Where incoming messages are to go.
pub(crate) struct Inbox<'a> {
    pub(crate) receiver: &'a mut Receiver,
    pub(crate) shared: Option<&'a SharedPool>,
}

impl Inbox<'_> {
    fn reborrow(&mut self) -> Inbox<'_> {
        Inbox { receiver: self.receiver, shared: self.shared }
    }
}

/// A connection in the making: queue pairs in INIT, buffers posted.
struct Draft<'a, 'r> {
    device: &'a Device,
    config: &'a Config,
    port: Port,
    sender: Option<NewSender>,
    link: Option<NewLink>,
    inbox: Option<Inbox<'r>>,
}

impl<'a, 'r> Draft<'a, 'r> {
    fn new(
        device: &'a Device,
        config: &'a Config,
        sends: bool,
        mut inbox: Option<Inbox<'r>>,
    ) -> Result<Draft<'a, 'r>, ConnectError> {
        config.validate()?;
        let port = Port::of(device, &config.transport)?;
        let sender = sends.then(|| NewSender::create(device, config)).transpose()?;
        let link = inbox
            .as_mut()
            .map(|inbox| NewLink::create(device, config, inbox.receiver, inbox.shared));
        Ok(Draft { device, config, port, sender, link: link.transpose()?, inbox })
    }

    /// What we tell the peer. `initiator` says which of the two we are.
    fn parameters<'d>(&self, initiator: bool, application: &'d [u8]) -> Parameters<'d> {
        let out = self.sender.as_ref().map(|s| s.endpoint(self.config));
        let shared = self.inbox.as_ref().and_then(|i| i.shared);
        let back = self.link.as_ref().map(|l| l.endpoint(self.config, shared));
        let (to_acceptor, to_initiator) = if initiator { (out, back) } else { (back, out) };
        Parameters {
            protocol: ProtocolId::SEND_RECV,
            options: self.options(),
            initiator_to_acceptor: to_acceptor,
            acceptor_to_initiator: to_initiator,
            lid: self.port.attr.lid,
            gid: self.port.gid.gid,
            mtu: self.port.mtu(),
            application,
        }
    }

    fn options(&self) -> Options {
        let packed = if self.config.pack_bytes > 0 { Options::PACKED } else { Options::NONE };
        let free = if self.config.credits { Options::NONE } else { Options::NO_CREDITS };
        packed.with(free)
    }

    /// Connects the queue pairs to the peer's, and buffers to credits.
    fn connect(
        self,
        peer: &Parameters<'_>,
        initiator: bool,
    ) -> Result<(Option<Sender>, Option<Link>), ConnectError> {
        fits(&self.options(), peer)?;
        let (to_acceptor, to_initiator) = (peer.initiator_to_acceptor, peer.acceptor_to_initiator);
        let (out, back) =
            if initiator { (to_acceptor, to_initiator) } else { (to_initiator, to_acceptor) };
        let missing = || unfit(&"the ends disagree on the directions");
        let wire = Wire {
            device: self.device,
            transport: &self.config.transport,
            port: &self.port,
            rd_atomic: RD_ATOMIC,
            peer,
        };
        // The link first: a sender that is made, and dropped, tries to say goodbye.
        let link = match self.link {
            None => None,
            Some(new) => {
                let end = back.ok_or_else(missing)?;
                let (control, psn) = (new.pair.control.clone(), new.psn);
                let packed = peer.options.contains(Options::PACKED);
                let link = new.finish(&end, packed, self.config, self.device)?;
                wire.connect(&control, psn, &end)?;
                Some(link)
            }
        };
        let sender = match self.sender {
            None => None,
            Some(new) => {
                let end = out.ok_or_else(missing)?;
                wire.connect(&new.pair.control, new.psn, &end)?;
                Some(new.finish(&end, self.config, self.device)?)
            }
        };
        Ok((sender, link))
    }
}

/// Whether we can talk to a peer at all.
fn fits(ours: &Options, peer: &Parameters<'_>) -> Result<(), ConnectError> {
    if peer.protocol != ProtocolId::SEND_RECV {
        let (theirs, ours) = (peer.protocol.0, ProtocolId::SEND_RECV.0);
        return Err(HandshakeError::OtherProtocol { theirs, ours }.into());
    }
    if let Some(unknown) = peer.options.unknown() {
        return Err(unfit(&format!("it wants options that are unknown here ({unknown:#x})")));
    }
    if ours.contains(Options::NO_CREDITS) != peer.options.contains(Options::NO_CREDITS) {
        return Err(unfit(&"one end uses credits and the other does not: both or none"));
    }
    Ok(())
}

/// The initiator's part of the set-up.
pub(crate) fn initiate<S: Stream>(
    exchange: &mut Exchange<'_, S>,
    device: &Device,
    config: &Config,
    sends: bool,
    mut inbox: Option<Inbox<'_>>,
    application: &[u8],
) -> Result<Option<Sender>, ConnectError> {
    let draft = Draft::new(device, config, sends, inbox.as_mut().map(Inbox::reborrow))?;
    // The peer's time begins here: memory was registered before.
    exchange.limit(TIME_LIMIT);
    exchange.send(&Frame::Hello(draft.parameters(true, application)))?;
    let connected = exchange.receive(|frame| match frame {
        Frame::Accept(peer) => Ok(draft.connect(peer, true)),
        _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
    })?;
    let (mut sender, link) =
        connected.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    if let Err(e) = exchange.send(&Frame::Ready) {
        sender.iter_mut().for_each(Sender::abandon);
        return Err(e.into());
    }
    join(inbox, link);
    Ok(sender)
}

/// The acceptor's part, after the Hello.
pub(crate) fn accept<S: Stream>(
    exchange: &mut Exchange<'_, S>,
    hello: &Parameters<'_>,
    device: &Device,
    config: &Config,
    inbox: Option<Inbox<'_>>,
    application: &[u8],
) -> Result<(Option<Sender>, Option<super::Peer>), ConnectError> {
    let sends = hello.acceptor_to_initiator.is_some();
    let mut inbox = inbox;
    let lent = inbox.as_mut().map(Inbox::reborrow);
    let made = Draft::new(device, config, sends, lent).and_then(|draft| {
        let answer = draft.parameters(false, application);
        Ok((draft.connect(hello, false)?, answer))
    });
    let ((mut sender, link), answer) =
        made.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    if let Err(e) = exchange.conclude(answer) {
        sender.iter_mut().for_each(Sender::abandon);
        if let (Some(inbox), Some(link)) = (inbox, link) {
            inbox.receiver.links.forget(link);
        }
        return Err(e.into());
    }
    Ok((sender, join(inbox, link)))
}

/// A link whose peer is ready gets its place in the receiver. Not before: a peer that
/// never gets so far takes no place.
fn join(inbox: Option<Inbox<'_>>, link: Option<Link>) -> Option<super::Peer> {
    Some(inbox?.receiver.links.add(link?))
}

/// Queue pairs of a shared pool that may wait for their last completions, besides those of
/// all peers.
const STRAYS: u32 = 64;

/// What may complete into a receiver's queue: all its buffers, and control of ours.
fn entries(
    config: &Config,
    max_peers: u32,
    shared: Option<&SharedPool>,
) -> Result<u32, ConnectError> {
    let own = || (config.recv_window + 1).checked_mul(max_peers);
    let buffers = shared.map_or_else(own, |pool| Some(pool.config().buffers));
    let strays = shared.map_or(0, |_| max_peers.min(STRAYS));
    let control = max_peers.checked_add(strays).and_then(|n| n.checked_mul(CONTROL_SLOTS));
    let entries = buffers.zip(control).and_then(|(buffers, control)| buffers.checked_add(control));
    // No completion queue is that long; and 0 is none at all.
    let entries = entries.filter(|n| max_peers > 0 && *n <= i32::MAX as u32);
    let rule = "at least 1, and few enough for one completion queue";
    let field = "max_peers";
    entries.ok_or_else(|| super::ConfigError { field, value: max_peers.into(), rule }.into())
}

/// An empty receiver for up to `max_peers` senders.
pub(crate) fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
    shared: Option<&SharedPool>,
) -> Result<Receiver, ConnectError> {
    config.validate()?;
    let entries = entries(config, max_peers, shared)?;
    let (cq, channel) = completion_queue(device, entries, config.wait)?;
    let returns = Returns::new(max_peers, config.recv_window + 1)
        .map_err(|error| ConnectError::System { what: "an event descriptor", error })?;
    let policy = Policy {
        wait: config.wait,
        keepalive: config.keepalive,
        linger: config.linger,
        poll_batch: config.poll_batch,
        max_peers,
    };
    Ok(Receiver::new(cq, channel, returns, policy))
}
