//! Buffered Write, as a [`Protocol`]: making the halves of a connection.

use conn_core::buffered_write::inline_record::LINE_BYTES;
use conn_core::buffered_write::{MAX_CAPACITY, WriteReceiver, WriteSender};
use conn_core::handshake::ProtocolId;
use conn_core::ring::offer::{self, HalfOffer, Place, RingOffer};
use verbs_safe::{QueuePairConfig, RecvSide, RemoteAccess};

use super::config::Tail;
use super::link::{BufferedWriteLink, UPDATE_BYTES};
use super::receiver::Receiver;
use super::sender::Sender;
use super::{BufferedWrite, Config};
use crate::device::Device;
use crate::error::{ConnectError, check};
use crate::new_pair::{HalfDraft, NewPair, SendSlots, WRITES, shape};
use crate::posting::AtEnd;
use crate::protocol::{NoPool, Protocol, Served, own_types};
use crate::qp::Inline;
use crate::ring::memory::{ControlBlock, place, register_ring};
use crate::setup::{PeerHalf, unfit};
use crate::waiting::CqWaiting;
use crate::wire::{entries_for, tracker};
use crate::writing::Writing;

/// Send-queue slots of a sender that data cannot take: probes.
const SENDER_CONTROL: u32 = 2;
/// Send-queue slots of a receiver: heads that are on their way, and probes.
const LINK_QUEUE: u32 = 16;
const LINK_CONTROL: u32 = 2;
/// Bytes of a zero-copy write in one request.
const STRAIGHT: u32 = 32 << 10;

type NewSender = HalfDraft<HalfOffer, Sender>;
type NewLink = HalfDraft<HalfOffer, BufferedWriteLink, Receiver>;

impl Served for BufferedWrite {
    const ID: ProtocolId = ProtocolId::BUFFERED_WRITE;
    const NAME: &'static str = "Buffered Write";
    type Terms = HalfOffer;
}

impl Protocol for BufferedWrite {
    own_types!(NoPool);

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        let entries = entries_for(LINK_QUEUE + config.window() + 1, max_peers)?;
        let waiting = CqWaiting::create(device, entries, config.common)?;
        Ok(Receiver::new(waiting, config, max_peers))
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let (config, pd) = (*config, device.new_domain()?);
        let depth = config.send_queue + SENDER_CONTROL;
        let waiting = CqWaiting::create(device, depth, config.common)?;
        let (inline, zcopy) = inline_bytes(device, &config);
        let bytes = LINE_BYTES.max(inline.into());
        let sends = SendSlots { depth, bytes, inline: inline.max(zcopy) };
        let shape = QueuePairConfig {
            send_slots: config.send_queue,
            max_parts: if zcopy > 0 { 2 } else { 1 },
            ..shape(&config.common, &waiting.cq, WRITES, sends)
        };
        let mut pair = NewPair::create(device, &pd, &shape, ())?;
        let block = ControlBlock::new(device, &pd, WRITES)?;
        let terms = HalfOffer { control: Some(block.place()), ring: None };
        Ok(NewSender::new(pair.endpoint(0, 0), terms, move |peer, wire, _| {
            let (ring, peer_block) = fitting(peer, config.max_peer_ring_bytes)?;
            let shape = (ring.geometry.capacity(), ring.geometry.is_mirrored());
            let staging = register_ring(wire.device, &pd, shape, RemoteAccess::NONE)?;
            let attached = pair.queues.send.attach(&staging);
            let staging_id = attached.map_err(|e| wire.device.error("attach a ring", &e))?;
            let window = (ring.tail == offer::Tail::Immediate).then_some(peer.endpoint.recv_depth);
            let tracker = tracker(config.send_queue, SENDER_CONTROL, config.signal_interval());
            let at_end = AtEnd::ErrUnlessClosed;
            let (posting, _) = pair.connect(&peer.endpoint, wire, tracker, at_end)?;
            // Pushes have their own rules.
            let writing = Writing::new(posting, waiting, 1);
            let core = WriteSender::new(ring.geometry, window);
            let (staging, places) = ((staging, staging_id), (ring.place, peer_block));
            Ok(Sender::new(writing, core, staging, block, places, inline, config))
        }))
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        receiver.make_place()?;
        let window = config.window();
        let rule = "at most that of the configuration which the receiver was made with";
        check("tail.window", window, window <= receiver.window(), rule)?;
        let (pd, geometry) = (device.new_domain()?, config.ring.geometry()?);
        // One more, for the sender's goodbye.
        let receives = window + 1;
        let recv = match window {
            0 => RecvSide::None,
            _ => RecvSide::Own { slots: receives, slot_bytes: 0 },
        };
        let bytes = UPDATE_BYTES.into();
        let sends = SendSlots { depth: LINK_QUEUE, bytes, inline: UPDATE_BYTES };
        let shape = QueuePairConfig { recv, ..shape(&config.common, receiver.cq(), WRITES, sends) };
        let mut pair = NewPair::create(device, &pd, &shape, ())?;
        pair.post_receives(device, receives)?;
        let shape = (geometry.capacity(), geometry.is_mirrored());
        let ring = register_ring(device, &pd, shape, WRITES)?;
        let block = ControlBlock::new(device, &pd, WRITES)?;
        let tail = match config.tail {
            Tail::Immediate { .. } => offer::Tail::Immediate,
            Tail::Written => offer::Tail::Written,
        };
        let offered = RingOffer { place: place(&ring), geometry, tail };
        let terms = HalfOffer { control: Some(block.place()), ring: Some(offered) };
        let told_bytes = config.told_bytes();
        let endpoint = pair.endpoint(window, geometry.max_payload());
        Ok(NewLink::new(endpoint, terms, move |peer, wire, _| {
            let missing = || unfit("it has no place for our head");
            let peer_block = peer.terms.control.ok_or_else(missing)?;
            let tracker = tracker(LINK_QUEUE - LINK_CONTROL, LINK_CONTROL, LINK_QUEUE / 4);
            let (posting, recv) = pair.connect(&peer.endpoint, wire, tracker, AtEnd::Err)?;
            let core = WriteReceiver::new(geometry, told_bytes, (window > 0).then_some(window));
            Ok(BufferedWriteLink::new(posting, recv, core, ring, block, peer_block))
        }))
    }
}

/// The ring, of at most `most` bytes, and the control block that the peer lets us write to.
fn fitting(peer: &PeerHalf<HalfOffer>, most: u64) -> Result<(RingOffer, Place), ConnectError> {
    let HalfOffer { control: Some(control), ring: Some(ring) } = peer.terms else {
        return Err(unfit("it has no ring to write to"));
    };
    let bytes = ring.geometry.capacity();
    if bytes > most.min(MAX_CAPACITY) {
        return Err(unfit(format!("its ring has {bytes} bytes, here are {most} allowed")));
    }
    if ring.tail == offer::Tail::Immediate && peer.endpoint.recv_depth == 0 {
        return Err(unfit("it wants immediates and has no receive for them"));
    }
    Ok((ring, control))
}

/// Returns the sizes to ask the device for: bytes of records that go out of a slot, and of payloads
/// that go straight out of the caller's memory. A device that copies on the processor reads the
/// ring no later than it would read the request, and takes as much as is asked for.
fn inline_bytes(device: &Device, config: &Config) -> (u32, u32) {
    match (config.inline, device.copies_on_processor()) {
        (Inline::Auto, true) => (0, STRAIGHT),
        (inline, _) => (inline.asked_bytes(), 0),
    }
}
