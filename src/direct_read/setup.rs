//! Making both ends of a connection, and joining them.
//!
//! The sender is the initiator of the handshake. In front of the application data of
//! Hello and Accept there are the [`Terms`] of either end.

use conn_core::direct_read::{
    AckMode, Offers, Place, Reads, ReadsConfig, SignalAt, Slot, TERMS_LEN, Terms,
};
use conn_core::handshake::{Endpoint, Frame, MAX_APPLICATION, Options, Parameters, ProtocolId};
use conn_core::seal::SEALED_BYTES;
use verbs_safe::{
    CompletionChannel, CompletionQueue, Mapping, QueuePair, QueuePairConfig, RecvSide,
    RemoteAccess, SharedRegion, SharedRegionConfig,
};

use super::link::LinkParts;
use super::receiver::{Receiver, ReceiverParts};
use super::sender::{SIGNAL_STRIDE, SIGNALS_AT, SenderParts};
use super::{Config, Offer, Peer, Sender};
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::reception::Hello;
use crate::send_recv::{ConfigError, ConnectError};
use crate::wire::{Port, Wire, completion_queue, tracker};

/// Places for control, in either send queue, and for what comes besides messages: a bell,
/// a goodbye.
const CONTROL: u32 = 4;

fn unfit(why: impl std::fmt::Display) -> ConnectError {
    HandshakeError::Unfit(why.to_string()).into()
}

/// Memory of `bytes` bytes that the peer reaches as `access` says.
fn shared_memory(
    device: &Device,
    bytes: usize,
    access: RemoteAccess,
) -> Result<SharedRegion, ConnectError> {
    let mapping = Mapping::new(bytes).map_err(|e| device.error("map memory", &e))?;
    let config = SharedRegionConfig { access, on_demand: false };
    let region = device.pd().register_shared(mapping, config);
    Ok(region.map_err(|e| device.error("register memory", &e))?)
}

fn place(region: &SharedRegion) -> Option<Place> {
    region
        .remote(0, SEALED_BYTES as usize)
        .ok()
        .map(|span| Place { addr: span.addr, rkey: span.rkey })
}

/// READs in flight that the device permits: answered, begun.
fn read_limits(device: &Device, wanted: u8) -> Result<(u8, u8), ConnectError> {
    let attr = device.context().attr().map_err(|e| device.error("query the limits", &e))?;
    let limit = |of: u32| u32::from(wanted).min(of).max(1) as u8;
    Ok((limit(attr.max_qp_rd_atom), limit(attr.max_qp_init_rd_atom)))
}

/// What is told to the peer: the terms, and what the user has to say.
fn application<'b>(
    terms: &Terms,
    user: &[u8],
    buffer: &'b mut [u8; MAX_APPLICATION],
) -> Result<&'b [u8], ConnectError> {
    let (len, limit) = (TERMS_LEN + user.len(), MAX_APPLICATION - TERMS_LEN);
    let too_long = || unfit(format!("{} bytes of application data; at most {limit}", user.len()));
    let out = buffer.get_mut(..len).ok_or_else(too_long)?;
    out[..TERMS_LEN].copy_from_slice(&terms.encode());
    out[TERMS_LEN..].copy_from_slice(user);
    Ok(out)
}

fn parameters<'a>(port: &Port, end: Endpoint, application: &'a [u8]) -> Parameters<'a> {
    Parameters {
        protocol: ProtocolId::DIRECT_READ,
        options: Options::NONE,
        initiator_to_acceptor: Some(end),
        acceptor_to_initiator: None,
        lid: port.attr.lid,
        gid: port.gid.gid,
        mtu: port.mtu(),
        application,
    }
}

/// What the peer said of itself.
struct Said {
    end: Endpoint,
    terms: Terms,
}

impl Said {
    fn of(peer: &Parameters<'_>) -> Result<Said, ConnectError> {
        if peer.protocol != ProtocolId::DIRECT_READ {
            let (theirs, ours) = (peer.protocol.0, ProtocolId::DIRECT_READ.0);
            return Err(HandshakeError::OtherProtocol { theirs, ours }.into());
        }
        if peer.options != Options::NONE {
            let bits = peer.options.0;
            return Err(unfit(format!("it wants options that Direct Read has not ({bits:#x})")));
        }
        if peer.acceptor_to_initiator.is_some() {
            return Err(unfit("the initiator of Direct Read sends, and does not receive"));
        }
        let Some(end) = peer.initiator_to_acceptor else {
            return Err(unfit("the ends disagree on the directions"));
        };
        let (terms, _) = Terms::decode(peer.application).map_err(unfit)?;
        if terms.reads == 0 || end.recv_window == 0 {
            return Err(unfit("a window of no messages, or no READs"));
        }
        Ok(Said { end, terms })
    }
}

/// What the peer's user said in a Hello.
pub(super) fn user_data(said: &[u8]) -> &[u8] {
    Terms::decode(said).map_or(&[], |(_, user)| user)
}

/// A sender whose queue pair waits for its peer.
struct NewSender {
    pair: QueuePair<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    memory: SharedRegion,
    psn: u32,
    reads: u8,
}

impl NewSender {
    fn create(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let (reads, _) = read_limits(device, config.reads)?;
        let (depth, notices) = (config.window + CONTROL, config.window + CONTROL);
        let (cq, channel) = completion_queue(device, depth + notices, config.wait)?;
        let bytes = SIGNALS_AT + config.window as usize * SIGNAL_STRIDE;
        let write = RemoteAccess { write: true, ..RemoteAccess::NONE };
        let memory = shared_memory(device, bytes, write)?;
        let pair = device.pd().create_qp(
            &QueuePairConfig {
                port: config.transport.port,
                access: RemoteAccess { read: true, write: true, atomic: false },
                max_send_wr: depth,
                send_slots: depth,
                send_slot_bytes: config.request_bytes() as usize,
                max_inline: config.request_bytes(),
                recv: RecvSide::Own { slots: notices, slot_bytes: 0 },
                ..QueuePairConfig::new(&cq, &cq)
            },
            (),
        );
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            let all: Vec<u32> = (0..notices).collect();
            queue.post(&all).map_err(|e| device.error("post receive buffers", &e))?;
        }
        Ok(NewSender { pair, cq, channel, memory, psn: verbs_safe::random_psn(), reads })
    }

    fn terms(&self, config: &Config) -> Terms {
        let counts = place(&self.memory).filter(|_| config.ack == AckMode::Cumulative);
        Terms { ack: config.ack, signal: config.signal_at, reads: self.reads, counts }
    }

    fn endpoint(&self, config: &Config) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_window: config.window,
            max_message: config.request_bytes(),
        }
    }

    fn finish<B: Offer>(
        self,
        peer: &Parameters<'_>,
        config: &Config,
        device: &Device,
        port: &Port,
    ) -> Result<Sender<B>, ConnectError> {
        let said = Said::of(peer)?;
        if config.ack == AckMode::Pull && said.terms.counts.is_none() {
            return Err(unfit("the receiver has no count to be read"));
        }
        let request_bytes = said.end.max_message.min(config.request_bytes()) as usize;
        let app_limit = request_bytes
            .checked_sub(conn_core::direct_read::HEADER_LEN)
            .ok_or_else(|| unfit("the receiver's buffers hold no request"))?;
        let QueuePair { control, send, recv } = self.pair;
        let notices =
            recv.ok_or_else(|| device.error("use a queue pair", &"it has no receive side"))?;
        let rd_atomic = self.reads.min(said.terms.reads);
        let wire = Wire { device, transport: &config.transport, port, rd_atomic, peer };
        wire.connect(&control, self.psn, &said.end)?;
        let window = config.window.min(said.end.recv_window);
        Ok(Sender::new(SenderParts {
            control,
            queue: send,
            notices,
            cq: self.cq,
            channel: self.channel,
            tracker: tracker(config.window, CONTROL, (config.window / 4).max(1)),
            offers: Offers::new(window).map_err(unfit)?,
            memory: self.memory,
            counts: said.terms.counts,
            config: *config,
            app_limit,
        }))
    }
}

/// The sender's part of the set-up: it begins.
pub(super) fn initiate<B: Offer, S: Stream>(
    exchange: &mut Exchange<'_, S>,
    device: &Device,
    config: &Config,
    user: &[u8],
) -> Result<Sender<B>, ConnectError> {
    config.validate()?;
    let port = Port::of(device, &config.transport)?;
    let new = NewSender::create(device, config)?;
    let mut buffer = [0; MAX_APPLICATION];
    let application = application(&new.terms(config), user, &mut buffer)?;
    // The peer's time begins here: memory was registered before.
    exchange.limit(TIME_LIMIT);
    exchange.send(&Frame::Hello(parameters(&port, new.endpoint(config), application)))?;
    let made = exchange.receive(|frame| match frame {
        Frame::Accept(peer) => Ok(new.finish(peer, config, device, &port)),
        _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
    })?;
    let mut sender: Sender<B> =
        made.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    if let Err(e) = exchange.send(&Frame::Ready) {
        sender.abandon();
        return Err(e.into());
    }
    Ok(sender)
}

/// READs and acknowledgements of one link.
fn link_depth(config: &Config) -> u32 {
    u32::from(config.reads) + config.window
}

/// An empty receiver.
pub(super) fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
    request_buffers: Option<u32>,
) -> Result<Receiver, ConnectError> {
    config.validate()?;
    let share = config.window + CONTROL;
    let each = link_depth(config) + CONTROL + if request_buffers.is_none() { share } else { 0 };
    let entries = each.checked_mul(max_peers);
    let entries = entries.and_then(|n| n.checked_add(request_buffers.unwrap_or(0)));
    let entries = entries.filter(|n| max_peers > 0 && *n <= i32::MAX as u32);
    let rule = "at least 1, and few enough for one completion queue";
    let (field, value) = ("max_peers", max_peers.into());
    let entries = entries.ok_or(ConfigError { field, value, rule })?;
    let (cq, channel) = completion_queue(device, entries, config.wait)?;
    let shared = request_buffers.map(|buffers| {
        let made = device.pd().create_shared_pool(buffers, config.request_bytes() as usize, ());
        let (mut poster, _) =
            made.map_err(|e| device.error("create a shared receive queue", &e))?;
        let all: Vec<u32> = (0..buffers).collect();
        poster.post(&all).map_err(|e| device.error("post receive buffers", &e))?;
        Ok::<_, ConnectError>(poster)
    });
    let shared = shared.transpose()?;
    let config = *config;
    Ok(Receiver::new(ReceiverParts { cq, channel, shared, share, max_peers, config }))
}

/// A link whose queue pair waits for its peer.
struct NewLink {
    pair: QueuePair<()>,
    memory: Option<SharedRegion>,
    psn: u32,
    reads: u8,
}

impl NewLink {
    fn create(
        device: &Device,
        receiver: &mut Receiver,
        ack: AckMode,
    ) -> Result<NewLink, ConnectError> {
        let config = receiver.config;
        receiver.sweep();
        if receiver.links.len() as u32 >= receiver.max_peers {
            return Err(ConnectError::TooManyPeers(receiver.max_peers));
        }
        let recv = recv_side(receiver)?;
        let (_, reads) = read_limits(device, config.reads)?;
        let depth = link_depth(&config) + CONTROL;
        let pull = ack == AckMode::Pull;
        let pair = device.pd().create_qp(
            &QueuePairConfig {
                port: config.transport.port,
                access: RemoteAccess { read: pull, write: true, atomic: false },
                max_send_wr: depth,
                send_slots: depth,
                send_slot_bytes: SEALED_BYTES as usize,
                max_inline: SEALED_BYTES as u32,
                recv,
                ..QueuePairConfig::new(&receiver.cq, &receiver.cq)
            },
            (),
        );
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            let all: Vec<u32> = (0..receiver.share).collect();
            queue.post(&all).map_err(|e| device.error("post receive buffers", &e))?;
        }
        let read = RemoteAccess { read: true, ..RemoteAccess::NONE };
        let memory =
            pull.then(|| shared_memory(device, SEALED_BYTES as usize, read)).transpose()?;
        Ok(NewLink { pair, memory, psn: verbs_safe::random_psn(), reads })
    }

    fn terms(&self, ack: AckMode) -> Terms {
        let counts = self.memory.as_ref().and_then(place);
        Terms { ack, signal: SignalAt::Separate, reads: self.reads, counts }
    }

    fn endpoint(&self, config: &Config) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_window: config.window,
            max_message: config.request_bytes(),
        }
    }

    fn finish(
        self,
        peer: &Parameters<'_>,
        said: &Said,
        config: &Config,
        device: &Device,
        port: &Port,
    ) -> Result<LinkParts, ConnectError> {
        if said.terms.ack == AckMode::Cumulative && said.terms.counts.is_none() {
            return Err(unfit("the sender has no count to be written"));
        }
        let QueuePair { control, send, recv } = self.pair;
        let rd_atomic = self.reads.min(said.terms.reads);
        let wire = Wire { device, transport: &config.transport, port, rd_atomic, peer };
        wire.connect(&control, self.psn, &said.end)?;
        let depth = link_depth(config);
        let reads = reads_config(said, config, port, rd_atomic);
        let slots = vec![Slot::default(); reads.window as usize].into_boxed_slice();
        Ok(LinkParts {
            control,
            queue: send,
            recv,
            tracker: tracker(depth, CONTROL, (depth / 4).max(1)),
            reads: Reads::new(reads, slots).map_err(unfit)?,
            memory: self.memory,
            counts: said.terms.counts,
            too_early: config.too_early,
        })
    }
}

fn reads_config(said: &Said, config: &Config, port: &Port, rd_atomic: u8) -> ReadsConfig {
    let window = config.window.min(said.end.recv_window);
    let limit = port.attr.max_msg_bytes.max(1);
    let max_read = match config.max_read_bytes {
        0 => limit,
        chosen => chosen.min(limit),
    };
    let ack = said.terms.ack;
    ReadsConfig { window, ack, reads: rd_atomic.into(), max_read, gather: config.gather_of(window) }
}

/// Where a new link's requests arrive: in buffers of its own, or in shared ones, if there
/// are so many left.
fn recv_side(receiver: &Receiver) -> Result<RecvSide<'_>, ConnectError> {
    let (slots, slot_bytes) = (receiver.share, receiver.config.request_bytes() as usize);
    let Some(shared) = receiver.shared.as_ref().and_then(|poster| poster.shared()) else {
        return Ok(RecvSide::Own { slots, slot_bytes });
    };
    let promised = receiver.links.len() as u32 * receiver.share;
    let (buffers, wanted) = (shared.slots(), receiver.share);
    let free = buffers.saturating_sub(promised);
    if free < wanted {
        return Err(ConnectError::SharedPoolFull { free, buffers, wanted });
    }
    Ok(RecvSide::Shared(shared))
}

/// The receiver's part of the set-up, after the Hello.
pub(super) fn accept<S: Stream>(
    exchange: &mut Exchange<'_, S>,
    hello: &Hello,
    device: &Device,
    receiver: &mut Receiver,
    user: &[u8],
) -> Result<Peer, ConnectError> {
    let mut buffer = [0; MAX_APPLICATION];
    let made = link(hello, device, receiver, user, &mut buffer);
    let (parts, answer) = made.inspect_err(|e| exchange.refuse(e.reason(), &e.to_string()))?;
    exchange.conclude(answer)?;
    Ok(receiver.add(parts))
}

fn link<'b>(
    hello: &Hello,
    device: &Device,
    receiver: &mut Receiver,
    user: &[u8],
    buffer: &'b mut [u8; MAX_APPLICATION],
) -> Result<(LinkParts, Parameters<'b>), ConnectError> {
    let peer = Parameters { application: &hello.application, ..hello.parameters };
    let said = Said::of(&peer)?;
    let config = receiver.config;
    let port = Port::of(device, &config.transport)?;
    let new = NewLink::create(device, receiver, said.terms.ack)?;
    let application = application(&new.terms(said.terms.ack), user, buffer)?;
    let answer = parameters(&port, new.endpoint(&config), application);
    Ok((new.finish(&peer, &said, &config, device, &port)?, answer))
}
