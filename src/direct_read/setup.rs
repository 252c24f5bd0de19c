//! Direct Read, as a [`Protocol`]: making the halves of a connection. In front of the application
//! data of Hello and Accept there are the [`Terms`] of each direction.

use conn_core::checksum::CHECKED_BYTES;
use conn_core::direct_read::{
    AckMode, Offers, Place, ReadSlot, Reads, ReadsConfig, SignalAt, TERMS_LEN, Terms,
};
use conn_core::handshake::{Endpoint, ProtocolId};
use verbs_safe::{Buffer, QueuePairConfig, RecvSide, RemoteAccess, SharedRegion};

use super::link::DirectReadLink;
use super::receiver::Receiver;
use super::sender::{SIGNAL_STRIDE, SIGNALS_AT};
use super::{Config, Offer, Sender};
use crate::device::Device;
use crate::doorbell;
use crate::error::{ConnectError, chosen};
use crate::new_pair::{HalfDraft, NewPair, SendSlots, WRITES, shape};
use crate::posting::AtEnd;
use crate::protocol::{NoPool, Protocol, Served, own_types};
use crate::ring::memory::{peer_memory, place};
use crate::sending::Half;
use crate::setup::{FixedTerms, PeerHalf, unfit};
use crate::waiting::CqWaiting;
use crate::wire::{ConnectionPort, Wire, entries, tracker};

/// Access rights of a peer.
const ACCESS: RemoteAccess = RemoteAccess { read: true, ..WRITES };
/// Places for control messages in either send queue, and receives for a wakeup and a goodbye.
const CONTROL: u32 = 4;

/// The Direct Read connection.
#[derive(Debug)]
pub enum DirectRead {}

type NewSender<B = Buffer> = HalfDraft<Terms, Sender<B>>;
type NewLink = HalfDraft<Terms, DirectReadLink, Receiver>;

impl Served for DirectRead {
    const ID: ProtocolId = ProtocolId::DIRECT_READ;
    const NAME: &'static str = "Direct Read";
    type Terms = Terms;
}

impl Protocol for DirectRead {
    own_types!(NoPool);

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        receiver(device, config, max_peers, None)
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        new_sender(device, config)
    }

    /// Each half has the READs that both devices permit.
    fn new_link(
        device: &Device,
        _: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        let config = receiver.config;
        receiver.sweep();
        if receiver.links.len() as u32 >= receiver.max_peers {
            return Err(ConnectError::TooManyPeers(receiver.max_peers));
        }
        let recv = recv_side(receiver)?;
        let (_, reads) = read_limits(device, config.reads)?;
        let depth = link_depth(&config) + CONTROL;
        let sends = SendSlots { depth, bytes: CHECKED_BYTES, inline: CHECKED_BYTES as u32 };
        let cq = &receiver.waiting.cq;
        let shape = QueuePairConfig { recv, ..shape(&config.common, cq, ACCESS, sends) };
        let mut pair = NewPair::create(device, device.pd(), &shape, ())?;
        pair.post_receives(device, receiver.share)?;
        let read = RemoteAccess { read: true, ..RemoteAccess::NONE };
        let memory = peer_memory(device, device.pd(), CHECKED_BYTES, read)?;
        let counts = Some(count_in(&memory));
        let terms = terms(&config, SignalAt::Separate, reads, counts);
        let endpoint = pair.endpoint(config.window, config.request_bytes());
        Ok(NewLink::new(endpoint, terms, move |peer, wire, _| {
            let terms = &peer.terms;
            if terms.ack == AckMode::Cumulative && terms.counts.is_none() {
                return Err(unfit("the sender has no count to be written"));
            }
            let rd_atomic = reads.min(terms.reads);
            let wire = Wire { rd_atomic, ..*wire };
            let depth = link_depth(&config);
            let reads = reads_config(peer, &config, wire.port, rd_atomic);
            let slots = vec![ReadSlot::default(); reads.window as usize].into_boxed_slice();
            let tracker = tracker(depth, CONTROL, (depth / 4).max(1));
            // ERR at the end, so that the device releases the buffers that READs land in.
            let (posting, recv) = pair.connect(&peer.endpoint, &wire, tracker, AtEnd::Err)?;
            let reads = Reads::new(reads, slots).map_err(unfit)?;
            // Senders in the other modes do not READ the count.
            let memory = (terms.ack == AckMode::Pull).then_some(memory);
            Ok(DirectReadLink::new(posting, recv, reads, memory, terms.counts, config.too_early))
        }))
    }
}

/// Terms that either end has from its configuration, and those of its memory.
fn terms(config: &Config, signal: SignalAt, reads: u8, counts: Option<Place>) -> Terms {
    let Config { ack, message_bytes: max_message, .. } = *config;
    Terms { ack, signal, reads, counts, max_message }
}

/// The place of the count at the front of a region, for the peer.
fn count_in(region: &SharedRegion) -> Place {
    let begin = place(region);
    Place { addr: begin.addr, rkey: begin.rkey }
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

/// Makes a sender, to be connected.
pub(super) fn new_sender<B: Offer>(
    device: &Device,
    config: &Config,
) -> Result<NewSender<B>, ConnectError> {
    let (config, pd) = (*config, device.pd().clone());
    let (reads, _) = read_limits(device, config.reads)?;
    let (depth, notices) = (config.window + CONTROL, config.window + CONTROL);
    let waiting = CqWaiting::create(device, depth + notices, config.common)?;
    let bytes = SIGNALS_AT + config.window as usize * SIGNAL_STRIDE;
    let write = RemoteAccess { write: true, ..RemoteAccess::NONE };
    let memory = peer_memory(device, &pd, bytes as u64, write)?;
    let inline = config.request_bytes();
    let sends = SendSlots { depth, bytes: inline.into(), inline };
    let recv = RecvSide::Own { slots: notices, slot_bytes: 0 };
    let shape = QueuePairConfig { recv, ..shape(&config.common, &waiting.cq, ACCESS, sends) };
    let mut pair = NewPair::create(device, &pd, &shape, ())?;
    pair.post_receives(device, notices)?;
    let counts = (config.ack == AckMode::Cumulative).then(|| count_in(&memory));
    let terms = terms(&config, config.signal_at, reads, counts);
    let endpoint = pair.endpoint(config.window, config.request_bytes());
    Ok(NewSender::<B>::new(endpoint, terms, move |peer, wire, _| {
        let (end, terms) = (&peer.endpoint, &peer.terms);
        if config.ack == AckMode::Pull && terms.counts.is_none() {
            return Err(unfit("the receiver has no count to be read"));
        }
        let request_bytes = end.max_message.min(config.request_bytes()) as usize;
        let app_limit = request_bytes
            .checked_sub(conn_core::direct_read::HEADER_LEN)
            .ok_or_else(|| unfit("the receiver's buffers hold no request"))?;
        let wire = Wire { rd_atomic: reads.min(terms.reads), ..*wire };
        let tracker = tracker(config.window, CONTROL, (config.window / 4).max(1));
        // ERR at the end, so that the peer's device cannot read returned buffers.
        let (posting, recv) = pair.connect(end, &wire, tracker, AtEnd::Err)?;
        let notices =
            recv.ok_or_else(|| wire.device.error("use a queue pair", &"it has no receive side"))?;
        let window = config.window.min(end.recv_depth);
        let (half, memory) = (Half::new(posting, waiting), (memory, terms.counts));
        let offers = Offers::new(window).map_err(unfit)?;
        let limits = (app_limit, terms.max_message.min(config.message_bytes) as usize);
        Ok(Sender::new(half, notices, offers, memory, limits, config, pd))
    }))
}

/// READs and acknowledgements of one link.
fn link_depth(config: &Config) -> u32 {
    u32::from(config.reads) + config.window
}

/// An empty receiver for up to `max_peers` senders, with `config`, which it checks.
/// `request_buffers` is the number of shared request buffers; `None` for buffers of each sender.
pub(super) fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
    request_buffers: Option<u32>,
) -> Result<Receiver, ConnectError> {
    config.validate()?;
    let share = config.window + CONTROL;
    let each = link_depth(config) + CONTROL + if request_buffers.is_none() { share } else { 0 };
    let buffers = request_buffers.unwrap_or(0);
    let total = each.checked_mul(max_peers).and_then(|own| own.checked_add(buffers));
    let waiting = CqWaiting::create(device, entries(total, max_peers)?, config.common)?;
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
    Ok(Receiver::new(waiting, shared, share, max_peers, *config, device.pd().clone()))
}

fn reads_config(
    peer: &PeerHalf<Terms>,
    config: &Config,
    port: &ConnectionPort,
    rd_atomic: u8,
) -> ReadsConfig {
    let window = config.window.min(peer.endpoint.recv_depth);
    let limit = port.attr.max_msg_bytes.max(1);
    let max_read = chosen(config.max_read_bytes, limit).min(limit);
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
