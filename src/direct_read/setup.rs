//! Making both ends of a connection, and joining them.
//!
//! In front of the application data of Hello and Accept there are the [`Terms`] of each direction.

use std::marker::PhantomData;

use conn_core::checksum::CHECKED_BYTES;
use conn_core::direct_read::{
    AckMode, Offers, Place, Reads, ReadsConfig, SignalAt, Slot, TERMS_LEN, Terms,
};
use conn_core::handshake::Endpoint;
use verbs_safe::{
    CompletionChannel, CompletionQueue, Mapping, ProtectionDomain, QueuePair, QueuePairConfig,
    RecvSide, RemoteAccess, SharedRegion, SharedRegionConfig,
};

use super::link::LinkParts;
use super::receiver::{Receiver, ReceiverParts};
use super::sender::{SIGNAL_STRIDE, SIGNALS_AT, SenderParts};
use super::{Config, Offer, Sender};
use crate::device::Device;
use crate::doorbell;
use crate::error::{ConfigError, ConnectError};
use crate::peer::Peer;
use crate::setup::{self, FixedTerms, NewHalf, PeerHalf, unfit};
use crate::wire::{Port, Wire, completion_queue, tracker};

/// Places for control, in either send queue, and for what comes besides messages: a wakeup,
/// a goodbye.
const CONTROL: u32 = 4;

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
        .remote(0, CHECKED_BYTES as usize)
        .ok()
        .map(|span| Place { addr: span.addr, rkey: span.rkey })
}

/// READs in flight that the device permits: answered, begun.
fn read_limits(device: &Device, wanted: u8) -> Result<(u8, u8), ConnectError> {
    let attr = device.context().attr().map_err(|e| device.error("query the limits", &e))?;
    let limit = |of: u32| u32::from(wanted).min(of).max(1) as u8;
    Ok((limit(attr.max_qp_rd_atom), limit(attr.max_qp_init_rd_atom)))
}

impl FixedTerms for Terms {
    const BYTES: usize = TERMS_LEN;

    fn write(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.encode());
    }

    fn read(said: &[u8], end: &Endpoint, _: bool) -> Result<Terms, ConnectError> {
        let (terms, _) = Terms::decode(said).map_err(unfit)?;
        if terms.reads == 0 || end.recv_depth == 0 {
            return Err(unfit("a window of no messages, or no READs"));
        }
        Ok(terms)
    }
}

/// A sender whose queue pair waits for its peer.
#[derive(Debug)]
pub struct NewSender<B> {
    config: Config,
    buffers: PhantomData<fn() -> B>,
    pd: ProtectionDomain,
    pair: QueuePair<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    memory: SharedRegion,
    psn: u32,
    reads: u8,
}

impl<B: Offer> NewSender<B> {
    pub(super) fn create(device: &Device, config: &Config) -> Result<NewSender<B>, ConnectError> {
        let (reads, _) = read_limits(device, config.reads)?;
        let (depth, notices) = (config.window + CONTROL, config.window + CONTROL);
        let (cq, channel) = completion_queue(device, depth + notices, config.common.wait)?;
        let bytes = SIGNALS_AT + config.window as usize * SIGNAL_STRIDE;
        let write = RemoteAccess { write: true, ..RemoteAccess::NONE };
        let memory = shared_memory(device, bytes, write)?;
        let pair = device.pd().create_qp(
            &QueuePairConfig {
                port: config.common.transport.port,
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
            doorbell::post_receives(queue, &all)
                .map_err(|e| device.error("post receive buffers", &e))?;
        }
        let (config, pd, psn) = (*config, device.pd().clone(), verbs_safe::random_psn());
        Ok(NewSender { config, buffers: PhantomData, pd, pair, cq, channel, memory, psn, reads })
    }
}

impl<B: Offer> NewHalf for NewSender<B> {
    type Terms = Terms;
    type Done = Sender<B>;

    fn endpoint(&self) -> Endpoint {
        endpoint(&self.pair, self.psn, &self.config)
    }

    fn terms(&self) -> Terms {
        let Config { ack, signal_at: signal, message_bytes: max_message, .. } = self.config;
        let counts = place(&self.memory).filter(|_| ack == AckMode::Cumulative);
        Terms { ack, signal, reads: self.reads, counts, max_message }
    }
}

impl<B: Offer> setup::NewSender for NewSender<B> {
    fn connect(self, peer: &PeerHalf<Terms>, wire: &Wire<'_>) -> Result<Sender<B>, ConnectError> {
        let (config, end, terms) = (&self.config, &peer.endpoint, &peer.terms);
        if config.ack == AckMode::Pull && terms.counts.is_none() {
            return Err(unfit("the receiver has no count to be read"));
        }
        let request_bytes = end.max_message.min(config.request_bytes()) as usize;
        let app_limit = request_bytes
            .checked_sub(conn_core::direct_read::HEADER_LEN)
            .ok_or_else(|| unfit("the receiver's buffers hold no request"))?;
        let QueuePair { control, send, recv } = self.pair;
        let notices =
            recv.ok_or_else(|| wire.device.error("use a queue pair", &"it has no receive side"))?;
        let wire = Wire { rd_atomic: self.reads.min(terms.reads), ..*wire };
        let control = wire.connect(control, self.psn, end)?;
        let window = config.window.min(end.recv_depth);
        Ok(Sender::new(SenderParts {
            control,
            queue: send,
            notices,
            cq: self.cq,
            channel: self.channel,
            tracker: tracker(config.window, CONTROL, (config.window / 4).max(1)),
            offers: Offers::new(window).map_err(unfit)?,
            memory: self.memory,
            counts: terms.counts,
            config: self.config,
            app_limit,
            pd: self.pd,
            message_limit: terms.max_message.min(config.message_bytes) as usize,
        }))
    }

    fn abandon(mut sender: Sender<B>) {
        sender.abandon();
    }
}

fn endpoint(pair: &QueuePair<()>, psn: u32, config: &Config) -> Endpoint {
    let (recv_depth, max_message) = (config.window, config.request_bytes());
    Endpoint { qp_num: pair.control.qp_num(), psn, recv_depth, max_message }
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
    let (cq, channel) = completion_queue(device, entries, config.common.wait)?;
    let shared = request_buffers.map(|buffers| {
        let made = device.pd().create_shared_pool(buffers, config.request_bytes() as usize, ());
        let (mut poster, _) =
            made.map_err(|e| device.error("create a shared receive queue", &e))?;
        let all: Vec<u32> = (0..buffers).collect();
        doorbell::post_receives(&mut poster, &all)
            .map_err(|e| device.error("post receive buffers", &e))?;
        Ok::<_, ConnectError>(poster)
    });
    let shared = shared.transpose()?;
    let (config, pd) = (*config, device.pd().clone());
    Ok(Receiver::new(ReceiverParts { cq, channel, shared, share, max_peers, config, pd }))
}

/// A link whose queue pair waits for its peer.
#[derive(Debug)]
pub struct NewLink {
    config: Config,
    pair: QueuePair<()>,
    /// The count that a sender may read, if it pulls.
    memory: SharedRegion,
    psn: u32,
    reads: u8,
}

impl NewLink {
    pub(super) fn create(
        device: &Device,
        receiver: &mut Receiver,
    ) -> Result<NewLink, ConnectError> {
        let config = receiver.config;
        receiver.sweep();
        if receiver.links.len() as u32 >= receiver.max_peers {
            return Err(ConnectError::TooManyPeers(receiver.max_peers));
        }
        let recv = recv_side(receiver)?;
        let (_, reads) = read_limits(device, config.reads)?;
        let depth = link_depth(&config) + CONTROL;
        let pair = device.pd().create_qp(
            &QueuePairConfig {
                port: config.common.transport.port,
                access: RemoteAccess { read: true, write: true, atomic: false },
                max_send_wr: depth,
                send_slots: depth,
                send_slot_bytes: CHECKED_BYTES as usize,
                max_inline: CHECKED_BYTES as u32,
                recv,
                ..QueuePairConfig::new(&receiver.cq, &receiver.cq)
            },
            (),
        );
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            let all: Vec<u32> = (0..receiver.share).collect();
            doorbell::post_receives(queue, &all)
                .map_err(|e| device.error("post receive buffers", &e))?;
        }
        let read = RemoteAccess { read: true, ..RemoteAccess::NONE };
        let memory = shared_memory(device, CHECKED_BYTES as usize, read)?;
        Ok(NewLink { config, pair, memory, psn: verbs_safe::random_psn(), reads })
    }
}

impl NewHalf for NewLink {
    type Terms = Terms;
    type Done = LinkParts;

    fn endpoint(&self) -> Endpoint {
        endpoint(&self.pair, self.psn, &self.config)
    }

    fn terms(&self) -> Terms {
        let Config { ack, message_bytes: max_message, .. } = self.config;
        let (signal, counts) = (SignalAt::Separate, place(&self.memory));
        Terms { ack, signal, reads: self.reads, counts, max_message }
    }
}

impl setup::NewLink for NewLink {
    type Receiver = Receiver;

    fn connect(
        self,
        peer: &PeerHalf<Terms>,
        wire: &Wire<'_>,
        _receiver: &mut Receiver,
    ) -> Result<LinkParts, ConnectError> {
        let (config, terms) = (&self.config, &peer.terms);
        if terms.ack == AckMode::Cumulative && terms.counts.is_none() {
            return Err(unfit("the sender has no count to be written"));
        }
        let QueuePair { control, send, recv } = self.pair;
        let rd_atomic = self.reads.min(terms.reads);
        let wire = Wire { rd_atomic, ..*wire };
        let control = wire.connect(control, self.psn, &peer.endpoint)?;
        let depth = link_depth(config);
        let reads = reads_config(peer, config, wire.port, rd_atomic);
        let slots = vec![Slot::default(); reads.window as usize].into_boxed_slice();
        Ok(LinkParts {
            control,
            queue: send,
            recv,
            tracker: tracker(depth, CONTROL, (depth / 4).max(1)),
            reads: Reads::new(reads, slots).map_err(unfit)?,
            // The sender of the other modes looks at no count here.
            memory: (terms.ack == AckMode::Pull).then_some(self.memory),
            counts: terms.counts,
            too_early: config.too_early,
        })
    }

    fn join(link: LinkParts, receiver: &mut Receiver) -> Peer {
        receiver.add(link)
    }

    fn abandon(link: LinkParts, receiver: &mut Receiver) {
        receiver.forget(link);
    }
}

fn reads_config(
    peer: &PeerHalf<Terms>,
    config: &Config,
    port: &Port,
    rd_atomic: u8,
) -> ReadsConfig {
    let window = config.window.min(peer.endpoint.recv_depth);
    let limit = port.attr.max_msg_bytes.max(1);
    let max_read = match config.max_read_bytes {
        0 => limit,
        chosen => chosen.min(limit),
    };
    let ack = peer.terms.ack;
    ReadsConfig { window, ack, reads: rd_atomic.into(), max_read, gather: config.gather_of(window) }
}

/// Returns the buffers in which a new link's requests arrive: its own ones, or shared ones, if
/// enough of those are left.
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
