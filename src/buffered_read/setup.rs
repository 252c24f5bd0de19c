//! Buffered Read, as a [`Protocol`]: making the halves of a connection.

use conn_core::buffered_read::{MAX_WORDS, Reader, Source};
use conn_core::checksum::CHECKED_BYTES;
use conn_core::handshake::ProtocolId;
use conn_core::ring::Geometry;
use conn_core::ring::fetch::MAX_READS;
use conn_core::ring::offer::{HalfOffer, Place, RingOffer, Tail};
use verbs_safe::{
    CompletionBatch, CompletionChannel, CompletionQueue, CqConfig, CreateCqError, Mapping,
    QueuePair, QueuePairConfig, RecvSide, RegisterError, RemoteAccess, RingConfig,
};

use super::link::{BufferedReadLink, POLL_BATCH, ReceiverStats, WORDS_BYTES};
use super::sender::Sender;
use super::{BufferedRead, Config, Receiver};
use crate::common::Common;
use crate::device::Device;
use crate::error::{ConnectError, check};
use crate::new_pair::{HalfDraft, NewPair, SendSlots, WRITES, shape};
use crate::peer::Peer;
use crate::posting::AtEnd;
use crate::protocol::{NoPool, Protocol, Served, own_types};
use crate::ring::memory::{ControlBlock, register};
use crate::ring::{Layout, RingShape};
use crate::sending::Half;
use crate::setup::{Agreement, unfit};
use crate::wait::WaitStrategy;
use crate::waiting::CqWaiting;
use crate::wire::{completion_queue, tracker};

/// Requests of a receiver that may be on their way.
const RECEIVER_DEPTH: u32 = (MAX_READS + 1 + MAX_WORDS) as u32;
/// Receives of a receiver: for a wake-up.
const WAKE_UPS: u32 = 1;
/// Questions after the peer, and wake-ups, that may be on their way.
pub(super) const SENDER_DEPTH: u32 = 4;

type NewSender = HalfDraft<HalfOffer, Sender>;
type NewLink = HalfDraft<HalfOffer, Box<BufferedReadLink>, Receiver>;

impl Served for BufferedRead {
    const ID: ProtocolId = ProtocolId::BUFFERED_READ;
    const NAME: &'static str = "Buffered Read";
    type Terms = HalfOffer;
}

impl Protocol for BufferedRead {
    own_types!(NoPool);

    fn receiver(
        _: &Device,
        config: &Config,
        max_peers: u32,
        _: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        check("max_peers", max_peers, max_peers > 0, "at least 1")?;
        Ok(Receiver::new(config, max_peers))
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let (pd, wanted) = (device.new_domain()?, config.ring.geometry()?);
        let make = |geometry: &Geometry| pd.source_ring(ring_config(geometry, config));
        let (ring, geometry) = mirrored_or_plain(wanted, config.ring, make)
            .map_err(|e| device.error("make a ring", &e))?;
        // The peer reads the tail and writes the head.
        let access = RemoteAccess { read: true, ..WRITES };
        let block = ControlBlock::new(device, &pd, access)?;
        // Its completions are polled, because no event announces the receiver's writes: no thread
        // sleeps on them.
        let polled = Common { wait: WaitStrategy::Spin, ..config.common };
        let mut waiting = CqWaiting::create(device, SENDER_DEPTH, polled)?;
        waiting.common = config.common;
        let shape = shape(&config.common, &waiting.cq, access, words(SENDER_DEPTH));
        let shape = QueuePairConfig { send_slots: 0, ..shape };
        let pair = NewPair::create(device, &pd, &shape, ())?;
        let span = ring.remote();
        let place = Place { addr: span.addr, rkey: span.rkey };
        let offered = RingOffer { place, geometry, tail: Tail::Read };
        let terms = HalfOffer { control: Some(block.place()), ring: Some(offered) };
        let endpoint = pair.endpoint(0, geometry.max_payload());
        Ok(NewSender::new(endpoint, terms, move |peer, wire, _| {
            // Each request is signalled.
            let tracker = tracker(SENDER_DEPTH - 1, 1, 1);
            let (posting, _) = pair.connect(&peer.endpoint, wire, tracker, AtEnd::Answers)?;
            Ok(Sender::new(Half::new(posting, waiting), ring, block, Source::new(geometry)))
        }))
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        receiver.check_vacancy()?;
        let pd = device.new_domain()?;
        // The receiver's way of waiting, not that of the link's configuration: a link without a
        // channel would not wake a sleeping receiver.
        let (cq, channel) = queue_on_one_of(&receiver.channels(), device, receiver.wait())?;
        let shape = QueuePairConfig {
            send_slots: MAX_WORDS as u32,
            recv: RecvSide::Own { slots: WAKE_UPS, slot_bytes: 0 },
            // The peer may probe us with writes of no bytes; no memory is registered for writes.
            ..shape(&config.common, &cq, WRITES, words(RECEIVER_DEPTH))
        };
        let mut pair = NewPair::create(device, &pd, &shape, ())?;
        let (config, terms) = (*config, HalfOffer { control: None, ring: None });
        let endpoint = pair.endpoint(0, config.ring.message_bytes);
        Ok(NewLink::new(endpoint, terms, move |peer, wire, _| {
            let missing = || unfit("it offers no ring to read");
            let (offer, block) =
                (peer.terms.ring.ok_or_else(missing)?, peer.terms.control.ok_or_else(missing)?);
            check_ring(&offer.geometry, &config)?;
            let device = wire.device;
            let shape = ring_config(&offer.geometry, &config);
            let ring = pd.landing_ring(shape, config.max_held_for(&offer.geometry));
            let mut ring = ring.map_err(|e| match e {
                RegisterError::Map(e) if offer.geometry.is_mirrored() => unfit(format!(
                    "the receiver has no mirrored memory ({e}): make the layout of the sender's \
                     ring plain"
                )),
                e => device.error("make a ring", &e).into(),
            })?;
            ring.attach(&mut pair.queues.send).map_err(|e| device.error("use a ring", &e))?;
            let what = "register a tail";
            let mapping = Mapping::new(CHECKED_BYTES as usize);
            let mapping = mapping.map_err(|e| device.error(what, &e))?;
            let tail = register(device, &pd, what, mapping, RemoteAccess::NONE)?;
            let tail_id = pair.queues.send.attach(&tail).map_err(|e| device.error(what, &e))?;
            let reader = config.reader(&offer.geometry);
            let reader = Reader::new(offer.geometry, reader).map_err(unfit)?;
            let NewPair { queues: QueuePair { control, send: queue, recv }, psn } = pair;
            let control = wire.connect(control, psn, &peer.endpoint)?;
            let none = || device.error("use a queue pair", &"it has no receive side");
            let wake_ups = recv.ok_or_else(none)?;
            let source = (offer.place, offer.bytes());
            Ok(Box::new(BufferedReadLink {
                peer: Peer(u32::MAX),
                reader,
                ring,
                queue,
                wake_ups,
                control,
                cq,
                channel,
                batch: CompletionBatch::new(POLL_BATCH),
                tail,
                tail_id,
                source,
                block,
                ended: None,
                is_broken: false,
                work: ReceiverStats::default(),
            }))
        }))
    }

    fn agreement(device: &Device, _: &Config, _: bool) -> Result<Agreement, ConnectError> {
        let rd_atomic = crate::raw::rd_atomic(device, MAX_READS as u8)?;
        Ok(Agreement { rd_atomic, ..Agreement::default() })
    }
}

/// Refuses a ring that is larger than our limits: its sender has chosen its size.
fn check_ring(geometry: &Geometry, config: &Config) -> Result<(), ConnectError> {
    let (bytes, most) = (geometry.capacity(), config.peer_ring_bytes);
    if bytes > most {
        return Err(unfit(format!(
            "a ring of {bytes} bytes, where {most} are the most: make the sender's ring_bytes \
             smaller, or the receiver's peer_ring_bytes larger"
        )));
    }
    Ok(())
}

/// A ring of the geometry that is wanted; or where the system has no mirrored memory, and the
/// messages of this shape fit, of the same size, and plain.
fn mirrored_or_plain<R>(
    wanted: Geometry,
    shape: RingShape,
    mut make: impl FnMut(&Geometry) -> Result<R, RegisterError>,
) -> Result<(R, Geometry), RegisterError> {
    let refused = match make(&wanted) {
        Ok(ring) => return Ok((ring, wanted)),
        Err(refused) => refused,
    };
    let plain = RingShape { layout: Layout::Plain, ..shape }.geometry();
    let is_for_the_mirror = wanted.is_mirrored() && matches!(refused, RegisterError::Map(_));
    let (true, Ok(plain)) = (is_for_the_mirror, plain) else { return Err(refused) };
    // If this fails, too, the first reason is returned.
    let Ok(ring) = make(&plain) else { return Err(refused) };
    tracing::warn!(why = %refused, "no mirrored memory for a ring: it is plain instead");
    Ok((ring, plain))
}

fn ring_config(geometry: &Geometry, config: &Config) -> RingConfig {
    let capacity = usize::try_from(geometry.capacity()).unwrap_or(usize::MAX);
    RingConfig { capacity, is_mirrored: geometry.is_mirrored(), pages: config.pages }
}

/// A completion queue of a receiver that tells one of the channels of its completions, or a
/// channel of its own; none where its user never sleeps.
fn queue_on_one_of(
    channels: &[CompletionChannel],
    device: &Device,
    wait: WaitStrategy,
) -> Result<(CompletionQueue, Option<CompletionChannel>), ConnectError> {
    let entries = RECEIVER_DEPTH + WAKE_UPS;
    for channel in channels.iter().filter(|_| wait.may_block()) {
        let config = CqConfig { channel: Some(channel), ..CqConfig::new(entries) };
        match device.context().create_cq(config) {
            Ok(cq) => return Ok((cq, Some(channel.clone()))),
            Err(CreateCqError::OtherContext) => {}
            Err(e) => return Err(device.error("create a completion queue", &e).into()),
        }
    }
    completion_queue(device, entries, wait)
}

/// The send queue of either end.
fn words(depth: u32) -> SendSlots {
    SendSlots { depth, bytes: WORDS_BYTES.into(), inline: WORDS_BYTES }
}

#[cfg(test)]
mod tests;
